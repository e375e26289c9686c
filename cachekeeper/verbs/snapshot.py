"""Save a cache directory as a snapshot."""

from __future__ import annotations

import math
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .. import capture as capturing
from .. import ownership, reading, signatures
from ..beside import directories_beside
from ..config import setting
from ..disk import Skipped, directory_exists
from ..environment import cache_directory, fingerprint
from ..errors import (
    Busy,
    DamagedCache,
    EmptyCache,
    LocalDiskError,
    NotFound,
    SecretsFound,
    UnsafePath,
    UsageError,
)
from ..livecache import COMPILING, LiveCache, Scan, SourceFile, chosen_cache_dir, wait_for_quiet
from ..manifest import (
    FORMAT,
    Header,
    RunSummary,
    Snapshot,
    also_label,
    counts,
    triton_dirs,
    wrong_metric,
    wrong_new_tag,
)
from ..masking import HIDDEN
from ..models import Fingerprint, Proof
from ..naming import move_name_unless_smaller
from ..repository import Location, Repository, check_name, open_repository
from ..runs import RunInfo, known, logs
from ..runs.merging import kept as kept_telemetry
from ..seen import Seen, SeenFiles
from ..signing import chosen_private_key
from ..stores import Store
from ..telemetry import Log
from ..units import count, now_utc
from ..version import __version__
from ..writing import Writing
from .stats import of_run

DEFAULT_WAIT = 10.0
_MOST_FACTS = 200
_SHOWN_SECRETS = 3
_SETTLED_NS = 60_000_000_000
_NOT_ENTRIES = ("other", "headers")
_GRAPHS = ("fxgraph", "aotautograd", "triton")
# Whose entries are named by the keys that torch tells.
_KEYED = ("fxgraph", "aotautograd")

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class SnapshotResult:
    """A saved snapshot.

    Attributes:
        snapshot: its id and header.
        name_moved: True where the name points to it now.
        shrunk_from: number of entries of the snapshot that the name still points to, where this one is much smaller.
        stored: bytes written to the store for it; new_files of its files were not there before.
        skipped: what was in the directory and cannot be kept.
        scratch: number of locks and temporary files passed over.
        notes: what a person should know, a sentence each.
        signed_by: id of the key that signed it, and the move of its name; "" where none did.
    """

    snapshot: Snapshot
    name: str
    name_moved: bool
    shrunk_from: int
    stored: int
    new_files: int
    skipped: tuple[Skipped, ...]
    scratch: int
    notes: tuple[str, ...]
    signed_by: str = ""


