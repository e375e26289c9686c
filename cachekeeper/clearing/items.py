"""What lies in the trash of a cache: its name, which says when it was put there, and its size."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..disk import make_directories, open_beneath, walk
from ..inductor.layout import WORKSHOP
from ..units import seconds_of

CLEARED = "cleared"
REASON = f"{WORKSHOP}/reason.txt"
_LONGEST_REASON = 4096
MOVING, DELETING = "moving-", "deleting-"
_WHEN = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z-[0-9a-f]{6}(-\d+)?", re.ASCII)
_TIME = "%Y%m%dT%H%M%SZ"
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Item(NamedTuple):
    """Something in the trash.

    Attributes:
        name: what `--undo` takes.
        path: where it is now.
        when: seconds since 1970 at which it was moved there.
        files, bytes: of the regular files in it.
        unfinished: a clear or an undo was killed; the next one completes it first.
        reason: why it was moved there, where that was said.
    """

    name: str
    path: Path
    when: float
    files: int
    bytes: int
    unfinished: bool = False
    reason: str = ""


def when_of(name: str) -> float | None:
    """The seconds since 1970 that a name says; None for another name."""
    match = _WHEN.fullmatch(name)
    try:
        return seconds_of("{}-{}-{}T{}:{}:{}Z".format(*match.groups()[:6])) if match else None
    except ValueError:
        return None


def new_name() -> str:
    """The name of what is put there now."""
    return time.strftime(_TIME, time.gmtime()) + "-" + secrets.token_hex(3)


@contextlib.contextmanager
def entered(base: int, name: str) -> Iterator[int]:
    """A directory in another, opened; never through a link."""
    descriptor = os.open(name, DIRECTORY, dir_fd=base)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def measured(base: int, name: str) -> tuple[int, int]:
    """Number and length of the regular files in a tree, or of the one file."""
    try:
        descriptor = open_beneath(base, name, DIRECTORY)
    except OSError:
        info = os.stat(name, dir_fd=base, follow_symlinks=False)
        return 1, info.st_size
    try:
        files, _, _ = walk(descriptor, lambda path: True, lambda file: True)
    finally:
        os.close(descriptor)
    return len(files), sum(file.size for file in files)


def write_reason(base: int, name: str, reason: str) -> None:
    """Put down with what lies in the trash why it does."""
    with entered(base, name) as item:
        os.close(make_directories(item, WORKSHOP))
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with open(open_beneath(item, REASON, flags, 0o600), "wb") as file:
            file.write(reason.encode("utf-8", "replace")[:_LONGEST_REASON])


def reason_of(base: int, name: str) -> str:
    """Why something lies there; "" where nothing that makes sense was put down."""
    try:
        with entered(base, name) as item, open(open_beneath(item, REASON, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read(_LONGEST_REASON).decode("utf-8", "replace") if regular else ""
    except OSError:
        return ""


def remove_reason(base: int, name: str) -> None:
    """It comes back: the reason is none any more."""
    with contextlib.suppress(OSError), entered(base, name) as item, entered(item, WORKSHOP) as workshop:
        os.unlink(REASON.rpartition("/")[2], dir_fd=workshop)


def remove_if_empty(base: int, name: str) -> None:
    """Remove a directory in another where nothing is in it."""
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=base)
