"""Graphs that are known, and the nearest of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..inductor.keys.changes import changes
from ..inductor.keys.components import Component, components, differences, is_of_graph
from ..inductor.keys.words import Change
from ..models import Graph

_Id = tuple[str, str]


class Parsed(NamedTuple):
    """A graph with its components: `settings` is the number of those that it shares with most others."""

    graph: Graph
    settings: int
    own: Mapping[str, Component]

    @property
    def operations(self) -> str:
        """The hash of its operations; "" where torch listed no components."""
        return self.own["gm"].hash if "gm" in self.own else ""

    @property
    def identifier(self) -> _Id:
        """Its cache and its key there."""
        return self.graph.cache, self.graph.key

    @property
    def called(self) -> tuple[str, str]:
        """Its cache and the name of its function, without the line, which moves when a file is edited."""
        return self.graph.cache, self.graph.function.partition(":")[0]


class Near(NamedTuple):
    """The nearest known graph, what differs, and the names of the settings that do."""

    parsed: Parsed
    changes: tuple[Change, ...]
    settings: tuple[str, ...]


class Settings:
    """Takes components apart. The settings, 600 lines that are the same for most graphs, are kept and compared once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}
        self._all: list[dict[str, Component]] = []
        self._differing: dict[tuple[int, int], tuple[str, ...]] = {}
        self._parsed: dict[int, Parsed] = {}

    def parse(self, graph: Graph) -> Parsed:
        """A graph with its components taken apart."""
        if id(graph) not in self._parsed:
            self._parsed[id(graph)] = self._parse(graph)
        return self._parsed[id(graph)]

    def _parse(self, graph: Graph) -> Parsed:
        own = components(line for line in graph.components if is_of_graph(line))
        lines = tuple(line for line in graph.components if not is_of_graph(line))
        number = self._numbers.setdefault(lines, len(self._all))
        if number == len(self._all):
            self._all.append(components(lines))
        return Parsed(graph, number, own)

    def differing(self, old: int, new: int) -> tuple[str, ...]:
        """Names of the settings that differ."""
        if (old, new) not in self._differing:
            self._differing[old, new] = tuple(differences(self._all[old], self._all[new]))
        return self._differing[old, new]

    def value(self, number: int, name: str) -> str:
        """The hash of one of the settings; "" where there is none of that name."""
        component = self._all[number].get(name)
        return component.hash if component else ""

    def near(self, old: Parsed, new: Parsed) -> Near:
        """What differs between two graphs."""
        settings = self.differing(old.settings, new.settings)
        names = [*differences(old.own, new.own), *settings]
        before, after = ({**self._all[side.settings], **side.own} for side in (old, new))
        return Near(old, tuple(changes(names, before, after)), settings)


class Book:
    """Graphs that are known, by their keys, their operations and their functions."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._states: dict[_Id, Counter[str]] = defaultdict(Counter)
        self._torch: dict[_Id, str] = {}
        self._last: dict[_Id, float] = {}
        self._listed: set[_Id] = set()
        self._alike: dict[tuple[str, str], list[Parsed]] = defaultdict(list)
        self._called: dict[tuple[str, str], list[Parsed]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._states)

    @property
    def graphs(self) -> int:
        """Number of keys of Inductor's cache."""
        return sum(cache == "fx" for cache, _ in self._states)

    def add(self, graph: Graph, state: str, at: float, torch: str = "") -> None:
        """Know a graph.

        Args:
            state: what a cache said, or "kept" for one of a snapshot.
            at: when, in seconds since the epoch.
            torch: the version that it is of.
        """
        if not graph.key:
            return
        identifier = graph.cache, graph.key
        self._states[identifier][state] += 1
        self._torch.setdefault(identifier, torch)
        self._last[identifier] = max(at, self._last.get(identifier, at))
        if graph.components and identifier not in self._listed:
            self._listed.add(identifier)
            self._list(self._settings.parse(graph))

    def _list(self, parsed: Parsed) -> None:
        if parsed.operations:
            self._alike[parsed.graph.cache, parsed.operations].append(parsed)
            if parsed.graph.function:
                self._called[parsed.called].append(parsed)

    def states(self, parsed: Parsed) -> Mapping[str, int]:
        """How often the very key of a graph was known, and as what."""
        return self._states.get(parsed.identifier, {})

    def torch(self, parsed: Parsed) -> str:
        """The version of torch that a known graph is of, or ""."""
        return self._torch.get(parsed.identifier, "")

    def nearest(self, wanted: Parsed) -> Near | None:
        """The known graph from which the least differs, the last seen of several; None where none is like it.

        That is, where neither operations nor function are known.
        """
        if not wanted.operations:
            return None
        alike = self._alike.get((wanted.graph.cache, wanted.operations), ())
        found = self._best(wanted, alike) or self._best(wanted, self._called.get(wanted.called, ()))
        return self._settings.near(found, wanted) if found else None

    def settings_apart(self, wanted: Parsed) -> Near | None:
        """A known graph of the same operations and inputs, compiled with other settings."""
        alike = self._alike.get((wanted.graph.cache, wanted.operations), ()) if wanted.operations else ()
        found = self._best(wanted, [other for other in alike if not differences(other.own, wanted.own)])
        return self._settings.near(found, wanted) if found else None

    def _best(self, wanted: Parsed, candidates: Iterable[Parsed]) -> Parsed | None:
        return min(candidates, key=lambda other: self._distance(other, wanted), default=None)

    def _distance(self, other: Parsed, wanted: Parsed) -> tuple[bool, int, bool, float]:
        return (
            other.graph.direction != wanted.graph.direction,
            len(self._settings.differing(other.settings, wanted.settings)) + len(differences(other.own, wanted.own)),
            other.graph.function != wanted.graph.function,
            -self._last[other.identifier],
        )
