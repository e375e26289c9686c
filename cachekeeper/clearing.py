"""A live cache -> a trash beside it, from which it comes back.

    <parent>/.<name>.cleared/                   the owner's alone
        <when>-<random>/                        what one clear moved away, whole
        deleting-<random>/                      on its way out for good
    <cache dir>/.cachekeeper/cleared/           the same, where the directory itself cannot be renamed: a mount point
        moving-<when>-<random>/                 contents on their way there, or back

The directory is swapped with an empty one: its name is never free for another user of /tmp to take. Nothing is copied,
and only `Trash.empty` deletes.
"""

from __future__ import annotations

import calendar
import contextlib
import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from . import ownership
from .disk import exchange, exists_in, explained, locked, make_directories, open_beneath, rename_new, walk
from .errors import Busy, LocalDiskError, UnsafePath, UsageError
from .inductor import PUBLISH_ORDER
from .inductor.layout import WORKSHOP, is_keyed, may_be_at_top
from .livecache import LiveCache, Scan, users_of
from .restored import MARKER
from .staging import ASIDE, QUARANTINE
from .units import count

CLEARED = "cleared"
MOVING, DELETING = "moving-", "deleting-"
_WHEN = re.compile(r"(\d{8}T\d{6}Z)-[0-9a-f]{6}(-\d+)?")
_TIME = "%Y%m%dT%H%M%SZ"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A mount point, a directory of a container's image, or one in a place that this user may not write into.
_CANNOT_RENAME = (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS)
_ROOTS = ("bin", "boot", "dev", "dev/shm", "etc", "home", "lib", "lib64", "media", "mnt", "opt", "proc", "root", "run")
_MORE_ROOTS = ("sbin", "scratch", "srv", "sys", "tmp", "usr", "usr/local", "usr/tmp", "var", "var/cache", "var/tmp")
_HOME_ROOTS = (".cache", ".config", ".local", ".local/share", ".triton")
_MOST = 10
_TEXT = 60


class Item(NamedTuple):
    """Something in the trash.

    Attributes:
        name: what `--undo` takes.
        path: where it is now.
        when: seconds since 1970 at which it was moved there.
        files, bytes: of the regular files in it.
        unfinished: a clear or an undo was killed; the next one completes it first.
    """

    name: str
    path: Path
    when: float
    files: int
    bytes: int
    unfinished: bool = False


# What may be cleared


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
            f"{directory} is a symbolic link to {real}", hint="name the directory itself, if that is what you mean"
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
            facts=[*foreign[:_MOST], *([f"and {len(foreign) - _MOST:,} more"] if len(foreign) > _MOST else [])],
            hint=_inner_caches(directory) or "move what is not of a cache elsewhere first, or name the cache itself",
        )


def _inner_caches(directory: Path) -> str:
    inner = (path for path in sorted(directory.iterdir()) if path.is_dir() and not path.is_symlink())
    found = next((path for path in inner if any((path / part).is_dir() for part in PUBLISH_ORDER)), None)
    return f"if it is the cache in it that you mean: `cachekeeper clear {found}`" if found else ""


def refuse_users(directory: Path, live: LiveCache, hint: str) -> None:
    """Refuse while a process uses the cache, as far as /proc shows it.

    Args:
        hint: what to do then.

    Raises:
        Busy: files of it are open or mapped, or torch holds one of its locks.
    """
    users = [f"process {pid}  {_command(pid)}".rstrip() for pid in users_of(directory)]
    if not users and not live.lock_held():
        return
    raise Busy(
        f"{directory} is in use",
        facts=users[:_MOST] or ["torch holds one of its compile locks"],
        hint=hint,
    )


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode("utf-8", "replace").strip()[:_TEXT]


# The trash


