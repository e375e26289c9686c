"""The files of a snapshot as they are to be written, gathered in one scratch file.

Bytes come from a store in the order of its packs and from several threads, and are written out in the order of paths.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ...delivery import Chunks, damaged_snapshot_error, deliver, placed
from ...inductor import names_its_directory
from ...manifest import FileRow, Manifest
from ...stores import Store


class _Where(NamedTuple):
    offset: int
    size: int


class Contents:
    """The bytes of files, with the directory that they will be in where they name one.

    Args:
        base: absolute path of the cache directory that they will be in.
        scratch: a file of the caller's, written from its beginning.
    """

    def __init__(self, store: Store, manifest: Manifest, base: Path, scratch: BinaryIO) -> None:
        self._store, self._manifest, self._base, self._scratch = store, manifest, base, scratch
        self._where: dict[str, _Where] = {}
        self._placed: set[str] = set()
        self._end = 0
        self._writing = threading.Lock()
        self.rows: list[FileRow] = []

    @property
    def placed(self) -> int:
        """Number of files that name the directory."""
        return len(self._placed)

    @property
    def total(self) -> int:
        """Length of all files in bytes."""
        return sum(where.size for where in self._where.values())

    def fetch(self, rows: Sequence[FileRow], progress: Callable[[int], None]) -> None:
        """Get all files, each checked against its SHA-256.

        Raises:
            DamagedStore: bytes in the store are not right.
        """
        damaged = deliver(self._store, self._manifest, rows, self._receive, progress)
        if damaged:
            raise damaged_snapshot_error(self._manifest, damaged)
        self.rows = sorted(rows)

    def _receive(self, row: FileRow, chunks: Chunks) -> None:
        kind, size = self._manifest.tables.entries[row.entry].kind, row.size
        if names_its_directory(kind, row.path):
            kept = b"".join(chunks)
            data = placed(kind, row.path, kept, self._base)
            if data != kept:
                self._placed.add(row.path)
            chunks, size = (data,), len(data)
        # A long file comes in pieces, and again where it was wrong: the last time counts.
        offset = self._reserve(row.path, size)
        for chunk in chunks:
            _write_at(self._scratch.fileno(), chunk, offset)
            offset += len(chunk)

    def _reserve(self, path: str, size: int) -> int:
        with self._writing:
            self._where[path] = _Where(self._end, size)
            self._end += size
            return self._where[path].offset

    def size(self, path: str) -> int:
        """The length of a file in bytes."""
        return self._where[path].size

    def open(self, path: str) -> BinaryIO:
        """A file, to be read before the next is opened."""
        return io.BufferedReader(_Part(self._scratch, *self._where[path]))

    def read(self, path: str) -> bytes:
        """A whole file."""
        return self.open(path).read()


def _write_at(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


class _Part(io.RawIOBase):
    """A part of a file, read as a file."""

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        super().__init__()
        self._file, self._at, self._left = file, offset, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        data = os.pread(self._file.fileno(), min(len(buffer), self._left), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        self._left -= len(data)
        return len(data)
