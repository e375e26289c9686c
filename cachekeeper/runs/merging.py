"""The processes of a run as one log, which a snapshot keeps: each graph once, in no more room than is given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from .. import telemetry
from ..telemetry import Compiled, Fallback, Frame, Log, Note

# Of these, there are as many in one process.
_MOST_FRAMES = 10_000
_MOST_WORDS = 500

LIMIT = 4 << 20
Told = TypeVar("Told", Compiled, Frame, Fallback, Note)


def kept(logs: Sequence[Log], known: Log | None, keys: Collection[str]) -> bytes:
    """What a snapshot keeps of what processes told, as lines; b"" for nothing. Arguments as for `merged`."""
    log = merged(logs, known, keys)
    return within(log, LIMIT) if log else b""


def merged(logs: Sequence[Log], known: Log | None, keys: Collection[str]) -> Log | None:
    """One log of many, whose process is the first without its arguments; None where nobody told anything.

    Threads of several processes are told apart as "rank 3: MainThread".

    Args:
        known: what the snapshot told that the run began with.
        keys: of what the cache holds: graphs of `known` that are not among them, nor told of, are left out.
    """
    every = [*logs, known] if known else list(logs)
    if not every:
        return None
    labels = [_label(log) if len(logs) > 1 else "" for log in logs]

    def in_order(events_of: Callable[[Log], Sequence[Told]]) -> list[Told]:
        pairs = zip(labels, logs, strict=True)
        events = [replace(event, thread=label + event.thread) for label, log in pairs for event in events_of(log)]
        return sorted(events, key=lambda event: event.at)

    graphs = in_order(lambda log: log.compiled)
    wanted = {*keys, *(event.graph.key for event in graphs)} - {""}
    graphs += [event for event in (known.compiled if known else ()) if event.graph.key in wanted]
    return Log(
        replace(every[0].process, argv=()),
        tuple(_each_once(graphs)),
        tuple(in_order(lambda log: log.frames)[:_MOST_FRAMES]),
        tuple(in_order(lambda log: log.fallbacks)[:_MOST_WORDS]),
        tuple(in_order(lambda log: log.notes)[:_MOST_WORDS]),
    )


def _label(log: Log) -> str:
    process = log.process
    return f"process {process.pid}: " if process.rank is None else f"rank {process.rank}: "


def _each_once(events: Iterable[Compiled]) -> list[Compiled]:
    """The first event of each graph, with the components of whichever has them."""
    found: dict[Hashable, Compiled] = {}
    for event in events:
        graph = event.graph
        name = (graph.cache, graph.key) if graph.key else (graph.cache, graph.state, graph.function, graph.reason)
        before = found.setdefault(name, event)
        if graph.components and not before.graph.components:
            found[name] = replace(before, graph=replace(before.graph, components=graph.components))
    return list(found.values())


def within(log: Log, limit: int) -> bytes:
    """The lines of a log in no more bytes than that, at the price of what is least missed.

    That is, in this order: components of hits, of all other graphs, then all but graphs, then hits, then the others;
    the oldest first.
    """
    graphs = log.compiled
    order = sorted(range(len(graphs)), key=lambda number: (graphs[number].graph.state != "hit", graphs[number].at))
    least, most = 0, 2 * len(order) + 1
    while least < most:
        middle = (least + most) // 2
        if len(telemetry.encode(_without(log, order, middle))) <= limit:
            most = middle
        else:
            least = middle + 1
    return telemetry.encode(_without(log, order, least))


def _without(log: Log, order: Sequence[int], steps: int) -> Log:
    """A log after so many steps: first each graph of `order` loses its components, then all else goes, then each."""
    bare = set(order[:steps])
    gone = set(order[: max(0, steps - len(order) - 1)])
    compiled = tuple(
        replace(event, graph=replace(event.graph, components=())) if number in bare else event
        for number, event in enumerate(log.compiled)
        if number not in gone
    )
    if steps > len(order):
        return Log(log.process, compiled, fallbacks=log.fallbacks)
    return replace(log, compiled=compiled)
