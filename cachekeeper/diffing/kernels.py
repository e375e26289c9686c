"""Kernels of two caches, matched across different hashes, and what differs between the two of a pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

from ..inventory.models import Kernel
from .models import Graphs, KernelPair, Kernels
from .resources import SOURCE, changes, effect, is_rekeyed
from .sources import cost, normal, source_diff, unnumbered

# All diffs of sources together take so many steps; of what is less telling there is none in the result.
_DIFFS = 1_200_000

_Key = Callable[[Kernel], Hashable | None]


def kernels(a: Sequence[Kernel], b: Sequence[Kernel], graphs: Graphs) -> Kernels:
    """Match the kernels, one to one, and compare each pair.

    A kernel for which a side records no choice is never "the same".
    """
    matching = _Matching(a, b)
    pairs = matching.all(graphs)
    unread = [pair for pair in pairs if _is_unread(pair)]
    changed = sorted((pair for pair in pairs if pair.changes), key=_telling)
    unknown = [pair for pair in pairs if _unrecorded(pair)]
    same = [pair for pair in pairs if not (pair.changes or _unrecorded(pair) or _is_unread(pair))]
    return Kernels(
        len(same),
        _with_diffs(changed),
        tuple(matching.a.values()),
        tuple(matching.b.values()),
        tuple(sorted({pair.b.name for pair in unknown})),
        len(unread),
        sum(is_rekeyed(pair.a, pair.b) for pair in same),
    )


def unchanged(a: Sequence[Kernel], b: Sequence[Kernel], graphs: Graphs) -> list[KernelPair]:
    """The pairs of the same matching in which nothing differs, those of which too little is known among them."""
    return [pair for pair in _Matching(a, b).all(graphs) if not pair.changes]


def _pair(a: Kernel, b: Kernel, how: str) -> KernelPair:
    if _is_only_named(a) or _is_only_named(b):
        return KernelPair(a, b, how, ())  # that one was not read is no difference
    differ = bool(a.source and b.source) and a.source != b.source and normal(a) != normal(b)
    found = changes(a, b, differ)
    return KernelPair(a, b, how, found, effect=effect(found))


def _is_unread(pair: KernelPair) -> bool:
    """True where a side was not looked into. What both sides have alike need not be."""
    if not (pair.a.read and pair.b.read):
        return True
    return _is_only_named(pair.a) != _is_only_named(pair.b)


def _unrecorded(pair: KernelPair) -> bool:
    a, b = pair.a, pair.b
    if "cpp" in (a.type, b.type) or _is_only_named(a) or _is_only_named(b):
        return False
    return a.winner.config is None or b.winner.config is None


def _is_only_named(kernel: Kernel) -> bool:
    """Nothing of it was read: both sides have all of it alike, or there are too many."""
    read = kernel.source or kernel.binary or kernel.winner.config or kernel.compiled or kernel.bytes
    return bool(kernel.module) and not read


def _telling(pair: KernelPair) -> tuple[int, int, int, str]:
    effects = [change for change in pair.changes if change.effect]
    rank = {"slower": 0, "faster": 0, "mixed": 1}.get(pair.effect, 2)
    return rank, -len(effects), -len(pair.changes), pair.b.name


def _with_diffs(pairs: Sequence[KernelPair]) -> tuple[KernelPair, ...]:
    left = _DIFFS
    found = []
    for pair in pairs:
        if any(change.name == SOURCE for change in pair.changes):
            left -= cost(pair.a, pair.b)
            found.append(replace(pair, source=source_diff(pair.a, pair.b)) if left > 0 else pair)
        else:
            found.append(pair)
    return tuple(found)


class _Matching:
    """What is not yet matched of both sides, by its place, and the pairs."""

    def __init__(self, a: Sequence[Kernel], b: Sequence[Kernel]) -> None:
        self.a, self.b = dict(enumerate(a)), dict(enumerate(b))
        self.pairs: list[tuple[Kernel, Kernel, str]] = []

    def all(self, graphs: Graphs) -> list[KernelPair]:
        """Match from what is certain to what is likely, and compare each pair."""
        self.match(_module, "module")
        self.match(_named, "name and source")
        self.match(_normal, "source")
        self.match_in_graphs(lambda kernel: kernel.name, graphs)
        self.match_in_graphs(lambda kernel: unnumbered(kernel.name), graphs, single=True)
        self.match(_own_name, "name", single=True)
        self.match(_built, "name")
        self.match_left(graphs)
        return [_pair(one, other, how) for one, other, how in self.pairs]

    def match_left(self, graphs: Graphs) -> None:
        """Match what is left by name and device: several of one name in the order of their graphs."""
        places = _places(graphs)
        theirs = _in_order(self.b, places)
        for key, mine in _in_order(self.a, places).items():
            for one, other in zip(mine, theirs.get(key, ()), strict=False):
                self._take(one, other, "name")

    def match(self, name: _Key, how: str, single: bool = False) -> None:
        """Match those of one key: of several the same device and size hints first, then the same device.

        With `single` only where each device, or each side, has one of it.
        """
        if not self.a or not self.b:
            return
        theirs = _by_key(self.b, name)
        for key, mine in _by_key(self.a, name).items():
            others = theirs.get(key)
            if others and len(mine) == len(others) == 1:
                self._take(mine[0], others[0], how)
            elif others:
                self._match_some(mine, others, how, single)

    def _match_some(self, mine: Sequence[int], others: Sequence[int], how: str, single: bool) -> None:
        for name in (_sized, _device, _any):
            theirs = _by_key({number: self.b[number] for number in others if number in self.b}, name)
            found = _by_key({number: self.a[number] for number in mine if number in self.a}, name)
            for key, numbers in found.items():
                rivals = theirs.get(key, [])
                if not single or len(numbers) == len(rivals) == 1:
                    for one, other in zip(numbers, rivals, strict=False):
                        self._take(one, other, how)

    def match_in_graphs(self, name: Callable[[Kernel], str], graphs: Graphs, single: bool = False) -> None:
        """Match those of one name that are launched by the two graphs of a pair, or by a graph of both."""
        if not self.a or not self.b:
            return
        other_key = {pair.b.key: pair.a.key for pair in graphs.pairs}
        mine = self._in_graphs(self.a, name, {})
        theirs = self._in_graphs(self.b, name, other_key)
        for key, numbers in mine.items():
            first = [number for number in numbers if number in self.a]
            second = [number for number in theirs.get(key, []) if number in self.b]
            if not single or len(first) == len(second) == 1:
                for one, other in zip(first, second, strict=False):
                    self._take(one, other, "name")

    @staticmethod
    def _in_graphs(
        side: Mapping[int, Kernel], name: Callable[[Kernel], str], other_key: Mapping[str, str]
    ) -> dict[tuple[str, str], list[int]]:
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number, kernel in side.items():
            for graph in dict.fromkeys(kernel.graphs):
                found[name(kernel), other_key.get(graph, graph)].append(number)
        return found

    def _take(self, one: int, other: int, how: str) -> None:
        self.pairs.append((self.a.pop(one), self.b.pop(other), how))


_Place = tuple[int, int, str, str, tuple[str, ...]]
_NOWHERE: _Place = (2, 0, "", "", ())


def _places(graphs: Graphs) -> dict[str, _Place]:
    """Key of a graph -> its place among the graphs of its side: pairs first, then by what a graph is."""
    found: dict[str, _Place] = {}
    for number, pair in enumerate(graphs.pairs):
        found[pair.a.key] = found[pair.b.key] = (0, number, "", "", ())
    for graph in (*graphs.only_a, *graphs.only_b):
        found[graph.key] = (1, 0, graph.direction, graph.function, graph.inputs)
    return found


def _place(kernel: Kernel, places: Mapping[str, _Place]) -> _Place:
    return min((places[key] for key in kernel.graphs if key in places), default=_NOWHERE)


def _in_order(side: Mapping[int, Kernel], places: Mapping[str, _Place]) -> dict[tuple[str, str], list[int]]:
    """Name and device -> the kernels, in the order of their graphs."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for _, number, key in sorted((_place(item, places), n, (item.name, item.device)) for n, item in side.items()):
        found[key].append(number)
    return found


def _by_key(side: Mapping[int, Kernel], name: _Key) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number, kernel in side.items():
        key = name(kernel)
        if key is not None:
            found[key].append(number)
    return found


def _module(kernel: Kernel) -> Hashable | None:
    return (kernel.name, kernel.module) if kernel.module else None


def _named(kernel: Kernel) -> Hashable | None:
    return (kernel.name, kernel.source) if kernel.source else None


def _normal(kernel: Kernel) -> Hashable | None:
    return normal(kernel) or None


def _own_name(kernel: Kernel) -> Hashable | None:
    """A name that a person gave; Inductor's own names are those of many kernels."""
    return None if not kernel.name or kernel.name.startswith(("triton_", "cpp_")) else kernel.name


def _built(kernel: Kernel) -> Hashable | None:
    """What has neither module nor source nor a graph that is on both sides: by what was built of it."""
    return kernel.name, kernel.module, kernel.source, kernel.graphs, kernel.binary.hash if kernel.binary else ""


def _sized(kernel: Kernel) -> Hashable:
    return kernel.device, tuple(sorted(kernel.size_hints.items()))


def _device(kernel: Kernel) -> Hashable:
    return kernel.device


def _any(kernel: Kernel) -> Hashable:
    return ""