class Trash:
    """What clears moved away from one cache directory.

    Args:
        directory: absolute path of the cache directory, which need not be there. Whoever moves something holds
            `disk.locked` on it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.beside = directory.parent / f".{directory.name}.{CLEARED}"
        self.inside = directory / WORKSHOP / CLEARED

    @contextlib.contextmanager
    def _opened(self, place: Path) -> Iterator[int | None]:
        """A directory of this user's, at no end of a link; None where there is none.

        Raises:
            UnsafePath: it is a link, no directory, or another user's.
        """
        try:
            with _parent(self.directory) as parent:
                descriptor = open_beneath(parent, str(place.relative_to(self.directory.parent)), _DIRECTORY)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            raise UnsafePath(f"{place} is not a directory, or a link", hint="look at it, then move it away") from None
        try:
            info = os.fstat(descriptor)
            if info.st_uid != os.geteuid():
                facts = [f"owner  uid {info.st_uid}, this process is uid {os.geteuid()}"]
                raise UnsafePath(f"{place} belongs to another user", facts=facts, hint="have its owner move it away")
            yield descriptor
        finally:
            os.close(descriptor)

    def items(self) -> list[Item]:
        """What is there, newest first."""
        with explained(self.beside, "look into the trash"):
            found = [item for place in (self.beside, self.inside) for item in self._items_in(place)]
        return sorted(found, key=lambda item: (item.when, item.name), reverse=True)

    def _items_in(self, place: Path) -> Iterator[Item]:
        with self._opened(place) as descriptor:
            for name in os.listdir(descriptor) if descriptor is not None else ():
                when = _when(name.removeprefix(MOVING))
                if when is not None and descriptor is not None:
                    files, size = _measured(descriptor, name)
                    # One without a file is what a killed clear made to swap the cache with.
                    if files:
                        yield Item(name, place / name, when, files, size, name.startswith(MOVING))

    def settle(self) -> None:
        """Complete what a killed clear or undo has begun inside the directory: all of it is in the cache again."""
        with self._opened(self.inside) as cleared, self._opened(self.directory) as root:
            if cleared is None or root is None:
                return
            for name in os.listdir(cleared):
                if name.startswith(MOVING):
                    self._put_back(cleared, name, root)
            _remove_if_empty(root, f"{WORKSHOP}/{CLEARED}")

    def move_away(self, found: os.stat_result) -> Path:
        """Move the cache away, whole and at once; where that cannot be, entry by entry into the directory itself.

        Args:
            found: what lstat said of the directory when it was looked at.

        Returns:
            Where it is now.

        Raises:
            UnsafePath: another directory took its place meanwhile, or the trash is not this user's.
            LocalDiskError: it cannot be moved.
        """
        with explained(self.directory, "move the cache away"):
            try:
                return self.beside / self._swap_out(found)
            except OSError as error:
                if error.errno not in _CANNOT_RENAME:
                    raise
            return self.inside / self._move_contents()

    def bring_back(self, item: Item) -> Path | None:
        """Put something from the trash in its place again; what is there now goes to the trash.

        Returns:
            Where the latter is; None where nothing was there.
        """
        with explained(self.directory, "bring the cache back"):
            if item.path.parent == self.inside:
                return self._contents_back(item)
            return self._swap_in(item)

    def _swap_out(self, found: os.stat_result) -> str:
        name = self.directory.name
        with _parent(self.directory) as parent, self._made_beside(parent) as trash:
            item = _new_name()
            os.mkdir(item, 0o700, dir_fd=trash)
            try:
                swapped = exchange(name, item, parent, trash)
                if not swapped:
                    os.rmdir(item, dir_fd=trash)
                    rename_new(name, item, parent, trash)
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=parent)
            except OSError:
                _remove_if_empty(trash, item)
                _remove_if_empty(parent, self.beside.name)
                raise
            moved = os.stat(item, dir_fd=trash, follow_symlinks=False)
            if (moved.st_dev, moved.st_ino) != (found.st_dev, found.st_ino):
                if swapped and exchange(name, item, parent, trash):
                    os.rmdir(item, dir_fd=trash)
                    _remove_if_empty(parent, self.beside.name)
                raise UnsafePath(
                    f"something else took the place of {self.directory} while it was looked at",
                    hint=f"look who writes into {self.directory.parent} (`ls -ld`), then try again",
                )
            return item

    @contextlib.contextmanager
    def _made_beside(self, parent: int) -> Iterator[int]:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.beside.name, 0o700, dir_fd=parent)
        with self._opened(self.beside) as descriptor:
            assert descriptor is not None
            yield descriptor

    def _swap_in(self, item: Item) -> Path | None:
        name = self.directory.name
        with _parent(self.directory) as parent, self._opened(self.beside) as trash:
            assert trash is not None
            # From now on it holds what is cleared now, if anything.
            fresh = _new_name()
            os.rename(item.name, fresh, src_dir_fd=trash, dst_dir_fd=trash)
            if not exists_in(parent, name):
                rename_new(fresh, name, trash, parent)
            elif not exchange(fresh, name, trash, parent):
                aside = _new_name()
                rename_new(name, aside, parent, trash)
                rename_new(fresh, name, trash, parent)
                fresh = aside
            _remove_if_empty(trash, fresh)
            kept = exists_in(trash, fresh)
            _remove_if_empty(parent, self.beside.name)
        return self.beside / fresh if kept else None

    def _move_contents(self) -> str:
        with self._opened(self.directory) as root:
            assert root is not None
            os.close(make_directories(root, f"{WORKSHOP}/{CLEARED}"))
            with self._opened(self.inside) as cleared:
                assert cleared is not None
                item = _new_name()
                os.mkdir(MOVING + item, 0o700, dir_fd=cleared)
                try:
                    self._move_all(root, MOVING + item, cleared)
                except OSError:
                    self._put_back(cleared, MOVING + item, root)
                    raise
                os.rename(MOVING + item, item, src_dir_fd=cleared, dst_dir_fd=cleared)
        return item

    def _move_all(self, root: int, item: str, cleared: int) -> None:
        with _entered(cleared, item) as target:
            # What refers to others goes first: what is left never refers to what is gone.
            for name in sorted(set(os.listdir(root)) - {WORKSHOP}, key=lambda name: -PUBLISH_ORDER.get(name, 0)):
                _move(root, name, target)
            if exists_in(root, MARKER):
                os.close(make_directories(target, WORKSHOP))
                os.rename(MARKER, MARKER, src_dir_fd=root, dst_dir_fd=target)

    def _contents_back(self, item: Item) -> Path | None:
        now = self.inside / self._move_contents() if not is_bare(self.directory) else None
        with self._opened(self.inside) as cleared, self._opened(self.directory) as root:
            assert cleared is not None and root is not None
            os.rename(item.name, MOVING + item.name, src_dir_fd=cleared, dst_dir_fd=cleared)
            self._put_back(cleared, MOVING + item.name, root)
            _remove_if_empty(root, f"{WORKSHOP}/{CLEARED}")
        return now

    def _put_back(self, cleared: int, item: str, root: int) -> None:
        """Move contents back where their names are free; whatever is not stays in the trash as an item of its own."""
        with _entered(cleared, item) as source:
            for name in sorted(set(os.listdir(source)) - {WORKSHOP}, key=lambda name: PUBLISH_ORDER.get(name, 0)):
                with contextlib.suppress(FileExistsError):
                    _move(source, name, root)
            if exists_in(source, MARKER) and not exists_in(root, MARKER):
                os.rename(MARKER, MARKER, src_dir_fd=source, dst_dir_fd=root)
            _remove_if_empty(source, WORKSHOP)
        _remove_if_empty(cleared, item)
        if exists_in(cleared, item):
            os.rename(item, item.removeprefix(MOVING), src_dir_fd=cleared, dst_dir_fd=cleared)

    def empty(self, older_than: float = 0.0, dry_run: bool = False) -> Iterator[Item]:
        """Delete for good what clears moved away, and what restores and repairs put aside. Nothing else deletes.

        No link is followed and no filesystem left. Killed at any moment, the next call completes it.

        Args:
            older_than: seconds since it was put there.

        Yields:
            What was deleted, or with `dry_run` would be.
        """
        workshop = self.directory / WORKSHOP
        for place in (self.beside, self.inside, workshop / ASIDE, workshop / QUARANTINE):
            with explained(place, "empty the trash"), self._opened(place) as descriptor:
                if descriptor is None:
                    continue
                with locked(place, wait=False):
                    yield from _emptied(place, descriptor, time.time() - older_than, dry_run)
            if not dry_run:
                _remove_empty_place(place)
        if not dry_run:
            _remove_empty_place(workshop)


def _emptied(place: Path, descriptor: int, before: float, dry_run: bool) -> Iterator[Item]:
    for name in sorted(os.listdir(descriptor)):
        doomed = name.startswith(DELETING)
        when = _put_there(descriptor, name)
        if name.startswith(MOVING) or (when > before and not doomed):
            continue
        files, size = _measured(descriptor, name)
        if not dry_run:
            _delete(descriptor, name)
        yield Item(name, place / name, when, files, size, doomed)


def _put_there(descriptor: int, name: str) -> float:
    when = _when(name)
    return os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_ctime if when is None else when


def _delete(base: int, name: str) -> None:
    """Delete a tree below the directory `base`, however deep: what is in it moves up before it is looked into."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=base, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=base)
        return
    waiting = [_doomed(base, name, base)]
    while waiting:
        current = waiting.pop()
        with _entered(base, current) as directory:
            _refuse_mounted(base, directory, current)
            for item in os.listdir(directory):
                if stat.S_ISDIR(os.stat(item, dir_fd=directory, follow_symlinks=False).st_mode):
                    waiting.append(_doomed(directory, item, base))
                else:
                    os.unlink(item, dir_fd=directory)
        os.rmdir(current, dir_fd=base)


