"""The page of one snapshot: what it holds, and how its name came here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..environment.words import shown
from ..inventory.models import Inventory
from ..models import Fingerprint
from ..units import short_id
from . import graphs, kernels, numbers, places, products
from .charts import POINTS, Line, plot
from .markup import NOTHING, Html, element, escaped, joined
from .models import Point, Report
from .page import Section, frame, heading, part
from .parts import Tile, devices, ends, notes, sides, tiles, total, unread
from .room import Room
from .tables import Cell, Column, Row, number, rest, table, text

_METRICS = 12
_RING = "One point a snapshot of the name, oldest first. A ring marks the one that this page is of."


def of_report(report: Report) -> str:
    """One snapshot as a page for a browser: one file, which loads nothing else."""
    held, room = report.inventory, Room()
    told = (*report.notes, *held.notes)
    sections = [
        Section("overview", "Overview", _overview(report)),
        Section("history", "History", _history(report.history), str(len(report.history)), _RING),
        Section("cache", "The cache", sides([report.side])),
        Section("graphs", "Graphs", graphs.single("graphs-all", "Graphs", held.graphs), f"{len(held.graphs):,}"),
        Section(
            "kernels", "Kernels", kernels.single("kernels-all", "Kernels", held.kernels, room), f"{len(held.kernels):,}"
        ),
        Section("products", "Products", products.single(held.products, room), f"{len(held.products):,}"),
        Section("coverage", "Coverage", _coverage(held)),
        Section(
            "bytes",
            "Where the bytes are",
            places.bytes_by_kind({kind: (n, n) for kind, n in held.bytes.items()}, both=False),
        ),
        Section("seconds", "Where the seconds are", _seconds(held)),
        Section("environment", "Environment", _environment(report.side.fingerprint)),
        Section("notes", "Notes", notes(told), str(len(told))),
    ]
    label = report.side.label
    head = heading("What a cache holds", escaped(label, 120), joined([unread(told), ends({"": report.side})]), "big")
    return frame(f"{label}: what this cache holds", head, sections)


def _overview(report: Report) -> Html:
    held = report.inventory
    variants = f"{held.tried:,} more only tried" if held.tried else ""
    content = [
        Tile("Entries", escaped(f"{total(held.entries):,}")),
        Tile("Size", escaped(numbers.size(total(held.bytes)))),
        Tile("Graphs", escaped(f"{len(held.graphs):,}"), _directions(held)),
        Tile("Kernels", escaped(f"{len(held.kernels):,}"), variants),
        Tile("Products measured", escaped(f"{len(held.products):,}")),
        Tile("Devices", escaped(f"{len(held.coverage):,}")),
    ]
    seconds = [graph.seconds for graph in held.graphs if numbers.finite(graph.seconds) is not None]
    if seconds:
        content.append(Tile("Compiling its graphs", escaped(numbers.seconds(sum(filter(None, seconds))))))
    spilling = sum(1 for kernel in held.kernels if kernel.binary and kernel.binary.local_bytes)
    if any(kernel.binary and kernel.binary.local_bytes is not None for kernel in held.kernels):
        content.append(Tile("Kernels that spill", escaped(f"{spilling:,}"), "registers to local memory"))
    return tiles(content)


def _directions(held: Inventory) -> str:
    kinds = [
        (name, sum(graph.direction == name for graph in held.graphs)) for name in ("forward", "backward", "inference")
    ]
    return ", ".join(f"{number:,} {name}" for name, number in kinds if number)


def _history(history: Sequence[Point]) -> Html:
    if len(history) < 2:
        return NOTHING
    points = history[-POINTS:]
    return joined(
        [
            element("div", _plots(points), class_="plots"),
            rest(len(history) - len(points), "older snapshot"),
            _points(history[::-1]),
        ]
    )


def _plots(points: Sequence[Point]) -> Html:
    labels = [numbers.moment(point.created) for point in points]
    this = next((at for at, point in enumerate(points) if point.is_this), None)

    def drawn(title: str, form: numbers.Form, **lines: Callable[[Point], float | None]) -> Html:
        content = [Line(name, [value(point) for point in points]) for name, value in lines.items()]
        return plot(title, labels, content, form, this)

    content = [
        drawn("Entries", numbers.amount, entries=lambda point: point.entries),
        drawn("Size", numbers.size, size=lambda point: point.bytes),
        drawn(
            "All steps", numbers.seconds, cold=lambda point: point.cold_seconds, warm=lambda point: point.warm_seconds
        ),
    ]
    content += [
        plot(name, labels, [Line("", [point.metrics.get(name) for point in points])], numbers.amount, this)
        for name in _names(points)
    ]
    return joined(content)


def _names(points: Sequence[Point]) -> list[str]:
    return sorted({name for point in points for name in point.metrics})[:_METRICS]


def _points(history: Sequence[Point]) -> Html:
    names = _names(history)
    titles = ["Snapshot", "Saved", "Entries", "Graphs", "Triton", "Native", "Size", "Stored", "Cold", "Warm", *names]
    forms = ["key", "moment", *["number"] * (len(titles) - 2)]
    columns = [Column(title, form) for title, form in zip(titles, forms, strict=True)]
    triton, native = (any(getattr(point, kind) for point in history) for kind in ("triton", "native"))
    rows = [_point(point, names, triton, native) for point in history]
    kinds = ["Graphs", *["Triton"] * triton, *["Native"] * native]
    words = f"{' and '.join(kinds)} count entries, those that only autotuning tried among them."
    lead = element("p", words, class_="note")
    return part("Snapshots, newest first", joined([lead, table("history-table", "Snapshots", columns, rows)]))


def _point(point: Point, names: Sequence[str], triton: bool, native: bool) -> Row:
    this = element("b", " this one") if point.is_this else NOTHING
    cells = [
        Cell(joined([element("span", short_id(point.id), title=point.id), this])),
        text(numbers.when(point.created)),
        number(point.entries, numbers.amount),
        number(point.graphs, numbers.amount),
        number(point.triton if triton else None, numbers.amount),
        number(point.native if native else None, numbers.amount),
        number(point.bytes, numbers.size),
        number(point.stored, numbers.size),
        number(point.cold_seconds, numbers.seconds),
        number(point.warm_seconds, numbers.seconds),
    ]
    return Row([*cells, *(number(point.metrics.get(name), numbers.amount) for name in names)])


def _coverage(held: Inventory) -> Html:
    by_device = devices([(each.device, (each,)) for each in held.coverage])
    entries = places.entries_by_kind({kind: (n, n) for kind, n in held.entries.items()}, both=False)
    return joined([part("Graphs by device", by_device), part("Entries", entries)])


def _seconds(held: Inventory) -> Html:
    of_graphs = [(graph, (graph.seconds, None)) for graph in held.graphs]
    of_kernels = [(kernel, (kernel.winner.tuning_seconds, None)) for kernel in held.kernels]
    return places.seconds(of_graphs, of_kernels, both=False)


def _environment(fingerprint: Fingerprint | None) -> Html:
    if fingerprint is None:
        return NOTHING
    columns = [Column("What"), Column("Value", "code")]
    groups = (
        ("must", "Another one means misses", fingerprint.must),
        ("should", "Another one deserves a look", fingerprint.should),
    )
    return joined(
        part(
            title,
            table(
                f"environment-{name}",
                title,
                columns,
                [Row([text(fact), text(shown(fact, each[fact]))]) for fact in each],
            ),
        )
        for name, title, each in groups
    )
