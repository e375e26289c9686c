"""Which directories may be cleared: a compile cache of this user's own, of which nobody has a file open."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from .. import ownership
from ..disk import explained
from ..errors import Busy, UnsafePath, UsageError
from ..inductor import PUBLISH_ORDER
from ..inductor.layout import WORKSHOP, is_keyed, may_be_at_top
from ..livecache import LiveCache, Scan, command_of, users_of
from ..units import count, few

_ROOTS = ("bin", "boot", "dev", "dev/shm", "etc", "home", "lib", "lib64", "media", "mnt", "opt", "proc", "root", "run")
_MORE_ROOTS = ("sbin", "scratch", "srv", "sys", "tmp", "usr", "usr/local", "usr/tmp", "var", "var/cache", "var/tmp")
_HOME_ROOTS = (".cache", ".config", ".local", ".local/share", ".triton")
_MOST = 10


def refuse_place(directory: Path) -> os.stat_result | None:
    """Refuse a place that is no cache's own, whatever is in it.

    Returns:
        What lstat says of the directory; None where there is none.

    Raises:
        UsageError: a root, the home directory, one that this process is in, a link, or no directory.
        UnsafePath: it belongs to another user, or somebody who is not trusted may change it or put another there.
    """
    real = Path(os.path.realpath(directory))
    for path in (directory, real):
        if path in _well_known() or not path.name:
            raise UsageError(f"{path} is no cache directory of its own: it is never cleared")
        if path == _home() or path in _home().parents:
            raise UsageError(f"{path} holds the home directory {_home()}: it is never cleared")
        if path == _here() or path in _here().parents:
            raise UsageError(
                f"{path} holds the working directory {_here()}: it is not cleared",
                hint="`cd` to another directory first",
            )
    with explained(directory, "look at the cache directory"):
        try:
            info = os.lstat(directory)
        except FileNotFoundError:
            return None
    if stat.S_ISLNK(info.st_mode):
        raise UsageError(
            f"{directory} is a symbolic link to {real}",
            hint=f"if that directory is what you mean, name it itself: `cachekeeper clear {shlex.quote(str(real))}`",
        )
    if not stat.S_ISDIR(info.st_mode):
        raise UsageError(f"{directory} is not a directory")
    if info.st_uid != os.geteuid():
        raise UnsafePath(
            f"{directory} belongs to another user",
            facts=[f"owner  uid {info.st_uid}, this process is uid {os.geteuid()}"],
            hint="run it as the owner",
        )
    ownership.check(directory, ownership.CACHE)
    return info


def _home() -> Path:
    return Path(os.path.realpath(os.path.expanduser("~")))


def _here() -> Path:
    try:
        return Path(os.getcwd())
    except OSError:  # it was removed
        return Path("/")


def _well_known() -> set[Path]:
    found = {Path("/", part) for part in ("", *_ROOTS, *_MORE_ROOTS)}
    found |= {Path(os.path.expanduser("~"), part) for part in ("", *_HOME_ROOTS)}
    variables = ("TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")
    return found | {Path(os.path.abspath(os.environ[name])) for name in variables if os.environ.get(name)}


def is_bare(directory: Path) -> bool:
    """True for a directory with nothing in it but, perhaps, cachekeeper's own."""
    with explained(directory, "read the cache directory"):
        return set(os.listdir(directory)) <= {WORKSHOP}


def refuse_other_than_cache(directory: Path, scan: Scan) -> None:
    """Refuse a directory that is not shaped like a compile cache.

    Raises:
        UsageError: something at its top is none of a cache's, or nothing in it is of a cache alone.
    """
    refuse_foreign(directory)
    if not any(is_keyed(file.place.kind, file.path) for file in scan.files):
        raise UsageError(
            f"{directory} holds no entry of a compile cache",
            facts=[f"{count(len(scan.files), 'file')}, none with a name that only a cache gives"],
            hint="name the cache directory; `cachekeeper doctor` says which one torch would use",
        )


def refuse_foreign(directory: Path) -> None:
    """Refuse a directory that holds other things at its top.

    Raises:
        UsageError: something there is none of a cache's.
    """
    with explained(directory, "read the cache directory"):
        foreign = sorted(name for name in os.listdir(directory) if not may_be_at_top(name))
    if foreign:
        raise UsageError(
            f"{directory} is not only a compile cache",
            facts=few(foreign, _MOST),
            hint=_inner_caches(directory) or "move what is not of a cache elsewhere first, or name the cache itself",
        )


def _inner_caches(directory: Path) -> str:
    inner = (path for path in sorted(directory.iterdir()) if path.is_dir() and not path.is_symlink())
    found = next((path for path in inner if any((path / part).is_dir() for part in PUBLISH_ORDER)), None)
    return f"if it is the cache in it that you mean: `cachekeeper clear {shlex.quote(str(found))}`" if found else ""


def refuse_users(directory: Path, live: LiveCache, hint: str) -> None:
    """Refuse while a process uses the cache, as far as /proc shows it.

    Args:
        hint: what to do then.

    Raises:
        Busy: files of it are open or mapped, or torch holds one of its locks.
    """
    users = [f"process {pid}  {command_of(pid)}".rstrip() for pid in users_of(directory)]
    if not users and not live.lock_held():
        return
    raise Busy(
        f"{directory} is in use",
        facts=users[:_MOST] or ["torch holds one of its compile locks"],
        hint=hint,
    )
