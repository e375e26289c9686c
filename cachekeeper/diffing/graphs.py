"""Graphs of two caches: shared keys, the same graph under another key, and what only one side has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from ..inductor.keys.changes import changes
from ..inductor.keys.components import Component, components, differences, is_of_graph
from ..inductor.keys.words import Change as KeyChange
from ..inventory.models import Graph
from ..units import count, few
from .models import Change, GraphPair, Graphs
from .settings import effect_of

# Of so many pairs of candidates the nearest are looked for; of more, they are taken in order.
_NEAREST = 64
# Kinds of changes that are settings, which a person can change for all graphs at once.
_SETTINGS = frozenset(
    (
        "setting",
        "option",
        "pass",
        "autocast",
        "deterministic",
        "matmul",
        "threads",
        "default dtype",
        "key tag",
        "tracing",
    )
)
# An option of the compiler is another one for another graph.
_COMMON = _SETTINGS - {"option"}
_EVERY = "in the key of every graph of both"
_OWN_KERNEL = "user_defined_triton_source"
_SYSTEM = ("system_info[device]", "system_info[version]")
_Table = Mapping[str, Component]
_Ids = tuple[int, Mapping[str, Component]]


def graphs(a: Sequence[Graph], b: Sequence[Graph]) -> tuple[Graphs, tuple[Change, ...]]:
    """Pair the graphs, and tell the settings in which the keys of pairs differ, each once."""
    one, other = ({graph.key: graph for graph in side} for side in (a, b))
    shared = one.keys() & other.keys()
    pairing = _Pairing(
        [one[key] for key in one if key not in shared], [other[key] for key in other if key not in shared]
    )
    pairing.match(lambda graph: (graph.content, graph.device) if graph.content else None)
    pairing.match(lambda graph: graph.content or None)
    pairing.match(_called, lambda one, other: not (one.content and other.content))
    pairs = sorted(pairing.pairs, key=lambda pair: pair[0].key)
    keyed = pairing.keyed
    changes = [keyed.changes(one, other) for one, other in pairs]
    apart = keyed.settings_apart(a, b) if shared != one.keys() | other.keys() else []
    said = tuple(GraphPair(one, other, _because(found)) for (one, other), found in zip(pairs, changes, strict=True))
    return Graphs(len(shared), said, tuple(pairing.a.values()), tuple(pairing.b.values())), _config(changes, apart)


def _called(graph: Graph) -> Hashable | None:
    """A function without its line, which moves when a file is edited, with direction and inputs."""
    if not graph.function:
        return None
    return graph.function.rpartition(":")[0] or graph.function, graph.direction, graph.inputs, graph.device


def _because(changes: Sequence[KeyChange]) -> tuple[str, ...]:
    return few([_plainly(change.words) for change in changes])


def _plainly(words: str) -> str:
    """Long values that are cut, and whose beginnings are the same, say nothing."""
    name, _, values = words.partition(": ")
    before, _, after = values.partition(" -> ")
    if name.startswith(_OWN_KERNEL):
        return "a Triton kernel of your own, or how it is launched, is another one"
    return f"{name} differs, past what torch shows of it" if before and before == after else words


class _Keyed:
    """Takes components apart. Settings, 600 lines that most graphs have in common, are kept and compared once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}
        self._settings: list[dict[str, Component]] = []
        self._late: list[dict[str, Component]] = []
        self._parsed: dict[int, _Ids] = {}
        self._differing: dict[tuple[int, int], list[str]] = {}

    def _parse(self, graph: Graph) -> _Ids:
        if id(graph) not in self._parsed:
            lines = graph.components
            first = next((number for number, line in enumerate(lines) if not is_of_graph(line)), len(lines))
            settings = self._number(lines[first:])
            self._parsed[id(graph)] = settings, {**components(lines[:first]), **self._late[settings]}
        return self._parsed[id(graph)]

    def _number(self, lines: tuple[str, ...]) -> int:
        number = self._numbers.setdefault(lines, len(self._settings))
        if number == len(self._settings):
            found = components(lines)
            self._settings.append(found)
            self._late.append({name: value for name, value in found.items() if _is_own(name)})
        return number

    def _names(self, one: Graph, other: Graph) -> list[str]:
        (first, own), (second, theirs) = self._parse(one), self._parse(other)
        if (first, second) not in self._differing:
            found = differences(self._settings[first], self._settings[second])
            self._differing[first, second] = [name for name in found if not _is_own(name)]
        return [*differences(own, theirs), *self._differing[first, second]]

    def distance(self, one: Graph, other: Graph) -> int:
        """Number of components that differ."""
        return len(self._names(one, other)) if one.components and other.components else 0

    def changes(self, one: Graph, other: Graph) -> list[KeyChange]:
        """What the keys differ in; empty where a side has no components."""
        if not one.components or not other.components:
            return []
        names = self._names(one, other)
        before, after = (self._some(side, names) for side in (one, other))
        return changes(names, before, after)

    def settings_apart(self, a: Iterable[Graph], b: Iterable[Graph]) -> list[KeyChange]:
        """In what all graphs of a side differ from all of the other: settings, whatever the graphs are."""
        one, other = (self._tables(side) for side in (a, b))
        if not one or not other:
            return []
        before, after = _common(one, other), _common(other, one)
        return changes(differences(before, after), before, after)

    def _tables(self, side: Iterable[Graph]) -> list[dict[str, Component]]:
        numbers = {self._parse(graph)[0] for graph in side if graph.components}
        return [self._settings[number] for number in sorted(numbers)]

    def _some(self, side: Graph, names: Iterable[str]) -> dict[str, Component]:
        settings, own = self._parse(side)
        table = self._settings[settings]
        return {**{name: table[name] for name in (*names, *_SYSTEM) if name in table}, **own}