def snapshot(
    name: str | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | Store | None = None,
    also: Sequence[str | os.PathLike[str]] = (),
    message: str = "",
    metrics: Mapping[str, float] | None = None,
    tags: Mapping[str, str] | None = None,
    model_config: str | os.PathLike[str] | None = None,
    model_sources: Sequence[str | os.PathLike[str]] = (),
    wait: float | None = None,
    allow_damaged: bool = False,
    force: bool = False,
    with_headers: bool = False,
    full: bool = False,
    proof: Proof | None = None,
    origin: str = "",
    made_on: Fingerprint | None = None,
    run: RunInfo | None = None,
    told: Sequence[Log] = (),
    sign: str | os.PathLike[str] | None = None,
    allow_secrets: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> SnapshotResult:
    """Save a cache directory as a snapshot, and point `name` to it.

    Args:
        cache_dir: default: the directory that torch would use here.
        store: URL or directory; default as configured.
        also: further directories of compiled kernels to keep with it.
        metrics: numbers of the run, as {"tok_s": 21500}.
        tags: what the work was, as {"dataset": "pile-v2", "batch": "8"}: numbers of other work do not compare.
        wait: seconds to wait at most until nothing writes into the cache; else it is marked as taken live.
        allow_damaged: save structurally damaged entries too, and note them.
        force: move the name even to a much smaller snapshot.
        with_headers: keep precompiled headers, about 147 MB for each set of compiler flags, of use on CPU only.
        full: store every file again, trusting nothing that is in the store.
        proof: the certificate of a warmup that ended with this cache.
        origin: where the cache came from, if it is only unpacked in this directory; then that is not recorded, nothing
            is remembered of it, and no directory belongs with it that it does not hold.
        made_on: the environment to record, where it is not this one.
        run: the run that used this cache: what its processes told of the graphs is kept with the snapshot.
        told: what other processes told of them.
        sign: file of the private key that signs it; "" for the one configured, or this user's own. By default it is
            signed where a key is configured.
        allow_secrets: save files that hold what looks like secrets, too; a note says which.

    Raises:
        EmptyCache: nothing to save.
        DamagedCache: entries are structurally damaged; nothing is saved.
        SecretsFound: files hold what looks like secrets; nothing is saved.
        UnsafePath: the directory, or a file in it, belongs to somebody who is not trusted, or every user may change it.
        LocalDiskError: a file or the store's disk cannot be used.
        StoreError: the store cannot be used.
    """
    name = setting("name", name)
    if name is not None:
        check_name(name)
    metrics = checked_metrics(metrics or {})
    tags = checked_tags(tags or {})
    directory = chosen_cache_dir(cache_dir)
    extra = {} if origin else directories_beside(also, directory)
    patience = setting("wait", wait)
    key = chosen_private_key(sign)
    repository = open_repository(store)
    if not directory_exists(directory):
        raise _empty_error(directory)
    repository.refuse_inside(directory, *extra.values())
    if not origin:
        for place in (directory, *extra.values()):
            ownership.check(place, ownership.CACHE)
    with ThreadPoolExecutor(1) as beside, LiveCache(directory, extra) as live, ExitStack() as stack:
        # Reaching a store that is far takes as long as looking at a cache; what is wrong with it, `prepare` says.
        beside.submit(repository.exists)
        scan, busy = wait_for_quiet(live, DEFAULT_WAIT if patience is None else patience, with_headers)
        _check_scan(scan, directory)
        config = setting("model_config", model_config)
        environment = beside.submit(
            fingerprint,
            model_config=Path(config) if config else None,
            model_sources=[Path(path) for path in model_sources],
        )
        repository.prepare()
        work = stack.enter_context(repository.writing())
        memory = SeenFiles(directory)
        known = {} if full else repository.contents(work.condemned)
        # What was imported is the importer's word for it, whoever owned the files.
        rules = capturing.Rules(allow_damaged, allow_secrets, None if origin else ownership.trusted_owners())
        captured, new_files = _capture(repository, scan.files, memory, rules, known, progress)
        _check_readable(captured.taken, directory)
        secrets = _check_secrets(captured.taken, directory, allow_secrets, "" if origin else name)
        changed = live.moved_since(scan)
        kept, moving = _whole_entries(captured.taken, changed, scan.began if changed or busy == COMPILING else None)
        damaged = reading.damage(kept)
        if damaged and not allow_damaged:
            raise _damaged_error(directory, damaged)
        if not any(item.source.place.kind not in _NOT_ENTRIES for item in kept):
            raise Busy(
                f"{directory} holds no whole entry yet", facts=[busy or "it changes"], hint="try again in a moment"
            )
        if not captured.complete:  # it stopped at damage that turned out to be in the making
            rules = rules._replace(keep_going=True)
            captured, new_files = _capture(repository, [item.source for item in kept], memory, rules, known, progress)
            kept, _ = _whole_entries(captured.taken, changed, None)
        reasons = _live_reasons(busy, moving, bool(changed))
        recorded = "" if origin else str(directory)
        made = made_on or environment.result()
        draft = _Draft(
            name or "", message, metrics, tags, reasons, damaged, recorded, extra, made, origin, proof, run, tuple(told)
        )
        saved = _commit(repository, work, captured, kept, draft)
        if not origin:
            memory.save([(item.source.path, item.source.live, item.seen) for item in kept if item.seen], scan.began)
    moved, shrunk_from = move_name_unless_smaller(repository, name, saved, force=force)
    signed_by = signatures.sign_saved(repository, key, saved.id, name if moved else None)
    notes = (*secrets, *_notes(scan, kept, extra), *_hidden(draft.fingerprint), *repository.store.caveats)
    if draft.fingerprint.must["torch"].unknown:
        notes = (f"{draft.fingerprint.must['torch'].unknown}: a restore cannot tell whether it fits", *notes)
    return SnapshotResult(
        saved,
        name or "",
        moved,
        shrunk_from,
        captured.written,
        new_files,
        tuple(scan.skipped),
        scan.scratch,
        notes,
        signed_by,
    )


@dataclass(frozen=True)
class _Draft:
    """What the header of a snapshot will say."""

    name: str
    message: str
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    live: tuple[str, ...]
    damaged: Mapping[str, str]
    cache_dir: str
    also: Mapping[str, Path]
    fingerprint: Fingerprint
    origin: str
    proof: Proof | None
    run: RunInfo | None
    told: tuple[Log, ...]


def checked_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics, which a snapshot can have.

    Raises:
        UsageError: it cannot.
    """
    for key, value in metrics.items():
        if wrong := wrong_metric(key):
            raise UsageError(f"not a metric: {key[:80]!r}: {wrong}", hint="give a name, as `--metric tok_s=21500`")
        if not math.isfinite(value):
            raise UsageError(f"not a metric: {key}={value}", hint="give a number, as `--metric tok_s=21500`")
    return {key: float(value) for key, value in metrics.items()}


def checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags, which a snapshot can have.

    Raises:
        UsageError: it cannot.
    """
    found = {str(key): str(value) for key, value in tags.items()}
    if wrong := wrong_new_tag(found):
        raise UsageError(f"not a tag: {wrong}", hint="give a key and a value, as `--tag dataset=pile-v2`")
    return found


def _check_scan(scan: Scan, directory: Path) -> None:
    denied = [item for item in scan.skipped if "ermission" in item.reason]
    if denied:
        facts = [f"{item.path or '.'}  {item.reason}" for item in denied[:_MOST_FACTS]]
        hint = f"run as the owner of the files, or `chown -R` them: {directory}"
        raise LocalDiskError(f"{count(len(denied), 'directory')} of the cache cannot be read", facts=facts, hint=hint)
    if not any(file.place.kind not in _NOT_ENTRIES for file in scan.files):
        raise _empty_error(directory)


def _empty_error(directory: Path) -> EmptyCache:
    """The error that says where the entries may be instead."""
    what = "holds no entry of a compile cache" if os.path.isdir(directory) else "is not there"
    if os.path.lexists(directory) and not os.path.isdir(directory):
        what = "is no directory"
    places: dict[Path, int] = {}
    candidates = [cache_directory().path, Path(os.path.expanduser("~/.triton/cache"))]
    default = cache_directory({name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"})
    candidates += sorted(default.path.parent.glob("torchinductor_*"))
    for place in candidates:
        if place != directory and place not in places and os.path.isdir(place):
            try:
                with LiveCache(place) as other:
                    found = [file for file in other.scan().files if file.place.kind not in _NOT_ENTRIES]
            except LocalDiskError:
                continue
            if any(file.place.kind in _GRAPHS for file in found):
                places[place] = len({file.place for file in found})
    if not places:
        hint = "run the job once with this directory as TORCHINDUCTOR_CACHE_DIR, then try again"
        return EmptyCache(f"nothing to save: {directory} {what}", hint=hint)
    best = max(places, key=lambda place: places[place])
    return EmptyCache(
        f"nothing to save: {directory} {what}",
        facts=[f"{place}  {count(number, 'entry')}" for place, number in places.items()],
        hint=f"if it is that one: `cachekeeper snapshot --cache-dir {best}`",
    )


def _capture(
    repository: Repository,
    sources: list[SourceFile],
    memory: SeenFiles,
    rules: capturing.Rules,
    known: Mapping[str, Location],
    progress: Progress,
) -> tuple[capturing.Capture, int]:
    capturer = capturing.Capturer(repository, known, rules, progress)

    def seen(source: SourceFile) -> Seen | None:
        return memory.get(source.path, source.live)

    captured = capturer.run(sources, seen)
    new = {item.seen.sha256 for item in captured.taken if item.seen} - known.keys()
    return captured, sum(1 for item in captured.taken if item.seen and item.seen.sha256 in new)


def _check_readable(taken: Sequence[reading.Taken], directory: Path) -> None:
    denied = [item for item in taken if item.trouble and item.trouble != reading.CHANGED]
    foreign = [item for item in denied if item.trouble.startswith(reading.FOREIGN)]
    if foreign:
        raise UnsafePath(
            f"{count(len(foreign), 'file')} of the cache {directory} of another user, so nothing was saved",
            facts=[f"{item.source.path}  {item.trouble}" for item in foreign[:_MOST_FACTS]],
            hint="what is saved is code wherever it is restored: if you know whose they are, `chown` them or set "
            "CACHEKEEPER_TRUSTED_OWNERS; else delete them, and run the job again",
        )
    if denied:
        facts = [f"{item.source.path}  {item.trouble}" for item in denied[:_MOST_FACTS]]
        hint = f"run as the owner of the files (`ls -l`), or `chown -R` them: {directory}"
        raise LocalDiskError(f"{count(len(denied), 'file')} of the cache cannot be read", facts=facts, hint=hint)


def _check_secrets(taken: Sequence[reading.Taken], directory: Path, allowed: bool, name: str | None) -> tuple[str, ...]:
    """Refuse files with what looks like secrets; where they are allowed, the note that says which.

    Args:
        name: the name to save under, or None; "" for what is saved by another command than `snapshot`.
    """
    found = {item.source.path: item.seen.secrets for item in taken if item.seen and item.seen.secrets}
    facts = [f"{path}  {', '.join(kinds)}" for path, kinds in sorted(found.items())]
    if not found:
        return ()
    if allowed:
        more = ", ..." if len(facts) > _SHOWN_SECRETS else ""
        return (f"{count(len(found), 'file')} with what looks like secrets: {'; '.join(facts[:_SHOWN_SECRETS])}{more}",)
    command = ["cachekeeper", "snapshot", *filter(None, [name]), "--cache-dir", str(directory)] if name != "" else []
    raise SecretsFound(
        f"{directory} holds what looks like secrets, so nothing was saved",
        facts=facts[:_MOST_FACTS],
        hint="whoever can read the store could read them: take them out of the code that is compiled, delete these "
        f"files and run the job again; or save them all the same, with `{shlex.join([*command, '--allow-secrets'])}`",
    )


def _hidden(environment: Fingerprint) -> tuple[str, ...]:
    """The note that says what was recorded without its value."""
    hidden: list[str] = []
    for fact in (environment.must.get("environment"), environment.recorded.get("variables_without_effect")):
        values = fact.value if fact and isinstance(fact.value, Mapping) else {}
        hidden += [key for key, value in values.items() if str(value).startswith("sha256:") or HIDDEN in str(value)]
    command = environment.recorded.get("command")
    if command and HIDDEN in str(command.value):
        hidden.append("a part of the command")
    return (f"recorded without what is secret: {', '.join(hidden)}",) if hidden else ()


def _whole_entries(
    taken: Sequence[reading.Taken], changed: frozenset[str], live_since: int | None
) -> tuple[list[reading.Taken], int]:
    """What can be kept, and the number of entries that are left out.

    Left out is what changed or vanished while it was read, kernels whose directory did, and in a cache that is being
    written (`live_since`: when the look at it began, in ns) what is damaged and was touched in the last minute: it is
    in the making.
    """
    moving = {
        item.source.place
        for item in taken
        if item.seen is None or (item.source.place.kind == "triton" and item.source.place.entry in changed)
    }
    if live_since is not None:
        damaged = reading.damage(taken)
        recent = {item.source.place for item in taken if item.source.live.ctime_ns > live_since - _SETTLED_NS}
        broken = {item.source.place for item in taken if {item.source.path, item.source.place.entry} & damaged.keys()}
        moving |= broken & recent
    return [item for item in taken if item.source.place not in moving], len(moving)


def _damaged_error(directory: Path, damaged: Mapping[str, str]) -> DamagedCache:
    facts = [f"{path}  {reason}" for path, reason in list(damaged.items())[:_MOST_FACTS]]
    if len(damaged) > _MOST_FACTS:
        facts.append(f"and {len(damaged) - _MOST_FACTS:,} more")
    return DamagedCache(
        f"{directory} is damaged, so nothing was saved",
        facts=facts,
        hint="mend it from an earlier snapshot with `cachekeeper restore NAME`, or delete these and run the job again; "
        "--allow-damaged saves them as they are",
    )


def _live_reasons(busy: str, moving: int, changed: bool) -> tuple[str, ...]:
    reasons = [busy] if busy else []
    if moving:
        reasons.append(f"{count(moving, 'entry')} left out: changed while being read")
    if changed:
        reasons.append("entries appeared or vanished while it was being saved")
    return tuple(reasons)


def _commit(
    repository: Repository,
    work: Writing,
    captured: capturing.Capture,
    kept: Sequence[reading.Taken],
    draft: _Draft,
) -> Snapshot:
    needed = {captured.places[item.seen.sha256].pack for item in kept if item.seen and item.seen.size}
    sizes = repository.sizes_of(needed, captured.packs)
    if needed - sizes.keys():
        raise NotFound(
            f"{count(len(needed - sizes.keys()), 'pack')} vanished from the store meanwhile",
            hint="run `cachekeeper snapshot` again, with --full if that does not help",
        )
    table = capturing.tables(kept, captured, sizes)
    header = Header(
        format=FORMAT,
        tool=__version__,
        created=now_utc(),
        name=draft.name,
        parent=repository.latest(draft.name) if draft.name else "",
        message=draft.message,
        metrics=draft.metrics,
        live=draft.live,
        damaged=tuple(f"{path}: {reason}" for path, reason in draft.damaged.items()),
        cache_dir=draft.cache_dir,
        also={label: str(path) for label, path in draft.also.items()} | _also_inside(kept, draft),
        fingerprint=draft.fingerprint,
        counts=counts(table),
        triton_dirs=triton_dirs(table),
        stored=sum(frame.stored for frame in table.frames),
        targets=tuple(sorted({item.seen.check.target for item in kept if item.seen and item.seen.check.target})),
        origin=draft.origin,
        proof=draft.proof,
        run=_summary(draft.run) if draft.run else None,
        tags=draft.tags,
    )
    return repository.commit(header, table, _telemetry(draft, kept), work=work)


def _telemetry(draft: _Draft, taken: Sequence[reading.Taken]) -> bytes:
    """What processes told, and what was known before of graphs that are still there; b"" for nothing."""
    run = draft.run
    places = {item.source.place for item in taken if item.source.place.kind in _KEYED}
    keys = {place.entry.rpartition("/")[2] for place in places}
    return kept_telemetry([*draft.told, *(logs(run) if run else ())], known(run) if run else None, keys)


def _summary(run: RunInfo) -> RunSummary:
    found = of_run(run)
    return RunSummary(
        id=run.id,
        command=run.command,
        began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.began)),
        seconds=found.seconds,
        compiling=found.totals.seconds,
        hits=found.totals.hits,
        misses=found.totals.misses,
        bypasses=found.totals.bypasses,
        recompiles=found.totals.recompiles,
        fallbacks=found.totals.fallbacks,
        processes=found.processes,
        crashed=found.crashed,
    )


def _also_inside(kept: Sequence[reading.Taken], draft: _Draft) -> dict[str, str]:
    """Labels of the directories that an earlier restore put inside the cache directory."""
    labels = {label for item in kept if (label := also_label(item.source.path))}
    return {label: os.path.join(draft.cache_dir, "also", label) for label in labels - draft.also.keys()}


def _notes(scan: Scan, kept: Sequence[reading.Taken], also: Mapping[str, Path]) -> tuple[str, ...]:
    notes = []
    misdirected = sum(item.misdirected for item in kept)
    if misdirected:
        notes.append(
            f"{count(misdirected, 'file')} pointed to another directory, which would have been read instead; "
            "the snapshot has them right"
        )
    if not any(item.source.place.kind in _GRAPHS for item in kept):
        notes.append("there is no graph and no kernel in it: did the job end before its first graph?")
    if scan.headers:
        notes.append(
            "precompiled headers were left out; --with-headers keeps them (CPU only, about 147 MB a set of flags)"
        )
    for label, path in also.items():
        notes.append(f"with {path} as {label}")
    return tuple(notes)
