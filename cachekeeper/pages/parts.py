"""Sections that both pages have: the caches themselves, numbers at a glance, coverage, notes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..diffing.models import Change, Side
from ..environment.words import summary
from ..inventory.models import Coverage
from ..manifest import RunSummary
from ..units import count, short_id
from . import numbers
from .markup import NOTHING, Html, element, escaped, joined, worded
from .tables import NAME, Column, Row, facts, items, letter, number, pair, scrolling, table, tag, text

_FIRST = 3
_UNREAD = re.compile(r"\b(?:not|be|cannot) read\b|\bleft out\b|\bdamaged\b|\bmissing\b")


class Tile(NamedTuple):
    """A number at a glance, what it is of, and a remark."""

    name: str
    value: Html
    remark: str = ""


def became(a: object, b: object) -> Html:
    """ "8 → 1", or "8" where both are the same."""
    if a == b:
        return escaped(b)
    return joined([element("span", a, class_="quiet"), " → ", escaped(b)])


def tiles(content: Sequence[Tile]) -> Html:
    """Numbers at a glance."""
    rows = [
        element(
            "div",
            element("dt", tile.name),
            element("dd", tile.value),
            element("dd", tile.remark) if tile.remark else "",
        )
        for tile in content
    ]
    return element("dl", joined(rows), class_="tiles")


def ends(content: Mapping[str, Side]) -> Html:
    """A line each: which snapshot it is, of when, for which machine."""
    lines = []
    for name, side in content.items():
        known = [side.label, short_id(side.id), numbers.when(side.created), _environment(side)]
        words = " · ".join(escaped(word, NAME) for word in known[1:] if word)
        lines.append(
            element(
                "li",
                joined([letter(name), " ", element("b", escaped(known[0], NAME)), " "] if name else []),
                Html(words),
            )
        )
    return element("ul", joined(lines), class_="ends")


def sides(content: Sequence[Side]) -> Html:
    """What is known of one cache, or of two side by side."""
    told = [_of_side(side) for side in content]
    names = [name for name in told[0] if any(each[name] for each in told)]
    if len(content) == 1:
        return facts((name, told[0][name]) for name in names)
    heads = [
        element("th", letter(name), " ", side.label, scope="col") for name, side in zip("ab", content, strict=True)
    ]
    head = element("thead", element("tr", element("td"), joined(heads)))
    rows = joined(_both(name, [each[name] for each in told]) for name in names)
    caption = element("caption", "The two caches", class_="sr")
    return scrolling("The two caches", element("table", caption, head, element("tbody", rows), class_="sides"))


def _both(name: str, values: Sequence[object]) -> Html:
    kind = "quiet" if values[0] == values[1] else ""
    cells = [element("td", escaped(value, NAME * 3) or numbers.NONE, class_=kind) for value in values]
    return element("tr", element("th", name, scope="row"), joined(cells))


def _environment(side: Side) -> str:
    return summary(side.fingerprint) if side.fingerprint else ""


def _of_side(side: Side) -> dict[str, object]:
    proof = side.proof_seconds
    return {
        "Snapshot": element("code", short_id(side.id), title=side.id) if side.id else "live directory",
        "Name": side.name,
        "Saved": numbers.when(side.created),
        "Message": side.message,
        "Environment": _environment(side),
        "Origin": side.origin,
        "Directory": element("code", escaped(side.cache_dir, NAME)) if side.cache_dir else "",
        "Tags": ", ".join(f"{name}={value}" for name, value in sorted(side.tags.items())),
        "Shapes": ", ".join(side.shapes),
        "Processes": "" if side.world_size is None else str(side.world_size),
        "Run": _run(side.run) if side.run else "",
        "Command": element("code", escaped(" ".join(side.run.command), NAME * 2))
        if side.run and side.run.command
        else "",
        "Proof": f"cold {numbers.shown(proof[0], numbers.seconds)}, warm {numbers.shown(proof[1], numbers.seconds)}"
        if proof
        else "",
        "Uncompiled": items(side.fallbacks),
    }


def _run(run: RunSummary) -> str:
    took, compiling = (numbers.shown(value, numbers.seconds) for value in (run.seconds, run.compiling))
    graphs = f"{count(run.hits, 'hit')}, {count(run.misses, 'miss')}"
    more = [count(number, noun) for number, noun in ((run.recompiles, "recompile"), (run.crashed, "crash")) if number]
    return "; ".join([f"{took}, of them {compiling} compiling", graphs, *more])


def changes(identifier: str, caption: str, content: Sequence[Change], breaking: Sequence[str] = ()) -> Html:
    """A table of what is not the same.

    Args:
        breaking: names of those that alone make every key another one.
    """
    columns = [Column("What"), Column("a", "code"), Column("b", "code"), Column("Effect"), Column("What follows")]
    rows = [_change(change, change.name in breaking) for change in content]
    return table(identifier, caption, columns, rows)


def _change(change: Change, breaks: bool) -> Row:
    words = joined(filter(None, [tag("breaks every key") if breaks else NOTHING, worded(change.words, NAME)]), " ")
    cells = [text(change.name), text(change.a), text(change.b), text(tag(change.effect)), text(words)]
    return Row(cells, effect=change.effect)


def devices(content: Sequence[tuple[str, Sequence[Coverage]]]) -> Html:
    """Graphs by device and direction, of one cache or of two."""
    columns = [Column("Device")]
    columns += [Column(name, "number") for name in ("Forward", "Backward", "Inference", "Unknown", "Kernels")]
    rows = []
    for device, found in content:
        counts = [(each.forward, each.backward, each.inference, each.unknown, each.kernels) for each in found]
        both = zip(counts[0], counts[-1], strict=True)
        cells = [number(a, numbers.amount) if len(found) == 1 else pair(a, b, numbers.amount) for a, b in both]
        rows.append(Row([text(device or "not known"), *cells]))
    return table("devices", "Graphs by device and direction", columns, rows)


def unread(content: Sequence[str]) -> Html:
    """Those of the notes by which the page does not tell all: they stand above everything else."""
    found = [note for note in content if _UNREAD.search(note)]
    if not found:
        return NOTHING
    more = len(found) - _FIRST
    link = element("p", element("a", f"{more:,} more below", href="#notes")) if more > 0 else NOTHING
    return element("div", element("b", "Not all of it could be read"), items(found[:_FIRST]), link, class_="unread")


def notes(content: Sequence[str]) -> Html:
    """What was not read, and what else a person should know."""
    return items(content)


def total(content: Mapping[str, int]) -> int:
    """Of all kinds."""
    return sum(content.values())
