"""Quantities as a page shows them. What is no finite number, as hostile data has it, is a dash."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..units import format_bytes, format_number, is_timestamp

Form = Callable[[float], str]

NONE = "\N{EN DASH}"
_SAME = 0.0005


def finite(value: float | None) -> float | None:
    """The number, or None where there is none that could be drawn."""
    try:
        return float(value) if value is not None and math.isfinite(value) else None
    except OverflowError:
        return None


def shown(value: float | None, form: Form) -> str:
    """A quantity in a form, or a dash."""
    number = finite(value)
    return NONE if number is None else form(number)


def amount(value: float) -> str:
    """21500 -> "21,500"; 0.0571234 -> "0.0571234"; 1e20 -> "1e+20"; as on the screen."""
    return format_number(value)


def size(value: float) -> str:
    """Bytes, as "1.5 MiB"."""
    return format_bytes(value)


def seconds(value: float) -> str:
    """0.4 -> "0.40 s"; 125 -> "125 s"; 0.018 -> "18 ms"."""
    if value == 0:
        return "0 s"
    if abs(value) < 0.1:
        return f"{value * 1e3:.3g} ms"
    return f"{value:.2f} s" if abs(value) < 10 else f"{value:,.1f} s" if abs(value) < 100 else f"{value:,.0f} s"


def milliseconds(value: float) -> str:
    """Of a call: 0.0571 -> "57.1 µs"; 1.25 -> "1.25 ms"."""
    if 0 < abs(value) < 1:
        return f"{value * 1e3:.3g} µs"
    return f"{value:.3g} ms" if abs(value) < 1e3 else f"{value:,.0f} ms"


def bits(value: float) -> str:
    """Width of vectors: 256 -> "256 bits"; 0 -> "scalar"."""
    return f"{value:.0f} bits" if value else "scalar"


def change(a: float | None, b: float | None) -> str:
    """What became of a number: "+14 %", "same", "x45", "new", "gone", or "" where a side has none."""
    a, b = finite(a), finite(b)
    if a is None or b is None:
        return ""
    if a == b:
        return "same"
    if a <= 0 or b <= 0:
        return "new" if a == 0 else "gone" if b == 0 else ""
    return _relative(b / a)


def _relative(ratio: float) -> str:
    if abs(ratio - 1) < _SAME:
        return "same"
    if ratio >= 3:
        return f"\N{MULTIPLICATION SIGN}{ratio:,.{1 if ratio < 10 else 0}f}"
    percent = (ratio - 1) * 100
    digits = 1 if abs(percent) < 10 else 0
    sign = "+" if percent > 0 else "\N{MINUS SIGN}"
    return f"{sign}{abs(percent):.{digits}f} %"


def when(timestamp: str) -> str:
    """A time of a manifest, as "2026-01-31 08:15 UTC"; other text as it is."""
    return f"{moment(timestamp)[:16]} UTC" if is_timestamp(timestamp) else timestamp


def moment(timestamp: str) -> str:
    """The same with its seconds, as "2026-01-31 08:15:42 UTC"."""
    return f"{timestamp[:10]} {timestamp[11:19]} UTC" if is_timestamp(timestamp) else timestamp
