"""Kernels: a row each, which opens to what was chosen, what became of it, and the source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..diffing.models import KernelPair, Kernels
from ..diffing.resources import SOURCE
from ..inventory.models import Binary, Kernel
from ..units import count, short_id
from . import numbers
from .charts import Bar, bars
from .markup import NOTHING, Html, element, escaped, joined, worded
from .page import part
from .room import Room
from .sources import beside, listing, of_sources, of_unified
from .tables import Cell, Column, Row, facts, items, letter, name, number, pair, table, tag, text

_CHANGES = 40
_SHORT = 150
_SHOWN_CHANGES = 3

# Of Triton's kernels, and the last one of those in C++; a column without any value is left out.
_NUMBERS = ("Warps", "Registers", "Spills", "Shared", "Code", "Time", "Vectors")
_FORMS = (*[numbers.amount] * 2, *[numbers.size] * 3, numbers.milliseconds, numbers.bits)


def changed(kernels: Kernels, room: Room) -> Html:
    """Kernels that are not the same on both sides."""
    columns = [Column("Kernel", "code"), Column("Effect"), *(Column(title, "number") for title in _NUMBERS)]
    columns.append(Column("Flags", "long"))
    rows = [_changed(each, room) for each in kernels.changed]
    return joined([table("kernels-changed", "Kernels that differ", columns, rows, effects=True), full(room)])


def single(identifier: str, caption: str, kernels: Sequence[Kernel], room: Room) -> Html:
    """Kernels of one cache."""
    titles = ("Kernel", "Type", "Device", "Chosen", *_NUMBERS, "Flags", "Size")
    kinds = ("code", "text", "text", "long", *["number"] * len(_NUMBERS), "long", "number")
    columns = [Column(title, kind) for title, kind in zip(titles, kinds, strict=True)]
    left_out = room.left_out
    rows = [_single(kernel, room) for kernel in kernels]
    shown = table(identifier, caption, columns, rows)
    return joined([shown, full(room) if room.left_out > left_out else NOTHING])


def full(room: Room) -> Html:
    """A line that says how many rows do not open, if some do not."""
    if not room.left_out:
        return NOTHING
    verb = "does" if room.left_out == 1 else "do"
    words = f"{count(room.left_out, 'row')} above {verb} not open, to keep this page small"
    return element("p", words, "; ", element("code", "--kernel NAME"), " shows one kernel in full.", class_="note")


def unrecorded(names: Sequence[str]) -> Html:
    """Kernels for which nobody wrote down what was chosen."""
    return items([element("code", escaped(name)) for name in names])


def _changed(each: KernelPair, room: Room) -> Row:
    values = zip(_quantities(each.a), _quantities(each.b), _FORMS, strict=True)
    cells = [name(each.b.name), text(tag(each.effect)), *(pair(a, b, form) for a, b, form in values)]
    cells.append(_flags_of_both(each.a.flags, each.b.flags))
    return Row(cells, _summary(each), room.hold(lambda: _details(each)), each.effect or "none")


def _single(kernel: Kernel, room: Room) -> Row:
    values = zip(_quantities(kernel), _FORMS, strict=True)
    cells = [name(kernel.name), text(kernel.type), text(kernel.device), text(_chosen_in_short(kernel), _SHORT)]
    cells += [number(value, form) for value, form in values]
    details = room.hold(lambda: _details_of_one(kernel))
    return Row(
        [*cells, text(" ".join(kernel.flags), _SHORT), number(kernel.bytes or None, numbers.size)],
        escaped("Details and source" if kernel.source else "Details") if details else NOTHING,
        details,
    )


def _summary(each: KernelPair) -> Html:
    shown = [_in_short(change.name, change.a, change.b) for change in each.changes[:_SHOWN_CHANGES]]
    if len(each.changes) > _SHOWN_CHANGES:
        shown.append(f"{len(each.changes) - _SHOWN_CHANGES} more")
    if each.source and not any(change.name == SOURCE for change in each.changes):
        shown.append("other source")
    return escaped(", ".join(shown) or "Details")


def _in_short(name: str, a: str, b: str) -> str:
    words = f"{name} {a} → {b}"
    return words if len(words) <= _SHORT else name[:_SHORT]


def _quantities(kernel: Kernel) -> tuple[float | None, ...]:
    binary = kernel.binary or Binary("")
    shared = [size for size in (binary.dynamic_shared, binary.static_shared) if size is not None]
    return (
        _warps(binary, kernel),
        binary.registers,
        binary.local_bytes,
        sum(shared) if shared else None,
        binary.code_bytes,
        kernel.winner.milliseconds,
        kernel.vector_bits,
    )


def _flags_of_both(a: Sequence[str], b: Sequence[str]) -> Cell:
    """The flags, or those that one side alone has."""
    if a == b:
        return Cell(element("span", escaped(" ".join(a), _SHORT), class_="quiet") if a else NOTHING)
    gone, come = ([flag for flag in one if flag not in frozenset(other)] for one, other in ((a, b), (b, a)))
    was = element("span", escaped(" ".join(gone) or "none", _SHORT), class_="quiet")
    return Cell(joined([was, " → ", element("b", escaped(" ".join(come) or "none", _SHORT))]))


def _warps(binary: Binary, kernel: Kernel) -> float | None:
    value = (kernel.winner.config or {}).get("num_warps")
    return value if binary.num_warps is None and isinstance(value, int) else binary.num_warps


def _chosen(kernel: Kernel) -> str:
    if kernel.winner.config is None:
        return "" if kernel.type == "cpp" else "no recorded choice"
    return " ".join(f"{name}={value}" for name, value in list(kernel.winner.config.items())[:20])


def _chosen_in_short(kernel: Kernel) -> str:
    config = kernel.winner.config or {}
    telling = [f"{name}={value}" for name, value in config.items() if "BLOCK" in name or name.startswith("num_")]
    return " ".join(telling[:10]) or _chosen(kernel)


def _details(each: KernelPair) -> Html:
    kernels = {"a": each.a, "b": each.b}
    return joined(
        [
            part("What differs", _changes(each)),
            part("Both sides", _beside_each_other(kernels, each.matched)),
            part("Instructions in the PTX", _mix(each.a, each.b)),
            part("Source", _source(each)),
        ]
    )


def _changes(each: KernelPair) -> Html:
    rows = [
        element(
            "tr",
            element("th", change.name, scope="row"),
            element("td", escaped(change.a, 400)),
            element("td", escaped(change.b, 400)),
            element("td", joined(filter(None, [tag(change.effect), worded(change.words)]), " ")),
        )
        for change in each.changes[:_CHANGES]
    ]
    heads = [element("th", name, scope="col") for name in ("What", "a", "b", "What follows")]
    head = element("thead", element("tr", joined(heads)))
    return element("table", head, element("tbody", joined(rows)), class_="plain") if rows else NOTHING


def _beside_each_other(kernels: Mapping[str, Kernel], matched: str) -> Html:
    told = {side: _facts(kernel) for side, kernel in kernels.items()}
    rows = [(fact, _one_or_both({side: told[side][fact] for side in told})) for fact in told["a"]]
    return facts([*rows, ("Matched by", escaped(matched))])


def _one_or_both(values: Mapping[str, str]) -> Html:
    if len(set(values.values())) == 1:
        return escaped(next(iter(values.values())))
    return joined(element("div", letter(side), " ", value or numbers.NONE) for side, value in values.items())


def _details_of_one(kernel: Kernel) -> Html:
    binary = kernel.binary
    mix = [Bar(name, value) for name, value in _sorted(binary.mix)] if binary and binary.mix else []
    return joined(
        [
            facts(_facts(kernel).items()),
            part("Instructions in the PTX", bars("How many of each class", mix, numbers.amount, both=False)),
            part("Source", listing(kernel.source)),
        ]
    )


def _facts(kernel: Kernel) -> dict[str, str]:
    winner, binary = kernel.winner, kernel.binary
    tuning = (
        ""
        if winner.tuning_seconds is None
        else f", tuning took {numbers.shown(winner.tuning_seconds, numbers.seconds)}"
    )
    descent = ", by coordinate descent" if winner.by_descent else ""
    how = f" ({winner.how}{descent}{tuning})" if winner.how else ""
    vector = "" if kernel.vector_bits is None else numbers.bits(kernel.vector_bits)
    return {
        "Type": kernel.type,
        "Device": kernel.device,
        "Sizes": ", ".join(f"{name}={value}" for name, value in list(kernel.size_hints.items())[:20]),
        "Chosen": f"{_chosen(kernel)}{how}",
        "Launched by": ", ".join(short_id(key) for key in kernel.graphs[:10]),
        "Module": kernel.module,
        "Compiled": count(kernel.compiled, "variant") if kernel.compiled else "",
        "Vectors": vector,
        "Flags": " ".join(kernel.flags[:40]),
        "Built for": binary.target if binary else "",
        "Built with": binary.tools if binary else "",
    }


def _sorted(mix: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(mix.items(), key=lambda item: -item[1])[:20]


def _mix(a: Kernel, b: Kernel) -> Html:
    first, second = ((side.binary.mix if side.binary else None) for side in (a, b))
    if not first or not second:
        return NOTHING
    most = {name: max(first.get(name, 0), second.get(name, 0)) for name in {**first, **second}}
    rows = [Bar(name, first.get(name, 0), second.get(name, 0)) for name, value in _sorted(most) if value]
    return bars("How many of each class", rows, numbers.amount)


def _source(each: KernelPair) -> Html:
    if each.source:
        return beside(of_unified(each.source))
    if each.a.source and each.b.source and each.a.source != each.b.source:
        return beside(of_sources(each.a.source, each.b.source))
    return listing(each.b.source or each.a.source)
