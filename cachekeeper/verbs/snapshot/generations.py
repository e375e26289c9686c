"""Entries that another environment left in a cache, and that are saved as this one's."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ...errors import DamagedStore, NotFound
from ...fitting import fit
from ...inductor import Place
from ...models import Difference, Fingerprint
from ...repository import Repository
from ...restored import Restored
from ...units import count, short_id

_MOST = 3
_MOST_KEPT = 4


class Left(NamedTuple):
    """What another environment left: the snapshot that had it, the number of its entries, and what differs."""

    snapshot: str
    entries: int
    differing: tuple[Difference, ...]

    def in_words(self, of: int) -> str:
        """As "19 of 20 entries were there in dff65245, made on another environment (torch 2.11.0 -> 2.12.0)"."""
        number = f"{self.entries:,} of {count(of, 'entry')} were there in {short_id(self.snapshot)}"
        return f"{number}, made on another environment ({differences(self.differing)})"


def left_over(
    repository: Repository, before: Restored | None, places: Collection[Place], made_on: Fingerprint
) -> tuple[Left, ...]:
    """What a cache still holds of what was restored or saved there on other environments.

    Args:
        before: what the directory's marker says of that.
        places: the entries that are there.
        made_on: the environment that they are taken for.
    """
    there = set(places)
    return tuple(_left(repository, before, there, made_on)) if before else ()


def _left(repository: Repository, before: Restored, there: set[Place], made_on: Fingerprint) -> Iterator[Left]:
    for identifier in dict.fromkeys((before.snapshot, *before.older[:_MOST_KEPT])):
        if not repository.has(identifier):
            continue
        try:
            earlier = repository.manifest(identifier)
        except (NotFound, DamagedStore):  # whether it can be read is no matter of this cache
            continue
        differing = tuple(item for item in fit(earlier.header, made_on).must if item.group != "model")
        left = there & {Place(*entry) for entry in earlier.tables.entries}
        if differing and left:
            yield Left(identifier, len(left), differing)


def notes_of(left: Collection[Left], entries: int) -> tuple[str, ...]:
    """A sentence each, for a snapshot of so many entries."""
    then = "they are saved as this one's. `cachekeeper clear` before the job keeps the two apart"
    return tuple(f"{item.in_words(entries)}: {then}" for item in left)


def differences(differing: Collection[Difference]) -> str:
    """As "torch 2.11.0 -> 2.12.0, cuda 12.8 -> 13.0"."""
    facts = [f"{item.name} {item.theirs} -> {item.ours}" for item in differing]
    return ", ".join(facts[:_MOST]) + (", ..." if len(facts) > _MOST else "")
