"""What a run, a process, a thread or a function comes to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..telemetry import Compiled, Fallback, Frame, Log

CACHES = ("fx", "aot")
STATES = ("hit", "miss", "bypass")


@dataclass(frozen=True)
class Totals:
    """Numbers.

    Attributes:
        caches: cache ("fx": Inductor's, "aot": AOTAutograd's) -> state ("hit", "miss", "bypass") -> number of answers.
        hits, misses: of graphs: Inductor's answers, or AOTAutograd's in a process that asks no other.
        bypasses: of either cache.
        compiles: number of functions and backwards that were compiled, those found in a cache too.
        recompiles: how many of these were of a function that its process had compiled before.
        seconds: in which at least one thread of a process compiled, as a clock on the wall shows them.
        thread_seconds: the same of every thread, added up.
        fallbacks: number of things that ran uncompiled.
    """

    caches: Mapping[str, Mapping[str, int]]
    hits: int
    misses: int
    bypasses: int
    compiles: int
    recompiles: int
    seconds: float
    thread_seconds: float
    fallbacks: int

    @property
    def all_found(self) -> bool:
        """True where the caches had every graph that they were asked for: functions were traced, and graphs loaded."""
        missed = any(states.get("miss") or states.get("bypass") for states in self.caches.values())
        return self.hits > 0 and not missed


@dataclass(frozen=True)
class Row:
    """The totals of a thread of a process, or of a function."""

    name: str
    totals: Totals


def totals(logs: Iterable[Log]) -> Totals:
    """The totals of processes together."""
    logs = list(logs)
    caches = {cache: dict.fromkeys(STATES, 0) for cache in CACHES}
    graphs: Counter[str] = Counter()
    for log in logs:
        answers = Counter((event.graph.cache, event.graph.state) for event in log.compiled)
        for (cache, state), number in answers.items():
            caches.setdefault(cache, dict.fromkeys(STATES, 0)).setdefault(state, 0)
            caches[cache][state] += number
        asked = "fx" if any(answers["fx", state] for state in STATES) else "aot"
        graphs.update({state: answers[asked, state] for state in STATES})
    return Totals(
        caches=caches,
        hits=graphs["hit"],
        misses=graphs["miss"],
        bypasses=sum(states.get("bypass", 0) for states in caches.values()),
        compiles=sum(len(log.frames) for log in logs),
        recompiles=sum(map(_recompiles, logs)),
        seconds=_union(frame for log in logs for frame in log.frames),
        thread_seconds=sum(_union(frames) for log in logs for frames in _frames_of_threads(log)),
        fallbacks=sum(len(log.fallbacks) for log in logs),
    )


def _recompiles(log: Log) -> int:
    forwards = Counter(frame.function for frame in log.frames if not frame.backward and frame.function)
    return sum(number - 1 for number in forwards.values())


def _union(frames: Iterable[Frame]) -> float:
    """Seconds that at least one of these took; the backward may be compiled within the forward's."""
    total, end = 0.0, float("-inf")
    for began, ended in sorted((frame.at - frame.seconds, frame.at) for frame in frames):
        total += max(0.0, ended - max(began, end))
        end = max(end, ended)
    return total


def _frames_of_threads(log: Log) -> Iterable[list[Frame]]:
    found: dict[str, list[Frame]] = defaultdict(list)
    for frame in log.frames:
        found[frame.thread].append(frame)
    return found.values()


def by_thread(log: Log) -> list[Row]:
    """The totals of each thread of a process, in the order in which they first told something."""
    return [Row(name, totals([part])) for name, part in _split(log, lambda event: event.thread).items()]


def by_function(logs: Iterable[Log]) -> list[Row]:
    """The totals of each function in all processes, what took longest first."""
    parts: dict[str, list[Log]] = defaultdict(list)
    for log in logs:
        for name, part in _split(log, _function).items():
            parts[name].append(part)
    rows = [Row(name, totals(found)) for name, found in parts.items()]
    return sorted(rows, key=lambda row: (-row.totals.thread_seconds, -row.totals.misses, row.name))


_Told = Compiled | Frame | Fallback


def _function(event: _Told) -> str:
    return event.graph.function if isinstance(event, Compiled) else event.function


def _split(log: Log, name_of: Callable[[_Told], str]) -> dict[str, Log]:
    """Name -> the events of that name."""
    parts: dict[str, tuple[list[Compiled], list[Frame], list[Fallback]]] = {}
    events: tuple[_Told, ...] = (*log.compiled, *log.frames, *log.fallbacks)
    for event in sorted(events, key=lambda event: event.at):
        compiled, frames, fallbacks = parts.setdefault(name_of(event), ([], [], []))
        if isinstance(event, Compiled):
            compiled.append(event)
        elif isinstance(event, Frame):
            frames.append(event)
        else:
            fallbacks.append(event)
    return {
        name: Log(log.process, tuple(compiled), tuple(frames), tuple(fallbacks))
        for name, (compiled, frames, fallbacks) in parts.items()
    }
