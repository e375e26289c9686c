"""Unpin snapshots: they may go away again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import NotFound, UsageError
from ..pins import pinned_ids, remove
from ..repository import Repository, open_repository
from ..stores import Store
from .rm import refuse_latest


@dataclass(frozen=True)
class UnpinResult:
    """Snapshots that are not pinned any more.

    Attributes:
        store: URL of the store.
        unpinned: ids of those that were pinned.
        already: ids of those that were not.
        locks: True where the store has object lock.
        kept: keys of what stays locked, because other pins need it.
        missing: keys that are not in the store, so that a lock of theirs could not be taken off.
        unknown: ids of snapshots that nothing readable says the packs of; those may stay locked.
    """

    store: str
    unpinned: tuple[str, ...]
    already: tuple[str, ...]
    locks: bool
    kept: tuple[str, ...]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]


def unpin(references: str | Sequence[str], *, store: str | os.PathLike[str] | Store | None = None) -> UnpinResult:
    """Unpin snapshots, and release what no other pin needs. Nothing happens to one that is not pinned.

    Args:
        references: one or several of id, name or `name@{1}`; the id of a pinned snapshot that is gone will do too.

    Raises:
        NotFound: no such snapshot; nothing is unpinned.
        DamagedStore: what another pinned snapshot needs cannot be found out; nothing is unpinned.
        StoreError: the store cannot be written, or locks may not be taken off. Repeating it finishes what was begun.
    """
    references = [references] if isinstance(references, str) else references
    if not references:
        raise UsageError("nothing to unpin", hint="name a snapshot: `cachekeeper unpin ID|NAME`")
    for reference in references:
        refuse_latest(reference, "unpin one by its id or a name of its own: see `cachekeeper ls`")
    repository = open_repository(store)
    repository.require()
    identifiers = list(dict.fromkeys(_resolve(repository, reference) for reference in references))
    found = remove(repository, identifiers)
    unpinned = tuple(each.snapshot for each in found.pins)
    already = tuple(identifier for identifier in identifiers if identifier not in unpinned)
    return UnpinResult(repository.store.url, unpinned, already, *found[1:])


def _resolve(repository: Repository, reference: str) -> str:
    try:
        return repository.resolve(reference)
    except NotFound:
        found = [identifier for identifier in pinned_ids(repository) if identifier.startswith(reference)]
        if len(found) != 1 or len(reference) < 4:
            raise
        return found[0]
