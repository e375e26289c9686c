"""Files on their way into a live cache: staged inside it, then published entry by entry with renames.

    <cache dir>/.cachekeeper/
        stage-<random>/<rank>/...   files being written; gone when the restore is
        publishing-<random>/...     the same, once renames have begun: it may hold what was just replaced
        aside/<when>/...            what a restore replaced or moved away
        quarantine/<when>/...       what a repair replaced or dropped, with evidence.json
        cleared/<when>/...          what a clear moved away where it could not rename the directory (`clearing`)
        restored.json               what was restored last (`restored`); written last

`cachekeeper clear --empty-trash` deletes what is in `aside`, `quarantine` and `cleared`; nothing else does.

An entry is whole or absent at every moment: a kernel's directory moves as one, and what refers to others (`rank`) is
published after them. A kernel of which somebody deleted some files gets just these back, the one that lists them last:
each brings it nearer to whole. Inductor never looks into `.cachekeeper`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import itertools
import math
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from types import TracebackType

from .disk import (
    exchange,
    exists_in,
    make_directories,
    open_beneath,
    open_directory,
    patiently,
    rename,
    rename_new,
    write_all,
)
from .errors import LocalDiskError
from .inductor import PUBLISH_ORDER, is_group
from .inductor.layout import WORKSHOP
from .restored import MARKER

ASIDE, QUARANTINE = "aside", "quarantine"
EVIDENCE = "evidence.json"
_MOST_ASIDE = 1000
_UNFINISHED = ("stage-", "publishing-")
_AT_WORK_SECONDS = 3600.0
_RANKS = range(max(PUBLISH_ORDER.values()) + 1)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


def rank(kind: str) -> int:
    """When a kind is published: what refers to other entries comes after them."""
    return PUBLISH_ORDER.get(kind, 0)


def unfinished(target: Path) -> bool:
    """True where a restore or a repair was killed: the next `Stage` clears up, and puts aside what was replaced."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return any(name.startswith(_UNFINISHED) for name in os.listdir(target / WORKSHOP))
    return False


