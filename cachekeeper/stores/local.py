"""A store in a directory.

An object is written aside, synced, and linked to its key: a link fails where the key is taken, so that of two writers
one wins, and a crash leaves a temporary file at the most. Objects are read-only, directories are the owner's alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from .. import ownership
from ..disk import rename_new, write_all
from ..errors import LocalDiskError, StoreError, UnsafePath
from .base import Buffer, KeyMissing, ObjectInfo, Store, check_key, is_key

_TEMPORARY = ".tmp-"
_LEFTOVER_SECONDS = 24 * 3600
_OBJECT_MODE = 0o444
_DIRECTORY_MODE = 0o700
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class LocalStore(Store):
    """Objects as files below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = root.as_uri()
        self.directories = (root,)
        self._caveats: tuple[str, ...] = ()

    def prepare(self) -> None:
        with self._explained("create the store"):
            self._make_directory(self.root.parent)
            self.root.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
            for leftover in self.root.rglob(f"{_TEMPORARY}*"):  # of writers that were killed
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - leftover.stat().st_mtime > _LEFTOVER_SECONDS:
                        leftover.unlink()
        self._caveats = _caveats(self.root)

    @property
    def caveats(self) -> tuple[str, ...]:
        return self._caveats

    def create(self, key: str, *parts: Buffer) -> bool:
        target = self._path(key)
        with self._explained(f"write {key}"):
            if target.exists():
                return False
            self._make_directory(target.parent)
            temporary = target.parent / f"{_TEMPORARY}{secrets.token_hex(8)}"
            try:
                _write_synced(temporary, parts)
                return _publish(temporary, target)
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink()

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        with self._explained(f"read {key}"), open(self._path(key), "rb", buffering=0) as file:
            if length is None:
                length = max(0, os.fstat(file.fileno()).st_size - start)
            return _read_exactly(file.fileno(), start, length)

    def size(self, key: str) -> int:
        with self._explained(f"read {key}"):
            return self._path(key).stat().st_size

    def list(self, prefix: str, most: int | None = None) -> Iterator[ObjectInfo]:
        with self._explained(f"list {prefix}"):
            found = list(_files_below(self.root / prefix, prefix))
        return iter(sorted(found)[:most])

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._explained(f"delete {key}"):
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def _make_directory(self, directory: Path) -> None:
        if directory.is_dir():
            return
        self._make_directory(directory.parent)
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=_DIRECTORY_MODE)
            _sync_directory(directory.parent)

    @contextlib.contextmanager
    def _explained(self, action: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            if action.startswith(("create", "write")):
                raise _error(error, self.root, action) from error
            raise KeyMissing(f"cannot {action}: it is not in the store", facts=[f"store  {self.url}"]) from None
        except OSError as error:
            raise _error(error, self.root, action) from error


def _caveats(root: Path) -> tuple[str, ...]:
    """What is not safe about a store: to save there does no harm, to restore from it would."""
    try:
        ownership.check_store([root])
    except UnsafePath as error:
        return (f"{error.message}: restores from it are refused",)
    except LocalDiskError:  # the next read says why
        return ()
    return ()


def _error(error: OSError, root: Path, action: str) -> StoreError | LocalDiskError:
    facts = [f"store   {root}", f"reason  {os.strerror(error.errno or errno.EIO)}"]
    if error.errno in _DISK_FULL:
        hint = "free some space there, or choose another store with --store"
        return LocalDiskError(f"cannot {action}: the store's disk is full", facts=facts, hint=hint)
    hint = "check the owner and the permissions of the store (`ls -ld`), or choose another with --store"
    return StoreError(f"cannot {action}", facts=facts, hint=hint)


def _write_synced(path: Path, parts: Iterable[Buffer]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OBJECT_MODE)
    try:
        for part in parts:
            write_all(descriptor, part)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _publish(temporary: Path, target: Path) -> bool:
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        try:
            rename_new(str(temporary), str(target), -100, -100)
        except FileExistsError:
            return False
    _sync_directory(target.parent)
    return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_exactly(descriptor: int, start: int, length: int) -> bytes:
    data = os.pread(descriptor, length, start)
    while len(data) < length and (part := os.pread(descriptor, length - len(data), start + len(data))):
        data += part
    return data


def _files_below(directory: Path, prefix: str) -> Iterator[ObjectInfo]:
    try:
        found = list(os.scandir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    for item in found:
        if not is_key(item.name):
            continue
        if item.is_dir(follow_symlinks=False):
            yield from _files_below(directory / item.name, f"{prefix}{item.name}/")
        else:
            with contextlib.suppress(FileNotFoundError):
                info = item.stat()
                yield ObjectInfo(prefix + item.name, info.st_size, info.st_mtime)
