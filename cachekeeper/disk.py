"""The local filesystem, without following a link anywhere below a root, and with errors that say what to do.

Every path below a root is opened through the root's descriptor with `openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)`,
or component by component with O_NOFOLLOW where the kernel has no openat2: a link planted in a cache directory can make
us fail, never read or write elsewhere.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import math
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from .errors import Busy, CachekeeperError, LocalDiskError

_SYS_OPENAT2 = 437
_AT_FDCWD = -100
_RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x04, 0x08
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
_NOT_SUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_TRIES = 4
# What network filesystems say for a moment, of what somebody else has just replaced or still holds.
_PASSING = (errno.ESTALE, errno.EBUSY)
_PAUSES = (0.05, 0.2, 0.5)
_USELESS_SECONDS = 30.0
_NETWORK = "use a directory on this node's own disk"
_HINTS = {
    errno.ENOSPC: "free some space, or choose a directory on another filesystem",
    errno.EDQUOT: "your quota of bytes or inodes is used up: free some files, or use another filesystem",
    errno.EACCES: "check the owner and the permissions of the directory (`ls -ld`)",
    errno.EPERM: "check the owner and the permissions of the directory (`ls -ld`)",
    errno.EROFS: "the filesystem is mounted read-only: choose another directory",
    errno.ESTALE: f"a network filesystem lost the file: try again, or {_NETWORK}",
    errno.EBUSY: f"something holds the file, as network filesystems do: try again, or {_NETWORK}",
    errno.ENOLCK: f"a network filesystem has no locks: {_NETWORK}",
    errno.ENAMETOOLONG: "a path is longer than the filesystem allows: choose a shorter directory",
    errno.ELOOP: "a symbolic link is in the way; cachekeeper does not follow links below a cache directory",
    errno.EIO: "the disk or the server behind it fails: see `dmesg`, and use another filesystem",
}

_T = TypeVar("_T")


class LiveFile(NamedTuple):
    """A regular file found by `walk`: '/'-separated path below the root, and what stat said."""

    path: str
    size: int
    mode: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    owner: int


class Skipped(NamedTuple):
    """Something that `walk` does not take, and why."""

    path: str
    reason: str


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


class _Patience:
    """When waiting was last of no use: where all of a directory is stale, not every file of it is waited for."""

    gave_up = -math.inf


def patiently(operation: Callable[[], _T]) -> _T:
    """Do something, and where a network filesystem says that a file is stale or busy, again: for 0.75 s at most.

    Raises:
        OSError: as the operation, the last time.
    """
    useless = time.monotonic() - _Patience.gave_up < _USELESS_SECONDS
    for pause in (0.0,) if useless else _PAUSES:
        try:
            return operation()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
        time.sleep(pause)
    try:
        return operation()
    except OSError as error:
        if error.errno in _PASSING and not useless:
            _Patience.gave_up = time.monotonic()
        raise


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(root: int, path: str, flags: int = os.O_RDONLY, mode: int = 0) -> int:
    """Open a path below the directory `root`, following no link and leaving it by no `..`.

    Returns:
        A descriptor that the caller closes.

    Raises:
        OSError: as open(2); ELOOP or ENOTDIR for a link on the way.
    """
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    if not _has_openat2():
        return _open_by_components(root, path, flags, mode)
    how = _open_how(flags, mode if flags & os.O_CREAT else 0)
    descriptor = int(_openat2()(_SYS_OPENAT2, root, os.fsencode(path), ctypes.addressof(how), ctypes.sizeof(how)))
    if descriptor < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return descriptor


@functools.cache
def _open_how(flags: int, mode: int) -> _OpenHow:
    return _OpenHow(flags, mode, _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH)


@functools.cache
def _openat2() -> Any:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    function.restype = ctypes.c_long
    return function


@functools.cache
def _has_openat2() -> bool:
    how = _OpenHow(os.O_RDONLY | os.O_CLOEXEC, 0, 0)
    descriptor = _openat2()(_SYS_OPENAT2, _AT_FDCWD, b"/", ctypes.addressof(how), ctypes.sizeof(how))
    if descriptor >= 0:
        os.close(descriptor)
    return bool(descriptor >= 0)


def _open_by_components(root: int, path: str, flags: int, mode: int) -> int:
    *parents, name = path.split("/")
    if ".." in parents or name == "..":
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    current = os.dup(root)
    try:
        for parent in parents:
            deeper = os.open(parent, _DIRECTORY, dir_fd=current)
            os.close(current)
            current = deeper
        return os.open(name, flags, mode, dir_fd=current)
    finally:
        os.close(current)


@contextlib.contextmanager
def open_directory(path: Path | str) -> Iterator[int]:
    """The descriptor of a directory, closed at the end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def walk(
    root: int, enter: Callable[[str], bool], take: Callable[[str], bool]
) -> tuple[list[LiveFile], list[Skipped], list[tuple[str, int]]]:
    """Every regular file below `root`, in no particular order.

    Args:
        root: descriptor of the directory.
        enter: path of a directory -> is it to be looked into.
        take: name of a file -> is it wanted.

    Returns:
        The files; what is no regular file or cannot be read; and each directory with its mtime_ns.
        What vanishes meanwhile is in none of them.
    """
    files: list[LiveFile] = []
    skipped: list[Skipped] = []
    directories: list[tuple[str, int]] = []
    waiting = [""]
    while waiting:
        where = waiting.pop()
        try:
            descriptor = patiently(functools.partial(open_beneath, root, where or ".", os.O_RDONLY | os.O_DIRECTORY))
        except FileNotFoundError:
            continue
        except OSError as error:
            skipped.append(Skipped(where, os.strerror(error.errno or errno.EIO)))
            continue
        try:
            directories.append((where, os.fstat(descriptor).st_mtime_ns))
            prefix = where + "/" if where else ""
            with os.scandir(descriptor) as found:
                for item in found:
                    if item.is_dir(follow_symlinks=False):
                        if enter(prefix + item.name):
                            waiting.append(prefix + item.name)
                    elif take(item.name):
                        _look_at(item, prefix, files, skipped)
        finally:
            os.close(descriptor)
    return files, skipped, directories


