"""Archives unpacked with care: what one says is never trusted.

Every path stays below the directory unpacked into, links and devices are refused, and what is written is weighed
against the free space before it is written.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from ..disk import disk_error, open_beneath, write_all
from ..errors import LocalDiskError, UsageError
from ..inductor.layout import EXPORTED, HEADERS, is_scratch_directory, is_scratch_file
from ..manifest import storable
from ..units import format_bytes, harmless
from .compression import Archive, Readable

# Long after any file was written: what was just unpacked must not look like a cache at work.
_AT_REST_NS = 1_000_000_000_000_000_000
_BLOCK = 4096
_MARGIN = 64 << 20
_CHUNK = 1 << 20
_MOST_FILES = 1_000_000
_MOST_EXTENSION = 1 << 20
_BOMB_BYTES = 256 << 20
_BOMB_RATIO = 200
_EXTENSIONS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_KINDS = {tarfile.SYMTYPE: "a symbolic link", tarfile.LNKTYPE: "a hard link", tarfile.GNUTYPE_SPARSE: "a sparse file"}

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
    return _Unpacking(Archive(source, kind), into, progress).run()


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

    def __init__(self, archive: Archive, into: int, progress: Progress) -> None:
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
        self._headers |= HEADERS in above
        passed = is_scratch_file(name) and name != EXPORTED
        if passed or any(part == HEADERS or is_scratch_directory(part) for part in above):
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
