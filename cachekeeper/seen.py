"""What the last snapshot of a directory saw, so that unchanged files need not be read again.

A private cache of this machine and user: it may be lost, and what it says of a file counts only while the file's size,
times and inode are the same. Nothing here says what a store holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from .config import cache_home, keep_in_cache
from .disk import LiveFile
from .inductor import FileCheck
from .ownership import trusted_owners

_VERSION = 2
_SUM_BYTES = 32
# A file changed within the granularity of its clock after we read it looks unchanged: do not trust fresh ones.
_FRESH_NS = 2_000_000_000


class Seen(NamedTuple):
    """A file's content as last read.

    Attributes:
        sha256, size: of its bytes as stored.
        check: what the check of its bytes said.
        secrets: the kinds of secrets that were found in it.
    """

    sha256: str
    size: int
    check: FileCheck
    secrets: tuple[str, ...] = ()


class SeenFiles:
    """The files of one directory that were read before."""

    def __init__(self, directory: Path) -> None:
        name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]
        self._path = cache_home() / "seen" / f"{name}.json.zst"
        # A file of somebody who is trusted no more is looked at again.
        owners = trusted_owners()
        self._owners = None if owners is None else sorted(owners)
        self._rows: dict[str, list[Any]] = {}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, zstandard.ZstdError):
            data = self._path.read_bytes()
            if hashlib.sha256(data[_SUM_BYTES:]).digest() != data[:_SUM_BYTES]:
                return
            document = json.loads(zstandard.ZstdDecompressor().decompress(data[_SUM_BYTES:]))
            if document["version"] == _VERSION and document["owners"] == self._owners:
                self._rows = {row[0]: row for row in document["files"]}

    def get(self, path: str, live: LiveFile) -> Seen | None:
        """What is known of a file that has not changed since."""
        row = self._rows.get(path)
        if row is None or row[1] != [live.size, live.mtime_ns, live.ctime_ns, live.inode]:
            return None
        _, _, sha256, size, damage, target, children, secrets = row
        return Seen(sha256, size, FileCheck(damage, target, tuple(children)), tuple(secrets))

    def save(self, files: Iterable[tuple[str, LiveFile, Seen]], began: int) -> None:
        """Remember files; a failure to write is no matter. `began`: time.time_ns() before they were looked at."""
        rows = [
            [
                path,
                [live.size, live.mtime_ns, live.ctime_ns, live.inode],
                seen.sha256,
                seen.size,
                *seen.check[:2],
                [*seen.check.children],
                [*seen.secrets],
            ]
            for path, live, seen in files
            if max(live.mtime_ns, live.ctime_ns) < began - _FRESH_NS
        ]
        if rows == list(self._rows.values()):
            return
        document = {"version": _VERSION, "owners": self._owners, "files": rows}
        data = json.dumps(document, separators=(",", ":")).encode()
        stored = zstandard.ZstdCompressor(level=1).compress(data)
        keep_in_cache(self._path, hashlib.sha256(stored).digest() + stored)
