"""A plan -> a report a step, and where the processes that make them read and write."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..environment import cache_directory, triton_directory
from ..inductor import job_environment, triton_dirs
from ..inside.job import Job
from ..livecache import LiveCache
from ..models import Graph, Proof, StepReport
from ..schema import parse
from ..targets import for_people
from ..units import spaced
from .judging import certificate, judge
from .process import Process, death, failure

# All that a process of a proof builds, it then builds itself, where it is seen. In no key.
PROVING = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}

Rows = tuple[tuple[str, str, str], ...]


class Listener:
    """Is told what happens; does nothing with it."""

    def process(self, what: str) -> None:
        """A process begins: "Warming" or "Proving"."""

    def plan(self, steps: Rows) -> None:
        """What will be run: (device, mode, shape) of each step."""

    def begin(self, number: int) -> None:
        """A step begins."""

    def working(self, seconds: float, compiling: str) -> None:
        """A step has gone on for so long; what torch compiled last, or ""."""

    def end(self, report: StepReport) -> None:
        """A step is over."""


@dataclass(frozen=True)
class Run:
    """What one process, or one a device, did: the plan, SHA-256 of the target's file, and a report a step."""

    steps: Rows = ()
    source: str = ""
    reports: tuple[StepReport, ...] = ()

    @property
    def failed(self) -> bool:
        """True where a step raised, or was never begun."""
        return len(self.reports) < len(self.steps) or any(report.error for report in self.reports)

    @property
    def seconds(self) -> float:
        """What the steps took together."""
        return sum(report.seconds for report in self.reports)


def places(cache_dir: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Where a warmup of a cache directory reads and writes.

    Where the job's environment has another directory for kernels, and this is the job's cache directory, that stays.

    Returns:
        Variables for the process, and label -> directory to watch ("" is the cache directory).
    """
    own = triton_directory()
    variables = job_environment(cache_dir, _live_triton_dirs(cache_dir), ())
    directories = {"": str(cache_dir)}
    if own is not None and cache_directory().path == cache_dir:
        variables["TRITON_CACHE_DIR"] = str(own)
        if cache_dir not in own.parents:
            directories["TRITON_CACHE_DIR"] = str(own)
    return variables, directories


def _live_triton_dirs(cache_dir: Path) -> dict[str, int]:
    if not cache_dir.is_dir():
        return {}
    with LiveCache(cache_dir) as live:
        return triton_dirs({file.place.entry for file in live.scan().files if file.place.kind == "triton"})


def run(job: Job, variables: Mapping[str, str], listener: Listener, per_device_process: bool = False) -> Run:
    """Run a plan in a fresh process, or in one for each device.

    Args:
        variables: what the environment of the process has beside ours, before torch is imported.

    Raises:
        UsageError, NotFound: the target or the plan makes no sense here.
        CachekeeperError: the process died.
    """
    if not per_device_process or job.dry_run:
        return _run_one(job, variables, listener)
    whole = _run_one(replace(job, dry_run=True), variables, Listener())
    listener.plan(whole.steps)
    for device in dict.fromkeys(device for device, *_ in whole.steps):
        part = _run_one(replace(job, only_device=device), variables, _WithoutPlan(listener))
        whole = replace(whole, reports=whole.reports + part.reports)
        if not job.keep_going and any(report.error for report in part.reports):
            break
    return whole


class _WithoutPlan(Listener):
    """Passes everything on but the plan, which is known."""

    def __init__(self, listener: Listener) -> None:
        self.begin, self.working, self.end = listener.begin, listener.working, listener.end  # type: ignore[method-assign]


def _run_one(job: Job, variables: Mapping[str, str], listener: Listener) -> Run:
    with Process(job, variables) as process:
        result, ended, at, began, compiling = Run(), False, -1, time.monotonic(), ""
        for event, value in process.events():
            if event == "plan":
                result = replace(result, steps=tuple(map(tuple, value["steps"])), source=value["source"])
                listener.plan(result.steps)
            elif event == "begin":
                at, began, compiling = value, time.monotonic(), ""
                listener.begin(value)
            elif event == "compiling":
                compiling = value
            elif event == "tick":
                listener.working(time.monotonic() - began, compiling)
            elif event == "end":
                report = parse(StepReport, json.dumps(value).encode())
                at, result = -1, replace(result, reports=(*result.reports, report))
                listener.end(report)
            elif event == "failed":
                raise failure(value)
            elif event == "done":
                ended = True
                break  # threads that the target left behind may never end
    if not ended:
        step = spaced(*result.steps[at]) if at >= 0 else ""
        raise death(process.code, step, bool(result.steps))
    return result


def certify(job: Job, per_device_process: bool, cold: Run, warm: Run) -> Proof:
    """The certificate of runs that were judged to be without doubt."""
    target = for_people(job.target)
    return certificate(target, warm.source, job.in_thread, per_device_process, cold.reports, warm.reports)


def replay(
    job: Job, per_device_process: bool, cache_dir: Path, listener: Listener, graphs: Iterable[Graph] = ()
) -> tuple[Run, Mapping[str, tuple[str, ...]], Proof | None]:
    """Run a plan on a cache that is to hold everything, and wherever that lies.

    Args:
        graphs: what is known of the cache: what a key was made of explains a miss.

    Returns:
        What was done, step -> why it is in doubt, and the certificate where nothing is.
    """
    variables = job_environment(cache_dir, _live_triton_dirs(cache_dir), ())
    job = replace(job, keep_going=True, directories={"": str(cache_dir)})
    listener.process("Replaying")
    warm = run(job, variables | PROVING, listener, per_device_process)
    doubts = judge((), warm.reports, graphs)
    return warm, doubts, None if doubts else certify(job, per_device_process, Run(), warm)
