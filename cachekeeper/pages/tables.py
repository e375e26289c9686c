"""Tables: in a box that scrolls by itself, with a limit on rows, and marked so that the script can sort and filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .markup import NOTHING, Html, element, escaped, flag, joined, worded
from .numbers import NONE, Form, finite, shown

ROWS = 2_000
NAME = 240
LIST = 40
_FILTERED_FROM = 6
_TAGS = frozenset(["slower", "faster", "mixed", "likely", "unlikely", "breaks"])


@dataclass(frozen=True)
class Cell:
    """`sort`: what to sort by; None: the text of a text column; in a column of numbers it goes to the end."""

    html: Html
    sort: float | None = None


@dataclass(frozen=True)
class Row:
    """`more`: what opens below the row, under the line `summary`; `effect`: what to filter by."""

    cells: Sequence[Cell]
    summary: Html = NOTHING
    more: Html = NOTHING
    effect: str = ""


@dataclass(frozen=True)
class Column:
    """`kind`: "text", "long", "code", "key" or "number"; the first column is the row's header."""

    title: str
    kind: str = "text"


def text(value: object, longest: int = NAME) -> Cell:
    """A cell of text."""
    return Cell(escaped(value, longest))


def name(value: str) -> Cell:
    """A cell with a name of a program, which may break after each "_"."""
    return Cell(Html(escaped(value, NAME).replace("_", "_<wbr>")))


def number(value: float | None, form: Form) -> Cell:
    """A cell with one quantity."""
    return Cell(escaped(shown(value, form)), finite(value))


def pair(a: float | None, b: float | None, form: Form) -> Cell:
    """A cell with a quantity of both sides: "8 → 1"; it is sorted by the change."""
    first, second = finite(a), finite(b)
    if first is None and second is None:
        return Cell(escaped(NONE))
    if first == second:
        return Cell(element("span", shown(a, form), class_="quiet"), 0)
    was = element("span", shown(a, form), class_="quiet")
    sort = None if first is None or second is None else second - first
    return Cell(joined([was, " → ", element("b", shown(b, form))]), sort)


def tag(word: str) -> Html:
    """A word in a coloured box: "slower", "likely". An empty word is nothing."""
    kind = word.partition(" ")[0]
    return element("span", escaped(word, NAME), class_=f"tag {kind}" if kind in _TAGS else "tag") if word else NOTHING


def letter(name: str) -> Html:
    """The sign of a side: "a" or "b"."""
    return element("span", name, class_=f"side side-{name}")


def table(identifier: str, caption: str, columns: Sequence[Column], rows: Sequence[Row], effects: bool = False) -> Html:
    """A table that the script makes sortable; with more than a handful of rows it can be filtered.

    Args:
        identifier: of the element, unique on the page.
        effects: offer to filter by the rows' effects.
    """
    if not rows:
        return NOTHING
    kept = rows[:ROWS]
    used = [at for at in range(len(columns)) if at == 0 or any(row.cells[at].html not in ("", NONE) for row in kept)]
    head = element("thead", element("tr", joined(_head(columns[at]) for at in used)))
    opens = any(row.summary for row in kept)
    bodies = joined(_row(row, [columns[at].kind for at in used], used) for row in kept)
    body = bodies if opens else element("tbody", bodies)
    kind = "data opens" if opens else "data"
    whole = element("table", element("caption", caption, class_="sr"), head, body, class_=kind, id=identifier)
    tools = _tools(identifier, caption, len(kept), effects) if len(kept) >= _FILTERED_FROM else NOTHING
    return joined([tools, scrolling(caption, whole), rest(len(rows) - len(kept), "row")])


def scrolling(label: str, content: Html) -> Html:
    """A box of its own for what is wider than the page; the keyboard can scroll it."""
    return element("div", content, class_="scroll", role="region", aria_label=label, tabindex=0)


def rest(left_out: int, noun: str) -> Html:
    """A line that says how many more there are; nothing where all are shown."""
    if left_out <= 0:
        return NOTHING
    return element("p", f"{left_out:,} more {noun}{'s' if left_out > 1 else ''}, not shown here.", class_="note")


def items(lines: Sequence[object]) -> Html:
    """A list of sentences, the first of them if they are many; nothing without any."""
    if not lines:
        return NOTHING
    shown_lines = joined(element("li", worded(line, NAME * 2)) for line in lines[:LIST])
    return joined([element("ul", shown_lines), rest(len(lines) - LIST, "line")])


def facts(pairs: Iterable[tuple[str, object]]) -> Html:
    """Names and values, those that have one."""
    kept = [(name, value) for name, value in pairs if value not in ("", None)]
    rows = joined(element("div", element("dt", name), element("dd", escaped(value, NAME * 4))) for name, value in kept)
    return element("dl", rows, class_="facts") if kept else NOTHING


def opening(summary: object, content: Html, is_open: bool = False) -> Html:
    """What opens below a line, with no need of a script; nothing where there is no content."""
    opened = flag("open") if is_open else {}
    return element("details", element("summary", summary), content, **opened) if content else NOTHING


def _head(column: Column) -> Html:
    return element(
        "th", column.title, scope="col", class_=column.kind, data_sort="number" if column.kind == "number" else "text"
    )


def _row(row: Row, kinds: Sequence[str], used: Sequence[int]) -> Html:
    cells = [
        element("td" if at else "th", cell.html, class_=kind, data_v=cell.sort, scope=None if at else "row")
        for at, kind, cell in ((at, kind, row.cells[at]) for at, kind in zip(used, kinds, strict=True))
    ]
    main = element("tr", joined(cells), data_effect=row.effect)
    if not row.summary:
        return main
    below = opening(row.summary, row.more) or element("p", row.summary)
    more = element("tr", element("td", below, colspan=len(kinds)), class_="more")
    return element("tbody", main, more)


def _tools(identifier: str, caption: str, count: int, effects: bool) -> Html:
    box = f"{identifier}-filter"
    label = element("label", "Filter", for_=box)
    field = element(
        "input", id=box, type="search", autocomplete="off", spellcheck="false", aria_label=f"Filter: {caption}"
    )
    parts: list[Html] = [element("span", label, field, class_="field")]
    if effects:
        parts.append(_choice(identifier))
    parts.append(element("output", f"{count:,} of {count:,} rows", for_=box))
    return element("div", joined(parts), class_="tools", data_for=identifier, **flag("hidden"))


def _choice(identifier: str) -> Html:
    box = f"{identifier}-effect"
    words = [("", "any"), ("slower", "slower"), ("faster", "faster"), ("mixed", "mixed"), ("none", "no known effect")]
    options = joined(element("option", word, value=value) for value, word in words)
    return element("span", element("label", "Effect", for_=box), element("select", options, id=box), class_="field")
