"""What the last runs compiled, and one of them by process, thread and function."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..runs import RunInfo, find, home, is_alive, is_going, logs, runs, short
from ..runs.stopping import stopped
from ..runs.totals import Row, Totals, by_function, by_thread, totals
from ..telemetry import Compiled, Fallback, Frame, Log, Note, Process

DEFAULT_LIMIT = 10
RUNNING, ENDED, SILENT = "running", "ended", "no end"


@dataclass(frozen=True)
class RunStats:
    """A run and what it comes to.

    Attributes:
        processes: number of those that told something; `crashed` of them are gone and did not say that they ended.
        going: it is not over.
        seconds: from its beginning to its end, until now while it is going, and until the last that it told where
            nobody saw its end; None where it told nothing.
        dropped: events that had no room in the files of their processes, or none for their components.
    """

    run: RunInfo
    totals: Totals
    processes: int
    crashed: int
    going: bool
    seconds: float | None
    dropped: int


@dataclass(frozen=True)
class ProcessStats:
    """A process of a run.

    Attributes:
        state: "running", "ended", or "no end": it is gone and did not say so, as one that was killed, or that calls
            os._exit, as those of multiprocessing do.
        torn: it was ended while it wrote.
        threads: each thread that compiled.
    """

    process: Process
    state: str
    torn: bool
    dropped: int
    totals: Totals
    threads: tuple[Row, ...]
    fallbacks: tuple[Fallback, ...]
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class StatsResult:
    """What runs come to.

    Attributes:
        home: the directory that runs are kept in.
        runs: newest first; the one that was asked for, where one was.
        more: number of runs that are kept and were not asked for.
        processes, functions: of the run that was asked for, by rank, and what took longest first.
    """

    home: str
    runs: tuple[RunStats, ...]
    more: int = 0
    processes: tuple[ProcessStats, ...] = ()
    functions: tuple[Row, ...] = ()


def stats(reference: str | None = None, *, last: bool = False, limit: int = DEFAULT_LIMIT) -> StatsResult:
    """Look at the last runs, or at one of them.

    Args:
        reference: id of a run, its last six digits, the beginning of either, or "last".
        last: look at the last run.
        limit: number of runs, where none is asked for.

    Raises:
        NotFound: no such run.
        UsageError: several begin so; a run and the last one; a limit below one.
        LocalDiskError: where runs are kept cannot be looked at.
    """
    if reference is not None and last:
        raise UsageError("give a run or --last, not both")
    if limit < 1:
        raise UsageError(f"not a number of runs: {limit}")
    if reference is None and not last:
        every = runs()
        return StatsResult(str(home()), tuple(map(of_run, every[:limit])), max(0, len(every) - limit))
    run = find(reference)
    told = logs(run, components=False)
    by_rank = sorted(told, key=lambda log: (log.process.rank is None, log.process.rank))
    processes = tuple(_process(log, run) for log in by_rank)
    return StatsResult(str(home()), (of_run(run, told),), 0, processes, tuple(by_function(told)))


def of_run(run: RunInfo, told: Sequence[Log] | None = None) -> RunStats:
    """What a run comes to.

    Args:
        told: what its processes told, where that was read already.
    """
    told = logs(run, components=False) if told is None else told
    going = is_going(run)
    ended = run.ended or (time.time() if going else max(map(_last, told), default=None))
    return RunStats(
        run=run,
        totals=totals(told),
        processes=len(told),
        crashed=sum(_state(log, run) == SILENT for log in told),
        going=going,
        seconds=None if ended is None else max(0.0, ended - _first(run, told)),
        dropped=sum(log.end.dropped for log in told if log.end),
    )


def _first(run: RunInfo, told: Sequence[Log]) -> float:
    """When a run began; one that a script begins is known when its first compile is over."""
    return min([run.began, *(frame.at - frame.seconds for log in told for frame in log.frames)])


def _last(log: Log) -> float:
    """When a process was last heard of."""
    events: tuple[Compiled | Frame | Fallback | Note, ...] = (*log.compiled, *log.frames, *log.fallbacks, *log.notes)
    return log.end.at if log.end else max([log.process.began, *(event.at for event in events)])


def _state(log: Log, run: RunInfo) -> str:
    if log.end is not None:
        return ENDED
    if run.ended is not None:
        return SILENT
    here = log.process.host == os.uname().nodename
    alive = is_alive(log.process.pid, log.process.began) if here else is_going(run)
    return RUNNING if alive else SILENT


def _process(log: Log, run: RunInfo) -> ProcessStats:
    return ProcessStats(
        process=log.process,
        state=_state(log, run),
        torn=log.torn,
        dropped=log.end.dropped if log.end else 0,
        totals=totals([log]),
        threads=tuple(by_thread(log)),
        fallbacks=log.fallbacks,
        notes=log.notes,
    )


def silence(run: RunInfo) -> str:
    """Why no process of a run has told of a compile, as far as the run knows; a sentence."""
    nobody = "no process has told of a compile"
    if stopped(run):
        return f"{nobody} before `--assert-warm` ended the job; `cachekeeper explain {short(run.id)}` says why it did"
    if not run.telemetry:
        return f"telemetry was off (CACHEKEEPER_TELEMETRY=0): {nobody}"
    if not run.guarded:
        return f"{nobody}: the run was without the guard, which notes them"
    why = "nothing was compiled with torch in a Python that loads the guard, or the job itself switched telemetry off"
    return f"{nobody}{' so far' * is_going(run)}: {why}"


def measures(processes: Sequence[ProcessStats]) -> Mapping[str, str]:
    """The guard's measures, each as the processes say: "on", or the reasons of those where it is not."""
    found: dict[str, dict[str, None]] = {}
    for item in processes:
        for name, said in item.process.measures.items():
            found.setdefault(name, {})[said] = None
    return {name: "; ".join(said) for name, said in found.items()}
