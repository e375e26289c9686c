"""Products that max-autotune measured: other winners, other times."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ..inventory.models import Option, Product
from .models import Change, ProductPair, Products
from .resources import in_ms, of_times

WINNER, TIME = "winner", "time"
_TEMPLATES = ("triton", "cutlass", "ck_", "ck-", "cpp_", "cutedsl", "nv_universal", "tlx")
_KINDS = {
    (True, False): "a template instead of the library's product",
    (False, True): "the library's product instead of a template",
}
_FEWEST = 3
_DRIFT = "most of its options took longer or shorter alike: the GPU's clock or other work on it, not the choice"
_WITHIN = "no more than two measurements differ by"


def products(a: Sequence[Product], b: Sequence[Product]) -> Products:
    """Match by operation, inputs and precision, and compare what was chosen."""
    theirs = _by_name(b)
    pairs: list[tuple[Product, Product]] = []
    only_a: list[Product] = []
    for name, mine in _by_name(a).items():
        others = theirs.get(name, [])
        pairs += zip(mine, others, strict=False)
        only_a += mine[len(others) :]
        theirs[name] = others[len(mine) :]
    found = [ProductPair(one, other, tuple(_changes(one, other))) for one, other in pairs]
    changed = sorted((pair for pair in found if pair.changes), key=_telling)
    only_b = [product for products in theirs.values() for product in products]
    return Products(len(found) - len(changed), tuple(changed), tuple(only_a), tuple(only_b))


def _by_name(side: Sequence[Product]) -> dict[tuple[str, str, str], list[Product]]:
    found: dict[tuple[str, str, str], list[Product]] = defaultdict(list)
    for product in side:
        found[product.operation, product.inputs, product.precision].append(product)
    return found


def _telling(pair: ProductPair) -> tuple[bool, float, str, str]:
    effects = any(change.effect for change in pair.changes)
    apart = [product.best.milliseconds or 0.0 for product in (pair.a, pair.b) if product.best]
    return not effects, -abs(apart[0] - apart[-1]) if apart else 0.0, pair.b.operation, pair.b.inputs


def _changes(a: Product, b: Product) -> Iterator[Change]:
    one, other = a.best, b.best
    if one is None or other is None:
        if (one is None) != (other is None):
            yield Change(WINNER, *("nothing measured" if side is None else side.name for side in (one, other)))
        return
    if one.name != other.name:
        yield Change(WINNER, one.name, other.name, _of_choice(a, b), _words(a, b))
    effect = of_times(_best(a), _best(b))
    if drift(a, b) is not None and effect:
        yield Change(TIME, in_ms(_best(a)), in_ms(_best(b)), "", _DRIFT)
    elif effect or one.name != other.name:
        yield Change(TIME, in_ms(_best(a)), in_ms(_best(b)), effect, "" if effect else _WITHIN)


def times(product: Product) -> Mapping[str, float]:
    """Option -> milliseconds, without those that failed."""
    return {option.name: option.milliseconds for option in product.options if option.milliseconds}


def drift(a: Product, b: Product) -> float | None:
    """How many times longer all options took, in the middle: another clock, or other work on the GPU.

    None where that is no more than two measurements differ by, or fewer than three options were measured on both.
    """
    one, other = times(a), times(b)
    ratios = [other[name] / one[name] for name in one if name in other]
    if len(ratios) < _FEWEST:
        return None
    middle = median(ratios)
    return middle if of_times(1, middle) else None


def choice_costs(a: Product, b: Product) -> tuple[float, float] | None:
    """Milliseconds of a's winner and of b's, by what both sides measured of the two; None where neither did."""
    one, other = (product.best.name if product.best else "" for product in (a, b))
    measured = [(side[one], side[other]) for side in (times(a), times(b)) if one in side and other in side]
    if not measured:
        return None
    first, second = (math.prod(column) ** (1 / len(measured)) for column in zip(*measured, strict=True))
    return first, second


def _of_choice(a: Product, b: Product) -> str:
    """What another winner does: the time of one run alone may be that of a busy GPU."""
    costs = choice_costs(a, b)
    if costs is not None:
        return of_times(*costs)
    return "" if drift(a, b) else of_times(_best(a), _best(b))


def _best(product: Product) -> float:
    return (product.best.milliseconds or 0.0) if product.best else 0.0


def _words(a: Product, b: Product) -> str:
    one, other = a.best, b.best
    if one is None or other is None:
        return ""
    words = [_KINDS.get((is_library(one), is_library(other)), "")]
    told = [(times(side).get(one.name), times(side).get(other.name)) for side in (a, b)]
    shown = " and ".join(f"{_or_none(first)} against {_or_none(second)}" for first, second in told)
    words.append(f"old against new in both runs: {shown}")
    return "; ".join(filter(None, words))


def _or_none(milliseconds: float | None) -> str:
    return in_ms(milliseconds) if milliseconds else "nothing measured"


def is_library(option: Option) -> bool:
    """True for a product of cuBLAS and the like, which no template was filled in for."""
    return not option.name.startswith(_TEMPLATES) and "BLOCK" not in option.name
