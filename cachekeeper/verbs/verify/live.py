"""A cache directory against a snapshot, file by file; and mended from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ... import restored
from ...comparison import LiveComparison, compare_live, entry_names, no_files
from ...disk import explained, locked
from ...evidence import evidence, in_the_way, moving
from ...fitting import fit, mismatch_error
from ...inductor import Place
from ...livecache import LiveCache, Scan, SourceFile
from ...manifest import FileRow, Manifest, Snapshot
from ...mending import Mending, put_back, torn_kernels, unit_of, unit_of_row, whole_entries, with_one_kernel_directory
from ...models import Fingerprint
from ...progress import Progress
from ...repository import Repository
from ...staging import QUARANTINE, unfinished
from .judging import Judged, judge, notes_of, refuse_other_directories, settled, still_damaged
from .result import VerifyResult

_NOT_SAVED, _NOT_RESTORED = "not in the snapshot", "not restored"
_STORE_TOO = "the store's copy is damaged too"
_LOST = "missing; the store's copy is damaged"


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
            torn=plan.torn,
            move_away=plan.drops,
            place=QUARANTINE,
            allow_damaged=True,
            drop_damaged=True,
            mark=partial(look.mark, repository) if look.wiped else None,
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
        torn: kernels that get just the files that they lack.
        spoiled: kernel of the snapshot -> what is wrong with a file that it has beyond the snapshot.
        drops: what is to move away and not come back -> why.
    """

    paths: frozenset[str]
    torn: frozenset[str]
    spoiled: Mapping[str, str]
    drops: Mapping[str, str]


@dataclass(frozen=True)
class _Look:
    """A directory, looked at.

    Attributes:
        manifest: of the snapshot, with the kernels' copies that a restore makes.
        wanted: the files of it that belong here.
        before: what the marker says, where it names this snapshot.
        strays: what is structurally damaged and not among these files.
    """

    manifest: Manifest
    wanted: Sequence[FileRow]
    before: restored.Restored | None
    scan: Scan
    comparison: LiveComparison
    strays: Judged

    @property
    def wiped(self) -> bool:
        """True where nothing of the snapshot is there."""
        return not self.comparison.same and not self.comparison.changed

    @property
    def no_files(self) -> dict[str, str]:
        """Files of the snapshot in whose place is something else, as a link -> what."""
        return no_files(self.scan.skipped, self.comparison.missing)

    def found(self) -> VerifyResult:
        comparison = self.comparison
        saved = _names(self.manifest, self.manifest.tables.files)
        odd = self.no_files
        strays = {
            path: f"{reason}   ({_NOT_RESTORED if path in saved else _NOT_SAVED})"
            for path, reason in self.strays.damaged.items()
        }
        return VerifyResult(
            "live",
            len(self.wanted),
            sum(file.size for file in self.wanted),
            (self.manifest.id,),
            dict(sorted({**comparison.changed, **odd, **strays}.items())),
            tuple(sorted(comparison.missing - odd.keys())),
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
        # What is no file is in the way of one.
        wrong = self.comparison.changed.keys() | {item.path for item in self.scan.skipped}
        torn = torn_kernels(self.manifest, self.comparison.missing, wrong) - spoiled.keys()
        return _Plan(paths, torn, spoiled, {unit: reason for unit, reason in found.items() if unit not in units})

    def mark(self, repository: Repository, left_out: tuple[Place, ...]) -> restored.Restored:
        """What the marker is to say when all of it was put back, of a restore of some kinds these again."""
        left_out += self.before.left_out if self.before else ()
        only = self.before.only if self.before else ()
        return restored.now(self.manifest.id, repository.store.url, only, left_out)


def _look(live: LiveCache, manifest: Manifest, repair: bool, progress: Progress) -> _Look:
    with_headers = manifest.header.entries_of("headers") > 0
    scan, fresh = settled(live, repair, with_headers)
    whole = with_one_kernel_directory(manifest)
    marked = restored.read(live.root)
    before = marked if marked and marked.snapshot == manifest.id else None
    wanted = before.files(whole) if before else _wanted(manifest, whole, scan.files)
    total = sum(file.size for file in wanted)
    comparison = compare_live(whole, wanted, scan.files, partial(_report, progress, "Comparing", total))
    return _Look(whole, wanted, before, scan, comparison, _strays(whole, wanted, scan, fresh))


def _wanted(manifest: Manifest, whole: Manifest, sources: Iterable[SourceFile]) -> Sequence[FileRow]:
    """The files of a snapshot that was not restored here: the copies that a restore makes only where one was made."""
    if len(whole.tables.files) == len(manifest.tables.files):
        return whole.tables.files
    saved = {file.path for file in manifest.tables.files}
    there = {source.place.entry for source in sources}
    return [file for file in whole.tables.files if file.path in saved or unit_of_row(whole, file) in there]


def _names(manifest: Manifest, files: Iterable[FileRow]) -> set[str]:
    """The paths of files, and of their entries."""
    entries = manifest.tables.entries
    return {path for file in files for path in (file.path, entries[file.entry].path)}


def _strays(manifest: Manifest, wanted: Sequence[FileRow], scan: Scan, fresh: frozenset[str]) -> Judged:
    """What is damaged of what does not belong here. A kernel is looked at whole: its files lack each other."""
    known = _names(manifest, wanted)
    units = {unit_of(source) for source in scan.files if source.path not in known and source.place.kind != "other"}
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
    units = {unit_of_row(look.manifest, file) for file in written} - plan.torn | plan.drops.keys()
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
    names = entry_names(look.manifest)
    entry_of = {file.path: names[file.entry] for file in look.wanted}
    changed: dict[str, str] = dict(plan.spoiled)
    for path, reason in sorted({**look.comparison.changed, **look.no_files}.items()):
        changed.setdefault(entry_of[path], reason)
    missing = {entry_of[path] for path in look.comparison.missing} - changed.keys()
    left_out = set(mending.left_out)
    torn = dict.fromkeys(plan.torn, "files of it are missing")
    taken = {entry: reason for entry, reason in {**torn, **changed}.items() if entry in left_out}
    dropped = {**plan.drops, **{entry: f"{reason}; {_STORE_TOO}" for entry, reason in taken.items()}}
    return replace(
        look.found(),
        repair=True,
        mended={entry: reason for entry, reason in sorted(changed.items()) if entry not in left_out},
        put_back=tuple(sorted(missing - left_out)),
        dropped=dict(sorted(dropped.items())),
        lost=dict.fromkeys(sorted(left_out - taken.keys()), _LOST),
        damaged_in_store=mending.left_out,
        quarantine=mending.aside,
    )


def _again(look: _Look, plan: _Plan, mending: Mending, directory: Path, progress: Progress) -> dict[str, str]:
    """What is wrong with what was written, and again with what was dropped."""
    lost, names = set(mending.left_out), entry_names(look.manifest)
    written = [file for file in whole_entries(look.manifest, plan.paths) if names[file.entry] not in lost]
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