def _look_at(item: os.DirEntry[str], prefix: str, files: list[LiveFile], skipped: list[Skipped]) -> None:
    path = prefix + item.name
    try:
        info = patiently(lambda: item.stat(follow_symlinks=False))
    except FileNotFoundError:
        return
    except OSError as error:
        skipped.append(Skipped(path, os.strerror(error.errno or errno.EIO)))
        return
    reason = _refusal(info.st_mode)
    if reason:
        skipped.append(Skipped(path, reason))
        return
    mode = info.st_mode & 0o777
    files.append(LiveFile(path, info.st_size, mode, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_uid))


def directory_times(root: int, paths: Iterable[str]) -> list[int | None]:
    """mtime_ns of each directory below `root`, given as `walk` names it; None for one that is gone."""
    return [_mtime(root, path or ".") for path in paths]


def _mtime(root: int, path: str) -> int | None:
    try:
        return os.stat(path, dir_fd=root, follow_symlinks=False).st_mtime_ns
    except OSError:
        return None


def _refusal(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    return "" if stat.S_ISREG(mode) else "not a regular file"


def portable(path: str) -> bool:
    """True for a path whose name can be stored: UTF-8 without control characters or backslashes."""
    if path.isascii():
        return path.isprintable() and "\\" not in path
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return not any(character == "\\" or ord(character) < 32 or ord(character) == 127 for character in path)


def read_into(root: int, live: LiveFile, buffer: bytearray, at: int = 0) -> tuple[int, bool]:
    """Read a whole file below `root` into `buffer` from `at` on, as it stood at one moment.

    Args:
        live: the file as it was found; where it has changed since, it is read as it is now.
        buffer: grows as needed; what is in it after the file is undefined.

    Returns:
        The length of the file in bytes, and True where it is still the file that was found.

    Raises:
        BlockingIOError: it changed under the reading, each of a few times.
        OSError: as open(2) and read(2). What network filesystems say for a moment is tried again first.
    """
    found_before = expected = live.size, live.mtime_ns, live.inode
    for _ in range(_READ_TRIES):
        length, found = patiently(functools.partial(_read_once, root, live.path, expected[0], buffer, at))
        if found == expected and length == found[0]:
            return length, found == found_before
        expected = found
    raise BlockingIOError(errno.EAGAIN, "it kept changing while it was read", live.path)


def _read_once(root: int, path: str, size: int, buffer: bytearray, at: int) -> tuple[int, tuple[int, int, int]]:
    """The number of bytes read, up to one more than `size`, and the file's (size, mtime_ns, inode) after reading."""
    short = at + size + 1 - len(buffer)
    if short > 0:
        buffer.extend(bytes(short))
    descriptor = open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with memoryview(buffer) as view:
            length = 0
            while part := os.preadv(descriptor, [view[at + length : at + size + 1]], length):
                length += part
                if length >= size:
                    break
        info = os.fstat(descriptor)
        if length == size and info.st_size > size:
            length += 1
    finally:
        os.close(descriptor)
    return length, (info.st_size, info.st_mtime_ns, info.st_ino)


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write every byte, however the kernel cuts the writes."""
    written = os.write(descriptor, data)
    if written != len(data):
        view = memoryview(data)
        while written < len(view):
            written += os.write(descriptor, view[written:])


def rename(source: str, target: str, source_root: int, target_root: int) -> None:
    """Rename, onto what is there already too."""
    patiently(lambda: os.rename(source, target, src_dir_fd=source_root, dst_dir_fd=target_root))


def rename_new(source: str, target: str, source_root: int, target_root: int) -> None:
    """Rename onto a name that must not exist.

    Raises:
        FileExistsError: it exists.
    """
    if not _renameat2(source, target, source_root, target_root, _RENAME_NOREPLACE):
        if exists_in(target_root, target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        rename(source, target, source_root, target_root)


def exchange(source: str, target: str, source_root: int, target_root: int) -> bool:
    """Swap two names at once; False where the filesystem cannot, and nothing was done."""
    return _renameat2(source, target, source_root, target_root, _RENAME_EXCHANGE)


def _renameat2(source: str, target: str, source_root: int, target_root: int, flags: int) -> bool:
    if not hasattr(_libc(), "renameat2"):
        return False
    return patiently(lambda: _renameat2_once(source, target, source_root, target_root, flags))


def _renameat2_once(source: str, target: str, source_root: int, target_root: int, flags: int) -> bool:
    function = _libc().renameat2
    if function(source_root, os.fsencode(source), target_root, os.fsencode(target), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_SUPPORTED:
        return False
    raise OSError(code, os.strerror(code), target)


def exists_in(root: int, path: str) -> bool:
    """True for anything at a path below `root`, a link that leads nowhere included."""
    try:
        os.stat(path, dir_fd=root, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold the advisory lock of a directory, which ends with its holder; nothing is left on disk.

    Yields:
        False where this filesystem has no locks (some network ones): the caller goes on without, since a lock here
        saves work and correctness never rests on it.

    Raises:
        Busy: somebody else holds it, and `wait` is False.
    """
    with open_directory(path) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise Busy(f"another cachekeeper works on {path}", hint="wait for it, then try again") from None
        except OSError:
            yield False
            return
        yield True


@contextlib.contextmanager
def explained(path: Path | str, action: str) -> Iterator[None]:
    """Turn an OSError into a LocalDiskError that says what to do; `action` as "write the cache directory".

    A pipe that nobody reads from any more is no matter of the disk.
    """
    try:
        yield
    except (CachekeeperError, BrokenPipeError):
        raise
    except OSError as error:
        raise disk_error(error, path, action) from error


def directory_exists(path: Path) -> bool:
    """True for a directory, also behind a link.

    Raises:
        LocalDiskError: it cannot be told.
    """
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise disk_error(error, path, "look at the cache directory") from error


def make_directories(root: int, path: str) -> int:
    """Make a directory below `root` with those above it, following no link.

    Returns:
        Its descriptor, that the caller closes.
    """
    current = os.dup(root)
    for part in path.split("/"):
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=current)
            deeper = os.open(part, _DIRECTORY, dir_fd=current)
        finally:
            os.close(current)
        current = deeper
    return current


def hint_for(reason: str) -> str:
    """What to do about an error of the operating system, given in its own words; "" where nothing is known."""
    return next((hint for code, hint in _HINTS.items() if os.strerror(code) == reason), "")


def disk_error(error: OSError, path: Path | str, action: str) -> LocalDiskError:
    """The LocalDiskError for an OSError."""
    code = error.errno or errno.EIO
    where = error.filename if isinstance(error.filename, str) and error.filename else ""
    facts = [
        f"path    {path}" + (f" ({where})" if where and where != str(path) else ""),
        f"reason  {os.strerror(code)}",
    ]
    return LocalDiskError(f"cannot {action}", facts=facts, hint=_HINTS.get(code, ""))
