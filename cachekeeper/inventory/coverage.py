"""What a cache has for each device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ..inductor.wrappers import WrapperSource
from .models import Coverage, Graph

_DIRECTIONS = ("forward", "backward", "inference")
_UNKNOWN = "unknown"


def coverage(graphs: Iterable[Graph], wrappers: Mapping[str, WrapperSource]) -> tuple[Coverage, ...]:
    """A row a device, sorted.

    Args:
        wrappers: by name of the module. Those that no graph names stand for the graphs that were not read. Where there
            are more of them than such graphs, nobody knows which, and the direction is not told: of no graph, if most
            were not read, as the few that were are others in another cache.
    """
    graphs = list(graphs)
    counts: Counter[tuple[str, str]] = Counter()
    unread: Counter[str] = Counter()
    named = set()
    for graph in graphs:
        direction = _known(graph.direction)
        if graph.device:
            counts[graph.device, direction] += 1
            named.add(graph.wrapper)
        else:
            unread[direction] += 1
    others = [wrapper for name, wrapper in sorted(wrappers.items()) if name not in named and wrapper.device]
    missing = sum(unread.values())
    if len(others) > missing > 0:
        most = 2 * missing > len(graphs)
        counts = Counter() if most else counts
        unread = Counter({_UNKNOWN: len(graphs) if most else missing})
        others = []
    for wrapper in others:
        direction = _known(wrapper.direction)
        instead = direction if unread[direction] else _UNKNOWN
        if unread[instead]:
            unread[instead] -= 1
            counts[wrapper.device, direction] += 1
    counts.update({("", direction): number for direction, number in unread.items()})
    launched = _launched(wrappers)
    devices = sorted({device for device, _ in +counts})
    return tuple(_row(device, counts, len(launched.get(device, ()))) for device in devices)


def _launched(wrappers: Mapping[str, WrapperSource]) -> dict[str, set[tuple[str, str]]]:
    """Device -> (name, module) of the kernels that are launched there."""
    found: dict[str, set[tuple[str, str]]] = {}
    for wrapper in wrappers.values():
        here = found.setdefault(wrapper.device, set())
        here.update((name, wrapper.kernels.get(name, "")) for name in wrapper.launches)
    return found


def _known(direction: str) -> str:
    return direction if direction in _DIRECTIONS else _UNKNOWN


def _row(device: str, counts: Mapping[tuple[str, str], int], kernels: int) -> Coverage:
    forward, backward, inference = (counts.get((device, direction), 0) for direction in _DIRECTIONS)
    return Coverage(device, forward, backward, inference, counts.get((device, _UNKNOWN), 0), kernels)
