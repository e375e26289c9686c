"""When a name moves to a new snapshot, and when it stays."""

from __future__ import annotations

import contextlib

from .errors import DamagedStore, NotFound
from .manifest import Header, Snapshot
from .repository import Repository
from .stores import KeyMissing

_SHRUNK = 0.5
# Kinds of which a job needs nearly all that it had.
_VITAL = ("fxgraph", "aotautograd", "triton", "native")


def move_name_unless_smaller(
    repository: Repository, name: str | None, saved: Snapshot, *, force: bool = False
) -> tuple[bool, int]:
    """Point a name to a snapshot that was just saved, unless it is much smaller than what the name points to.

    Args:
        name: None moves nothing.
        saved: its parent is what the name pointed to when it was saved.
        force: move it all the same.

    Returns:
        Was the name moved; and the number of entries of what it still points to, 0 where it was moved or there is none.
    """
    if name is None:
        return False, 0
    before = None if force else header_of(repository, saved.header.parent)
    if before is not None and is_much_smaller(saved.header, before):
        return False, before.entries
    repository.move_name(name, saved.id)
    return True, 0


def is_much_smaller(new: Header, old: Header) -> bool:
    """True where less than half of the entries, or of the graphs, kernels or libraries alone, are left."""
    halved = any(new.entries_of(kind) < old.entries_of(kind) * _SHRUNK for kind in _VITAL)
    return halved or new.entries < old.entries * _SHRUNK


def header_of(repository: Repository, identifier: str) -> Header | None:
    """The header of a full id; None for "", and where it cannot be read."""
    with contextlib.suppress(DamagedStore, KeyMissing, NotFound):
        return repository.header(identifier).header if identifier else None
    return None
