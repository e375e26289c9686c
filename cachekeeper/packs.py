"""Packs: immutable objects of zstd frames, with an index at the end. See FORMAT.md for the bytes.

    magic (8) | nonce (16) | frame ... | index (zstd, JSON) | its length (8, big endian) | its SHA-256 (32) | magic (8)

A pack is named by the SHA-256 of its bytes. The nonce makes a name unique: a pack with the same content, written after
a sweep condemned the first, is another object.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

import zstandard

from .errors import DamagedStore

PACK_BYTES = 32 << 20
FRAME_BYTES = 1 << 20
LARGE_FILE = 256 << 10
SEGMENT_BYTES = 8 << 20
LEVEL = 3
# Files with a frame of their own: on GPU caches level 2 is a quarter faster than 3 and no larger.
LEVEL_LARGE = 2

MAGIC = b"CKPACK\x00\x01"
_NONCE_BYTES = 16
HEADER_BYTES = len(MAGIC) + _NONCE_BYTES
_TAIL = struct.Struct(">Q32s8s")
_INDEX_LIMIT = 512 << 20


class Frame(NamedTuple):
    """A zstd frame in a pack: `offset` and `stored` bytes there, `raw` bytes once decompressed."""

    offset: int
    stored: int
    raw: int


class Content(NamedTuple):
    """A file's bytes in a pack: `size` bytes from `offset` in frame number `frame`, running on into the next ones."""

    sha256: str
    size: int
    frame: int
    offset: int
    path: str
    mode: int


class PackIndex(NamedTuple):
    """What a pack holds."""

    frames: list[Frame]
    contents: list[Content]


_local = threading.local()


def _compressor(level: int) -> zstandard.ZstdCompressor:
    known = _local.__dict__.setdefault("compressors", {})
    if level not in known:
        known[level] = zstandard.ZstdCompressor(level=level, write_checksum=False, write_content_size=True)
    return known[level]  # type: ignore[no-any-return]


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_local, "decompressor"):
        _local.decompressor = zstandard.ZstdDecompressor()
    return _local.decompressor  # type: ignore[no-any-return]


def compress(raw: bytes | bytearray | memoryview, level: int = LEVEL) -> bytes:
    """One zstd frame."""
    return _compressor(level).compress(raw)


def decompress(stored: bytes | memoryview, raw: int) -> bytes:
    """The bytes of one frame, which must be `raw` of them.

    Raises:
        DamagedStore: it does not decompress, or to another length; no more than `raw` bytes are ever allocated.
    """
    try:
        if zstandard.frame_content_size(bytes(stored[:18])) != raw:
            raise DamagedStore("a frame is not of the length that the manifest says")
        return _decompressor().decompress(stored, max_output_size=raw)
    except zstandard.ZstdError as error:
        raise DamagedStore(f"a frame does not decompress: {error}") from None


class PackWriter:
    """Gathers frames and hands each full pack on.

    Args:
        emit: called with (pack number, parts of its bytes, frames) for each pack, in order.
    """

    def __init__(self, emit: Callable[[int, list[bytes], list[Frame]], None]) -> None:
        self._emit = emit
        self._number = 0
        self._begin()

    def _begin(self) -> None:
        self._parts = [MAGIC + os.urandom(_NONCE_BYTES)]
        self._length = HEADER_BYTES
        self._frames: list[Frame] = []
        self._contents: list[Content] = []

    def add(self, frames: list[tuple[bytes, int]], contents: list[Content]) -> tuple[int, int]:
        """Append frames that belong together, each (stored bytes, raw length).

        Args:
            frames: kept next to each other in one pack.
            contents: the files in them, `frame` counted from the first of these frames.

        Returns:
            (pack number, number of the first frame in it).
        """
        first = len(self._frames)
        for stored, raw in frames:
            self._frames.append(Frame(self._length, len(stored), raw))
            self._parts.append(stored)
            self._length += len(stored)
        self._contents += [content._replace(frame=first + content.frame) for content in contents]
        placed = self._number, first
        if self._length >= PACK_BYTES:
            self.close()
        return placed

    def close(self) -> None:
        """Hand on what has been gathered, if anything."""
        if not self._frames:
            return
        index = compress(json.dumps([self._frames, self._contents], separators=(",", ":")).encode())
        self._parts += [index, _TAIL.pack(len(index), hashlib.sha256(index).digest(), MAGIC)]
        self._emit(self._number, self._parts, self._frames)
        self._number += 1
        self._begin()


def pack_id(parts: Iterable[bytes]) -> str:
    """The name of a pack, from the parts of its bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def read_index(read: Callable[[int, int], bytes], size: int) -> PackIndex:
    """The index of a pack.

    Args:
        read: (start, length) -> bytes of the pack.
        size: length of the pack in bytes.

    Raises:
        DamagedStore: it is no whole pack.
    """
    if size < HEADER_BYTES + _TAIL.size:
        raise DamagedStore("a pack is cut: shorter than any pack")
    guess = min(size, 1 << 16)
    end = read(size - guess, guess)
    if len(end) < guess:
        raise DamagedStore("a pack is cut")
    length, digest, magic = _TAIL.unpack(end[-_TAIL.size :])
    if magic != MAGIC or length > size - HEADER_BYTES - _TAIL.size:
        raise DamagedStore("a pack is cut or damaged at its end")
    if length + _TAIL.size > guess:
        end = read(size - length - _TAIL.size, length + _TAIL.size)
    stored = end[-_TAIL.size - length : -_TAIL.size]
    if hashlib.sha256(stored).digest() != digest:
        raise DamagedStore("a pack's index does not match its SHA-256")
    index = _parse_index(stored)
    _check_index(index, size)
    return index


def _parse_index(stored: bytes) -> PackIndex:
    from .schema import parse

    try:
        raw = zstandard.frame_content_size(stored)
        if not 0 < raw <= _INDEX_LIMIT:
            raise DamagedStore("a pack's index has no sane length")
        frames, contents = parse(tuple[tuple[Frame, ...], tuple[Content, ...]], decompress(stored, raw))
    except (zstandard.ZstdError, ValueError) as error:
        raise DamagedStore(f"a pack's index is damaged: {error}") from None
    return PackIndex(list(map(Frame._make, frames)), list(map(Content._make, contents)))


def _check_index(index: PackIndex, size: int) -> None:
    """Refuse an index that no pack has: a snapshot would build on it."""
    ends = list(accumulate((frame.raw for frame in index.frames), initial=0))
    for frame in index.frames:
        if min(frame) < 0 or frame.raw > SEGMENT_BYTES or frame.offset + frame.stored > size:
            raise DamagedStore("a pack's index has a frame that is not in the pack")
    for content in index.contents:
        inside = 0 <= content.frame < len(index.frames) and min(content.size, content.offset) >= 0
        if not inside or ends[content.frame] + content.offset + content.size > ends[-1]:
            raise DamagedStore("a pack's index has a content that is not in its frames")


def frame_runs(index: PackIndex) -> Iterator[tuple[Content, int]]:
    """Each content of a pack with the number of frames that it runs over."""
    for content in index.contents:
        left, number = content.offset + content.size, 0
        while left > 0 and content.frame + number < len(index.frames):
            left -= index.frames[content.frame + number].raw
            number += 1
        yield content, max(number, 1)