class Stage:
    """A place inside a cache directory where files are written before they are published.

    Args:
        target: absolute path of the cache directory, which exists and is locked by the caller.
        is_unit: tells of a directory's path below the target whether it only moves as a whole.
        place: where what is replaced or moved away goes, below `.cachekeeper`.
        torn: such directories that lack files and are else right: where that is so, what they lack is put into them.
    """

    def __init__(
        self, target: Path, is_unit: Callable[[str], bool], place: str = ASIDE, torn: Collection[str] = ()
    ) -> None:
        self._target = target
        self._is_unit = is_unit
        self._torn = torn
        self._aside = f"{WORKSHOP}/{place}/" + time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + secrets.token_hex(3)
        self._moved = 0
        self._published = False

    def __enter__(self) -> Stage:
        self._live = os.open(self._target, _DIRECTORY | os.O_CLOEXEC)
        try:
            self._make_workshop()
        except BaseException:
            os.close(self._live)
            raise
        return self

    def _make_workshop(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(WORKSHOP, 0o700, dir_fd=self._live)
        info = os.stat(WORKSHOP, dir_fd=self._live, follow_symlinks=False)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
            raise LocalDiskError(
                f"{self._target / WORKSHOP} is not a directory of this user",
                facts=[f"owner  uid {info.st_uid}, this process is uid {os.geteuid()}"],
                hint="somebody else put it there: look at it, then remove it or use another --cache-dir",
            )
        self._clean_up_after_killed_restores()
        self._name = f"{WORKSHOP}/stage-{secrets.token_hex(6)}"
        os.mkdir(self._name, 0o700, dir_fd=self._live)
        self._root = os.open(self._target / self._name, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._umask = os.umask(0)
        os.umask(self._umask)

    def _clean_up_after_killed_restores(self) -> None:
        # Under the lock these belong to nobody; where there are no locks, somebody may be at work in the young ones.
        locks = self._has_locks()
        for name in os.listdir(self._target / WORKSHOP):
            if not locks and name.startswith(_UNFINISHED) and self._age(name) < _AT_WORK_SECONDS:
                continue
            if name.startswith("stage-"):
                shutil.rmtree(self._target / WORKSHOP / name, ignore_errors=True)
            elif name.startswith("publishing-"):
                self.move_aside(f"{WORKSHOP}/{name}")

    def _has_locks(self) -> bool:
        """False where the filesystem has no locks, so that the caller holds none."""
        with open_directory(self._target) as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            except OSError:
                return False
        return True

    def _age(self, name: str) -> float:
        """Seconds since files were first put there; endless for what is gone."""
        try:
            return time.time() - os.stat(self._target / WORKSHOP / name, follow_symlinks=False).st_mtime
        except FileNotFoundError:
            return math.inf

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._root)
        os.close(self._live)
        if error is not None and self._published:
            return  # it may hold what was replaced: the next restore puts it aside
        shutil.rmtree(self._target / self._name, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(self._target / WORKSHOP)

    @property
    def aside(self) -> Path | None:
        """Where things were moved aside, if any were."""
        return self._target / self._aside if self._moved else None

    @property
    def moved(self) -> int:
        """The number of things moved aside."""
        return self._moved

    def make_directories(self, files: Iterable[tuple[int, str]]) -> None:
        """Make the directories for files given as (rank, path): once, before threads write into them."""
        made: set[str] = set()
        for number, path in files:
            self._make_directory(f"{number}/{path}".rpartition("/")[0], made)

    def _make_directory(self, directory: str, made: set[str]) -> None:
        if directory in made or not directory:
            return
        self._make_directory(directory.rpartition("/")[0], made)
        os.mkdir(directory, 0o777 & ~self._umask, dir_fd=self._root)
        made.add(directory)

    def write(self, number: int, path: str, mode: int, chunks: Iterable[bytes | memoryview]) -> None:
        """Write a staged file, or write it anew. Never world-writable, and never more than the mode that was saved."""
        mode &= 0o775
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = patiently(functools.partial(os.open, f"{number}/{path}", flags, mode, dir_fd=self._root))
        try:
            if mode & self._umask:
                os.fchmod(descriptor, mode)
            for chunk in chunks:
                write_all(descriptor, chunk)
        finally:
            os.close(descriptor)

    def discard(self, number: int, path: str) -> None:
        """Take back a staged file, or a whole staged directory, before it is published."""
        whole = self._target / self._name / str(number) / path
        if whole.is_dir():
            shutil.rmtree(whole)
        else:
            whole.unlink(missing_ok=True)

    def publish(self) -> None:
        """Move everything into the cache, in the order of the ranks."""
        name = self._name.replace("/stage-", "/publishing-")
        rename(self._name, name, self._live, self._live)
        self._name, self._published = name, True
        for number in _RANKS:
            with contextlib.suppress(FileNotFoundError):
                staged = open_beneath(self._root, str(number), _DIRECTORY)
                try:
                    self._merge(staged, self._live, "")
                finally:
                    os.close(staged)

    def _merge(self, staged: int, live: int, where: str) -> None:
        for name in sorted(os.listdir(staged)):
            path = f"{where}/{name}" if where else name
            try:
                rename_new(name, name, staged, live)
            except FileExistsError:
                self._merge_existing(staged, live, name, path)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                self._merge_existing(staged, live, name, path)

    def _merge_existing(self, staged: int, live: int, name: str, path: str) -> None:
        if not (_is_directory(staged, name) and _is_directory(live, name)):
            self._replace(staged, live, name, path)
        elif not self._is_unit(path):
            with _entered(staged, name) as inner_staged, _entered(live, name) as inner_live:
                self._merge(inner_staged, inner_live, path)
        elif path not in self._torn or not _completed(staged, live, name):
            self._replace(staged, live, name, path)

    def _replace(self, staged: int, live: int, name: str, path: str) -> None:
        """Put the staged thing in the place of the live one, which goes aside."""
        with self._place_aside(path) as aside:
            if exchange(name, name, staged, live):
                self._put_aside(staged, name, aside)
            else:
                self._put_aside(live, name, aside)
                rename_new(name, name, staged, live)

    def move_aside(self, path: str) -> None:
        """Move a file or directory of the live cache aside; what is gone already needs no moving."""
        parent, _, name = path.rpartition("/")
        with contextlib.suppress(FileNotFoundError), self._place_aside(path) as aside:
            descriptor = open_beneath(self._live, parent or ".", _DIRECTORY)
            try:
                self._put_aside(descriptor, name, aside)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _place_aside(self, path: str) -> Iterator[int]:
        """The directory that a thing goes to, made before the thing is touched: no space there must lose nothing."""
        parent, _, name = path.rpartition("/")
        for number in itertools.count():
            where = self._aside + (f"-{number}" if number else "")
            try:
                descriptor = make_directories(self._live, f"{where}/{parent}".rstrip("/"))
            except NotADirectoryError:
                if number > _MOST_ASIDE:
                    raise
                continue  # a file that went aside before lies where this needs a directory
            if not exists_in(descriptor, name):
                break
            os.close(descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _put_aside(self, directory: int, name: str, aside: int) -> None:
        rename_new(name, name, directory, aside)
        self._moved += 1

    def keep_evidence(self, data: bytes) -> None:
        """Write down why things will be moved aside, beside where they go; before they are."""
        directory = make_directories(self._live, self._aside)
        try:
            descriptor = open_beneath(directory, EVIDENCE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        finally:
            os.close(directory)
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def mark(self, data: bytes) -> None:
        """Write the marker: the restore is done."""
        temporary = f"{self._name}/marker"
        descriptor = open_beneath(self._live, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)
        rename(temporary, MARKER, self._live, self._live)


def _is_directory(root: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode)


@contextlib.contextmanager
def _entered(directory: int, name: str) -> Iterator[int]:
    descriptor = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _completed(staged: int, live: int, unit: str) -> bool:
    """Move what a kernel's directory lacks into it; False where that cannot be, and nothing was done."""
    with _entered(staged, unit) as whole, _entered(live, unit) as part:
        names = sorted(os.listdir(whole), key=lambda name: (is_group(name), name))
        lacking = [name for name in names if not exists_in(part, name)]
        if not os.access(unit, os.W_OK | os.X_OK, dir_fd=live):
            return False
        if not all(_same(whole, part, name) for name in names if name not in lacking):
            return False
        for name in lacking:  # the group, which says that the others are there, comes last
            with contextlib.suppress(FileExistsError):  # Triton has just written it
                rename_new(name, name, whole, part)
    return True


def _same(one: int, other: int, name: str) -> bool:
    """True for regular files with the same bytes."""
    try:
        first, second = (os.stat(name, dir_fd=directory, follow_symlinks=False) for directory in (one, other))
        if not stat.S_ISREG(first.st_mode) or not stat.S_ISREG(second.st_mode) or first.st_size != second.st_size:
            return False
        return _bytes(one, name) == _bytes(other, name)
    except OSError:
        return False


def _bytes(directory: int, name: str) -> bytes:
    with open(open_beneath(directory, name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        return file.read()
