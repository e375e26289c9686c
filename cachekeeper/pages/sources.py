"""Source code: the two sides of a diff next to each other, or one listing. Lines wrap, and many are cut."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .markup import NOTHING, Html, element, escaped, joined
from .tables import rest

LINES = 400
WIDE = 600
_COMPARED = 1_000
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@")


class Place(NamedTuple):
    """A line of one side; `number` 0: the side has none there."""

    number: int = 0
    text: str = ""


class Beside(NamedTuple):
    """What stands next to each other. `kind`: "same", "changed", or "gap" (lines left out)."""

    kind: str
    a: Place = Place()
    b: Place = Place()


def of_unified(lines: Iterable[str]) -> Iterator[Beside]:
    """The sides of a unified diff, hunk by hunk. What is no diff is read as lines that both have."""
    a = b = 1
    gone: list[Place] = []
    come: list[Place] = []
    begun = False
    for line in lines:
        mark, rest_of_line = line[:1], line[1:].rstrip("\n")
        if mark in ("-", "+") and (begun or not line.startswith(("---", "+++"))):
            if mark == "-" and come:
                yield from _changed(gone, come)
                gone, come = [], []
            (gone if mark == "-" else come).append(Place(a if mark == "-" else b, rest_of_line))
            a, b = (a + 1, b) if mark == "-" else (a, b + 1)
            continue
        yield from _changed(gone, come)
        gone, come = [], []
        hunk = _HUNK.match(line)
        if hunk:
            if begun:
                yield Beside("gap")
            a, b, begun = int(hunk[1]), int(hunk[2]), True
        elif begun and mark != "\\":
            yield Beside("same", Place(a, rest_of_line), Place(b, rest_of_line))
            a, b = a + 1, b + 1
    yield from _changed(gone, come)


def of_sources(a: str, b: str) -> Iterator[Beside]:
    """Two sources next to each other, with three lines around each change; the first 1,000 lines of each."""
    first, second = a.splitlines()[:_COMPARED], b.splitlines()[:_COMPARED]
    return of_unified(difflib.unified_diff(first, second, lineterm=""))


def beside(rows: Iterable[Beside]) -> Html:
    """A table of both sides; nothing where there is no difference."""
    content = list(rows)
    if not content:
        return NOTHING
    body = joined(map(_row, content[:LINES]))
    head = element("thead", element("tr", element("th", "a", scope="col"), element("th", "b", scope="col")))
    caption = element("caption", "Source, a and b side by side", class_="sr")
    whole = element("table", caption, head, element("tbody", body), class_="beside")
    return joined([whole, rest(len(content) - LINES, "line")])


def listing(source: str) -> Html:
    """A source with its lines numbered; nothing for an empty one."""
    lines = source.splitlines()
    if not lines:
        return NOTHING
    code = joined(element("li", _code(line)) for line in lines[:LINES])
    return joined([element("ol", code, class_="listing"), rest(len(lines) - LINES, "line")])


def _changed(gone: Sequence[Place], come: Sequence[Place]) -> Iterator[Beside]:
    for at in range(max(len(gone), len(come))):
        yield Beside("changed", gone[at] if at < len(gone) else Place(), come[at] if at < len(come) else Place())


def _row(row: Beside) -> Html:
    if row.kind == "gap":
        return Html('<tr class="gap"><td colspan="2">unchanged lines</td></tr>')
    if row.kind == "same":
        return Html(f"<tr>{_cell(row.a, _code(row.a.text))}{_cell(row.b, _code(row.b.text))}</tr>")
    first, second = _marked(row)
    return Html(f"<tr>{_cell(row.a, first, 'gone')}{_cell(row.b, second, 'come')}</tr>")


def _cell(place: Place, code: Html, kind: str = "") -> Html:
    if not place.number:
        return Html('<td class="void"></td>')
    return element("td", code, class_=kind, data_n=place.number)


def _marked(row: Beside) -> tuple[Html, Html]:
    """Both lines, with what is not the same in the middle of them marked, where they have something in common."""
    first, second = row.a.text[:WIDE], row.b.text[:WIDE]
    start = _alike(first, second)
    end = _alike(first[start:][::-1], second[start:][::-1])
    if not (first[:start].strip() or first[len(first) - end :].strip()) or row.a.text[WIDE:] or row.b.text[WIDE:]:
        return _code(row.a.text), _code(row.b.text)
    return _middle("del", first, start, end), _middle("ins", second, start, end)


def _alike(first: str, second: str) -> int:
    """How many characters both begin with."""
    return next(
        (at for at, (x, y) in enumerate(zip(first, second, strict=False)) if x != y), min(len(first), len(second))
    )


def _middle(name: str, line: str, start: int, end: int) -> Html:
    stop = len(line) - end
    marked = element(name, line[start:stop]) if start < stop else NOTHING
    return joined([line[:start], marked, line[stop:]])


def _code(line: str) -> Html:
    return escaped(line, WIDE)
