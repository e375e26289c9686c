"""Graphs: a row each; pairs with the reason why their keys differ."""

from __future__ import annotations

from collections.abc import Sequence

from ..diffing.models import GraphPair
from ..inventory.models import Graph
from ..units import short_id
from . import numbers
from .markup import Html, element, escaped
from .tables import Cell, Column, Row, items, number, table, text

_KEY = 12


def pairs(content: Sequence[GraphPair]) -> Html:
    """The same graphs under other keys."""
    columns = [
        Column("Graph"),
        Column("Direction"),
        Column("Device"),
        Column("Because", "long"),
        Column("Key of a", "key"),
        Column("Key of b", "key"),
    ]
    rows = [
        Row(
            [
                _name(each.b),
                text(each.b.direction or "not known"),
                text(each.b.device),
                Cell(items(each.because[:10]) or escaped("not known")),
                _key(each.a),
                _key(each.b),
            ]
        )
        for each in content
    ]
    return table("graphs-pairs", "The same graph under another key", columns, rows)


def single(identifier: str, caption: str, content: Sequence[Graph]) -> Html:
    """Graphs of one cache."""
    titles = ("Graph", "Direction", "Device", "Inputs", "Kernels", "Seconds", "Size", "Key")
    kinds = ("text", "text", "text", "long", "number", "number", "number", "key")
    columns = [Column(title, kind) for title, kind in zip(titles, kinds, strict=True)]
    return table(identifier, caption, columns, [_row(graph) for graph in content])


def _row(graph: Graph) -> Row:
    cells = [
        _name(graph),
        text(graph.direction or "not known"),
        text(graph.device),
        text(", ".join(graph.inputs[:20]), 160),
        number(len(graph.kernels), numbers.amount),
        number(graph.seconds, numbers.seconds),
        number(graph.bytes, numbers.size),
        _key(graph),
    ]
    return Row(cells)


def name(graph: Graph) -> str:
    """What a person calls it: its function, or its direction and key."""
    return graph.function or f"{graph.direction or 'graph'} {short_id(graph.key)}"


def _name(graph: Graph) -> Cell:
    return text(name(graph))


def _key(graph: Graph) -> Cell:
    return Cell(element("span", escaped(graph.key[:_KEY]), title=graph.key))
