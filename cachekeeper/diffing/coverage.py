"""Entries by kind and graphs by device: what is gone, and what is new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..inventory.models import Coverage, Inventory
from ..units import count
from .models import CoveragePair, Covered

_DIRECTIONS = ("forward", "backward", "inference", "unknown")


def coverage(a: Inventory, b: Inventory) -> Covered:
    """Compare the number of entries, of bytes and of graphs."""
    entries = _both(a.entries, b.entries)
    devices = _devices(a.coverage, b.coverage)
    words = tuple(_words(entries, devices))
    return Covered(entries, _both(a.bytes, b.bytes), devices, words, _both(a.triton_dirs, b.triton_dirs))


def _both(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    return {name: (a.get(name, 0), b.get(name, 0)) for name in sorted({*a, *b})}


def _devices(a: Sequence[Coverage], b: Sequence[Coverage]) -> tuple[CoveragePair, ...]:
    one, other = ({row.device: row for row in side} for side in (a, b))
    return tuple(
        CoveragePair(device, one.get(device, Coverage(device)), other.get(device, Coverage(device)))
        for device in sorted({*one, *other})
    )


def _words(entries: dict[str, tuple[int, int]], devices: Sequence[CoveragePair]) -> list[str]:
    before, after = (sum(pair[side] for pair in entries.values()) for side in (0, 1))
    gone, new = lost(devices), gained(devices)
    what = [f"{joined(words)} {_is(words)} {how}" for words, how in ((gone, "gone"), (new, "new")) if words]
    if before == after:
        return ["; ".join(what)] if what else []
    line = f"{count(after, 'entry')} where there {'was' if before == 1 else 'were'} {before:,}"
    kinds = [f"{kind} {now:,} (was {then:,})" for kind, (then, now) in entries.items() if then != now]
    return [": ".join(filter(None, (line, "; ".join(what)))), f"by kind: {', '.join(kinds)}"]


def lost(devices: Sequence[CoveragePair]) -> list[str]:
    """What a has and b has not, as "4 of 7 forward graphs", "every backward graph", "device cuda:1"."""
    return _gone(devices, [(pair.a, pair.b) for pair in devices])


def gained(devices: Sequence[CoveragePair]) -> list[str]:
    """What b has and a has not."""
    return _gone(devices, [(pair.b, pair.a) for pair in devices], new=True)


def _gone(devices: Sequence[CoveragePair], rows: Sequence[tuple[Coverage, Coverage]], new: bool = False) -> list[str]:
    whole = [row.device for row, other in rows if _graphs(row) and not _graphs(other) and row.device]
    # Where all that there was is gone, no device is gone of its own.
    if len(whole) == sum(bool(_graphs(row)) for row, _ in rows) or not any(_graphs(other) for _, other in rows):
        whole = []
    kept = [(row, other) for row, other in rows if row.device not in whole or not whole]
    words = [_direction(name, kept, new) for name in _DIRECTIONS]
    return [*filter(None, words), *(f"device {device}" for device in whole)]


def _direction(name: str, rows: Sequence[tuple[Coverage, Coverage]], new: bool) -> str:
    less = sum(max(0, getattr(row, name) - getattr(other, name)) for row, other in rows)
    had, kept = (sum(getattr(side[which], name) for side in rows) for which in (0, 1))
    noun = "graph" if name == "unknown" else f"{name} graph"
    if not less:
        return ""
    if new:
        return count(less, noun)
    if kept == 0:
        return f"every {noun}" if had > 1 else f"the {noun}"
    return f"{less:,} of {count(had, noun)}"


def _graphs(row: Coverage) -> int:
    return row.forward + row.backward + row.inference + row.unknown


def joined(words: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _is(words: Sequence[str]) -> str:
    one = len(words) == 1 and words[0].startswith(("the ", "every ", "device ", "1 "))
    return "is" if one else "are"
