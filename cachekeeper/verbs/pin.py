"""Pin snapshots: they must not go away."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UsageError
from ..pins import Pin, pinned_ids, put
from ..repository import open_repository
from ..stores import Store
from .rm import refuse_latest


@dataclass(frozen=True)
class PinResult:
    """Snapshots that are pinned now.

    Attributes:
        store: URL of the store.
        pins: one for each snapshot, in the order asked for.
        already: ids of those that were pinned before; they keep who, when and why.
        locked: True where the store itself keeps the objects: nobody can delete them until they are unpinned. False
            where it has no object lock, and the pins hold for cachekeeper's own commands only.
    """

    store: str
    pins: tuple[Pin, ...]
    already: tuple[str, ...]
    locked: bool


def pin(
    references: str | Sequence[str], *, reason: str = "", store: str | os.PathLike[str] | Store | None = None
) -> PinResult:
    """Pin snapshots; one that is pinned already stays so, and is locked again.

    Args:
        references: one or several of id, name or `name@{1}`; what is pinned is the snapshot, wherever the name moves.
        reason: for people.

    Raises:
        NotFound: no such snapshot; nothing is pinned.
        DamagedStore: a snapshot is not whole; nothing is pinned.
        StoreError: the store cannot be written, or may not be locked. Pinning again finishes what was begun.
    """
    references = [references] if isinstance(references, str) else references
    if not references:
        raise UsageError("nothing to pin", hint="name a snapshot: `cachekeeper pin drafter`")
    for reference in references:
        refuse_latest(reference, "pin one by its id or a name of its own: see `cachekeeper ls`")
    repository = open_repository(store)
    repository.require()
    identifiers = list(dict.fromkeys(map(repository.resolve, references)))
    before = set(pinned_ids(repository))
    pins, locked = put(repository, identifiers, reason)
    already = tuple(identifier for identifier in identifiers if identifier in before)
    return PinResult(repository.store.url, tuple(pins), already, locked)
