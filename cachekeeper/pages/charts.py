"""Bars and lines as inline SVG. Every number also stands there as text, and no meaning hangs on a colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .markup import NOTHING, Html, element, escaped, joined
from .numbers import NONE, Form, change, finite, seconds, shown, size
from .tables import NAME, letter, rest, tag

BARS = 40
POINTS = 200
_DOTS = 60
_NEAR, _SEEN = 0.7, 0.02
_SCALES = ((1e16, 1.0, ""), (1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
_WIDTH, _HEIGHT = 340, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 24


class Bar(NamedTuple):
    """One line of a bar chart. `effect`: "slower" and the like; `b` is not looked at in a chart of one side."""

    label: object
    a: float | None
    b: float | None = None
    effect: str = ""


class Line(NamedTuple):
    """One line of a plot; None: no value there."""

    name: str
    values: Sequence[float | None]


def bars(caption: str, content: Sequence[Bar], form: Form, both: bool = True, each: bool = False) -> Html:
    """A table with a bar a row, or one for each side: a above b.

    Args:
        each: every row has a scale of its own, as numbers of different units need.
    """
    if not content:
        return NOTHING
    kept = content[:BARS]
    longest = max((_highest(bar, both) for bar in kept), default=0.0)
    rows = joined(_bar(bar, _highest(bar, both) if each else longest, form, both) for bar in kept)
    heads = [_unseen("name"), _unseen("bar"), *([letter("a"), letter("b"), "change"] if both else [_unseen("value")])]
    head = [element("th", each, scope="col") for each in heads]
    shown_head = element("thead", element("tr", joined(head)), class_=None if both else "sr")
    chart = element(
        "table", element("caption", caption), shown_head, element("tbody", rows), class_="bars" if both else "bars one"
    )
    return joined([chart, rest(len(content) - len(kept), "row")])


def _unseen(word: str) -> Html:
    return element("span", word, class_="sr")


def _highest(bar: Bar, both: bool) -> float:
    values = (bar.a, bar.b) if both else (bar.a,)
    return max((finite(value) or 0.0 for value in values), default=0.0)


def _bar(bar: Bar, longest: float, form: Form, both: bool) -> Html:
    values = [("a", bar.a), ("b", bar.b)] if both else [("b", bar.a)]
    height = 13 if both else 9
    drawn = joined(
        element("rect", class_=f"bar-{name}", width=_share(value, longest), height=6 if both else 9, y=at * 7, rx=1)
        for at, (name, value) in enumerate(values)
    )
    title = ", ".join(f"{name}: {shown(value, form)}" if both else shown(value, form) for name, value in values)
    picture = element("svg", element("title", title), drawn, height=height, role="img", width="100%")
    cells = [element("th", escaped(bar.label, NAME), scope="row"), element("td", picture, class_="bar")]
    cells += [element("td", shown(value, form), class_="number") for _, value in values]
    if both:
        words = change(bar.a, bar.b)
        cells.append(element("td", joined([words, " " if bar.effect else "", tag(bar.effect)]), class_="number"))
    return element("tr", joined(cells))


def _share(value: float | None, longest: float) -> str:
    number = finite(value) or 0.0
    if number <= 0 or longest <= 0:
        return "0"
    return f"{max(0.5, min(100.0, 100 * (number / longest))):.4g}%"


def plot(title: str, labels: Sequence[str], lines: Sequence[Line], form: Form, this: int | None = None) -> Html:
    """A plot of what was in one snapshot after the other.

    Args:
        labels: of the points, as times; each line has as many values.
        this: number of the point to be marked.
    """
    cleaned = [Line(line.name, [finite(value) for value in line.values]) for line in lines]
    numbers = [value for line in cleaned for value in line.values if value is not None]
    if not numbers:
        return NOTHING
    scale, _ = _scale(max(map(abs, numbers)), form)
    ticks = [tick * scale for tick in _ticks(min(numbers) / scale, max(numbers) / scale)]
    space = _Space(len(labels), ticks[0], ticks[-1])
    parts = [_grid(space, ticks, form), _broken(ticks), _dates(labels)]
    parts += [_line(space, line, at, labels, form) for at, line in enumerate(cleaned)]
    if this is not None:
        parts += [_marked(space, this, line) for line in cleaned]
    words = "; ".join(_in_words(line, form) for line in cleaned)
    words += "; the axis does not begin at 0" if _broken(ticks) else ""
    box = f"0 0 {_WIDTH} {_HEIGHT}"
    picture = element("svg", joined(parts), viewbox=box, role="img", aria_label=f"{title}: {words}")
    return element("figure", element("figcaption", title, _legend(cleaned, form, this)), picture, class_="plot")


class _Space:
    """Where a value is drawn."""

    def __init__(self, points: int, low: float, high: float) -> None:
        self._points, self._low, self._high = points, low, high

    def x(self, at: int) -> float:
        width = _WIDTH - _LEFT - _RIGHT
        return round(_LEFT + (width / 2 if self._points < 2 else width * at / (self._points - 1)), 1)

    def y(self, value: float) -> float:
        height = _HEIGHT - _TOP - _BOTTOM
        return round(_TOP + height * (1 - (value - self._low) / (self._high - self._low)), 1)


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers around the values.

    They go from zero on, but for values that are far from it and differ by enough to be seen: a change of a few bytes
    in a megabyte is to look like what it is.
    """
    low, high = _with_zero(low, high)
    if not 0 < high - low < math.inf:
        return [low, low + max(1.0, abs(low) * 0.1)]
    rough = (high - low) / 3
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 1e-300 else rough
    step = next((power * factor for factor in (1, 2, 2.5, 5) if power * factor >= rough), power * 10)
    first = math.floor(low / step)
    count = max(1, math.ceil(high / step - 1e-9) - first)
    return [(first + at) * step for at in range(min(count, 6) + 1)]


