"""Graphs that are on one side only, each with the nearest of the other side, and what these two differ in."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from ..inductor.keys.changes import changes
from ..inductor.keys.components import components, differences
from ..inductor.keys.operations import more_and_less
from ..inductor.keys.words import Change
from ..inventory.models import Graph
from .models import Graphs

_MOST = 4
_WORDS = 3
# Of a key, what a graph is; its settings are told for themselves.
_OF_GRAPHS = frozenset(
    (
        *("operations", "shape", "dtype", "stride", "dynamic", "input", "device", "layout", "memory_format"),
        *("requires_grad", "gradients", "autocast", "arguments", "kernel", "default dtype", "is_quantized"),
    )
)
_TYPED = re.compile(r"(\w+)\[([^\]]*)\]")


class Other(NamedTuple):
    """Two graphs that have the most in common.

    Attributes:
        words: what differs, as "input 0: dtype float32 -> bfloat16".
        general: the same without the numbers of inputs.
        called: the job says that both are of one function.
    """

    a: Graph
    b: Graph
    words: tuple[str, ...]
    general: tuple[str, ...]
    called: bool


def is_little_shared(graphs: Graphs) -> bool:
    """True where most graphs of both sides are on one side only."""
    known = graphs.shared + len(graphs.pairs)
    return min(len(graphs.only_a), len(graphs.only_b)) > known


def is_nothing_shared(graphs: Graphs) -> bool:
    """True where no graph of the one is in the other, though both have some."""
    return not graphs.shared and not graphs.pairs and bool(graphs.only_a and graphs.only_b)


def nearest(graphs: Graphs) -> list[tuple[Graph, Graph, bool]]:
    """Those of one function and direction, as telemetry has them, else of one direction and device in order."""
    one, other = dict(enumerate(graphs.only_a)), dict(enumerate(graphs.only_b))
    found: list[tuple[Graph, Graph, bool]] = []
    for key, called in ((function_of, True), (_facing, False)):
        theirs = _by(other, key)
        for name, mine in _by(one, key).items():
            for first, second in zip(mine, theirs.get(name, ()), strict=False):
                found.append((one.pop(first), other.pop(second), called))
    return found


def function_of(graph: Graph) -> Hashable | None:
    """A function without its line, which moves when a file is edited, and direction; None where nobody told it."""
    if not graph.function:
        return None
    return graph.function.rpartition(":")[0] or graph.function, graph.direction


def _facing(graph: Graph) -> Hashable | None:
    return (graph.direction, graph.device) if graph.direction else None


def _by(side: Mapping[int, Graph], key: Callable[[Graph], Hashable | None]) -> dict[Hashable, list[int]]:
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number, graph in side.items():
        name = key(graph)
        if name is not None:
            found[name].append(number)
    return found


def others(graphs: Graphs) -> list[Other]:
    """Some of the nearest that differ, with what they differ in."""
    found = []
    for one, other, called in nearest(graphs)[:_MOST]:
        changes = _of_keys(one, other) if one.components and other.components else _of_values(one, other)
        if changes:
            words = tuple(change.words for change in changes[:_WORDS])
            found.append(Other(one, other, words, tuple(change.general for change in changes), called))
    return found


def _of_keys(one: Graph, other: Graph) -> list[Change]:
    before, after = components(one.components), components(other.components)
    found = changes(differences(before, after), before, after)
    return [change for change in found if change.kind in _OF_GRAPHS]


def _of_values(one: Graph, other: Graph) -> list[Change]:
    """Where a key is not known: inputs and operators as they are."""
    found = []
    if one.inputs and other.inputs and one.inputs != other.inputs:
        found += _of_inputs(one.inputs, other.inputs)
    before, after = (Counter(dict(sorted(graph.operations.items()))) for graph in (one, other))
    if change := more_and_less(before, after):
        found.append(change)
    return found


def _of_inputs(one: Sequence[str], other: Sequence[str]) -> list[Change]:
    if len(one) != len(other):
        words = f"number of inputs: {len(one)} -> {len(other)}"
        return [Change("input", words, words)]
    pairs = [(number, *pair) for number, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]]
    return [Change("input", f"input {number}: {a} -> {b}", f"{a} -> {b}") for number, a, b in pairs]


def are_other_sizes(one: Graph, other: Graph) -> bool:
    """True where two graphs take as many inputs, and one of these has another size; open sizes are none."""
    if len(one.inputs) != len(other.inputs):
        return False
    return any(_sizes_differ(a, b) for a, b in zip(one.inputs, other.inputs, strict=True))


def _sizes_differ(a: str, b: str) -> bool:
    one, other = (_TYPED.match(text) for text in (a, b))
    if not one or not other:
        return False
    pairs = list(zip(one[2].split(", "), other[2].split(", "), strict=False))
    return any(first != second and first.isdecimal() and second.isdecimal() for first, second in pairs)
