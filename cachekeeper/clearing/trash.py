"""Moves a cache away into a trash beside it, and back.

The directory is swapped with an empty one: its name is never free for another user of /tmp to take. Nothing is copied.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from ..disk import exchange, exists_in, explained, locked, make_directories, open_beneath, open_directory, rename_new
from ..errors import UnsafePath
from ..inductor import PUBLISH_ORDER
from ..inductor.layout import WORKSHOP
from ..restored import MARKER
from ..staging import ASIDE, QUARANTINE
from .emptying import emptied, remove_empty_place
from .items import (
    CLEARED,
    DIRECTORY,
    MOVING,
    Item,
    entered,
    measured,
    new_name,
    reason_of,
    remove_if_empty,
    remove_reason,
    when_of,
    write_reason,
)
from .places import is_bare

# A mount point, a directory of a container's image, or one in a place that this user may not write into.
_CANNOT_RENAME = (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS)


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
            # The way to the cache may have links; the cache itself and what is in it may not.
            with open_directory(self.directory.parent) as parent:
                descriptor = open_beneath(parent, str(place.relative_to(self.directory.parent)), DIRECTORY)
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
                when = when_of(name.removeprefix(MOVING))
                if when is not None and descriptor is not None:
                    files, size = measured(descriptor, name)
                    # One without a file is what a killed clear made to swap the cache with.
                    if files:
                        unfinished = name.startswith(MOVING)
                        yield Item(name, place / name, when, files, size, unfinished, reason_of(descriptor, name))

    def settle(self) -> None:
        """Complete what a killed clear or undo has begun inside the directory: all of it is in the cache again."""
        with self._opened(self.inside) as cleared, self._opened(self.directory) as root:
            if cleared is None or root is None:
                return
            for name in os.listdir(cleared):
                if name.startswith(MOVING):
                    self._put_back(cleared, name, root)
            remove_if_empty(root, f"{WORKSHOP}/{CLEARED}")

    def move_away(self, found: os.stat_result, reason: str = "") -> Path:
        """Move the cache away, whole and at once; where that cannot be, entry by entry into the directory itself.

        Args:
            found: what lstat said of the directory when it was looked at.
            reason: why, for whoever looks into the trash.

        Returns:
            Where it is now.

        Raises:
            UnsafePath: another directory took its place meanwhile, or the trash is not this user's.
            LocalDiskError: it cannot be moved.
        """
        with explained(self.directory, "move the cache away"):
            try:
                where = self.beside / self._swap_out(found)
            except OSError as error:
                if error.errno not in _CANNOT_RENAME:
                    raise
                where = self.inside / self._move_contents()
            if reason:
                with contextlib.suppress(OSError), self._opened(where.parent) as trash:  # as where the disk is full
                    if trash is not None:
                        write_reason(trash, where.name, reason)
            return where

    def bring_back(self, item: Item) -> Path | None:
        """Put something from the trash in its place again; what is there now goes to the trash.

        Returns:
            Where the latter is; None where nothing was there.
        """
        with explained(self.directory, "bring the cache back"):
            with self._opened(item.path.parent) as trash:
                if trash is not None:
                    remove_reason(trash, item.path.name)
            if item.path.parent == self.inside:
                return self._contents_back(item)
            return self._swap_in(item)

    def _swap_out(self, found: os.stat_result) -> str:
        name = self.directory.name
        with open_directory(self.directory.parent) as parent, self._made_beside(parent) as trash:
            item = new_name()
            os.mkdir(item, 0o700, dir_fd=trash)
            try:
                swapped = exchange(name, item, parent, trash)
                if not swapped:
                    os.rmdir(item, dir_fd=trash)
                    rename_new(name, item, parent, trash)
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=parent)
            except OSError:
                remove_if_empty(trash, item)
                remove_if_empty(parent, self.beside.name)
                raise
            moved = os.stat(item, dir_fd=trash, follow_symlinks=False)
            if (moved.st_dev, moved.st_ino) != (found.st_dev, found.st_ino):
                if swapped and exchange(name, item, parent, trash):
                    os.rmdir(item, dir_fd=trash)
                    remove_if_empty(parent, self.beside.name)
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
        with open_directory(self.directory.parent) as parent, self._opened(self.beside) as trash:
            assert trash is not None
            # From now on it holds what is cleared now, if anything.
            fresh = new_name()
            os.rename(item.name, fresh, src_dir_fd=trash, dst_dir_fd=trash)
            if not exists_in(parent, name):
                rename_new(fresh, name, trash, parent)
            elif not exchange(fresh, name, trash, parent):
                aside = new_name()
                rename_new(name, aside, parent, trash)
                rename_new(fresh, name, trash, parent)
                fresh = aside
            remove_if_empty(trash, fresh)
            kept = exists_in(trash, fresh)
            remove_if_empty(parent, self.beside.name)
        return self.beside / fresh if kept else None

    def _move_contents(self) -> str:
        with self._opened(self.directory) as root:
            assert root is not None
            os.close(make_directories(root, f"{WORKSHOP}/{CLEARED}"))
            with self._opened(self.inside) as cleared:
                assert cleared is not None
                item = new_name()
                os.mkdir(MOVING + item, 0o700, dir_fd=cleared)
                try:
                    self._move_all(root, MOVING + item, cleared)
                except OSError:
                    self._put_back(cleared, MOVING + item, root)
                    raise
                os.rename(MOVING + item, item, src_dir_fd=cleared, dst_dir_fd=cleared)
        return item

    def _move_all(self, root: int, item: str, cleared: int) -> None:
        with entered(cleared, item) as target:
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
            remove_if_empty(root, f"{WORKSHOP}/{CLEARED}")
        return now

    def _put_back(self, cleared: int, item: str, root: int) -> None:
        """Move contents back where their names are free; whatever is not stays in the trash as an item of its own."""
        with entered(cleared, item) as source:
            for name in sorted(set(os.listdir(source)) - {WORKSHOP}, key=lambda name: PUBLISH_ORDER.get(name, 0)):
                with contextlib.suppress(FileExistsError):
                    _move(source, name, root)
            if exists_in(source, MARKER) and not exists_in(root, MARKER):
                os.rename(MARKER, MARKER, src_dir_fd=source, dst_dir_fd=root)
            remove_if_empty(source, WORKSHOP)
        remove_if_empty(cleared, item)
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
                    yield from emptied(place, descriptor, time.time() - older_than, dry_run)
            if not dry_run:
                remove_empty_place(place)
        if not dry_run:
            remove_empty_place(workshop)


def _move(source: int, name: str, target: int) -> None:
    """Rename into another directory. In a container a directory of the image cannot be: then what is in it, each."""
    try:
        rename_new(name, name, source, target)
    except OSError as error:
        info = os.stat(name, dir_fd=source, follow_symlinks=False)
        if error.errno != errno.EXDEV or not stat.S_ISDIR(info.st_mode):
            raise
        os.mkdir(name, info.st_mode & 0o777, dir_fd=target)
        with entered(source, name) as inner, entered(target, name) as made:
            for item in os.listdir(inner):
                _move(inner, item, made)
        os.rmdir(name, dir_fd=source)
