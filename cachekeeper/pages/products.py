"""Matrix products and the like, with the timings that max-autotune measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..diffing.models import ProductPair
from ..inventory.models import Product
from . import numbers
from .charts import Bar, bars
from .markup import Html, element, escaped, joined, worded
from .room import Room
from .tables import items, opening, rest, tag

SHOWN = 200
_OPEN = 2


def pairs(content: Sequence[ProductPair], room: Room) -> Html:
    """Products that both sides measured, and in which they differ."""
    shown = [_one(each.b, room.hold(partial(_pair, each)), at < _OPEN) for at, each in enumerate(content[:SHOWN])]
    return joined([*shown, rest(len(content) - SHOWN, "product")])


def single(content: Sequence[Product], room: Room) -> Html:
    """Products of one cache."""
    shown = [_one(each, room.hold(partial(_single, each)), at < _OPEN) for at, each in enumerate(content[:SHOWN])]
    return joined([*shown, rest(len(content) - SHOWN, "product")])


def _one(product: Product, content: Html, is_open: bool) -> Html:
    title = joined([element("b", product.operation), " ", element("code", escaped(product.inputs, 200))])
    remark = element("span", f" {product.precision}", class_="quiet") if product.precision else ""
    summary = joined([title, remark])
    return element("div", opening(summary, content, is_open) or element("p", summary), class_="product")


def _pair(each: ProductPair) -> Html:
    lines = [
        joined([f"{change.name}: {change.a} → {change.b} ", tag(change.effect), " ", worded(change.words)])
        for change in each.changes[:20]
    ]
    first, second = ({option.name: option.milliseconds for option in side.options} for side in (each.a, each.b))
    names = sorted({**first, **second}, key=lambda name: _speed(first.get(name), second.get(name)))
    rows = [Bar(_option(name), first.get(name), second.get(name)) for name in names]
    return joined([items(lines), bars("Time of a call by choice, fastest first", rows, numbers.milliseconds)])


def _single(product: Product) -> Html:
    rows = [Bar(_option(option.name), option.milliseconds) for option in product.options]
    return bars("Time of a call by choice, fastest first", rows, numbers.milliseconds, both=False)


def _option(name: str) -> Html:
    return element("code", escaped(name, 200))


def _speed(a: float | None, b: float | None) -> float:
    return min((value for value in (numbers.finite(a), numbers.finite(b)) if value is not None), default=float("inf"))
