"""Fill a cache on purpose, prove that a fresh process finds everything in it, and save it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import preflight
from ..errors import CachekeeperError
from ..inside.job import Job
from ..livecache import chosen_cache_dir
from ..models import Proof, StepReport
from ..plans import axes as make_axes
from ..progress import Progress
from ..repository import check_name, open_repository
from ..stores import Store
from ..targets import declared, for_people
from ..warming import (
    PROVING,
    Listener,
    Rows,
    Run,
    as_log,
    certify,
    direction_notes,
    judge,
    order_notes,
    places,
    run,
    told,
)
from .snapshot import SnapshotResult, checked_metrics, checked_tags, snapshot


@dataclass(frozen=True)
class WarmupResult:
    """What a warmup did.

    Attributes:
        target: what was run.
        cache_dir: the cache that it filled.
        steps: the plan: (device, mode, shape) of each step.
        warmed: a report a step of the first process; fewer than steps where one raised.
        proved: the same, of the second process; empty without a proof.
        doubts: step -> why the second process does not prove that everything is found.
        proof: the certificate, or None where there is none.
        saved: the snapshot, or None where none was asked for or there is something wrong.
        notes: what a person should know of the plan as a whole.
        environment: variables that a job must have to use this cache.
    """

    target: str
    cache_dir: Path
    steps: Rows
    warmed: tuple[StepReport, ...] = ()
    proved: tuple[StepReport, ...] = ()
    doubts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    proof: Proof | None = None
    saved: SnapshotResult | None = None
    notes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False

    @property
    def failed(self) -> tuple[StepReport, ...]:
        """The steps that raised."""
        return tuple(report for report in self.warmed if report.error)

    @property
    def ok(self) -> bool:
        """True where every step was run, and nothing is in doubt."""
        return self.dry_run or (len(self.warmed) == len(self.steps) and not self.failed and not self.doubts)


def warmup(
    target: str | None = None,
    *,
    devices: Iterable[object] = (),
    modes: Iterable[object] = (),
    shapes: Iterable[object] = (),
    order: Iterable[object] = (),
    cache_dir: str | os.PathLike[str] | None = None,
    in_thread: bool = False,
    per_device_process: bool = False,
    keep_going: bool = False,
    prove: bool = True,
    dry_run: bool = False,
    name: str | None = None,
    store: str | os.PathLike[str] | Store | None = None,
    message: str = "",
    metrics: Mapping[str, float] | None = None,
    tags: Mapping[str, str] | None = None,
    force: bool = False,
    listener: Listener | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> WarmupResult:
    """Run every step of a plan in a fresh process, then again in another one, which must build nothing.

    The cache directory is set before torch is imported; the steps run one after the other. Devices, modes and shapes
    given here win over `[warmup."TARGET"]` in the file of settings, and that over the decorator `cachekeeper.plan`.

    Args:
        target: "path/to/train.py:step" or "package.module:step"; default: the one target of the file of settings.
        order: which axis changes last, as ("shape", "mode"); default: device, mode, shape.
        cache_dir: default: the directory that torch would use here.
        in_thread: run each step in a worker thread of its own, as a job does that has a thread a device.
        per_device_process: a process for each device.
        keep_going: go on with the plan after a step that raised. Nothing is proved or saved all the same.
        prove: run the plan a second time. Without it, nothing can be said of the cache.
        dry_run: find out the plan, and run nothing.
        name: save the cache under this name, with the certificate; only where nothing is wrong.
        message, metrics, tags, force: as for `snapshot`.
        listener: is told of each step.

    Raises:
        UsageError, NotFound: the target, the plan or a device makes no sense here.
        CachekeeperError: a process died.
        StoreError, DamagedCache, ...: as for `snapshot`.
    """
    target, axes = declared(target, make_axes(devices, modes, shapes, order))
    directory = chosen_cache_dir(cache_dir)
    listener = listener or Listener()
    if name is not None and not dry_run:
        check_name(name)
        checked_tags(tags or {})
        checked_metrics(metrics or {})
        _check_store(store, directory)
    if not dry_run:
        preflight.make_target(directory)
    variables, directories = places(directory)
    job = Job(target, axes, "", in_thread, keep_going, dry_run, directories)
    listener.process("Warming")
    cold = run(job, variables, listener, per_device_process)
    result = WarmupResult(
        target,
        directory,
        cold.steps,
        told(cold.reports),
        notes=(*order_notes(cold.reports), *direction_notes(cold.reports)),
        environment=variables,
        dry_run=dry_run,
    )
    if dry_run or cold.failed:
        return result
    if prove:
        listener.process("Proving")
        warm = run(job, variables | PROVING, listener, per_device_process)
        result = _judged(result, warm, job, per_device_process, cold)
    if name is None or not result.ok:
        return result
    saved = snapshot(
        name,
        cache_dir=directory,
        store=store,
        message=message,
        metrics=metrics,
        tags=tags,
        force=force,
        proof=result.proof,
        told=[as_log(for_people(target), cold.reports)],
        progress=progress,
    )
    return replace(result, saved=saved)


def _check_store(store: str | os.PathLike[str] | Store | None, directory: Path) -> None:
    """Before minutes of compiling: can the snapshot be saved when they are over?"""
    repository = open_repository(store)
    repository.refuse_inside(directory)
    repository.prepare()


def _judged(result: WarmupResult, warm: Run, job: Job, per_device_process: bool, cold: Run) -> WarmupResult:
    """The result with what a second process says of it."""
    if (warm.steps, warm.source) != (cold.steps, cold.source):
        raise CachekeeperError(
            f"{for_people(job.target)} changed between the two processes", hint="run the warmup again"
        )
    doubts = judge(cold.reports, warm.reports)
    proof = None if doubts else certify(job, per_device_process, cold, warm)
    return replace(result, proved=told(warm.reports), doubts=doubts, proof=proof)
