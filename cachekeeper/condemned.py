"""Packs that a sweep will delete: a list `gc/<generation>`, of which the one with the highest number counts.

A pack is condemned first, and deleted by a later look that finds it still unneeded. Meanwhile writers pass over it, so
that nothing new comes to need it. The highest list always stays: its number says which of two moments was earlier,
whatever the clocks say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .records import checked, with_checksum, writer
from .stores import KeyMissing, Store
from .units import now_utc

PLACE = "gc/"
_DIGITS = 8


class Doom(NamedTuple):
    """Since when a pack is condemned: in which generation, and in seconds since the epoch by the store's clock."""

    generation: int
    since: float


class Condemned(NamedTuple):
    """The packs that are condemned.

    Attributes:
        generation: number of the list; 0 where there has never been one.
        packs: each with its doom.
        known: False where the list cannot be read: any pack may be on it.
    """

    generation: int
    packs: Mapping[str, Doom]
    known: bool = True

    def among(self, packs: Iterable[str]) -> set[str]:
        """Those of some packs that are, or may be, condemned."""
        return {pack for pack in packs if not self.known or pack in self.packs}


def generation(store: Store) -> int:
    """The number of the last list; 0 where there has never been one."""
    return max(_numbers(store), default=0)


def read(store: Store) -> Condemned:
    """The last list."""
    while number := generation(store):
        try:
            return Condemned(number, _decode(store.read(_key(number))))
        except KeyMissing:
            continue  # a sweep wrote the next one
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError):
            return Condemned(number, {}, known=False)
    return Condemned(0, {})


def write(store: Store, state: Condemned) -> bool:
    """Make a list the last one; False where somebody else has written one of that number, or a later one."""
    document = {
        "packs": {pack: list(doom) for pack, doom in state.packs.items()},
        "when": now_utc(),
        "who": writer(),
    }
    if not store.create(_key(state.generation), with_checksum(document)):
        return False
    numbers = _numbers(store)
    for number in numbers:
        if number < max(numbers):
            store.delete(_key(number))
    return max(numbers) == state.generation


def _numbers(store: Store) -> list[int]:
    names = (key.removeprefix(PLACE) for key, *_ in store.list(PLACE))
    return [int(name) for name in names if len(name) == _DIGITS and name.isdecimal()]


def _key(number: int) -> str:
    return f"{PLACE}{number:0{_DIGITS}d}"


def _decode(data: bytes) -> dict[str, Doom]:
    packs = checked(data)["packs"]
    return {pack: Doom(int(number), float(since)) for pack, (number, since) in packs.items()}
