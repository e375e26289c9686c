"""Deletes for good what lies in the trash; nothing else does."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from ..disk import rename_new
from ..errors import LocalDiskError
from .items import DELETING, MOVING, Item, entered, measured, when_of


def emptied(place: Path, descriptor: int, before: float, dry_run: bool) -> Iterator[Item]:
    """Delete what was put into a place until then. No link is followed and no filesystem left.

    Args:
        descriptor: of the place.
        before: seconds since 1970; what a killed call had begun is deleted whatever its time.
        dry_run: only tell.

    Yields:
        What was deleted, or would be.
    """
    for name in sorted(os.listdir(descriptor)):
        doomed = name.startswith(DELETING)
        when = _put_there(descriptor, name)
        if name.startswith(MOVING) or (when > before and not doomed):
            continue
        files, size = measured(descriptor, name)
        if not dry_run:
            _delete(descriptor, name)
        yield Item(name, place / name, when, files, size, doomed)


def _put_there(descriptor: int, name: str) -> float:
    when = when_of(name)
    return os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_ctime if when is None else when


def _delete(base: int, name: str) -> None:
    """Delete a tree below the directory `base`, however deep: what is in it moves up before it is looked into."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=base, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=base)
        return
    waiting = [_doomed(base, name, base)]
    while waiting:
        current = waiting.pop()
        with entered(base, current) as directory:
            _refuse_mounted(base, directory, current)
            for item in os.listdir(directory):
                if stat.S_ISDIR(os.stat(item, dir_fd=directory, follow_symlinks=False).st_mode):
                    waiting.append(_doomed(directory, item, base))
                else:
                    os.unlink(item, dir_fd=directory)
        os.rmdir(current, dir_fd=base)


def _doomed(directory: int, name: str, base: int) -> str:
    new = DELETING + secrets.token_hex(8)
    # Where it may not be written into, it cannot be moved or emptied.
    with entered(directory, name) as descriptor, contextlib.suppress(PermissionError):
        os.fchmod(descriptor, 0o700)
    rename_new(name, new, directory, base)
    return new


def _refuse_mounted(base: int, directory: int, name: str) -> None:
    if os.fstat(base).st_dev != os.fstat(directory).st_dev:
        raise LocalDiskError(f"something is mounted in the trash, at {name}", hint="unmount it, then try again")


def remove_empty_place(place: Path) -> None:
    """Remove a directory that nothing is left in."""
    with contextlib.suppress(OSError):
        os.rmdir(place)
