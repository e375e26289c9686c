"""Tar files, plain or compressed: unpacked with care, and written so that the same files give the same bytes.

What an archive says is never trusted: its kind is told from its bytes, every path stays below the directory unpacked
into, links and devices are refused, and what is written is weighed against the free space before it is written.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, NamedTuple, Protocol

import zstandard

from .disk import disk_error, open_beneath, write_all
from .errors import DamagedCache, LocalDiskError, UsageError
from .inductor.layout import is_scratch_directory, is_scratch_file
from .manifest import storable
from .packs import LEVEL
from .units import format_bytes, harmless

# Kind -> endings of file names, for what is written; what is read is told from its bytes.
ENDINGS = {"tar.zst": (".tar.zst", ".tzst"), "tar.gz": (".tar.gz", ".tgz"), "tar": (".tar",)}
READABLE = ("tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst")
HEAD_BYTES = 512
# Long after any file was written: what was just unpacked must not look like a cache at work.
_AT_REST_NS = 1_000_000_000_000_000_000
_BLOCK = 4096
_MARGIN = 64 << 20
_CHUNK = 1 << 20
_MOST_FILES = 1_000_000
_MOST_EXTENSION = 1 << 20
_BOMB_BYTES = 256 << 20
_BOMB_RATIO = 200
_GZIP_LEVEL = 6
_HEADERS = "precompiled_headers"
_EXTENSIONS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_KINDS = {tarfile.SYMTYPE: "a symbolic link", tarfile.LNKTYPE: "a hard link", tarfile.GNUTYPE_SPARSE: "a sparse file"}
_READ_ERRORS = (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError, zstandard.ZstdError, tarfile.TarError)
# A file that shows where a cache directory begins.
_SIGN = re.compile(
    r"(?:^|/)(?:fxgraph/[a-z0-9]{2}/f[^/]+/|aotautograd/a[^/]+/|triton/[^/]+/(?:[A-Z2-7]{52}|[0-9a-f]{64})/"
    r"|[a-z0-9]{2}/c[a-z2-7]{51}\.)"
)

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Unpacked:
    """What was unpacked.

    Attributes:
        files: paths below the directory unpacked into.
        bytes: their length together.
        scratch: number of locks, temporary files and precompiled headers that were passed over.
        headers: True where precompiled headers were among them.
    """

    files: tuple[str, ...]
    bytes: int
    scratch: int
    headers: bool


class Member(NamedTuple):
    """A file to be written into an archive."""

    path: str
    mode: int
    size: int


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


def recognise(head: bytes) -> str:
    """The kind of an archive, one of READABLE, from its first 512 bytes; "" for anything else."""
    magics = {"tar.gz": b"\x1f\x8b", "tar.bz2": b"BZh", "tar.xz": b"\xfd7zXZ\0", "tar.zst": b"\x28\xb5\x2f\xfd"}
    for kind, magic in magics.items():
        if head.startswith(magic):
            return kind
    if head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:  # a skippable frame, as pzstd begins with
        return "tar.zst"
    return "tar" if _is_tar_header(head) else ""


def _is_tar_header(head: bytes) -> bool:
    if len(head) < HEAD_BYTES:
        return False
    try:
        tarfile.TarInfo.frombuf(head[:HEAD_BYTES], "utf-8", "surrogateescape")
    except tarfile.TarError:
        return not any(head[:HEAD_BYTES])  # an archive without a member is one too
    return True


def unpack(source: Readable, kind: str, into: int, *, progress: Progress = lambda done: None) -> Unpacked:
    """Unpack an archive into an empty directory that nobody else can write to.

    Locks, temporary files and precompiled headers are passed over.

    Args:
        source: the archive, from its beginning.
        kind: as `recognise` says.
        into: descriptor of the directory.
        progress: called with the number of bytes of the archive read so far.

    Raises:
        DamagedCache: the archive is cut or damaged.
        UsageError: it holds what no archive of a cache does: a path that leads out, a link, a device, a path twice.
        LocalDiskError: there is not enough space for it.
    """
    return _Unpacking(_Archive(source, kind), into, progress).run()


class _Archive:
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


class _StrictHeader(tarfile.TarInfo):
    """A member's header. tarfile takes a damaged one, or the end of the bytes, for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> _StrictHeader:
        if len(buf) < tarfile.BLOCKSIZE:
            raise tarfile.ReadError("it ends too early: there is no end mark")
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if not any(buf):
                raise
            raise tarfile.ReadError(f"a header is damaged: {error}") from None
        if header.size < 0 or (header.type in _EXTENSIONS and header.size > _MOST_EXTENSION):
            raise tarfile.ReadError(f"a header of {header.size:,} bytes")
        return header


