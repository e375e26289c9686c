"""What lies in the trash of a cache: its name, which says when it was put there, and its size."""

from __future__ import annotations

import calendar
import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..disk import open_beneath, walk

CLEARED = "cleared"
MOVING, DELETING = "moving-", "deleting-"
_WHEN = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{6}(-\d+)?")
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
    """

    name: str
    path: Path
    when: float
    files: int
    bytes: int
    unfinished: bool = False


def when_of(name: str) -> float | None:
    """The seconds since 1970 that a name says; None for another name."""
    match = _WHEN.fullmatch(name)
    try:
        return float(calendar.timegm(time.strptime(match[1], _TIME))) if match else None
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


def remove_if_empty(base: int, name: str) -> None:
    """Remove a directory in another where nothing is in it."""
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=base)
