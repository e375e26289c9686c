"""Entries that another environment left in a cache, and that are saved as this one's."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import DamagedStore, NotFound
from ...fitting import fit
from ...inductor import Place
from ...models import Fingerprint
from ...repository import Repository
from ...restored import Restored
from ...units import count, short_id

_MOST = 3


def of_another(
    repository: Repository, before: Restored | None, places: Iterable[Place], made_on: Fingerprint
) -> tuple[str, ...]:
    """A note where the cache still holds what was restored or saved there on another environment.

    Args:
        before: what the directory's marker says of that.
        places: the entries that are saved now.
        made_on: the environment that is recorded with them.
    """
    if before is None or not repository.has(before.snapshot):
        return ()
    try:
        earlier = repository.manifest(before.snapshot)
    except (NotFound, DamagedStore):  # whether it can be read is no matter of this snapshot
        return ()
    differing = [item for item in fit(earlier.header, made_on).must if item.group != "model"]
    old = {Place(*entry) for entry in earlier.tables.entries}
    there = set(places)
    left = there & old
    if not differing or not left:
        return ()
    facts = ", ".join(f"{item.name} {item.theirs} -> {item.ours}" for item in differing[:_MOST])
    more = ", ..." if len(differing) > _MOST else ""
    return (
        f"{len(left):,} of {count(len(there), 'entry')} were there in {short_id(before.snapshot)}, made on another "
        f"environment ({facts}{more}): they are saved as this one's. `cachekeeper clear` before the job keeps "
        "the two apart",
    )
