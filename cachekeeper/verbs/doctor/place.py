"""The cache directory as a place on this machine: where it is, and what a file of ours can do there."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import secrets
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .findings import reason

MOUNTINFO = Path("/proc/self/mountinfo")
_NETWORK = re.compile(
    r"9p|afs|beegfs|ceph|cifs|coda|gfs2|glusterfs|gpfs|lustre|ncpfs|nfs.*|ocfs2|orangefs|panfs|pvfs2|smb3|smbfs|virtiofs"
    r"|wekafs|fuse\.(blobfuse2?|ceph.*|gcsfuse|glusterfs|goofys|juicefs|mount-s3|rclone|s3fs|sshfs)"
)
_CACHE_PARTS = ("fxgraph", "aotautograd", "triton")
# Some filesystems have no unnamed files; a directory that is missing fails again, in the same way, by name.
_NO_UNNAMED = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS, errno.ENOENT)


class Mount(NamedTuple):
    """A mounted filesystem."""

    point: str
    type: str
    source: str

    @property
    def network(self) -> bool:
        """True for a filesystem whose files other machines may change."""
        return _NETWORK.fullmatch(self.type) is not None


@dataclass(frozen=True)
class Place:
    """A directory, there or not.

    Attributes:
        path: absolute, as jobs are given it; links are not followed.
        nearest: the directory itself, or the nearest one above it that exists.
        exists: True where it is a directory already.
    """

    path: Path
    nearest: Path
    exists: bool

    @classmethod
    def at(cls, path: Path) -> Place:
        """Look for a directory."""
        nearest = path
        # os.path answers False where pathlib would raise for a directory that may not be searched.
        while not os.path.isdir(nearest) and nearest != nearest.parent:
            nearest = nearest.parent
        return cls(path, nearest, nearest == path)

    @property
    def real(self) -> Path:
        """Its path without links."""
        return Path(os.path.realpath(self.path))

    def looks_like_cache(self) -> bool:
        """True where it holds what Inductor writes, so that advice to change everything in it does no harm."""
        return any(os.path.isdir(self.path / part) for part in _CACHE_PARTS)


@dataclass(frozen=True)
class Probe:
    """Why a file of ours in a directory could not be written, run as code, or locked; "" where it could."""

    write: str = ""
    execute: str = ""
    lock: str = ""


def probe(directory: Path, *, named: bool = True) -> Probe:
    """Try it. Nothing is left, and where the filesystem can, nothing ever appears in the directory.

    Args:
        named: use a file with a name where there are no unnamed ones; else nothing is found out there.
    """
    try:
        with _probe_file(directory, named) as descriptor:
            if descriptor is None:
                return Probe()
            # A full disk lets files be made but not filled.
            os.write(descriptor, b"\0" * mmap.PAGESIZE)
            return Probe(execute=_trouble_executing(descriptor), lock=_trouble_locking(descriptor))
    except OSError as error:
        return Probe(write=reason(error))


@contextlib.contextmanager
def _probe_file(directory: Path, named: bool) -> Iterator[int | None]:
    name = None
    try:
        descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o700)
    except OSError as error:
        if error.errno not in _NO_UNNAMED:
            raise
        if not named:
            yield None
            return
        name = directory / f".cachekeeper-{secrets.token_hex(8)}.tmp"
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        if name is not None:
            with contextlib.suppress(OSError):
                name.unlink()


def _trouble_executing(descriptor: int) -> str:
    try:
        mmap.mmap(descriptor, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
    except OSError as error:
        return reason(error)
    return ""


def _trouble_locking(descriptor: int) -> str:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return reason(error)
    return ""


def mount_of(path: Path) -> Mount | None:
    """The filesystem that a path is on; None where the kernel does not say."""
    real = os.path.realpath(path)
    best: Mount | None = None
    try:
        lines = MOUNTINFO.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        mount = _mount(line)
        # Of two filesystems mounted on one directory the later one is seen.
        if mount and _is_below(real, mount.point) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _mount(line: str) -> Mount | None:
    fields, separator, rest = line.partition(" - ")
    before, after = fields.split(" "), rest.split(" ")
    if not separator or len(before) < 5 or len(after) < 2:
        return None
    return Mount(_unescaped(before[4]), after[0], _unescaped(after[1]))


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def inside(inner: Path, outer: Path) -> bool:
    """True for a path that is a directory or lies in it."""
    return inner == outer or outer in inner.parents


def use(directory: Path) -> str:
    """The line that makes torch use a directory."""
    return f"export TORCHINDUCTOR_CACHE_DIR={shlex.quote(str(directory))}"


def use_another(than: Path) -> str:
    """The line that makes torch use a directory of this user's own on a local disk that runs code."""
    return use(another_place(than) or Path("/a/local/disk/torchinductor"))


def another_place(than: Path) -> Path | None:
    """A directory of this user's own, there or not, on a local disk that runs code; None where none is known."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    candidates = [Path(cache_home, "torchinductor"), Path(f"/var/tmp/torchinductor_{os.geteuid()}")]
    return next((place for place in candidates if not _is_same(place, than) and _suits(Place.at(place))), None)


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _suits(place: Place) -> bool:
    mount = mount_of(place.nearest)
    if mount is None or mount.network or not os.access(place.nearest, os.W_OK | os.X_OK, effective_ids=True):
        return False
    return not os.statvfs(place.nearest).f_flag & os.ST_NOEXEC
