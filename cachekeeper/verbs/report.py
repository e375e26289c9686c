"""Gather what is known of one cache, and of its name over time."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from ..diffing.models import Side
from ..diffing.opening import opened
from ..diffing.sides import proof_seconds
from ..environment import fingerprint
from ..fitting import left_out
from ..histories import Past, history
from ..inventory.models import Inventory
from ..inventory.reading import inventory
from ..manifest import Snapshot
from ..models import Fingerprint
from ..progress import Progress
from ..repository import Repository, is_name, open_repository
from ..stores import Store

_MOST_POINTS = 500


@dataclass(frozen=True)
class HistoryPoint:
    """A step in the history of a name.

    Attributes:
        created: UTC, as "2026-01-31T08:15:00Z".
        entries: of every kind.
        graphs: entries of Inductor's cache.
        triton: entries of Triton's cache: one a binary, those that only autotuning tried included.
        native: entries with libraries in C++.
        bytes: of all files.
        stored: what its frames take in the store, shared ones included.
        metrics: numbers of the run.
        cold_seconds, warm_seconds: of all steps of its certificate; None without one.
        is_this: it is the snapshot that the report is of.
        number: of the move; 0 for a snapshot that its name never pointed to.
    """

    id: str
    name: str = ""
    created: str = ""
    entries: int = 0
    graphs: int = 0
    triton: int = 0
    native: int = 0
    bytes: int = 0
    stored: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    cold_seconds: float | None = None
    warm_seconds: float | None = None
    is_this: bool = False
    number: int = 0


@dataclass(frozen=True)
class ReportResult:
    """One cache.

    Attributes:
        side: what is known besides its files.
        inventory: what it holds.
        history: of the name that it was asked for by, or saved under; oldest first. Without one, the snapshot alone; of
            a live directory nothing.
        notes: what a person should know, a sentence each.
    """

    side: Side
    inventory: Inventory
    history: tuple[HistoryPoint, ...] = ()
    notes: tuple[str, ...] = ()


def report(
    reference: str,
    *,
    store: str | os.PathLike[str] | Store | None = None,
    full: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> ReportResult:
    """Look into one cache, down to its kernels.

    Args:
        reference: id, name, `name@{1}`, "latest", or a live directory.
        full: read everything, however long it takes; else some of a very large cache is left out, and told.

    Raises:
        NotFound: no such snapshot or directory; EmptyCache for a directory that is no cache.
        DamagedStore: its manifest is damaged.
        LocalDiskError: the directory cannot be read.
    """
    repository = open_repository(store)
    here = cache(fingerprint)
    side, tree, told, snapshot = opened(repository, reference, here)
    found = inventory(tree, told, full=full, progress=progress)
    devices = _devices(found, side, here)
    if snapshot is None:
        return ReportResult(side, found, notes=devices)
    points, notes = _history(repository, _name(repository, reference, snapshot), snapshot)
    return ReportResult(side, found, points, (*devices, *notes, *repository.store.caveats))


def _devices(found: Inventory, side: Side, here: Callable[[], Fingerprint]) -> tuple[str, ...]:
    """A note of the GPUs for which there is no graph; none where a graph's device is not known."""
    names = [row.device for row in found.coverage]
    if "" in names or not any(name.startswith("cuda:") for name in names):
        return ()
    lacking = left_out(names, {"here": here(), "where it was made": side.fingerprint})
    if not lacking:
        return ()
    return (f"no graphs for {lacking}: a graph serves the one GPU that it was compiled for",)


def _name(repository: Repository, reference: str, snapshot: Snapshot) -> str:
    """The name whose history belongs to a snapshot, or ""."""
    name = reference.partition("@{")[0]
    if is_name(name) and repository.latest(name):
        return name
    return snapshot.header.name if is_name(snapshot.header.name) else ""


def _history(repository: Repository, name: str, snapshot: Snapshot) -> tuple[tuple[HistoryPoint, ...], tuple[str, ...]]:
    past = history(repository, name, _MOST_POINTS) if name else []
    this = max((step.move.number for step in past if step.move.snapshot == snapshot.id), default=0)
    points = [_point(step.snapshot, name, step.move.number, this) for step in past if step.snapshot]
    if not this:
        points.append(_point(snapshot, snapshot.header.name, 0, 0))
    notes = [_unreadable(step) for step in past if step.snapshot is None]
    if past and past[0].move.number > 1:
        notes.append(f"the history of {name} is shown from move {past[0].move.number:,} on")
    return tuple(points), tuple(notes)


def _unreadable(step: Past) -> str:
    return f"{step.reference} is left out of the history: {step.trouble}"


def _point(snapshot: Snapshot, name: str, number: int, this: int) -> HistoryPoint:
    header = snapshot.header
    cold, warm = proof_seconds(header.proof) or (None, None)
    return HistoryPoint(
        id=snapshot.id,
        name=name,
        created=header.created,
        entries=header.entries,
        graphs=header.entries_of("fxgraph"),
        triton=header.entries_of("triton"),
        native=header.entries_of("native"),
        bytes=header.bytes,
        stored=header.stored,
        metrics=header.metrics,
        cold_seconds=cold,
        warm_seconds=warm,
        is_this=number == this,
        number=number,
    )
