"""Bring a snapshot back into a cache directory."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from .. import instead, ownership, preflight, restored, strangers, trust
from ..comparison import LiveComparison, compare_live, entries_of, entry_names
from ..config import model_files, setting
from ..disk import Skipped, directory_exists, explained, locked, open_directory
from ..environment import fingerprint
from ..errors import Busy, CheckFailed, EmptyCache, NotFound, UsageError
from ..evidence import in_the_way
from ..fitting import fit, mismatch_error
from ..inductor import KINDS, Place, job_environment
from ..inductor.layout import may_be_at_top
from ..inductor.variables import fullest
from ..livecache import LiveCache, SourceFile, chosen_cache_dir, users_of
from ..manifest import ALSO, FileRow, Manifest, Snapshot
from ..mending import (
    damaged_units,
    put_back,
    refuse_other_than_cache,
    torn_kernels,
    unit_of,
    whole_entries,
    with_one_kernel_directory,
)
from ..models import Comparison, Fingerprint
from ..progress import Progress
from ..repository import Repository, open_repository
from ..stores import Store
from ..units import count, few, short_id

_ANOTHER_USERS = "another user's"
_MOST_FACTS = 10


@dataclass(frozen=True)
class RestoreResult:
    """What a restore did, or with `dry_run` would do.

    Attributes:
        snapshot: what was restored; None where there was none and `missing_ok` said that this is fine.
        new, same, replaced: number of files written, found right already, and replaced because they were not.
        mended: the entries that were replaced, and what was put aside for others, with what was wrong.
        left_out: entries of a damaged snapshot that were not restored.
        moved_aside: files and kernels' directories moved out of the way, below `aside`.
        extras: those of them that the snapshot does not have, which `exact` moves.
        passed_over: full ids of newer snapshots that fit as well, and turned out to be damaged in the store.
        environment: variables that the job must have before it imports torch.
        verified: number of files read again and found right after writing.
        signed_by: id of the key that vouches for the snapshot, where a signature was required.
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
    extras: tuple[str, ...] = ()
    aside: Path | None = None
    passed_over: tuple[str, ...] = ()
    environment: dict[str, str] | None = None
    comparison: Comparison | None = None
    verified: int | None = None
    signed_by: str = ""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """False where the store is damaged so that nothing of the snapshot is there."""
        return not self.left_out or bool(self.new or self.same or self.replaced)


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
    require_signature: str | os.PathLike[str] | None = None,
    allow_older: bool = False,
    model_config: str | os.PathLike[str] | None = None,
    model_sources: Sequence[str | os.PathLike[str]] = (),
    dry_run: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> RestoreResult:
    """Bring a snapshot back, merging it into the directory: what is right there stays, also what is not in it.

    Args:
        reference: id, name, `name@{1}` or "latest", the newest that fits this machine and is whole in the store;
            default as configured.
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
        require_signature: only one that one of these keys has signed will do, and a name only where that it points
            there is signed too: a public key, or a file of them; default as configured.
        allow_older: with a signature, also where this machine has seen the name point to something newer.
        model_config, model_sources: the files of the model, as they were given to `snapshot`; default as configured.
        dry_run: change nothing.

    Raises:
        NotFound: no such snapshot.
        Unproven: with `require_proof`, it has no certificate.
        Untrusted: with `require_signature`, no trusted key vouches for it; which of its subclasses says why.
        EnvironmentMismatch: torch would not use it here, or it could be wrong here.
        DamagedStore: bytes in the store are not right; the directory is as it was.
        UsageError: the directory holds files, and nothing of a compile cache.
        UnsafePath: somebody else owns the store or the cache directory, or every user may change it.
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
    trusted = trust.required(require_signature, allow_older=allow_older, remember=not dry_run)
    options = RestoreOptions(verify, exact, tuple(only), repair, allow_mismatch, allow_damaged, dry_run)
    target = chosen_cache_dir(cache_dir)
    repository = open_repository(store)
    repository.refuse_inside(target)
    if reference == "":
        raise UsageError(
            "the name of the snapshot is empty", hint="give a name, an id or `latest`; is a variable unset?"
        )
    here = fingerprint(**model_files(model_config, model_sources))
    if trusted is None:  # a signature vouches for a snapshot, whoever owns what it lies in
        ownership.check_store(repository.store.directories)
    with ExitStack() as stack:
        try:
            repository.require()
            stack.enter_context(repository.reading())
            wanted = setting("name", reference) or "latest"
            chosen = trust.choose(repository, wanted, here, require_proof, trusted)
        except NotFound as error:
            if not missing_ok:
                raise
            environment = job_environment(target, {}, ())
            return RestoreResult(None, target, dry_run, environment=environment, notes=(error.message,))

        def bring_back(chosen: trust.Chosen) -> RestoreResult:
            comparison = _fitting(repository, chosen.snapshot, here, allow_mismatch)
            manifest = with_one_kernel_directory(repository.manifest(chosen.snapshot.id))
            result = _Restore(repository, manifest, target, comparison, options, progress).run()
            return replace(result, signed_by=chosen.signed_by, notes=(*result.notes, *chosen.notes))

        def another(damaged: Collection[str]) -> trust.Chosen:
            return trust.choose(repository, wanted, here, require_proof, trusted, damaged)

        result, damaged = instead.use_whole(repository, wanted, chosen, another, bring_back)
    return replace(result, passed_over=damaged)


def _fitting(repository: Repository, snapshot: Snapshot, here: Fingerprint, allow_mismatch: bool) -> Comparison:
    if not snapshot.header.files:
        raise EmptyCache(f"snapshot {short_id(snapshot.id)} holds nothing", hint="see the others with `cachekeeper ls`")
    comparison = fit(snapshot.header, here)
    if not comparison.fits and not allow_mismatch:
        raise mismatch_error(repository, snapshot, comparison, here)
    return comparison


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
        self.names = entry_names(self.manifest)
        self.units = {entry.path for entry in self.entries if entry.kind == "triton"}

    def _wanted(self, file: FileRow) -> bool:
        return not self.options.only or self.entries[file.entry].kind in self.options.only

    def run(self) -> RestoreResult:
        self._refuse_nothing()
        if self.options.dry_run and not directory_exists(self.target):
            return self._result(LiveComparison(frozenset(), frozenset(self.by_path), {}, ()), {}, ())
        if not self.options.dry_run:
            preflight.make_target(self.target)
        with explained(self.target, "use the cache directory"), locked(self.target):
            refuse_other_than_cache(self.target)
            with LiveCache(self.target) as live:
                scan = live.scan(with_headers=True)
                total = sum(file.size for file in self.files)
                comparison = self._compared(scan.files, self._report("Comparing", total))
                known = self.by_path.keys() | self.units
                broken = damaged_units(scan.files, known) if self.options.repair else {}
            extras = self._extras(comparison) if self.options.exact else []
            if self.options.dry_run:
                result = self._result(comparison, broken, extras)
                return replace(result, moved_aside=len({*extras, *broken}))
            return self._write(comparison, broken, extras, in_the_way(scan.skipped, comparison.missing))

    def _refuse_nothing(self) -> None:
        if not self.files:
            kinds = sorted({entry.kind for entry in self.entries})
            raise EmptyCache(
                f"snapshot {short_id(self.manifest.id)} holds nothing of these kinds: {', '.join(self.options.only)}",
                hint=f"it holds {', '.join(kinds)}",
            )

    def _compared(self, sources: Sequence[SourceFile], report: Callable[[int], None]) -> LiveComparison:
        """What is right, wrong and missing. Another user's file is wrong: its owner may change it at any time."""
        found = compare_live(self.manifest, self.files, sources, report)
        owners = ownership.trusted_owners()
        theirs = {
            source.path
            for source in sources
            if source.path in found.same and ownership.foreign(owners, source.live.owner)
        }
        changed = {**found.changed, **dict.fromkeys(sorted(theirs), _ANOTHER_USERS)}
        return replace(found, same=found.same - theirs, changed=changed)

    def _report(self, stage: str, total: int) -> Callable[[int], None]:
        return lambda done: self.progress(stage, done, total)

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
        self._refuse_strange(wanted)
        return sorted({unit_of(source) for source in wanted} - self.units)

    def _refuse_strange(self, extras: Sequence[SourceFile]) -> None:
        """Refuse to move what is none of a cache's: a project whose directory a job once took for its cache."""
        tops = {source.path.partition("/")[0] for source in extras}
        strange = sorted(name for name in tops if not may_be_at_top(name))
        if strange:
            raise UsageError(
                f"{self.target} is not only a compile cache: --exact would move these away",
                facts=few(strange, _MOST_FACTS),
                hint="restore without --exact, or into another directory with --cache-dir",
            )

    def _write(
        self, comparison: LiveComparison, broken: dict[str, str], extras: Sequence[str], odd: Sequence[Skipped]
    ) -> RestoreResult:
        users = list(users_of(self.target)) if extras or comparison.changed else []
        if extras and users:
            raise Busy(
                f"{self.target} is in use, and --exact would move files away from under it",
                facts=[f"process {pid}" for pid in users[:10]],
                hint="wait for it to end, or restore without --exact",
            )
        needed = comparison.missing | comparison.changed.keys()
        aside_too = sorted({*extras, *broken})
        mending = put_back(
            self.repository,
            self.manifest,
            self.target,
            needed,
            torn=torn_kernels(self.manifest, comparison.missing, comparison.changed),
            move_away=aside_too,
            allow_damaged=self.options.allow_damaged,
            native=any(self.entries[file.entry].kind == "native" for file in self.files),
            mark=self._mark,
            progress=self._report("Restoring", sum(file.size for file in whole_entries(self.manifest, needed))),
        )
        result = self._result(comparison, broken, extras, mending.left_out)
        put_aside = (f"{path}: {reason} in its place (put aside)" for path, reason in odd)
        result = replace(result, mended=(*result.mended, *put_aside))
        if users:
            note = f"process {users[0]} has files of it open: it keeps what it has loaded"
            result = replace(result, notes=(*result.notes, note))
        result = replace(
            result,
            moved_aside=len(aside_too),
            aside=mending.aside,
            notes=(*result.notes, *self._strangers()),
        )
        return replace(result, verified=self._verify(mending.left_out)) if self.options.verify else result

    def _strangers(self) -> tuple[str, ...]:
        """What names the directories that were saved, where these are not the ones restored into."""
        header = self.manifest.header
        moved = {header.cache_dir: self.target}
        moved |= {path: self.target / ALSO / label for label, path in header.also.items()}
        others = [(file.path, file.size) for file in self.files if self.entries[file.entry].kind == "other"]
        with open_directory(self.target) as root:
            return strangers.naming(root, others, moved)

    def _mark(self, left_out: tuple[Place, ...]) -> restored.Restored:
        here = restored.now(self.manifest.id, self.repository.store.url, self.options.only, left_out)
        return here.after(restored.read_in(self.target))

    def _verify(self, left_out: tuple[str, ...]) -> int:
        wanted = [file for file in self.files if self.names[file.entry] not in left_out]
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
        self,
        comparison: LiveComparison,
        broken: dict[str, str],
        extras: Sequence[str],
        left_out: tuple[str, ...] = (),
    ) -> RestoreResult:
        kept = [path for path in comparison.missing if self.names[self.by_path[path].entry] not in left_out]
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
            replaced=sum(1 for path in comparison.changed if self.names[self.by_path[path].entry] not in left_out),
            mended=(*mended, *(f"{path}: {reason} (moved aside)" for path, reason in broken.items())),
            left_out=left_out,
            extras=tuple(extras),
            environment=job_environment(self.target, self.manifest.header.triton_dirs, also),
            comparison=self.comparison,
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        notes = [
            f"{item.name} {item.theirs} -> {item.ours}" + (f" ({item.effect})" if item.effect else "")
            for item in self.comparison.should
        ]
        notes += self.repository.store.caveats
        header = self.manifest.header
        if "torch" in sys.modules:
            notes.append(
                "torch is already loaded in this process: it may have decided on its cache; restore before importing it"
            )
        if header.live:
            notes.append("this snapshot was taken while the cache was in use: " + "; ".join(header.live))
        if header.damaged:
            notes.append(
                f"this snapshot was saved with {count(len(header.damaged), 'damaged entry')}: torch builds them again "
                f"once `cachekeeper verify --dir {shlex.quote(str(self.target))} --repair` has dropped them"
            )
        if header.secrets:
            notes.append(f"this snapshot holds {count(len(header.secrets), 'file')} with what looks like secrets")
        if len(header.triton_dirs) > 1:
            main = fullest(header.triton_dirs)
            notes.append(
                f"kernels of {len(header.triton_dirs)} directories are also in {main}, which TRITON_CACHE_DIR names"
            )
        return tuple(notes)