class _Unpacking:
    """One archive on its way into a directory."""

    def __init__(self, archive: _Archive, into: int, progress: Progress) -> None:
        self._archive, self._into, self._progress = archive, into, progress
        self._files: list[str] = []
        self._bytes = self._scratch = 0
        self._headers = False
        self._made = {""}

    def run(self) -> Unpacked:
        with self._archive.explained():
            # tarfile only reads from it
            source: Any = self._archive
            opened = tarfile.open(fileobj=source, mode="r|", tarinfo=_StrictHeader)  # noqa: SIM115
        with opened as tar:
            while (member := self._next(tar)) is not None:
                self._take(tar, member)
        while self._archive.read(_CHUNK):  # the checksum of the whole comes last
            self._refuse_bomb(_CHUNK)
        for directory in sorted(self._made, reverse=True):
            os.utime(directory or ".", ns=(_AT_REST_NS,) * 2, dir_fd=self._into, follow_symlinks=False)
        return Unpacked(tuple(self._files), self._bytes, self._scratch, self._headers)

    def _next(self, tar: tarfile.TarFile) -> tarfile.TarInfo | None:
        with self._archive.explained():
            member = tar.next()
        tar.members = []  # type: ignore[attr-defined]  # it would keep every header
        return member

    def _take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = _checked_path(member.name)
        *above, name = path.split("/")
        self._headers |= _HEADERS in above
        if any(part == _HEADERS or is_scratch_directory(part) for part in above) or is_scratch_file(name):
            self._scratch += 1
            return
        if member.isdir():
            return
        if not member.isreg() or member.issparse():
            what = _KINDS.get(member.type, "no regular file")
            raise _refused(path, what, "make it of files alone: `tar --dereference --hard-dereference`")
        if not storable(path):
            raise _refused(path, "a path that cannot be kept", "make the archive anew from the cache directory")
        self._refuse_too_much(member.size)
        self._write(tar, member, path)
        self._progress(self._archive.consumed)

    def _refuse_too_much(self, size: int) -> None:
        if len(self._files) >= _MOST_FILES:
            raise UsageError(f"the archive holds more than {_MOST_FILES:,} files: no cache does")
        system = os.fstatvfs(self._into)
        free = system.f_bavail * system.f_frsize
        if -(-size // _BLOCK) * _BLOCK + _MARGIN > free:
            raise LocalDiskError(
                "not enough space to unpack the archive",
                facts=[f"needed  {format_bytes(size)} for its next file", f"free    {format_bytes(free)}"],
                hint="set TMPDIR to a directory on a filesystem with more space",
            )

    def _refuse_bomb(self, size: int) -> None:
        self._bytes += size
        if self._bytes > _BOMB_BYTES and self._bytes > _BOMB_RATIO * self._archive.consumed:
            facts = [f"read    {format_bytes(self._archive.consumed)}", f"so far  {format_bytes(self._bytes)}"]
            raise UsageError(
                f"the archive unpacks to more than {_BOMB_RATIO} times its size: no cache does", facts=facts
            )

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
        try:
            self._make_directory(path.rpartition("/")[0])
            descriptor = open_beneath(self._into, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise _refused(path, "there twice, or as a file and a directory", "make the archive anew") from None
        except OSError as error:
            raise disk_error(error, path, "unpack the archive") from error
        try:
            with self._archive.explained():
                data = tar.extractfile(member)
            assert data is not None
            self._copy(data, descriptor, path)
            os.fchmod(descriptor, member.mode & 0o777 | 0o600)
            os.utime(descriptor, ns=(_AT_REST_NS,) * 2)
        finally:
            os.close(descriptor)
        self._files.append(path)

    def _copy(self, data: IO[bytes], descriptor: int, path: str) -> None:
        while True:
            with self._archive.explained():
                chunk = data.read(_CHUNK)
            if not chunk:
                return
            self._refuse_bomb(len(chunk))
            try:
                write_all(descriptor, chunk)
            except OSError as error:
                raise disk_error(error, path, "unpack the archive") from error

    def _make_directory(self, directory: str) -> None:
        if directory in self._made:
            return
        self._make_directory(directory.rpartition("/")[0])
        os.mkdir(directory, 0o700, dir_fd=self._into)
        self._made.add(directory)


def _checked_path(name: str) -> str:
    """A member's path without "." in it.

    Raises:
        UsageError: it leads out of the directory unpacked into.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise _refused(name, "a path that leads out of the archive", "make it with `tar -C DIR -cf FILE .`")
    return "/".join(parts) or "."


def _refused(path: str, what: str, hint: str) -> UsageError:
    return UsageError(
        "the archive holds what no archive of a cache does; nothing was imported",
        facts=[f"path    {harmless(path[:200])}", f"it is   {what}"],
        hint=hint,
    )


def cache_roots(paths: Iterable[str]) -> dict[str, int]:
    """Where cache directories begin among files -> number of files below; "" is the top. None lies in another."""
    paths = list(paths)
    found = {path[: match.start()] for path in paths if (match := _SIGN.search(path))}
    roots = sorted(root for root in found if not any(_is_below(root, other) for other in found if other != root))
    counts = Counter(root for path in paths for root in roots if _is_below(path, root))
    return {root: counts[root] for root in roots}


def _is_below(path: str, root: str) -> bool:
    return not root or path.startswith(root + "/")


def write_tar(out: Writable, kind: str, members: Iterable[Member], read: Callable[[Member], BinaryIO]) -> None:
    """Write files as an archive: with no time, no owner, and in the order given.

    Args:
        kind: one of ENDINGS.
        read: a member -> its bytes; it is read to its end before the next is asked for.

    Raises:
        OSError: as write(2).
    """
    with _compressed(out, kind) as stream, tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            info = tarfile.TarInfo(member.path)
            info.size, info.mode, info.mtime = member.size, member.mode, 0
            tar.addfile(info, read(member))


@contextlib.contextmanager
def _compressed(out: Writable, kind: str) -> Iterator[Any]:
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
