"""The header of a snapshot, and its commit."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...capture import tables
from ...errors import NotFound
from ...manifest import FORMAT, Header, Manifest, RunSummary, Tables, also_label, counts, triton_dirs
from ...models import Fingerprint, Proof
from ...reading import Taken
from ...repository import Repository, sizes_of
from ...runs import RunInfo, known, logs
from ...runs.merging import kept as kept_telemetry
from ...telemetry import Log
from ...units import count
from ...version import __version__
from ...writing import Writing
from ..stats import of_run
from .taking import Whole

# Whose entries are named by the keys that torch tells.
_KEYED = ("fxgraph", "aotautograd")


@dataclass(frozen=True)
class Draft:
    """What the header of a snapshot says beside what is in the cache; as `Header` has them."""

    created: str
    name: str
    message: str
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    cache_dir: str
    also: Mapping[str, Path]
    fingerprint: Fingerprint
    origin: str
    proof: Proof | None
    run: RunInfo | None
    told: tuple[Log, ...]


def commit(repository: Repository, work: Writing, whole: Whole, draft: Draft) -> Manifest:
    """Write the manifest.

    Raises:
        NotFound: packs that it needs vanished meanwhile.
        StoreError: the store cannot be used.
    """
    kept = whole.kept
    table = _table(repository, whole)
    header = Header(
        format=FORMAT,
        tool=__version__,
        created=draft.created,
        name=draft.name,
        parent=repository.latest(draft.name) if draft.name else "",
        message=draft.message,
        metrics=draft.metrics,
        live=whole.live,
        damaged=tuple(f"{path}: {reason}" for path, reason in whole.damaged.items()),
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
        secrets=whole.secrets,
    )
    saved = repository.commit(header, table, _telemetry(draft, kept), work=work)
    return Manifest(saved.id, saved.header, table)


def _table(repository: Repository, whole: Whole) -> Tables:
    captured, kept = whole.captured, whole.kept
    needed = {captured.places[item.seen.sha256].pack for item in kept if item.seen and item.seen.size}
    sizes = sizes_of(repository.store, needed, captured.packs)
    if needed - sizes.keys():
        raise NotFound(
            f"{count(len(needed - sizes.keys()), 'pack')} vanished from the store meanwhile",
            hint="run `cachekeeper snapshot` again, with --full if that does not help",
        )
    return tables(kept, captured, sizes)


def _telemetry(draft: Draft, taken: Sequence[Taken]) -> bytes:
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


def _also_inside(kept: Sequence[Taken], draft: Draft) -> dict[str, str]:
    """Labels of the directories that an earlier restore put inside the cache directory."""
    labels = {label for item in kept if (label := also_label(item.source.path))}
    return {label: os.path.join(draft.cache_dir, "also", label) for label in labels - draft.also.keys()}
