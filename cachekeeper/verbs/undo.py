"""Bring removed snapshots back from the trash."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .. import pins, trash
from ..errors import NotFound, UsageError
from ..repository import FORMAT_KEY, Removal, Repository, is_name, open_repository
from ..stores import Store
from ..trash import Trash
from ..units import FULL_ID, ID, count
from .rm import is_signed, names_of, point_again, taken_from


@dataclass(frozen=True)
class UndoResult:
    """Snapshots that are there again.

    Attributes:
        store: URL of the store.
        removals: how each had been removed, in the order in which they came back.
        already: ids of those that were there.
        names: names that point to them again -> their id.
        elsewhere: names that pointed to them, and were moved on since -> what they point to.
        unsigned: those of `names` that were signed, and are not where they point now.
        left: ids of what is still in the trash, the last removed first.
    """

    store: str
    removals: tuple[Removal, ...] = ()
    already: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    unsigned: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def undo(references: str | Sequence[str] = (), *, store: str | os.PathLike[str] | Store | None = None) -> UndoResult:
    """Bring snapshots back. A name that pointed to one does so again, unless it was moved since.

    Nothing happens to one that is there, but that names which a removal took from it before it was killed come back.
    Where a bucket keeps versions, what a plain delete hid of a snapshot comes back too.

    Args:
        references: one or several of an id, or a name that a removed snapshot had; none: the last that was removed.

    Raises:
        NotFound: it is not in the trash, or the trash is empty.
        DamagedStore: nothing whole is left of it; it stays in the trash.
        Busy: a sweep is deleting what it needs.
        StoreError: the store cannot be written. Repeating it finishes what was begun.
    """
    references = [references] if isinstance(references, str) else references
    repository = Repository(open_repository(store).store.original)
    if not repository.exists():
        repository.store.revive(FORMAT_KEY)  # a delete may have hidden that, too
    repository.require()
    found = trash.look(repository)
    identifiers = list(dict.fromkeys(_resolve(repository, found, reference) for reference in references))
    if not references:
        identifiers = [_last(repository, found)]
    removals: list[Removal] = []
    already: list[str] = []
    names: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    unsigned: list[str] = []
    for identifier in identifiers:
        removal = _bring_back(repository, identifier)
        taken = names_of(repository, [identifier])[identifier]
        unsigned += [name for name in taken if _was_signed(repository, name)]
        again = point_again(repository, identifier, taken)
        names.update(dict.fromkeys(again, identifier))
        if removal is None:
            already.append(identifier)
            continue
        removals.append(removal)
        elsewhere.update(
            {name: repository.latest(name) for name in removal.names if name not in again and is_name(name)}
        )
    left = dict.fromkeys(each.snapshot for each in found.removals if each.snapshot not in identifiers)
    url = repository.store.url
    return UndoResult(url, tuple(removals), tuple(already), names, elsewhere, tuple(unsigned), tuple(left))


def _was_signed(repository: Repository, name: str) -> bool:
    """True where the move that a removal undid was signed, so that the next one has to be."""
    moves = repository.history(name)
    return bool(taken_from(moves)) and is_signed(repository, name, moves[-2])


def _last(repository: Repository, found: Trash) -> str:
    if not found.removals:
        raise NotFound(
            f"nothing is in the trash of {repository.store.url}",
            hint="it holds what was removed, as by `cachekeeper rm drafter`, until `cachekeeper sweep` drops it",
        )
    return found.removals[0].snapshot


def _resolve(repository: Repository, found: Trash, reference: str) -> str:
    """The full id behind a reference: in the trash first, then among what is there or was hidden by others."""
    if named := [removal.snapshot for removal in found.removals if reference in removal.names]:
        return named[0]
    if not ID.fullmatch(reference):
        return repository.resolve(reference)
    known = found.away | set(pins.pinned_ids(repository))
    ids = sorted(identifier for identifier in known if identifier.startswith(reference))
    if len(ids) > 1:
        raise UsageError(
            f"{reference} is the beginning of {count(len(ids), 'id')}",
            facts=[identifier[:12] for identifier in ids],
            hint="give more digits",
        )
    if ids or FULL_ID.fullmatch(reference):
        return ids[0] if ids else reference
    return repository.resolve(reference)


def _bring_back(repository: Repository, identifier: str) -> Removal | None:
    """How a snapshot had been removed; None where it was there."""
    there = repository.has(identifier)
    try:
        removal = trash.bring_back(repository, identifier)
    except NotFound:
        if not there:
            raise
        return None
    # Something in the trash of what was there is left over from before; packs that were hidden have no key there.
    return None if there and removal.key else removal
