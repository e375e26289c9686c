"""One watch a directory: an exclusive lock on a file outside of it, for as long as the watch runs.

The lock ends with the process that holds it, however that ends, so nobody is taken for a watch because he has the
process id of one that was killed. It is of this user and machine: another user's watch is not seen.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ..config import cache_home
from ..disk import explained, write_all
from ..errors import Busy, LocalDiskError
from ..units import now_utc

UNKNOWN = -1
_TRIES = 10
_BETWEEN = 0.05
_LIMIT = 64 << 10
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def lock_file(directory: Path) -> Path:
    """The file whose lock says that a directory is watched."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(directory))).hexdigest()[:32]
    return cache_home() / "watch" / f"{name}.lock"


@contextlib.contextmanager
def held(directory: Path, snapshot: str = "") -> Iterator[None]:
    """Be the watch of a directory.

    Args:
        snapshot: full id of what is kept there.

    Raises:
        Busy: another process is.
        LocalDiskError: the lock cannot be made.
    """
    path = lock_file(directory)
    with explained(path, "take the lock of a watch"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if not _taken(descriptor, path):
                raise _busy(directory, _told(descriptor))
            where = os.path.realpath(directory)
            owner = {"pid": os.getpid(), "directory": where, "since": now_utc(), "snapshot": snapshot}
            os.ftruncate(descriptor, 0)
            write_all(descriptor, json.dumps(owner).encode())
        except BaseException:
            os.close(descriptor)
            raise
    try:
        yield
    finally:
        # The file stays: were it removed, two watches could each hold the lock of a file of that name.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)


def watcher_of(directory: Path) -> int | None:
    """The process id of the watch of a directory, or None where there is none.

    Returns:
        -1 for a watch that is there and has not said who it is.
    """
    try:
        descriptor = os.open(lock_file(directory), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for _ in range(_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            except OSError:
                return None  # no locks here: nobody could hold one
            else:
                return None
            if (pid := _told(descriptor)) != UNKNOWN:
                return pid
            time.sleep(_BETWEEN)  # it has just begun
        return UNKNOWN
    finally:
        os.close(descriptor)


def interrupted(directory: Path) -> str:
    """The snapshot that a watch of a directory kept until it was killed; "" where it ended in order, or none did."""
    try:
        kept = _document(lock_file(directory).read_bytes()).get("snapshot")
    except OSError:
        return ""
    return kept if isinstance(kept, str) else ""


def _taken(descriptor: int, path: Path) -> bool:
    """True where we have the lock now. Who asks `watcher_of` holds it for a moment: this tries more than once."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            raise LocalDiskError(
                "a watch needs a lock, and the filesystem has none",
                facts=[f"path    {path}", f"reason  {os.strerror(error.errno)}"],
                hint="set XDG_CACHE_HOME to a directory on this node's own disk",
            ) from error
        else:
            return True
    return False


def _told(descriptor: int) -> int:
    """The process id in a lock file, or UNKNOWN."""
    pid = _document(os.pread(descriptor, _LIMIT, 0)).get("pid")
    return pid if isinstance(pid, int) and pid > 0 else UNKNOWN


def _document(data: bytes) -> dict[str, object]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _busy(directory: Path, pid: int) -> Busy:
    known = pid != UNKNOWN
    return Busy(
        f"{directory} is watched already",
        facts=[f"by process {pid}"] if known else [],
        hint=f"one watch is enough; end that one first{f' (`kill {pid}`)' if known else ''}, then try again",
    )
