"""Bring a snapshot back into a cache directory."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import preflight
from ..comparison import LiveComparison, compare_live, entries_of
from ..config import setting
from ..delivery import Chunks, damaged_snapshot_error, deliver, placed
from ..disk import directory_exists, explained, locked
from ..environment import fingerprint
from ..errors import Busy, CheckFailed, EmptyCache, NotFound, UsageError
from ..fitting import choose, fit, mismatch_error
from ..inductor import KINDS, job_environment, names_its_directory, triton_device
from ..inductor.variables import fullest
from ..livecache import LiveCache, Scan, SourceFile, chosen_cache_dir, users_of
from ..manifest import ALSO, FileRow, Manifest, Snapshot
from ..models import Comparison
from ..reading import structure_damage
from ..repository import Repository, open_repository
from ..staging import Stage, rank
from ..stores import Store
from ..units import count, now_utc, short_id

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class RestoreResult:
    """What a restore did, or with `dry_run` would do.

    Attributes:
        snapshot: what was restored; None where there was none and `missing_ok` said that this is fine.
        new, same, replaced: number of files written, found right already, and replaced because they were not.
        mended: the entries that were replaced, with what was wrong.
        left_out: entries of a damaged snapshot that were not restored.
        moved_aside: files and entries moved out of the way, below `aside`.
        environment: variables that the job must have before it imports torch.
        verified: number of files read again and found right after writing.
        notes: what a person should know, a sentence each.
    """

    snapshot: Snapshot | None
    cache_dir: Path
    dry_run: bool = False
    new: int = 0
    same: int = 0
    replaced: int = 0
    mended: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    moved_aside: int = 0
    aside: Path | None = None
    environment: dict[str, str] | None = None
    comparison: Comparison | None = None
    verified: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RestoreOptions:
    """How to restore; see `restore`."""

    verify: bool = False
    exact: bool = False
    only: tuple[str, ...] = ()
    repair: bool = False
    allow_mismatch: bool = False
    allow_damaged: bool = False
    dry_run: bool = False


def restore(
    reference: str | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | Store | None = None,
    verify: bool = False,
    exact: bool = False,
    only: Sequence[str] = (),
    repair: bool = False,
    missing_ok: bool = False,
    allow_mismatch: bool = False,
    allow_damaged: bool = False,
    require_proof: bool = False,
    dry_run: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> RestoreResult:
    """Bring a snapshot back, merging it into the directory: what is right there stays, also what is not in it.

    Args:
        reference: id, name, `name@{1}` or "latest", the newest that fits this machine; default as configured.
        cache_dir: default: the directory that torch would use here.
        verify: read everything again after writing.
        exact: move what the snapshot does not have aside.
        only: the kinds to restore, of `cachekeeper.inductor.KINDS`.
        repair: also move entries aside that are structurally damaged and not in the snapshot, so that torch rebuilds
            them.
        missing_ok: no snapshot is not an error.
        allow_mismatch: restore although this environment is another.
        allow_damaged: restore the whole entries of a damaged snapshot and leave the others out.
        require_proof: only a snapshot with the certificate of a warmup will do.
        dry_run: change nothing.

    Raises:
        NotFound: no such snapshot.
        Unproven: with `require_proof`, it has no certificate.
        EnvironmentMismatch: torch would not use it here, or it could be wrong here.
        DamagedStore: bytes in the store are not right; the directory is as it was.
        LocalDiskError: space, inodes, permission or noexec, checked before the first byte is written.
        Busy: with `exact`, another process uses the directory.
        CheckFailed: with `verify`, what was written does not read back.
    """
    unknown = set(only) - set(KINDS)
    if unknown:
        raise UsageError(f"no kind {sorted(unknown)[0]!r}", hint="the kinds are " + ", ".join(KINDS))
    if require_proof and (only or allow_mismatch or allow_damaged):
        raise UsageError(
            "a proof is of all of a snapshot, in the environment that it was made on",
            hint="leave out --require-proof, or --only, --allow-mismatch and --allow-damaged",
        )
    options = RestoreOptions(verify, exact, tuple(only), repair, allow_mismatch, allow_damaged, dry_run)
    target = chosen_cache_dir(cache_dir)
    repository = open_repository(store)
    repository.refuse_inside(target)
    if reference == "":
        raise UsageError(
            "the name of the snapshot is empty", hint="give a name, an id or `latest`; is a variable unset?"
        )
    config = setting("model_config")
    here = fingerprint(model_config=Path(config) if config else None)
    try:
        repository.require()
        snapshot = choose(repository, setting("name", reference) or "latest", here, require_proof)
    except NotFound as error:
        if not missing_ok:
            raise
        environment = job_environment(target, {}, ())
        return RestoreResult(None, target, dry_run, environment=environment, notes=(error.message,))
    if not snapshot.header.files:
        raise EmptyCache(f"snapshot {short_id(snapshot.id)} holds nothing", hint="see the others with `cachekeeper ls`")
    comparison = fit(snapshot.header, here)
    if not comparison.fits and not allow_mismatch:
        raise mismatch_error(repository, snapshot, comparison, here)
    manifest = with_one_kernel_directory(repository.manifest(snapshot.id))
    return _Restore(repository, manifest, target, comparison, options, progress).run()


def with_one_kernel_directory(manifest: Manifest) -> Manifest:
    """The manifest with every kernel also in the directory that `TRITON_CACHE_DIR` will name.

    Ranks of one job fill a directory each (`triton/0`, `triton/1`, ...), and a restored job names one for all.
    """
    table = manifest.tables
    main = fullest(manifest.header.triton_dirs)
    prefix_of = {
        number: triton_device(entry.path)
        for number, entry in enumerate(table.entries)
        if entry.kind == "triton" and triton_device(entry.path) not in (None, main)
    }
    taken = {entry.path for entry in table.entries if entry.kind == "triton"}
    entries = list(table.entries)
    added: dict[int, int] = {}
    for number, prefix in prefix_of.items():
        path = main + table.entries[number].path.removeprefix(prefix or "")
        if path not in taken:
            taken.add(path)
            added[number] = len(entries)
            entries.append(table.entries[number]._replace(path=path))
    copies = [
        file._replace(path=main + file.path.removeprefix(prefix_of[file.entry] or ""), entry=added[file.entry])
        for file in table.files
        if file.entry in added
    ]
    return replace(manifest, tables=replace(table, entries=tuple(entries), files=(*table.files, *copies)))


@dataclass
class _Restore:
    """One restore at work."""

    repository: Repository
    manifest: Manifest
    target: Path
    comparison: Comparison
    options: RestoreOptions
    progress: Progress

    def __post_init__(self) -> None:
        self.entries = self.manifest.tables.entries
        self.files = [file for file in self.manifest.tables.files if self._wanted(file)]
        self.by_path = {file.path: file for file in self.files}
        self.units = {entry.path for entry in self.entries if entry.kind == "triton"}

    def _wanted(self, file: FileRow) -> bool:
        return not self.options.only or self.entries[file.entry].kind in self.options.only

    def run(self) -> RestoreResult:
        if self.options.dry_run and not directory_exists(self.target):
            return self._result(LiveComparison(frozenset(), frozenset(self.by_path), {}, ()), {})
        if not self.options.dry_run:
            preflight.make_target(self.target)
        with explained(self.target, "use the cache directory"), locked(self.target):
            with LiveCache(self.target) as live:
                scan = live.scan(with_headers=True)
                total = sum(file.size for file in self.files)
                comparison = compare_live(self.manifest, self.files, scan.files, self._report("Comparing", total))
                broken = self._broken(scan) if self.options.repair else {}
            if self.options.dry_run:
                return self._result(comparison, broken)
            return self._write(comparison, broken)

    def _report(self, stage: str, total: int) -> Callable[[int], None]:
        return lambda done: self.progress(stage, done, total)

    def _broken(self, scan: Scan) -> dict[str, str]:
        """Structurally damaged things that are not in the snapshot, as `Stage.move_aside` takes them."""
        units = {source.path: self._unit(source) for source in scan.files}
        damaged = structure_damage(scan.files)
        found = {units.get(path, path): reason for path, reason in damaged.items()}
        return {unit: reason for unit, reason in found.items() if unit not in self.by_path and unit not in self.units}

    def _extras(self, comparison: LiveComparison) -> list[str]:
        """What `--exact` moves aside. Files that Triton added to a directory of the snapshot stay with it."""
        right = comparison.same or comparison.changed
        if not right and comparison.extra and all(source.place.kind == "other" for source in comparison.extra):
            raise UsageError(
                f"{self.target} holds files and nothing of a compile cache: --exact would move them all away",
                hint="restore without --exact, or into another directory with --cache-dir",
            )
        wanted = [
            source for source in comparison.extra if not self.options.only or source.place.kind in self.options.only
        ]
        return sorted({self._unit(source) for source in wanted} - self.units)

    def _unit(self, source: SourceFile) -> str:
        """What moves as a whole with a file: a kernel's directory, or the file itself."""
        return source.place.entry if source.place.kind == "triton" else source.path

    def _write(self, comparison: LiveComparison, broken: dict[str, str]) -> RestoreResult:
        extras = self._extras(comparison) if self.options.exact else []
        users = list(users_of(self.target)) if extras or comparison.changed else []
        if extras and users:
            raise Busy(
                f"{self.target} is in use, and --exact would move files away from under it",
                facts=[f"process {pid}" for pid in users[:10]],
                hint="wait for it to end, or restore without --exact",
            )
        needed = self._needed(comparison)
        preflight.check(self.target, needed, native=any(self._kind(file) == "native" for file in self.files))
        aside_too = sorted({*extras, *broken})
        with Stage(self.target, self.units.__contains__) as stage:
            left_out = self._stage(stage, needed)
            for path in aside_too:
                stage.move_aside(path)
            stage.publish()
            stage.mark(self._marker())
            aside = stage.aside
        result = self._result(comparison, broken, left_out)
        if users:
            note = f"process {users[0]} has files of it open: it keeps what it has loaded"
            result = replace(result, notes=(*result.notes, note))
        result = replace(result, moved_aside=len(aside_too), aside=aside)
        return replace(result, verified=self._verify(left_out)) if self.options.verify else result

    def _kind(self, file: FileRow) -> str:
        return self.entries[file.entry].kind

    def _needed(self, comparison: LiveComparison) -> list[FileRow]:
        """The files to write: what is missing or wrong, and of a kernel's directory all or nothing."""
        whole = {self.by_path[path].entry for path in (*comparison.missing, *comparison.changed)}
        return [
            file
            for file in self.files
            if file.path not in comparison.same or (self._kind(file) == "triton" and file.entry in whole)
        ]

    def _stage(self, stage: Stage, needed: list[FileRow]) -> tuple[str, ...]:
        """Write files into the stage; returns the entries that a damaged store made us leave out."""
        stage.make_directories((rank(self._kind(file)), file.path) for file in needed)
        total = sum(file.size for file in needed)

        def receive(file: FileRow, chunks: Chunks) -> None:
            kind = self._kind(file)
            if names_its_directory(kind, file.path):
                chunks = (placed(kind, file.path, b"".join(chunks), self.target),)
            stage.write(rank(kind), file.path, file.mode, chunks)

        report = self._report("Restoring", total)
        damaged = deliver(self.repository.store, self.manifest, needed, receive, report)
        if damaged and not self.options.allow_damaged:
            raise damaged_snapshot_error(self.manifest, damaged)
        bad = {item.file.entry for item in damaged}
        for file in needed:
            if file.entry in bad:
                stage.discard(rank(self._kind(file)), file.path)
        for number in bad & {file.entry for file in needed if self._kind(file) == "triton"}:
            stage.discard(rank("triton"), self.entries[number].path)
        return tuple(sorted(self.entries[number].path for number in bad))

    def _marker(self) -> bytes:
        document = {"snapshot": self.manifest.id, "store": self.repository.store.url, "when": now_utc()}
        return json.dumps(document, indent=1).encode() + b"\n"

    def _verify(self, left_out: tuple[str, ...]) -> int:
        wanted = [file for file in self.files if self.entries[file.entry].path not in left_out]
        with LiveCache(self.target) as live:
            scan = live.scan(with_headers=True)
            again = compare_live(
                self.manifest, wanted, scan.files, self._report("Verifying", sum(f.size for f in wanted))
            )
        if again.changed or again.missing:
            facts = [f"{path}  {reason}" for path, reason in again.changed.items()]
            facts += [f"{path}  missing" for path in sorted(again.missing)]
            raise CheckFailed(
                f"{self.target} does not read back as it was written",
                facts=facts[:50],
                hint="another process may be changing it, or the disk is failing: try again, or another --cache-dir",
            )
        return len(again.same)

    def _result(
        self, comparison: LiveComparison, broken: dict[str, str], left_out: tuple[str, ...] = ()
    ) -> RestoreResult:
        kept = [path for path in comparison.missing if self.entries[self.by_path[path].entry].path not in left_out]
        changed = entries_of(self.manifest, comparison.changed)
        mended = [
            f"{entry}: {comparison.changed[paths[0]]}" for entry, paths in changed.items() if entry not in left_out
        ]
        also = [(label, self.target / ALSO / label) for label in self.manifest.header.also]
        return RestoreResult(
            Snapshot(self.manifest.id, self.manifest.header),
            self.target,
            self.options.dry_run,
            new=len(kept),
            same=len(comparison.same),
            replaced=len(comparison.changed),
            mended=(*mended, *(f"{path}: {reason} (moved aside)" for path, reason in broken.items())),
            left_out=left_out,
            environment=job_environment(self.target, self.manifest.header.triton_dirs, also),
            comparison=self.comparison,
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        notes = [f"{item.name} {item.theirs} -> {item.ours}" for item in self.comparison.should]
        notes += self.repository.store.caveats
        header = self.manifest.header
        if "torch" in sys.modules:
            notes.append(
                "torch is already loaded in this process: it may have decided on its cache; restore before importing it"
            )
        if header.live:
            notes.append("this snapshot was taken while the cache was in use: " + "; ".join(header.live))
        if header.damaged:
            notes.append(f"this snapshot was saved with {count(len(header.damaged), 'damaged entry')}")
        if len(header.triton_dirs) > 1:
            main = fullest(header.triton_dirs)
            notes.append(
                f"kernels of {len(header.triton_dirs)} directories are also in {main}, which TRITON_CACHE_DIR names"
            )
        return tuple(notes)