def _common(
    tables: Sequence[Mapping[str, Component]], others: Sequence[Mapping[str, Component]]
) -> dict[str, Component]:
    """The settings that all graphs of a side have alike, and of the other side all graphs, or none of them."""
    first, *rest = tables
    found = {
        name: value
        for name, value in first.items()
        if not _is_own(name) and all(name in table and table[name].hash == value.hash for table in rest)
    }
    if len(others) == 1:
        return found
    return {name: value for name, value in found.items() if len({_hash(table, name) for table in others}) == 1}


def _hash(table: _Table, name: str) -> str:
    return table[name].hash if name in table else ""


def _is_own(name: str) -> bool:
    return name == "gm" or name.startswith("example_inputs[")


class _Pairing:
    """What is not yet paired of both sides, by its place, and the pairs."""

    def __init__(self, a: Iterable[Graph], b: Iterable[Graph]) -> None:
        self.a, self.b = dict(enumerate(a)), dict(enumerate(b))
        self.pairs: list[tuple[Graph, Graph]] = []
        self.keyed = _Keyed()

    def match(
        self, name: Callable[[Graph], Hashable | None], fits: Callable[[Graph, Graph], bool] = lambda one, other: True
    ) -> None:
        """Pair those of one name; `fits` may refuse a pair."""
        theirs = _by_name(self.b, name)
        for key, mine in _by_name(self.a, name).items():
            for one, other in self._nearest(mine, theirs.get(key, [])):
                if fits(self.a[one], self.b[other]):
                    self.pairs.append((self.a.pop(one), self.b.pop(other)))

    def _nearest(self, mine: Sequence[int], theirs: Sequence[int]) -> list[tuple[int, int]]:
        if min(len(mine), len(theirs)) == 0 or max(len(mine), len(theirs)) == 1:
            return list(zip(mine, theirs, strict=False))
        if len(mine) * len(theirs) > _NEAREST:
            return self._in_order(mine, theirs)
        ranked = sorted((self._apart(one, other), one, other) for one in mine for other in theirs)
        found: dict[int, int] = {}
        for _, one, other in ranked:
            if one not in found and other not in found.values():
                found[one] = other
        return list(found.items())

    def _apart(self, one: int, other: int) -> tuple[bool, bool, int]:
        first, second = self.a[one], self.b[other]
        function = first.function != second.function
        return first.direction != second.direction, function, self.keyed.distance(first, second)

    def _in_order(self, mine: Sequence[int], theirs: Sequence[int]) -> list[tuple[int, int]]:
        first = sorted(mine, key=lambda number: _order(self.a[number]))
        second = sorted(theirs, key=lambda number: _order(self.b[number]))
        return list(zip(first, second, strict=False))


def _order(graph: Graph) -> tuple[str, str, str, tuple[str, ...], str]:
    return graph.direction, graph.device, graph.function, graph.inputs, graph.key


def _by_name(side: Mapping[int, Graph], name: Callable[[Graph], Hashable | None]) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number, graph in side.items():
        key = name(graph)
        if key is not None:
            found[key].append(number)
    return found


def _config(changes: Sequence[Sequence[KeyChange]], apart: Sequence[KeyChange]) -> tuple[Change, ...]:
    """Settings that differ, each once with the number of graphs that it concerns.

    Args:
        changes: of each pair of graphs.
        apart: what all graphs of a side have, and none of the other.
    """
    concerned: dict[str, int] = defaultdict(int)
    for found in changes:
        for words in {change.words: None for change in found if change.kind in _SETTINGS}:
            concerned[words] += 1
    known = sum(map(bool, changes))
    everywhere = {change.words: None for change in apart if change.kind in _COMMON}
    return (
        *(_setting(words, _EVERY if number == known else _few(number)) for words, number in concerned.items()),
        *(_setting(words, _EVERY) for words in everywhere if words not in concerned),
    )


def _few(number: int) -> str:
    return f"in the keys of {count(number, 'graph')}"


def _setting(words: str, where: str) -> Change:
    name, _, values = words.partition(": ")
    before, _, after = values.partition(" -> ")
    return Change(name, before, after, effect_of(name, before, after), where)
