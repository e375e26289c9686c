"""Move a live cache to another place, with the paths in it rewritten."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from .. import preflight, strangers
from ..clearing.places import refuse_foreign, refuse_other_than_cache, refuse_place, refuse_users
from ..clearing.trash import Trash
from ..delivery import placed
from ..disk import (
    LiveFile,
    Skipped,
    directory_exists,
    exists_in,
    explained,
    locked,
    open_beneath,
    open_directory,
    read_into,
)
from ..environment import triton_directory
from ..errors import Busy, CheckFailed, EmptyCache, NotFound, UsageError
from ..inductor import Place, job_environment, names_its_directory, normalise, triton_device, triton_dirs
from ..inductor.variables import fullest
from ..livecache import LiveCache, Scan, SourceFile, chosen_cache_dir
from ..manifest import ALSO, FileRow, also_label
from ..progress import Progress
from ..repository import open_repository
from ..restored import carried
from ..staging import Stage, rank
from .clear import refuse_watched
from .doctor.place import another_place

_MOST = 20
_WAIT = "wait for it to end, then try again"


@dataclass(frozen=True)
class MoveResult:
    """A cache in its new place, or with `dry_run` what would be done.

    Attributes:
        cache_dir: where it was; an empty directory now.
        target: where it is.
        trash: where the old one is now; `cachekeeper clear cache_dir --undo` brings it back. None with `dry_run`.
        item: what `--undo` takes; "" likewise.
        files, bytes: of the cache; new: files that were written, the others were in `target` already.
        replaced: files that were in `target` otherwise, and are below `aside` now; None where nothing was in the way.
        others: files of another cache that were in `target`, and stay beside it.
        environment: variables that jobs must have now before they import torch.
        skipped: what could not be taken along, and is in the trash alone.
        scratch: number of locks and temporary files left behind.
        notes: what a person should know, a sentence each.
    """

    cache_dir: Path
    target: Path
    trash: Path | None
    item: str
    files: int
    bytes: int
    new: int
    environment: dict[str, str]
    dry_run: bool = False
    replaced: int = 0
    aside: Path | None = None
    others: int = 0
    skipped: tuple[Skipped, ...] = ()
    scratch: int = 0
    notes: tuple[str, ...] = ()


def move(
    directory: str | os.PathLike[str] | None = None,
    target: str | os.PathLike[str] | None = None,
    *,
    dry_run: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> MoveResult:
    """Write a cache again in another place, verify it there, then clear the old one.

    Whatever dies on the way, the cache is whole in its old place, or in the new one and the trash.

    Args:
        directory: default: as configured, else the one that torch would use here.
        target: where to; a cache that is there already is added to, as `restore` does. Default: a directory of this
            user on a local disk that no cleaner empties.
        dry_run: look at both places, and write nothing.

    Raises:
        NotFound: there is no such cache, or no place for it is known.
        UsageError: a place that is no cache's own, or one in the other.
        Busy: a process uses the cache, or wrote into it meanwhile.
        UnsafePath: another user owns one of the places, or every user may change it.
        LocalDiskError: space, permission or noexec, looked at before anything is written.
    """
    source = chosen_cache_dir(directory)
    destination = _destination(source, target)
    refuse_watched(source)
    found = refuse_place(source)
    if found is None:
        raise NotFound(f"no directory {source}", hint="`cachekeeper doctor` says which one torch would use")
    open_repository().refuse_inside(source, destination)
    _check_destination(destination)
    with explained(source, "use the cache directory"), locked(source, wait=False):
        trash = Trash(source)
        if not dry_run:
            trash.settle()
        with LiveCache(source) as live:
            scan = live.scan(with_headers=True)
            _check_source(source, live, scan)
            files = _in_one_kernel_directory(scan.files)
            copying = _Copying(source, destination, files, progress)
            others = [(file.path, file.live.size) for file in files if file.place.kind == "other"]
            notes = strangers.naming(live.root, others, {str(source): destination})
            if dry_run:
                return replace(_result(copying, copying.look(), scan), notes=notes)
            copied = copying.run(carried(live.root))
            if _files(scan) != _files(live.scan(with_headers=True)):
                raise _changed(source, destination)
            refuse_users(source, live, _WAIT)
        where = trash.move_away(found)
    done = _result(copying, copied, scan)
    return replace(done, trash=where, item=where.name, dry_run=False, notes=notes)


def _result(copying: _Copying, copied: _Copied, scan: Scan) -> MoveResult:
    return MoveResult(
        copying.source,
        copying.target,
        None,
        "",
        files=len(copying.files),
        bytes=copying.total,
        new=copied.new,
        environment=_environment(copying.source, copying.target, scan),
        dry_run=True,
        replaced=copied.replaced,
        aside=copied.aside,
        others=copied.others,
        skipped=tuple(scan.skipped),
        scratch=scan.scratch,
    )


def _destination(source: Path, given: str | os.PathLike[str] | None) -> Path:
    if given is None:
        place = another_place(source)
        if place is None:
            raise NotFound("no directory on a local disk is known to move it to", hint="name one with --to")
        return place
    if not os.fspath(given):
        raise UsageError("the place to move to is empty", hint="--to names a directory; is a variable unset?")
    target = Path(os.path.abspath(os.path.expanduser(given)))
    for one, other in ((source, target), (Path(os.path.realpath(source)), Path(os.path.realpath(target)))):
        if one == other or one in other.parents or other in one.parents:
            raise UsageError(f"{target} is {source}, or one is in the other", hint="name another place with --to")
    return target


def _check_destination(target: Path) -> None:
    if refuse_place(target) is not None:
        refuse_foreign(target)


def _check_source(source: Path, live: LiveCache, scan: Scan) -> None:
    if not scan.files:
        raise EmptyCache(f"nothing to move: {source} holds no entry of a compile cache")
    refuse_other_than_cache(source, scan)
    refuse_users(source, live, _WAIT)


def _files(scan: Scan) -> set[tuple[str, LiveFile]]:
    return {(file.path, file.live) for file in scan.files}


def _changed(source: Path, target: Path) -> Busy:
    return Busy(
        f"{source} changed while it was copied, so it stays where it is",
        facts=[f"what is in {target} is whole"],
        hint="wait until no job uses it, then try again: only what is new is written",
    )


def _in_one_kernel_directory(files: Sequence[SourceFile]) -> list[SourceFile]:
    """The files, with every kernel also in the directory that `TRITON_CACHE_DIR` will name; as `restore` does it."""
    entries = sorted({file.place.entry for file in files if file.place.kind == "triton"})
    main = fullest(triton_dirs(entries))
    copies: dict[str, str] = {}
    taken = set(entries)
    for entry in entries:
        directory = triton_device(entry)
        path = main + entry.removeprefix(directory or "")
        if directory not in (None, main) and path not in taken:
            taken.add(path)
            copies[entry] = path
    return [
        *files,
        *(
            file._replace(
                path=copies[file.place.entry] + file.path.removeprefix(file.place.entry),
                place=Place("triton", copies[file.place.entry]),
            )
            for file in files
            if file.place.entry in copies
        ),
    ]


def _environment(source: Path, target: Path, scan: Scan) -> dict[str, str]:
    kernels = triton_dirs({file.place.entry for file in scan.files if file.place.kind == "triton"})
    labels = sorted({label for file in scan.files if (label := also_label(file.path))})
    environment = job_environment(target, kernels, [(label, target / ALSO / label) for label in labels])
    elsewhere = triton_directory()
    if elsewhere is not None and source not in elsewhere.parents:
        environment["TRITON_CACHE_DIR"] = str(elsewhere)  # it stays there
    return environment


class _Copied(NamedTuple):
    """What is written into the target, and what was there: the fields are those of `MoveResult`."""

    new: int
    replaced: int = 0
    others: int = 0
    aside: Path | None = None


@dataclass
class _Copying:
    """Every entry of a cache, written again in another place."""

    source: Path
    target: Path
    files: Sequence[SourceFile]
    progress: Progress

    def __post_init__(self) -> None:
        self.units = {file.place.entry for file in self.files if file.place.kind == "triton"}
        self.sums: dict[str, str] = {}
        self.total = sum(file.live.size for file in self.files)
        self.done = 0

    def look(self) -> _Copied:
        """What would be written."""
        if not directory_exists(self.target):
            return _Copied(len(self.files))
        explaining = explained(self.target, "look at the cache directory")
        with explaining, locked(self.target), open_directory(self.target) as root:
            needed = self._needed(root)
            self._check_room([file for files in needed for file in files])
            return self._found(root, needed)

    def run(self, marker: bytes | None) -> _Copied:
        """Write what is not there already, and read everything again."""
        preflight.make_target(self.target)
        with explained(self.target, "write the cache directory"), locked(self.target):
            return self._written(marker)

    def _needed(self, root: int) -> list[list[SourceFile]]:
        return [files for files in self._entries() if not self._is_there(root, files)]

    def _found(self, root: int, needed: Sequence[Sequence[SourceFile]]) -> _Copied:
        ours = {file.path for file in self.files}
        with LiveCache(self.target) as live:
            others = sum(file.path not in ours for file in live.scan(with_headers=True).files)
        replaced = sum(exists_in(root, file.path) for files in needed for file in files)
        return _Copied(sum(map(len, needed)), replaced, others)

    def _written(self, marker: bytes | None) -> _Copied:
        with open_directory(self.target) as root:
            needed = self._needed(root)
            copied = self._found(root, needed)
            self._check_room([file for files in needed for file in files])
            with Stage(self.target, self.units.__contains__) as stage:
                stage.make_directories((rank(file.place.kind), file.path) for files in needed for file in files)
                for files in needed:
                    self._write(stage, files)
                stage.publish()
                for file in (file for files in needed for file in files):
                    _set_time(root, file)
                if marker is not None:
                    stage.mark(marker)
            self._verify(root)
        return copied._replace(aside=stage.aside)

    def _check_room(self, files: Sequence[SourceFile]) -> None:
        rows = [FileRow(file.path, file.live.mode, file.live.size, "", 0, 0, 0) for file in files]
        preflight.check(self.target, rows, native=any(file.place.kind == "native" for file in self.files))

    def _entries(self) -> Iterable[list[SourceFile]]:
        """The files that are written together: a kernel's, or each alone."""
        found: dict[str, list[SourceFile]] = defaultdict(list)
        for file in self.files:
            found[file.place.entry if file.place.kind == "triton" else file.path].append(file)
        return found.values()

    def _is_there(self, root: int, files: Sequence[SourceFile]) -> bool:
        return all(exists_in(root, file.path) for file in files) and all(
            _sum(root, file.path) == self._kept_sum(file, self._content(file)) for file in files
        )

    def _kept_sum(self, file: SourceFile, data: bytes) -> str:
        self.sums[file.path] = hashlib.sha256(data).hexdigest()
        return self.sums[file.path]

    def _write(self, stage: Stage, files: Sequence[SourceFile]) -> None:
        for file in files:
            data = self._content(file)
            self._kept_sum(file, data)
            stage.write(rank(file.place.kind), file.path, file.live.mode, [data])
            self.done += file.live.size
            self.progress("Moving", self.done, self.total)

    def _content(self, file: SourceFile) -> bytes:
        """A file's bytes as they must be in the new place."""
        data = bytearray()
        try:
            size, same = read_into(file.root, file.live, data)
        except (FileNotFoundError, BlockingIOError):
            raise _changed(self.source, self.target) from None
        if not same:
            raise _changed(self.source, self.target)
        kind, content = file.place.kind, bytes(data[:size])
        if not names_its_directory(kind, file.path):
            return content
        kept, _ = normalise(kind, content, file.base, file.directory)
        return placed(kind, file.path, kept, self.target)

    def _verify(self, root: int) -> None:
        wrong = [path for path, wanted in self.sums.items() if _sum(root, path) != wanted]
        if wrong:
            raise CheckFailed(
                f"{self.target} does not read back as it was written; {self.source} stays where it is",
                facts=sorted(wrong)[:_MOST],
                hint="another process may be changing it, or the disk is failing: try again, or another place",
            )


def _set_time(root: int, file: SourceFile) -> None:
    """The time of the old one: by it `status` tells what was written since the restore."""
    descriptor = open_beneath(root, file.path)
    try:
        os.utime(descriptor, ns=(file.live.mtime_ns, file.live.mtime_ns))
    finally:
        os.close(descriptor)


def _sum(root: int, path: str) -> str:
    """SHA-256 of a file below a directory; "" where there is none."""
    try:
        with open(open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""
