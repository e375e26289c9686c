"""A new file or directory, whole or not at all: written under another name beside it, then renamed."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from ... import megacache
from ...archives import Member, Writable, write_tar
from ...disk import open_directory, rename_new
from ...errors import UsageError
from ...inductor.layout import EXPORTED
from .contents import Contents

# What was saved, but never writable for everybody: as a restore does it.
_MODE = 0o775
_SAID_MODE = 0o644
_COPY_BYTES = 1 << 20


class Scratch:
    """A file without a name in the directory of the destination, which must hold as much anyway."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> Scratch:
        parent = None if self._place == "-" else _parent(self._place)
        if parent is not None and not parent.is_dir():
            raise UsageError(f"there is no directory {parent}", hint="make it first, or export somewhere else")
        self.file: BinaryIO = tempfile.TemporaryFile(dir=parent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()


def _parent(place: str) -> Path:
    return Path(os.path.abspath(place)).parent


def write(place: str, kind: str, files: Contents, said: bytes) -> int:
    """Write everything; returns the length of the file, or of all files of a directory, in bytes.

    Args:
        said: what the export says of itself, which comes first; a Mega-Cache has no place for it.

    Raises:
        UsageError: something appeared at the destination meanwhile.
        OSError: it cannot be written.
    """
    if kind == "directory":
        _write_directory(place, files, said)
        return files.total
    if place == "-":
        out = _Counted(sys.stdout.buffer)
        _write_file(out, kind, files, said)
        sys.stdout.buffer.flush()
        return out.done
    with _new_file(place) as file:
        _write_file(file, kind, files, said)
        return file.tell()


class _Counted:
    """Standard output, with the number of bytes written to it."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.done = 0

    def write(self, data: bytes, /) -> int:
        self._out.write(data)
        self.done += len(data)
        return len(data)

    def flush(self) -> None:
        self._out.flush()


def _write_file(out: Writable, kind: str, files: Contents, said: bytes) -> None:
    if kind == "mega-cache":
        out.write(megacache.build(_artifacts(files)))
        return
    first = Member(EXPORTED, _SAID_MODE, len(said))
    members = (Member(row.path, row.mode & _MODE, files.size(row.path)) for row in files.rows)
    write_tar(
        out,
        kind,
        itertools.chain([first], members),
        lambda member: io.BytesIO(said) if member is first else files.open(member.path),
    )


def _artifacts(files: Contents) -> Iterator[megacache.Artifact]:
    for row in files.rows:
        found = megacache.type_and_key(row.path)
        assert found is not None
        yield megacache.Artifact(*found, files.read(row.path))


@contextlib.contextmanager
def _new_file(place: str) -> Iterator[BinaryIO]:
    target = Path(os.path.abspath(place))
    temporary = target.with_name(_temporary_name(target))
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fchmod(descriptor, 0o666 & ~_umask())
        _publish(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _temporary_name(target: Path) -> str:
    return f".{target.name[:100]}.{secrets.token_hex(6)}.tmp"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _publish(temporary: Path, target: Path) -> None:
    with open_directory(target.parent) as parent:
        try:
            rename_new(temporary.name, target.name, parent, parent)
        except FileExistsError:
            raise UsageError(f"{target} appeared meanwhile", hint="exports overwrite nothing") from None


def _write_directory(place: str, files: Contents, said: bytes) -> None:
    target = Path(os.path.abspath(place))
    temporary = target.with_name(_temporary_name(target))
    temporary.mkdir(mode=0o700)
    try:
        (temporary / EXPORTED).write_bytes(said)
        (temporary / EXPORTED).chmod(_SAID_MODE)
        made: set[Path] = set()
        for row in files.rows:
            path = temporary / row.path
            if path.parent not in made:
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            with files.open(row.path) as data, open(path, "xb") as file:
                shutil.copyfileobj(data, file, _COPY_BYTES)
                os.fchmod(file.fileno(), row.mode & _MODE)
        _make_way(target)
        _publish(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _make_way(target: Path) -> None:
    """Take an empty directory away; what is in it by now stays, and so does the directory."""
    try:
        target.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{target} is not empty any more", hint="exports overwrite nothing") from error
