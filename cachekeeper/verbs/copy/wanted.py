"""What was asked for: ids of snapshots, and where their names have pointed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...repository import Move, Repository, is_name


class Wanted(NamedTuple):
    """What to copy.

    Attributes:
        ids: full ids, or None for every snapshot.
        pointers: plain names that were asked for -> what they point to.
        histories: name -> its whole history, where everything is wanted.
        impossible: names in the source that no snapshot can have.
    """

    ids: frozenset[str] | None
    pointers: Mapping[str, str] = {}
    histories: Mapping[str, list[Move]] = {}
    impossible: tuple[str, ...] = ()


def everything(ours: Repository) -> Wanted:
    """Every snapshot, and every name with its history."""
    names = sorted(ours.names())
    impossible = tuple(name for name in names if not is_name(name))
    return Wanted(None, {}, {name: ours.history(name) for name in names if name not in impossible}, impossible)


def chosen(ours: Repository, references: Sequence[str]) -> Wanted:
    """The snapshots behind references.

    Raises:
        NotFound: there is none behind one of them.
        DamagedStore: a name points to nobody knows what.
    """
    texts = [references] if isinstance(references, str) else references
    found = {reference: ours.resolve(reference) for reference in texts}
    return Wanted(frozenset(found.values()), {name: found[name] for name in found if ours.history(name)})
