"""Prove a stored snapshot: restore it into a scratch directory, and run a plan on it that must build nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path

from .. import warming
from ..inside.job import Job
from ..manifest import Snapshot
from ..models import Proof, StepReport
from ..plans import AXES, Axes, axes, shape_text
from ..progress import Progress
from ..repository import open_repository
from ..stores import Store
from ..targets import declared, for_people
from .restore import restore


@dataclass(frozen=True)
class ReplayResult:
    """What a replay found.

    Attributes:
        snapshot: what was restored.
        target: what was run.
        steps: the plan: (device, mode, shape) of each step.
        replayed: a report a step.
        doubts: step -> why it does not prove that a fresh process finds everything.
        proof: the certificate, where nothing is in doubt. The snapshot, which never changes, does not get it.
    """

    snapshot: Snapshot
    target: str
    steps: warming.Rows
    replayed: tuple[StepReport, ...] = ()
    doubts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    proof: Proof | None = None

    @property
    def ok(self) -> bool:
        """True where every step found everything."""
        return self.proof is not None


def replay(
    reference: str | None,
    target: str,
    *,
    devices: Iterable[object] = (),
    modes: Iterable[object] = (),
    shapes: Iterable[object] = (),
    order: Iterable[object] = (),
    in_thread: bool = False,
    per_device_process: bool = False,
    store: str | os.PathLike[str] | Store | None = None,
    listener: warming.Listener | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> ReplayResult:
    """Restore a snapshot into a temporary directory and run a plan there, in a fresh process that must build nothing.

    The plan is the one given; where nothing is, that of the snapshot's own certificate, if it is of the same target;
    and else the target's. The live cache is not touched.

    Args:
        reference: id, name, `name@{1}` or "latest"; default as configured.
        target: "path/to/train.py:step" or "package.module:step".

    Raises:
        NotFound: no such snapshot, target or device.
        EnvironmentMismatch: torch would not use the snapshot here.
        DamagedStore: its bytes are not right.
        LocalDiskError: no space for it in the temporary directory.
    """
    given = axes(devices, modes, shapes, order)
    with tempfile.TemporaryDirectory(prefix="cachekeeper-replay-") as scratch:
        cache = Path(scratch, "inductor")
        restored = restore(reference, cache_dir=cache, store=store, progress=progress)
        assert restored.snapshot is not None
        proof = restored.snapshot.header.proof
        if proof is not None and proof.target == for_people(target):
            given = given.over(_axes_of(proof))
            in_thread, per_device_process = in_thread or proof.in_thread, per_device_process or proof.per_device_process
        target, whole = declared(target, given)
        job = Job(target, whole, in_thread=in_thread)
        log = open_repository(store).telemetry(restored.snapshot)
        graphs = [event.graph for event in log.compiled] if log else ()
        run, doubts, found = warming.replay(job, per_device_process, cache, listener or warming.Listener(), graphs)
    return ReplayResult(restored.snapshot, target, run.steps, warming.told(run.reports), doubts, found)


def _axes_of(proof: Proof) -> Axes:
    plain = axes(
        [step.device for step in proof.steps],
        [step.mode for step in proof.steps],
        [step.shape for step in proof.steps if step.shape],
    )
    proved = [(step.device, step.mode, step.shape) for step in proof.steps]
    for order in permutations(AXES):
        ordered = replace(plain, order=order)
        if [(step.device, step.mode, shape_text(step.shape)) for step in ordered.steps()] == proved:
            return ordered
    return plain
