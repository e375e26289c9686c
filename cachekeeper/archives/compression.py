"""The bytes of archives, decompressed and compressed."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any, Protocol

import zstandard

from ..disk import disk_error
from ..errors import DamagedCache
from ..packs import LEVEL
from ..units import harmless

_BLOCK = 4096
_GZIP_LEVEL = 6
_READ_ERRORS = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError, zstandard.ZstdError, tarfile.TarError)


class Readable(Protocol):
    """Something to read bytes from, as a file."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes, all where it is below 0; b"" at the end."""


class Writable(Protocol):
    """Something to write bytes to, as a file."""

    def write(self, data: bytes, /) -> int:
        """Write all of it."""

    def flush(self) -> None:
        """Keep nothing back."""


class Archive:
    """The bytes of an archive, decompressed. What is wrong with them is an error of ours, wherever it shows."""

    def __init__(self, source: Readable, kind: str) -> None:
        self._counter = _Counter(source)
        self.kind = kind
        with self.explained():
            self._inner = _decompressed(self._counter, kind)

    @property
    def consumed(self) -> int:
        """Number of bytes of the archive that were read."""
        return self._counter.done

    def read(self, size: int = -1) -> bytes:
        with self.explained():
            return self._inner.read(size)

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what a library says of bytes into DamagedCache."""
        try:
            yield
        except _READ_ERRORS as error:
            if isinstance(error, OSError) and error.errno:  # not of the bytes, but of the disk
                raise disk_error(error, "the archive", "read the archive") from error
            raise DamagedCache(
                f"the {self.kind} archive is cut or damaged",
                facts=[
                    f"reason  {harmless(str(error)) or 'it ends too early'}",
                    f"read    {self.consumed:,} bytes of it",
                ],
                hint="copy it again from where it was made; nothing was imported",
            ) from None


class _Counter:
    """A file that counts what is read from it."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self.done = 0

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self.done += len(data)
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def _decompressed(source: Any, kind: str) -> Readable:
    if kind == "tar.gz":
        return gzip.GzipFile(fileobj=source, mode="rb")
    if kind == "tar.bz2":
        return bz2.BZ2File(source)
    if kind == "tar.xz":
        return lzma.LZMAFile(source)
    if kind == "tar.zst":
        return _ZstdFrames(source)
    return source  # type: ignore[no-any-return]


class _ZstdFrames:
    """Zstd frames, one after the other. zstandard's own reader takes the end of a cut frame for the end of all."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._ready = memoryview(b"")
        self._frame: Any = None
        self._stored = b""

    def read(self, size: int = -1, /) -> bytes:
        parts: list[memoryview] = []
        wanted = size
        while wanted and (self._ready or self._decompress()):
            part = self._ready if wanted < 0 else self._ready[:wanted]
            self._ready = self._ready[len(part) :]
            wanted -= len(part) if wanted > 0 else 0
            parts.append(part)
        return b"".join(parts)

    def _decompress(self) -> bool:
        """Go on until there is something; False at the end."""
        while not self._ready:
            # Little at a time: a few bytes can hold a block of 128 KiB of zeros.
            stored = self._stored or self._source.read(_BLOCK)
            self._stored = b""
            if not stored:
                if self._frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                return False
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._ready = memoryview(self._frame.decompress(stored))
            if self._frame.eof:
                self._frame, self._stored = None, self._frame.unused_data
        return True


@contextlib.contextmanager
def compressed(out: Writable, kind: str) -> Iterator[Any]:
    if kind == "tar":
        yield out
    elif kind == "tar.gz":
        with gzip.GzipFile(filename="", mode="wb", compresslevel=_GZIP_LEVEL, fileobj=out, mtime=0) as stream:
            yield stream
    else:
        compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, threads=-1)
        target: Any = out
        with compressor.stream_writer(target, closefd=False) as stream:
            yield stream
