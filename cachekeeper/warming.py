"""Runs a plan in a fresh process, and judges whether a process found everything in the cache."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .environment import cache_directory, triton_directory
from .errors import CachekeeperError, NotFound, UsageError
from .inductor import classify, job_environment, triton_device
from .inductor.keys import explain
from .inside.job import Job, encode_job
from .livecache import LiveCache
from .models import Graph, Proof, ProvedStep, StepReport
from .schema import parse
from .targets import for_people
from .units import count, now_utc

# All that a process of a proof builds, it then builds itself, where it is seen. In no key.
PROVING = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
_TICK = 0.5
_GRACE = 5.0
_LINGER = 30.0
_MOST = 5
_ERRORS: Mapping[str, type[CachekeeperError]] = {kind.code: kind for kind in (UsageError, NotFound)}

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
    variables = job_environment(cache_dir, _triton_dirs(cache_dir), ())
    directories = {"": str(cache_dir)}
    if own is not None and cache_directory().path == cache_dir:
        variables["TRITON_CACHE_DIR"] = str(own)
        if cache_dir not in own.parents:
            directories["TRITON_CACHE_DIR"] = str(own)
    return variables, directories


def _triton_dirs(cache_dir: Path) -> dict[str, int]:
    if not cache_dir.is_dir():
        return {}
    with LiveCache(cache_dir) as live:
        entries = {file.place.entry for file in live.scan().files if file.place.kind == "triton"}
    return dict(Counter(filter(None, map(triton_device, entries))))


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
    with _Process(job, variables) as process:
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
                raise _failure(value)
            elif event == "done":
                ended = True
                break  # threads that the target left behind may never end
    if not ended:
        raise _death(process.code, result.steps, at)
    return result


def _failure(value: Mapping[str, Any]) -> CachekeeperError:
    error = _ERRORS.get(value["code"], CachekeeperError)(value["message"], facts=value["facts"], hint=value["hint"])
    error.code = value["code"]
    return error


def _death(code: int, steps: Rows, at: int) -> CachekeeperError:
    """The error for a process that ended without a word, in step `at`, or -1 where it was in none."""
    beside = "between two steps" if steps else "at its start"
    where = f"in step {' '.join(filter(None, steps[at]))}" if at >= 0 else beside
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    hint = (
        "what it wrote is above; SIGKILL is most often the kernel, out of memory"
        if code == -signal.SIGKILL
        else ("what it wrote is above; run the function by hand to see more")
    )
    return CachekeeperError(f"the process of the warmup {how} {where}", hint=hint)


class _Process:
    """A fresh Python that does a job, in a session of its own, so that all that it started ends with it."""

    def __init__(self, job: Job, variables: Mapping[str, str]) -> None:
        self._job = job
        self._variables = variables
        self.code = 0

    def __enter__(self) -> _Process:
        self._pipe, inner = os.pipe()
        command = [sys.executable, "-m", f"{__package__}.inside", encode_job(self._job), str(inner)]
        try:
            self._child = subprocess.Popen(
                command,
                env={**os.environ, **self._variables, "PYTHONPATH": _with_this_package()},
                stdin=subprocess.DEVNULL,
                pass_fds=(inner,),
                start_new_session=True,
                stdout=2,
            )
        finally:
            os.close(inner)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self._end(signal.SIGTERM)
        try:
            self.code = self._child.wait(_LINGER if error is None else _GRACE)
        except subprocess.TimeoutExpired:
            self._end(signal.SIGKILL)
            self._child.wait()
        self._end(signal.SIGTERM)  # compile workers that are still there
        os.close(self._pipe)

    def _end(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)

    def events(self) -> Iterator[tuple[str, Any]]:
        """What the process tells, and ("tick", None) while it says nothing."""
        buffer = b""
        while True:
            if not select.select([self._pipe], [], [], _TICK)[0]:
                if self._child.poll() is not None and not select.select([self._pipe], [], [], 0)[0]:
                    return  # a grandchild may still hold the pipe
                yield "tick", None
                continue
            data = os.read(self._pipe, 1 << 16)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                yield from json.loads(line).items()


def _with_this_package() -> str:
    """PYTHONPATH by which the process finds this package, from wherever it was imported."""
    ours = str(Path(__file__).parents[1])
    before = os.environ.get("PYTHONPATH", "")
    return before if ours in before.split(os.pathsep) else os.pathsep.join(filter(None, (before, ours)))


def judge(cold: Iterable[StepReport], warm: Sequence[StepReport]) -> dict[str, tuple[str, ...]]:
    """Step -> why it is not proven that a fresh process finds everything; empty where it is.

    Args:
        cold: of the process that filled the cache; what its keys were made of explains a miss. May be empty.
        warm: of the process that was to build nothing.
    """
    known: _Known = defaultdict(dict)
    for report in cold:
        for graph in report.graphs:
            known[graph.cache][graph.key] = graph.components
    for report in warm:
        for graph in report.graphs:
            if graph.state == "hit":
                known[graph.cache].setdefault(graph.key, graph.components)
    found = {str(report): tuple(_doubts(report, known)) for report in warm}
    return {step: doubts for step, doubts in found.items() if doubts}


# cache -> key -> what the key was made of
_Known = dict[str, dict[str, Sequence[str]]]


def _doubts(report: StepReport, known: _Known) -> Iterator[str]:
    if report.error:
        yield report.error_line
        return
    for graph in report.graphs:
        if graph.state == "miss":
            because = f"; {graph.reason}" if graph.reason else _because(graph, known.get(graph.cache, {}))
            yield f"missed in the {_CACHES[graph.cache]} cache: {graph}{because}"
    if report.new_files:
        yield f"{count(len(report.new_files), 'file')} written: {_kinds(report.new_files)}"
    if report.compilers:
        yield f"{count(len(report.compilers), 'compiler')} started: {_sources(report.compilers)}"
    if report.triton_built:
        yield f"Triton compiled {count(report.triton_built, 'kernel')}"
    yield from report.fallbacks
    if not report.calls:
        yield "no compiled graph was called"


_CACHES = {"fx": "graph", "aot": "autograd"}


def _because(graph: Graph, known: Mapping[str, Sequence[str]]) -> str:
    if graph.key in known:
        return "; this key was there before: torch did not save it, or cannot load what it saved"
    words = explain(graph.components, known.values())
    return "; against the nearest known: " + "; ".join(words) if words else ""


def _kinds(paths: Iterable[str]) -> str:
    """As "2 native, 1 fxgraph"."""
    places = (classify(path) for path in paths)
    return ", ".join(f"{number} {kind}" for kind, number in Counter(p.kind for p in places if p).most_common())


def _sources(commands: Sequence[str]) -> str:
    """The first of some command lines, each cut to the program and the file that it compiles."""
    said = []
    for program, *words in map(str.split, commands[:_MOST]):
        file = next((word for word in words if not word.startswith("-")), "")
        said.append(f"{program} {file.rpartition('/')[2]}".strip())
    return ", ".join(said) + (f" and {len(commands) - _MOST:,} more" if len(commands) > _MOST else "")


def told(reports: Iterable[StepReport]) -> tuple[StepReport, ...]:
    """Reports for a person: without what keys were made of, hundreds of lines a graph."""
    return tuple(
        replace(report, graphs=tuple(replace(graph, components=()) for graph in report.graphs)) for report in reports
    )


def certificate(job: Job, per_device_process: bool, cold: Run, warm: Run) -> Proof:
    """The certificate of a warmup that was judged to be without doubt.

    Args:
        cold: the run that filled the cache; empty where the cache came from elsewhere.
    """
    before = {report.number: report for report in cold.reports}
    steps = tuple(
        ProvedStep(
            report.device,
            report.mode,
            report.shape,
            round(before[report.number].seconds, 3) if report.number in before else 0.0,
            round(report.seconds, 3),
            before[report.number].new_entries if report.number in before else 0,
            report.number_of("fx", "hit"),
            report.number_of("fx", "bypass") + report.number_of("aot", "bypass"),
            report.calls,
        )
        for report in warm.reports
    )
    return Proof(for_people(job.target), warm.source, now_utc(), job.in_thread, per_device_process, steps)


def replay(
    job: Job, per_device_process: bool, cache_dir: Path, listener: Listener
) -> tuple[Run, Mapping[str, tuple[str, ...]], Proof | None]:
    """Run a plan on a cache that is to hold everything, and wherever that lies.

    Returns:
        What was done, step -> why it is in doubt, and the certificate where nothing is.
    """
    variables = job_environment(cache_dir, _triton_dirs(cache_dir), ())
    job = replace(job, keep_going=True, directories={"": str(cache_dir)})
    listener.process("Replaying")
    warm = run(job, variables | PROVING, listener, per_device_process)
    doubts = judge((), warm.reports)
    return warm, doubts, None if doubts else certificate(job, per_device_process, Run(), warm)