def _with_zero(low: float, high: float) -> tuple[float, float]:
    if high < 0:
        low, high = _with_zero(-high, -low)
        return -high, -low
    near = low < high * _NEAR or high - low < high * _SEEN
    return (0.0 if low >= 0 and near else low), high


def _grid(space: _Space, ticks: Sequence[float], form: Form) -> Html:
    scale, unit = _scale(max(map(abs, ticks)), form)
    parts: list[Html] = []
    for tick in ticks:
        y = space.y(tick)
        label = f"{tick / scale:,.6g}{unit}" if tick else "0"
        parts.append(element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(element("text", label, x=_LEFT - 7, y=y + 3.5, text_anchor="end"))
    return joined(parts)


def _scale(highest: float, form: Form) -> tuple[float, str]:
    """What ticks are counted in, so that their labels are short and all others: 1048576 and " MiB"."""
    if form is size:
        power = min(3, int(math.log(max(1.0, highest), 1024)))
        return 1024.0**power, (" B", " KiB", " MiB", " GiB")[power]
    if form is seconds:
        return (1e-3, " ms") if highest < 0.1 else (1.0, " s")
    return next(((scale, unit) for least, scale, unit in _SCALES if highest >= least), (1.0, ""))


def _broken(ticks: Sequence[float]) -> Html:
    """A jag in the axis, where zero is not on it."""
    if ticks[0] <= 0 <= ticks[-1]:
        return NOTHING
    y, down = (_HEIGHT - _BOTTOM, 1) if ticks[0] > 0 else (_TOP, -1)
    turns = [(_LEFT, 0), (_LEFT - 4, 2), (_LEFT + 4, 4), (_LEFT, 6)]
    return element("polyline", points=" ".join(f"{x},{y + down * by}" for x, by in turns), class_="break")


def _dates(labels: Sequence[str]) -> Html:
    """What the axis goes from and to: days; times where that is one day; nothing twice."""
    y = _HEIGHT - 6
    day, minute, second = 10, 16, 19
    shown = next((cut for cut in (day, minute, second) if labels[0][:cut] != labels[-1][:cut]), 0)
    first = element("text", labels[0][:shown], x=_LEFT, y=y) if shown else NOTHING
    last = labels[-1][: shown or minute]
    return joined([first, element("text", last, x=_WIDTH - _RIGHT, y=y, text_anchor="end")])


def _line(space: _Space, line: Line, number: int, labels: Sequence[str], form: Form) -> Html:
    parts = [
        element("polyline", points=" ".join(f"{space.x(at)},{space.y(value)}" for at, value in run))
        for run in _runs(line.values)
        if len(run) > 1
    ]
    if len(line.values) <= _DOTS:
        parts += [_dot(space, at, value, labels[at], form) for at, value in enumerate(line.values) if value is not None]
    return element("g", joined(parts), class_=f"line-{number % 2}")


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    runs: list[list[tuple[int, float]]] = [[]]
    for at, value in enumerate(values):
        if value is not None:
            runs[-1].append((at, value))
        elif runs[-1]:
            runs.append([])
    return runs


def _dot(space: _Space, at: int, value: float, label: str, form: Form) -> Html:
    title = element("title", f"{label}: {form(value)}")
    return Html(f'<circle cx="{space.x(at)}" cy="{space.y(value)}" r="2.5">{title}</circle>')


def _marked(space: _Space, at: int, line: Line) -> Html:
    value = line.values[at] if at < len(line.values) else None
    return NOTHING if value is None else element("circle", cx=space.x(at), cy=space.y(value), r=5.5, class_="this")


def _in_words(line: Line, form: Form) -> str:
    known = [value for value in line.values if value is not None]
    if not known:
        return f"{line.name} {NONE}"
    return f"{line.name} from {form(known[0])} to {form(known[-1])} in {len(line.values)} snapshots".lstrip()


def _legend(lines: Sequence[Line], form: Form, this: int | None) -> Html:
    parts = []
    for number, line in enumerate(lines):
        at = len(line.values) - 1 if this is None else this
        value = line.values[at] if at < len(line.values) else None
        name = element("i", line.name, class_=f"key-{number}") if len(lines) > 1 else NOTHING
        parts.append(element("span", name, element("b", shown(value, form))))
    return joined(parts)