def _doomed(directory: int, name: str, base: int) -> str:
    new = DELETING + secrets.token_hex(8)
    # Where it may not be written into, it cannot be moved or emptied.
    with _entered(directory, name) as descriptor, contextlib.suppress(PermissionError):
        os.fchmod(descriptor, 0o700)
    rename_new(name, new, directory, base)
    return new


def _refuse_mounted(base: int, directory: int, name: str) -> None:
    if os.fstat(base).st_dev != os.fstat(directory).st_dev:
        raise LocalDiskError(f"something is mounted in the trash, at {name}", hint="unmount it, then try again")


def _remove_empty_place(place: Path) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(place)


def _when(name: str) -> float | None:
    """The seconds since 1970 that a name says; None for another name."""
    match = _WHEN.fullmatch(name)
    try:
        return float(calendar.timegm(time.strptime(match[1], _TIME))) if match else None
    except ValueError:
        return None


def _new_name() -> str:
    return time.strftime(_TIME, time.gmtime()) + "-" + secrets.token_hex(3)


def _move(source: int, name: str, target: int) -> None:
    """Rename into another directory. In a container a directory of the image cannot be: then what is in it, each."""
    try:
        rename_new(name, name, source, target)
    except OSError as error:
        info = os.stat(name, dir_fd=source, follow_symlinks=False)
        if error.errno != errno.EXDEV or not stat.S_ISDIR(info.st_mode):
            raise
        os.mkdir(name, info.st_mode & 0o777, dir_fd=target)
        with _entered(source, name) as inner, _entered(target, name) as made:
            for item in os.listdir(inner):
                _move(inner, item, made)
        os.rmdir(name, dir_fd=source)


@contextlib.contextmanager
def _entered(base: int, name: str) -> Iterator[int]:
    descriptor = os.open(name, _DIRECTORY, dir_fd=base)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _parent(directory: Path) -> Iterator[int]:
    # The way to the cache may have links; the cache itself and what is in it may not.
    descriptor = os.open(directory.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _measured(base: int, name: str) -> tuple[int, int]:
    """Number and length of the regular files in a tree, or of the one file."""
    try:
        descriptor = open_beneath(base, name, _DIRECTORY)
    except OSError:
        info = os.stat(name, dir_fd=base, follow_symlinks=False)
        return 1, info.st_size
    try:
        files, _, _ = walk(descriptor, lambda path: True, lambda file: True)
    finally:
        os.close(descriptor)
    return len(files), sum(file.size for file in files)


def _remove_if_empty(base: int, name: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=base)
