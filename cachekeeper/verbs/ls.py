"""List the snapshots of a store."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass

from ..environment import fingerprint
from ..errors import NotFound
from ..fitting import fit
from ..manifest import Snapshot
from ..models import Comparison
from ..pins import pinned_ids
from ..repository import Repository, open_repository
from ..stores import Store
from ..units import short_id


@dataclass(frozen=True)
class Row:
    """A snapshot in a list.

    Attributes:
        names: what it can be called by, as ("drafter", "best") or ("drafter@{1}",).
        here: would torch use it on this machine, and if not, why.
        pinned: True where it must not go away.
    """

    snapshot: Snapshot
    names: tuple[str, ...]
    here: Comparison
    pinned: bool = False


@dataclass(frozen=True)
class ListResult:
    """The snapshots of a store, newest first, "id: reason" of those that cannot be read, and notes for a person."""

    store: str
    rows: tuple[Row, ...]
    unreadable: tuple[str, ...]
    notes: tuple[str, ...] = ()


def ls(name: str | None = None, *, store: str | os.PathLike[str] | Store | None = None) -> ListResult:
    """List every snapshot, or those that `name` points to and has pointed to.

    Raises:
        NotFound: no store, or no such name.
    """
    repository = open_repository(store)
    repository.require()
    references = _references(repository, name)
    if name is not None and not references:
        repository.resolve(name)  # says what was perhaps meant
        raise NotFound(f"{name} is no name", hint=f"see one snapshot with `cachekeeper show {name}`")
    # Before the snapshots: what is pinned was there before its pin.
    pinned = set(pinned_ids(repository))
    listing = repository.snapshots()
    here = fingerprint()
    rows = [
        Row(snapshot, tuple(references.get(snapshot.id, ())), fit(snapshot.header, here), snapshot.id in pinned)
        for snapshot in listing.snapshots
        if name is None or snapshot.id in references
    ]
    wanted = {short_id(identifier) for identifier in references}
    unreadable = [line for line in listing.unreadable if name is None or line.partition(":")[0] in wanted]
    if name is None:
        unreadable += _gone(repository, pinned - {row.snapshot.id for row in rows})
    return ListResult(repository.store.url, tuple(rows), tuple(unreadable), repository.store.caveats)


def _gone(repository: Repository, pinned: set[str]) -> list[str]:
    """What to say of pinned snapshots that are not listed, as far as they are not there at all."""
    why = "pinned, but its manifest is not in the store (a bucket with versions may hide it behind a delete marker)"
    return [f"{short_id(identifier)}: {why}" for identifier in sorted(pinned) if not repository.has(identifier)]


def _references(repository: Repository, name: str | None) -> dict[str, list[str]]:
    """Full id -> what it can be called by, for the names there are or for one."""
    found: dict[str, list[str]] = defaultdict(list)
    for known in sorted(repository.names()) if name is None else [name]:
        for back, move in enumerate(reversed(repository.history(known))):
            found[move.snapshot].append(f"{known}@{{{back}}}" if back else known)
    found.pop("", None)
    return dict(found)
