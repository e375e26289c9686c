"""Where the bytes are, and where the compile seconds are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..inventory.models import Graph, Kernel
from ..units import spaced
from . import numbers
from .charts import Bar, bars
from .graphs import name
from .markup import Html, joined

Both = tuple[float | None, float | None]


def bytes_by_kind(content: Mapping[str, tuple[int, int]], both: bool = True) -> Html:
    """Bars, the most first."""
    rows = [Bar(kind, a, b) for kind, (a, b) in sorted(content.items(), key=lambda item: -max(item[1]))]
    return bars("Bytes by kind of entry", rows, numbers.size, both)


def entries_by_kind(content: Mapping[str, tuple[int, int]], both: bool = True) -> Html:
    """Bars, the most first."""
    rows = [Bar(kind, a, b) for kind, (a, b) in sorted(content.items(), key=lambda item: -max(item[1]))]
    return bars("Entries by kind", rows, numbers.amount, both)


def seconds(graphs: Iterable[tuple[Graph, Both]], kernels: Iterable[tuple[Kernel, Both]], both: bool = True) -> Html:
    """Bars of what compiling graphs and choosing for kernels took; the longest first."""
    of_graphs = _longest(Bar(_called(graph), *values) for graph, values in graphs)
    of_kernels = _longest(Bar(kernel.name, *values) for kernel, values in kernels)
    return joined(
        [
            bars("Compiling a graph", of_graphs, numbers.seconds, both),
            bars("Autotuning a kernel", of_kernels, numbers.seconds, both),
        ]
    )


def _called(graph: Graph) -> str:
    what = " of ".join(filter(None, (graph.direction, graph.function))) or name(graph)
    return spaced(what, graph.device and f"on {graph.device}")


def _longest(rows: Iterable[Bar]) -> list[Bar]:
    kept = [row for row in rows if _value(row) > 0]
    return sorted(kept, key=lambda row: -_value(row))


def _value(row: Bar) -> float:
    return max(numbers.finite(row.a) or 0.0, numbers.finite(row.b) or 0.0)
