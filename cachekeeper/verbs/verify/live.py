"""A cache directory against a snapshot, file by file; and mended from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...clearing import restored_from
from ...comparison import LiveComparison, compare_live
from ...disk import explained, locked
from ...fitting import fit, mismatch_error
from ...livecache import LiveCache, Scan, SourceFile
from ...manifest import FileRow, Manifest, Snapshot
from ...mending import Mending, marker_of, put_back, unit_of, unit_of_row, whole_entries, with_one_kernel_directory
from ...models import Fingerprint
from ...repository import Repository
from ...staging import QUARANTINE, unfinished
from .evidence import evidence, in_the_way, moving
from .judging import Judged, judge, notes_of, refuse_other_directories, settled, still_damaged
from .result import Progress, VerifyResult

_NOT_SAVED = "not in the snapshot"
_STORE_TOO = "the store's copy is damaged too"


def verify_live(manifest: Manifest, directory: Path, progress: Progress) -> VerifyResult:
    """Compare a directory with a snapshot, and check the structure of what the snapshot does not have."""
    with LiveCache(directory) as live:
        look = _look(live, manifest, False, progress)
    return replace(look.found(), notes=notes_of(directory, look.strays.being_written, False))


def repair_live(
    repository: Repository, manifest: Manifest, directory: Path, here: Callable[[], Fingerprint], progress: Progress
) -> VerifyResult:
    """Compare them, and put right what is wrong.

    Args:
        here: this environment, looked at only where nothing of the snapshot is in the directory.
    """
    with explained(directory, "use the cache directory"), locked(directory):
        with LiveCache(directory) as live:
            look = _look(live, manifest, True, progress)
            if look.wiped:
                _refuse_strange_ground(repository, manifest, directory, look.scan.files, here)
            plan = look.plan()
            written_down = _evidence(repository, directory, look, plan)
        if not plan.paths and not plan.drops and not unfinished(directory):
            return replace(look.found(), repair=True, notes=notes_of(directory, look.strays.being_written, False))
        total = sum(file.size for file in whole_entries(look.manifest, plan.paths))
        mending = put_back(
            repository,
            look.manifest,
            directory,
            plan.paths,
            move_away=plan.drops,
            place=QUARANTINE,
            allow_damaged=True,
            drop_damaged=True,
            marker=marker_of(repository, manifest) if look.wiped else None,
            evidence=written_down,
            progress=partial(_report, progress, "Mending", total),
        )
        unmended = _again(look, plan, mending, directory, progress)
        result = replace(_done(look, plan, mending), unmended=unmended)
        return replace(result, notes=notes_of(directory, look.strays.being_written, mending.aside is not None))


@dataclass(frozen=True)
class _Plan:
    """What a repair is to do.

    Attributes:
        paths: files of the snapshot to put back.
        spoiled: kernel of the snapshot -> what is wrong with a file that it has beyond the snapshot.
        drops: what is to move away and not come back -> why.
    """

    paths: frozenset[str]
    spoiled: Mapping[str, str]
    drops: Mapping[str, str]


@dataclass(frozen=True)
class _Look:
    """A directory, looked at.

    Attributes:
        manifest: of the snapshot, with the kernels' copies that a restore makes.
        wanted: the files of it that belong here.
        strays: what is structurally damaged and not in the snapshot.
    """

    manifest: Manifest
    wanted: Sequence[FileRow]
    scan: Scan
    comparison: LiveComparison
    strays: Judged

    @property
    def wiped(self) -> bool:
        """True where nothing of the snapshot is there."""
        return not self.comparison.same and not self.comparison.changed

    def found(self) -> VerifyResult:
        comparison = self.comparison
        strays = {path: f"{reason}   ({_NOT_SAVED})" for path, reason in self.strays.damaged.items()}
        return VerifyResult(
            "live",
            len(self.wanted),
            sum(file.size for file in self.wanted),
            (self.manifest.id,),
            dict(sorted({**comparison.changed, **strays}.items())),
            tuple(sorted(comparison.missing)),
            tuple(sorted(source.path for source in comparison.extra)),
        )

    def plan(self) -> _Plan:
        units: dict[str, list[str]] = {}
        for file in self.wanted:
            units.setdefault(unit_of_row(self.manifest, file), []).append(file.path)
        found = {self.strays.unit(path): reason for path, reason in self.strays.damaged.items()}
        spoiled = {unit: reason for unit, reason in found.items() if unit in units}
        paths = self.comparison.missing | self.comparison.changed.keys()
        paths |= {path for unit in spoiled for path in units[unit]}
        return _Plan(paths, spoiled, {unit: reason for unit, reason in found.items() if unit not in units})


def _look(live: LiveCache, manifest: Manifest, repair: bool, progress: Progress) -> _Look:
    with_headers = manifest.header.entries_of("headers") > 0
    scan, fresh = settled(live, repair, with_headers)
    whole = with_one_kernel_directory(manifest)
    wanted = _wanted(live, manifest, whole, scan.files)
    total = sum(file.size for file in wanted)
    comparison = compare_live(whole, wanted, scan.files, partial(_report, progress, "Comparing", total))
    return _Look(whole, wanted, scan, comparison, _strays(whole, scan, comparison, fresh))


def _wanted(live: LiveCache, manifest: Manifest, whole: Manifest, sources: Iterable[SourceFile]) -> Sequence[FileRow]:
    """The files of a snapshot that belong into a directory: the copies that a restore makes only where one was made."""
    marked = restored_from(live.root)
    if len(whole.tables.files) == len(manifest.tables.files) or (marked and marked.snapshot == manifest.id):
        return whole.tables.files
    saved = {file.path for file in manifest.tables.files}
    there = {source.place.entry for source in sources}
    return [file for file in whole.tables.files if file.path in saved or unit_of_row(whole, file) in there]


def _strays(manifest: Manifest, scan: Scan, comparison: LiveComparison, fresh: frozenset[str]) -> Judged:
    """What is damaged of what the snapshot does not have. A kernel is looked at whole: its files lack each other."""
    units = {unit_of(source) for source in comparison.extra if source.place.kind != "other"}
    known = {file.path for file in manifest.tables.files} | {entry.path for entry in manifest.tables.entries}
    return judge([source for source in scan.files if unit_of(source) in units], fresh, known)


def _refuse_strange_ground(
    repository: Repository,
    manifest: Manifest,
    directory: Path,
    files: Sequence[SourceFile],
    here: Callable[[], Fingerprint],
) -> None:
    """Where nothing of a snapshot is, all of it would be put: this must be a cache, and the snapshot fit this machine.

    Raises:
        UsageError, EnvironmentMismatch: it is not so.
    """
    refuse_other_directories(directory, files)
    fingerprint = here()
    comparison = fit(manifest.header, fingerprint)
    if not comparison.fits:
        raise mismatch_error(repository, Snapshot(manifest.id, manifest.header), comparison, fingerprint)


def _evidence(repository: Repository, directory: Path, look: _Look, plan: _Plan) -> bytes | None:
    if not plan.paths and not plan.drops:
        return None
    written = [file for file in look.wanted if file.path in plan.paths]
    units = {unit_of_row(look.manifest, file) for file in written} | plan.drops.keys()
    return evidence(
        directory,
        moving(look.scan.files, units, plan.paths),
        in_the_way(look.scan.skipped, plan.paths),
        {**look.strays.damaged, **look.comparison.changed},
        {file.path: file for file in look.wanted},
        look.manifest.id,
        repository.store.url,
    )


def _done(look: _Look, plan: _Plan, mending: Mending) -> VerifyResult:
    entry_of = {file.path: look.manifest.tables.entries[file.entry].path for file in look.wanted}
    changed: dict[str, str] = dict(plan.spoiled)
    for path, reason in sorted(look.comparison.changed.items()):
        changed.setdefault(entry_of[path], reason)
    missing = {entry_of[path] for path in look.comparison.missing} - changed.keys()
    lost = set(mending.left_out)
    dropped = dict(plan.drops)
    dropped |= {entry: f"{changed.get(entry, 'missing')}; {_STORE_TOO}" for entry in lost}
    return replace(
        look.found(),
        repair=True,
        mended={entry: reason for entry, reason in sorted(changed.items()) if entry not in lost},
        put_back=tuple(sorted(missing - lost)),
        dropped=dict(sorted(dropped.items())),
        damaged_in_store=mending.left_out,
        quarantine=mending.aside,
    )


def _again(look: _Look, plan: _Plan, mending: Mending, directory: Path, progress: Progress) -> dict[str, str]:
    """What is wrong with what was written, and again with what was dropped."""
    lost, entries = set(mending.left_out), look.manifest.tables.entries
    written = [file for file in whole_entries(look.manifest, plan.paths) if entries[file.entry].path not in lost]
    total = sum(file.size for file in written)
    with LiveCache(directory) as live:
        files = live.scan(with_headers=True).files
        found = compare_live(look.manifest, written, files, partial(_report, progress, "Verifying", total))
    return {
        **found.changed,
        **dict.fromkeys(sorted(found.missing), "missing"),
        **still_damaged(directory, plan.drops),
    }


def _report(progress: Progress, stage: str, total: int, done: int) -> None:
    progress(stage, done, total)
