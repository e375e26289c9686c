"""Another store of cachekeeper: its snapshots are copied, and keep their ids."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from ...errors import CheckFailed, UsageError
from ...progress import Progress
from ...repository import Repository, check_name, open_repository
from ...stores import Store
from ...units import short_id
from ..copy import CopyResult, copy, open_copied

_MARK = "format.json"
_MARK_LIMIT = 1 << 16


def is_store(place: str) -> bool:
    """True for a URL, and for a directory with the format mark of a store."""
    if "://" in place:
        return True
    try:
        with open(Path(place) / _MARK, "rb") as file:
            document = json.loads(file.read(_MARK_LIMIT))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "format" in document


def bring(
    place: str,
    store: str | os.PathLike[str] | Store | None,
    name: str | None,
    only: Sequence[str],
    progress: Progress,
) -> tuple[CopyResult, str]:
    """Copy snapshots, all or `only` some; give `name` to the one that there is.

    Returns:
        What was copied, and the name that it has now, or "".

    Raises:
        UsageError: a name for several snapshots.
        CheckFailed: the one to be named is damaged.
    """
    theirs, ours = open_copied(place), open_repository(store)
    if name is None:
        return copy(theirs, ours.store, only, progress=progress), ""
    identifier = _the_one(Repository(theirs), check_name(name), only)
    copied = copy(theirs, ours.store, [identifier], progress=progress)
    if not copied.ok:
        facts = [f"{what}: {reason}" for what, reason in copied.damaged.items()]
        raise CheckFailed(f"{short_id(identifier)} was not imported", facts=facts)
    ours.move_name(name, identifier)
    return copied, name


def _the_one(theirs: Repository, name: str, only: Sequence[str]) -> str:
    theirs.require()
    if only:
        found = {theirs.resolve(reference) for reference in only}
    else:
        found = {snapshot.id for snapshot in theirs.snapshots().snapshots}
    if len(found) != 1:
        raise UsageError(
            f"{theirs.store.url} has {len(found)} snapshots, and {name!r} can name one",
            facts=[f"{label} -> {short_id(identifier)}" for label, identifier in sorted(theirs.names().items())],
            hint="choose one with --only NAME, or leave --name out to import them with their own names",
        )
    return found.pop()
