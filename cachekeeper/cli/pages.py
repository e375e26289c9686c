"""Where a page is written."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shlex
import stat
import sys
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

import click

from ..disk import explained
from ..errors import LocalDiskError, UsageError

Function = TypeVar("Function", bound=Callable[..., Any])

# The first line of a file that a command wrote; it may write it anew where the rest says the same.
_MARK = b"<!-- a page of cachekeeper: "
_MARK_END = b" -->\n"
_LONGEST = 65_536
_PLAIN = "/@{}:,+="
_STDOUT = frozenset(["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
_OPEN_FILE = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,6})|/dev/stderr")


def html_options(function: Function) -> Function:
    """--html and --force; `html` is "-" for whatever is standard output."""
    force = click.option("--force", is_flag=True, help="With --html: replace FILE, whatever it is.")
    page = click.option(
        "--html",
        metavar="FILE",
        callback=_place,
        help='Write a page of its own into FILE, or to standard output ("-"): no network, dark and light.',
    )
    return page(force(function))


def _place(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    if not value:
        raise click.BadParameter('an empty name is no file; "-" is standard output', ctx, parameter)
    return "-" if value in _STDOUT else value


def write_page(place: str, page: str, force: bool, of: tuple[str, ...]) -> None:
    """Write a page into a file, whole or not at all; or into a pipe, a device or a file that this process has open.

    Args:
        place: "-" is standard output.
        force: replace a file that is no such page, too.
        of: the command, and what it was asked for by: a file that holds a page of the same is written anew.

    Raises:
        UsageError: there is such a file, a directory, or a pipe that nobody reads from.
        LocalDiskError: it cannot be written.
    """
    mark = _mark(of)
    data = mark + page.encode("utf-8", "replace")
    if place == "-":
        with explained("standard output", "write the page"):
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        return
    with explained(place, "write the page"):
        already = _OPEN_FILE.fullmatch(place)
        if already:
            _write_all(os.dup(int(already[1] or 2)), data)
        elif _is_file(place):
            _write_file(place, data, None if force else mark)
        else:
            _write_all(_opened(place), data)


def _mark(of: tuple[str, ...]) -> bytes:
    """No name can end the comment, or its line: there is no ">" in it."""
    words = " ".join(quote(word, safe=_PLAIN, errors="surrogateescape") for word in of)
    return _MARK + words.encode() + _MARK_END


def _is_file(place: str) -> bool:
    """True for a file, and for what is not there yet."""
    try:
        mode = os.stat(place).st_mode
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(mode):
        raise UsageError(f"{place} is a directory", hint="name a file in it, as `--html report.html`")
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise UsageError(f"{place} is no file", hint="name a file, as `--html report.html`")
    return stat.S_ISREG(mode)


def _opened(place: str) -> int:
    """A pipe or a device. Opening a pipe would wait for somebody who reads it; this does not."""
    try:
        return os.open(place, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise UsageError(
            f"nobody reads from the pipe {place}", hint=f"first start what does, as `cat {shlex.quote(place)} &`"
        ) from error


def _write_all(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb") as file:
        os.set_blocking(descriptor, True)
        file.write(data)


def _write_file(place: str, data: bytes, mark: bytes | None) -> None:
    target = os.path.realpath(place)
    directory = os.path.dirname(target)
    if not os.path.isdir(directory):
        facts = [f"path    {place}", f"reason  {os.strerror(errno.ENOENT)}"]
        hint = f"make the directory first: `mkdir -p {shlex.quote(directory)}`"
        raise LocalDiskError("cannot write the page", facts=facts, hint=hint)
    if mark is not None and os.path.isfile(target):
        _require(place, target, mark)
    _replace(target, data)


def _require(place: str, target: str, mark: bytes) -> None:
    with open(target, "rb") as file:
        line = file.readline(_LONGEST)
    if line in (mark, b""):
        return
    ours = line.startswith(_MARK) and line.endswith(_MARK_END)
    what = f"the page of `{line[len(_MARK) : -len(_MARK_END)].decode('ascii', 'replace')}`" if ours else ""
    raise UsageError(
        f"{place} is there, and {what or 'no page of cachekeeper'}", hint="name another file, or give --force"
    )


def _replace(target: str, data: bytes) -> None:
    directory, name = os.path.split(target)
    aside = os.path.join(directory, f".{name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        with open(aside, "xb") as file:
            file.write(data)
        os.replace(aside, target)
    finally:
        if os.path.lexists(aside):
            os.unlink(aside)
