"""inotify(7), through ctypes."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

CLOSE_WRITE, MOVED_FROM, MOVED_TO = 0x08, 0x40, 0x80
CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x100, 0x200, 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED = 0x2000, 0x4000, 0x8000
IS_DIRECTORY = 0x40000000
_ONLY_DIRECTORY, _EXCLUDE_UNLINKED = 0x01000000, 0x04000000
_MASK = CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
_HEADER = struct.Struct("iIII")
_BUFFER = 256 << 10


class Happened(NamedTuple):
    """An event: the number of its watch, what happened, and to which name in the directory ("" for itself)."""

    watch: int
    mask: int
    name: str


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


class Inotify:
    """Watches on directories, and what the kernel says of them.

    Raises:
        OSError: there are too many already (EMFILE), or this kernel has none (ENOSYS).
    """

    def __init__(self) -> None:
        try:
            make = _libc().inotify_init1
        except AttributeError:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
        self._descriptor = _checked(make(os.O_NONBLOCK | os.O_CLOEXEC))

    def __enter__(self) -> Inotify:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fileno(self) -> int:
        """The descriptor, for poll(2)."""
        return self._descriptor

    def add(self, directory: str) -> int:
        """Watch a directory; the number of the watch.

        Raises:
            OSError: ENOSPC where this user has as many watches as the machine allows; ENOENT and the like.
        """
        mask = _MASK | _ONLY_DIRECTORY | _EXCLUDE_UNLINKED
        return _checked(_libc().inotify_add_watch(self._descriptor, os.fsencode(directory), mask), directory)

    def read(self) -> Iterator[Happened]:
        """What has happened since the last time; nothing where nothing has."""
        while True:
            try:
                data = os.read(self._descriptor, _BUFFER)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                watch, mask, _, length = _HEADER.unpack_from(data, at)
                at += _HEADER.size
                yield Happened(watch, mask, os.fsdecode(data[at : at + length].rstrip(b"\0")))
                at += length

    def close(self) -> None:
        """End every watch."""
        os.close(self._descriptor)


def _checked(result: int, path: str = "") -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return result
