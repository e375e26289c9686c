"""Did a process find everything? Why it is in doubt, and the certificate where it is not."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..inductor import classify
from ..inductor.keys.changes import explain
from ..inductor.keys.components import is_symbolic
from ..models import Graph, Proof, ProvedStep, StepReport
from ..telemetry import Compiled, Log, Process
from ..units import count, listed, now_utc

_MOST = 5


def judge(
    cold: Iterable[StepReport], warm: Sequence[StepReport], graphs: Iterable[Graph] = ()
) -> dict[str, tuple[str, ...]]:
    """Step -> why it is not proven that a fresh process finds everything; empty where it is.

    Args:
        cold: of the process that filled the cache; what its keys were made of explains a miss. May be empty.
        warm: of the process that was to build nothing.
        graphs: others that the cache holds.
    """
    known: _Known = defaultdict(dict)
    for graph in graphs:
        known[graph.cache][graph.key] = graph.components
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
        if graph.state == "bypass" and graph.cache == "fx":
            yield f"never cached, so that every process compiles it: {graph}; {graph.reason}"
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
    for program, *words in map(str.split, commands):
        file = next((word for word in words if not word.startswith("-")), "")
        said.append(f"{program} {file.rpartition('/')[2]}".strip())
    return listed(said, _MOST)


def order_notes(reports: Iterable[StepReport]) -> tuple[str, ...]:
    """A note where torch made a size dynamic by itself, after it had seen two: another order makes other graphs."""
    fixed: set[tuple[str, str]] = set()
    for report in reports:
        for graph in (graph for graph in report.graphs if graph.cache == "fx"):
            what = graph.function, graph.direction
            if not is_symbolic(graph.components):
                fixed.add(what)
            elif what in fixed:
                return (
                    f"in step {report} torch made a size of {graph} dynamic, because it had seen another one: which "
                    "graphs there are depends on the order of the calls. Warm in the job's order (--order), or fix it "
                    "with mark_dynamic or dynamic=",
                )
    return ()


def direction_notes(reports: Iterable[StepReport]) -> tuple[str, ...]:
    """A note where all graphs are those of inference, which serve no job that trains."""
    directions = {graph.direction for report in reports for graph in report.graphs if graph.cache == "fx"}
    if directions != {"inference"}:
        return ()
    return ("no backward graph in it: a job that trains will miss (`--mode train`)",)


def told(reports: Iterable[StepReport]) -> tuple[StepReport, ...]:
    """Reports for a person: without what keys were made of, hundreds of lines a graph."""
    return tuple(
        replace(report, graphs=tuple(replace(graph, components=()) for graph in report.graphs)) for report in reports
    )


def as_log(target: str, reports: Iterable[StepReport]) -> Log:
    """What the process of a warmup told of its graphs, as a job tells it."""
    now = time.time()
    graphs = tuple(Compiled(now, str(report), graph) for report in reports for graph in report.graphs)
    return Log(Process(os.getpid(), os.uname().nodename, now, argv=(target,)), graphs)


def certificate(
    target: str,
    source: str,
    in_thread: bool,
    per_device_process: bool,
    cold: Iterable[StepReport],
    warm: Iterable[StepReport],
) -> Proof:
    """The certificate of a warmup that was judged to be without doubt.

    Args:
        source: SHA-256 of the file that holds the target.
        cold: of the process that filled the cache; empty where the cache came from elsewhere.
        warm: of the process that built nothing.
    """
    before = {report.number: report for report in cold}
    steps = tuple(
        ProvedStep(
            report.device,
            report.mode,
            report.shape,
            round(before[report.number].seconds, 3) if report.number in before else 0.0,
            round(report.seconds, 3),
            before[report.number].new_entries if report.number in before else 0,
            report.number_of("fx", "hit"),
            report.number_of("aot", "bypass"),
            report.calls,
        )
        for report in warm
    )
    return Proof(target, source, now_utc(), in_thread, per_device_process, steps)
