"""Move a live cache away instead of deleting it; bring it back; empty the trash."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ..clearing.items import Item
from ..clearing.places import is_bare, refuse_other_than_cache, refuse_place, refuse_users
from ..clearing.trash import Trash
from ..disk import explained, locked
from ..environment import triton_directory
from ..errors import Busy, CachekeeperError, NotFound, UsageError
from ..inductor import names_its_directory
from ..livecache import LiveCache, Scan, SourceFile, chosen_cache_dir
from ..mending import with_one_kernel_directory
from ..repository import Repository, open_repository
from ..restored import Restored, read, read_in
from ..seen import SeenFiles
from ..stores import KeyMissing, open_store
from ..units import count
from ..watching import watcher_of

_CLOCK_SECONDS = 1.0
_IN_USE = "wait for it to end; with --in-use it goes on all the same: what is running keeps what it has loaded"


@dataclass(frozen=True)
class ClearResult:
    """What was moved away, or with `dry_run` would be.

    Attributes:
        trash: where it is now; None where there was nothing to clear, and with `dry_run`.
        item: what `--undo` takes; "" likewise.
        files, bytes, entries: of the cache.
        snapshot: id of the snapshot that was restored there or saved from there last; "" for none that is known.
        unsaved: entries that neither the snapshot restored or saved there last nor another of this directory is known
            to hold.
        notes: what a person should know, a sentence each.
    """

    cache_dir: Path
    dry_run: bool = False
    trash: Path | None = None
    item: str = ""
    files: int = 0
    bytes: int = 0
    entries: int = 0
    snapshot: str = ""
    unsaved: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class UndoneResult:
    """What came back from the trash, and where in the trash is what was there until now; `dry_run`: what would."""

    cache_dir: Path
    item: Item
    now_in_trash: Path | None
    dry_run: bool = False


@dataclass(frozen=True)
class EmptiedResult:
    """What was deleted for good, or with `dry_run` would be."""

    cache_dir: Path
    dry_run: bool
    deleted: tuple[Item, ...]

    @property
    def bytes(self) -> int:
        """Their length together."""
        return sum(item.bytes for item in self.deleted)


def clear(
    directory: str | os.PathLike[str] | None = None,
    *,
    in_use: bool = False,
    dry_run: bool = False,
    reason: str = "",
) -> ClearResult:
    """Move a live cache into the trash beside it, at once and whole; an empty directory takes its place.

    Args:
        directory: default: as configured, else the one that torch would use here.
        in_use: also while a process uses it. A `cachekeeper watch` must end first all the same.
        dry_run: move nothing.
        reason: why, for whoever looks into the trash.

    Raises:
        NotFound: there is no such directory.
        UsageError: it is no cache directory of its own: a root, a link, one that holds other things or the store.
        Busy: a process uses it, or another cachekeeper works on it.
        UnsafePath: it, or its trash, belongs to another user, or every user may change it.
        LocalDiskError: it cannot be moved.
    """
    path = chosen_cache_dir(directory)
    trash = Trash(path)
    with _held(path, dry_run) as found:
        if not dry_run:
            trash.settle()
        if is_bare(path):
            return ClearResult(path, dry_run)
        result, scan = _look(path, in_use)
        if not scan.files:
            return ClearResult(path, dry_run, notes=result.notes)
        if dry_run:
            return result
        where = trash.move_away(found, reason)
    return replace(result, dry_run=False, trash=where, item=where.name)


@contextmanager
def _held(path: Path, dry_run: bool = False) -> Iterator[os.stat_result]:
    """The lock of a directory that may be cleared, and what lstat says of it."""
    refuse_watched(path)
    found = refuse_place(path)
    if found is None:
        raise NotFound(f"no directory {path}", hint=_comes_back(path))
    open_repository().refuse_inside(path)
    with explained(path, "use the cache directory"), locked(path, wait=False):
        yield found


def _comes_back(path: Path) -> str:
    items = Trash(path).items()
    again = f"`cachekeeper clear {shlex.quote(str(path))} --undo`"
    return f"{count(len(items), 'cache')} of it in the trash: {again}" if items else ""


def refuse_watched(path: Path) -> None:
    """Refuse where a `cachekeeper watch` would put everything back.

    Raises:
        Busy: one is at work.
    """
    pid = watcher_of(path)
    if pid is not None:
        raise Busy(
            f"a `cachekeeper watch` guards {path}, and would put back what is taken away",
            facts=[f"process {pid}"] if pid > 0 else (),
            hint=f"stop it first: `kill {pid}`" if pid > 0 else "stop it first",
        )


def _look(path: Path, in_use: bool) -> tuple[ClearResult, Scan]:
    with LiveCache(path) as live:
        scan = live.scan(with_headers=True)
        # Locks and temporary files alone are nothing to keep.
        if scan.files:
            refuse_other_than_cache(path, scan)
        if not in_use:
            refuse_users(path, live, _IN_USE)
        restored = read(live.root)
    result = ClearResult(
        path,
        dry_run=True,
        files=len(scan.files),
        bytes=scan.bytes,
        entries=len({file.place for file in scan.files}),
        snapshot=restored.snapshot if restored else "",
        unsaved=_unsaved(path, scan, restored),
        notes=_notes(path),
    )
    return result, scan


def _unsaved(path: Path, scan: Scan, restored: Restored | None) -> int:
    memory = SeenFiles(path)
    unknown = [file for file in scan.files if file.place.kind != "headers" and memory.get(file.path, file.live) is None]
    if unknown and restored:
        held = _held_by(restored)
        if held is None:
            since = (restored.when + _CLOCK_SECONDS) * 1e9
            unknown = [file for file in unknown if file.live.mtime_ns > since]
        else:
            unknown = [file for file in unknown if not _is_held(file, held)]
    return len({file.place for file in unknown})


def _held_by(restored: Restored) -> dict[str, int] | None:
    """Path -> size of the files of a snapshot; None where it cannot be read: a clear goes on without."""
    try:
        for store in (open_repository().store, open_store(restored.store, read_only=True)):
            if store.far:  # it may not answer for minutes
                continue
            repository = Repository(store)
            if repository.exists() and repository.has(restored.snapshot):
                manifest = with_one_kernel_directory(repository.manifest(restored.snapshot))
                return {file.path: file.size for file in manifest.tables.files}
    except (CachekeeperError, KeyMissing):
        pass
    return None


def _is_held(file: SourceFile, held: Mapping[str, int]) -> bool:
    # What names its directory is longer or shorter here than in the store.
    if names_its_directory(file.place.kind, file.path):
        return file.path in held
    return held.get(file.path) == file.live.size


def _notes(path: Path) -> tuple[str, ...]:
    triton = triton_directory()
    if triton is None or triton == path or path in triton.parents or not triton.is_dir():
        return ()
    clearing = f"`cachekeeper clear {shlex.quote(str(triton))}`"
    return (f"Triton's kernels in {triton} (TRITON_CACHE_DIR) stay: {clearing} for those",)


def bring_back(
    directory: str | os.PathLike[str] | None = None,
    item: str | None = None,
    *,
    in_use: bool = False,
    dry_run: bool = False,
) -> UndoneResult:
    """Bring back what a clear moved away; what is there now goes to the trash itself.

    Args:
        directory: as for `clear`.
        item: one of several; default: the newest.
        in_use: also while a process uses what is there now.
        dry_run: move nothing.

    Raises:
        NotFound: nothing of that directory is in the trash.
        UsageError: the beginning of several; or what is there now is no cache.
        Busy: a process uses what is there now.
    """
    path = chosen_cache_dir(directory)
    trash = Trash(path)
    if refuse_place(path) is None:
        refuse_watched(path)
        return _brought_back(trash, item, dry_run)
    with _held(path):
        if not dry_run:
            trash.settle()
        if not is_bare(path):
            _look(path, in_use)
        return _brought_back(trash, item, dry_run)


def _brought_back(trash: Trash, item: str | None, dry_run: bool) -> UndoneResult:
    found = _chosen(trash, item)
    return UndoneResult(trash.directory, found, None if dry_run else trash.bring_back(found), dry_run)


def _chosen(trash: Trash, wanted: str | None) -> Item:
    items = trash.items()
    fitting = [item for item in items if item.name.startswith(wanted or "")]
    if not fitting:
        of_what = f" that begins with {wanted!r}" if wanted else ""
        raise NotFound(
            f"nothing of {trash.directory} is in the trash{of_what}",
            facts=[item.name for item in items],
            hint=f"`cachekeeper clear {shlex.quote(str(trash.directory))} --list` shows what is" if items else "",
        )
    if wanted and len(fitting) > 1:
        raise UsageError(f"{wanted!r} is the beginning of several", facts=[item.name for item in fitting])
    return fitting[0]


class Cleared(NamedTuple):
    """A cache in the trash.

    Attributes:
        item: what is there.
        snapshot: id of the snapshot that was restored there or saved from there last; "" for none that is known.
    """

    item: Item
    snapshot: str


def cleared(directory: str | os.PathLike[str] | None = None) -> tuple[Cleared, ...]:
    """What is in the trash of a cache directory, newest first. Nothing is changed."""
    path = chosen_cache_dir(directory)
    refuse_place(path)
    found = [(item, read_in(item.path)) for item in Trash(path).items()]
    return tuple(Cleared(item, restored.snapshot if restored else "") for item, restored in found)


def empty_trash(
    directory: str | os.PathLike[str] | None = None, *, older_than: float = 0.0, dry_run: bool = False
) -> EmptiedResult:
    """Delete for good what clears moved away from a directory, and what restores and repairs put aside in it.

    Args:
        older_than: seconds that it has been there at least.
        dry_run: delete nothing.

    Raises:
        Busy: another cachekeeper works on the directory, or empties this trash.
        UnsafePath: the directory or its trash belongs to another user.
        LocalDiskError: something cannot be deleted; the next call goes on.
    """
    path = chosen_cache_dir(directory)
    trash = Trash(path)
    if refuse_place(path) is None:
        return EmptiedResult(path, dry_run, tuple(trash.empty(older_than, dry_run)))
    with explained(path, "use the cache directory"), locked(path, wait=False):
        if not dry_run:
            trash.settle()
        return EmptiedResult(path, dry_run, tuple(trash.empty(older_than, dry_run)))
