"""List the snapshots of a store."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import trash
from ..environment import fingerprint
from ..errors import DamagedStore, FromLaterVersion, NotFound, Unreachable
from ..fitting import fit
from ..manifest import Snapshot
from ..models import Comparison
from ..pins import pinned_ids
from ..repository import Removal, Repository, open_repository
from ..repository.removed import listed
from ..stores import KeyMissing, Store
from ..units import short_id
from ..workers import ordered


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
class RemovedRow:
    """A removed snapshot in a list.

    Attributes:
        removal: how it was removed; its `gone` is True where it cannot come back.
        names: what it could be called by, or can in the history of a name.
        damage: what keeps it from coming back.
    """

    removal: Removal
    names: tuple[str, ...]
    damage: str = ""


@dataclass(frozen=True)
class ListResult:
    """The snapshots of a store, newest first, "id: reason" of those that cannot be read, and notes for a person.

    Attributes:
        removed: of a name's history, what is in the trash, or gone; from the listing alone, not by whom and why.
    """

    store: str
    rows: tuple[Row, ...]
    unreadable: tuple[str, ...]
    notes: tuple[str, ...] = ()
    removed: tuple[RemovedRow, ...] = ()


@dataclass(frozen=True)
class TrashResult:
    """What is in the trash of a store, the last removed first; and notes for a person."""

    store: str
    rows: tuple[RemovedRow, ...]
    notes: tuple[str, ...] = ()


def ls(name: str | None = None, *, store: str | os.PathLike[str] | Store | None = None) -> ListResult:
    """List every snapshot, or those that `name` points to and has pointed to.

    Raises:
        NotFound: no store, or no such name.
    """
    repository = open_repository(store)
    repository.require()
    references = named(repository, name)
    if name is not None and not references:
        repository.resolve(name)  # says what was perhaps meant
        raise NotFound(f"{name} is no name", hint=f"see one snapshot with `cachekeeper show {shlex.quote(name)}`")
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
    removed: list[RemovedRow] = []
    if name is None:
        unreadable += _gone(repository, pinned - {row.snapshot.id for row in rows})
    else:
        known = {line.partition(":")[0] for line in unreadable} | {short_id(row.snapshot.id) for row in rows}
        removed = _removed(
            repository, {each: names for each, names in references.items() if short_id(each) not in known}
        )
    return ListResult(repository.store.url, tuple(rows), tuple(unreadable), repository.store.caveats, tuple(removed))


def ls_trash(name: str | None = None, *, store: str | os.PathLike[str] | Store | None = None) -> TrashResult:
    """List the snapshots that `undo` can bring back, or those that `name` had, the last removed first.

    Raises:
        NotFound: no store.
    """
    repository = open_repository(store)
    repository.require()
    last: dict[str, Removal] = {}
    for removal in trash.look(repository).removals:
        last.setdefault(removal.snapshot, removal)
    rows = ordered(lambda removal: _in_trash(repository, removal), last.values(), threads=repository.store.parallel)
    wanted = tuple(row for row in rows if name is None or name in row.names)
    return TrashResult(repository.store.url, wanted, repository.store.caveats)


def _in_trash(repository: Repository, removal: Removal) -> RemovedRow:
    """With the name that it was saved under, too."""
    try:
        saved = trash.manifest_in(repository, removal).header.name
    except (DamagedStore, FromLaterVersion, KeyMissing) as error:
        return RemovedRow(removal, tuple(removal.names), error.message)
    return RemovedRow(removal, tuple(dict.fromkeys([*removal.names, *([saved] if saved else [])])))


def _removed(repository: Repository, references: Mapping[str, Sequence[str]]) -> list[RemovedRow]:
    """Those of a name's history that were removed, the last removed first; from one listing."""
    found: dict[str, Removal] = {}
    with contextlib.suppress(Unreachable):  # `caveats` says it, where all else was known here
        for removal in listed(repository.store.original) if references else ():
            if removal.snapshot in references and not (removal.gone and removal.snapshot in found):
                found[removal.snapshot] = removal
    rows = [RemovedRow(removal, tuple(references[each])) for each, removal in found.items()]
    return sorted(rows, key=lambda row: row.removal.modified, reverse=True)


def _gone(repository: Repository, pinned: set[str]) -> list[str]:
    """What to say of pinned snapshots that are not listed, as far as they are not there at all."""
    why = "pinned, but its manifest is not in the store (where a bucket with versions hides it, `undo` brings it back)"
    return [f"{short_id(identifier)}: {why}" for identifier in sorted(pinned) if not repository.has(identifier)]


def named(repository: Repository, name: str | None = None) -> dict[str, list[str]]:
    """Full id -> what it can be called by, for the names there are or for one."""
    found: dict[str, list[str]] = defaultdict(list)
    for known in sorted(repository.names()) if name is None else [name]:
        for back, move in enumerate(reversed(repository.history(known))):
            found[move.snapshot].append(f"{known}@{{{back}}}" if back else known)
    found.pop("", None)
    return dict(found)
