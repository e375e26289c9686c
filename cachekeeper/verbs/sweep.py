"""Free what no snapshot needs any more."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .. import sweeping
from ..errors import UsageError
from ..progress import Progress
from ..repository import Repository, open_repository
from ..stores import Store
from ..sweeping import GRACE_SECONDS, LEAST_GRACE_FAR, Sweep


@dataclass(frozen=True)
class SweepResult:
    """What a sweep did, or would do.

    Attributes:
        store: URL of the store.
        applied: False where nothing was changed.
        grace: seconds between the sweep that condemns a pack and the one that may delete it.
        found: what it came to.
    """

    store: str
    applied: bool
    grace: float
    found: Sweep


def sweep(
    *,
    apply: bool = False,
    grace: float = GRACE_SECONDS,
    empty_trash: bool = False,
    store: str | os.PathLike[str] | Store | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> SweepResult:
    """Drop removed snapshots whose grace time is over, and the packs that nothing needs: condemn, and later delete.

    Args:
        apply: do it; otherwise it is only said what would be done.
        grace: seconds between the sweep that finds a pack unneeded and the one that deletes it; a pack that is younger
            is not looked at. In a bucket at least an hour: what restores from there says nothing of it.
        empty_trash: drop removed snapshots also where their grace time is not over.
        progress: called with ("Deleting", bytes done, bytes in all).

    Raises:
        Busy: another sweep is at work.
        DamagedStore: what snapshots need cannot be found out; no pack is condemned or deleted.
        StoreError: the store cannot be written, or may not be deleted from. Repeating it goes on.
    """
    repository = Repository(open_repository(store).store.original)
    repository.require()
    if repository.store.far and grace < LEAST_GRACE_FAR:
        raise UsageError(
            f"a grace time of less than an hour is too short for {repository.store.url}",
            facts=["restores from a bucket do not say that they are at work: a sweep could take what they read"],
            hint="--grace 1h is the least there",
        )
    if apply:
        found = sweeping.sweep(repository, grace=grace, empty_trash=empty_trash, progress=progress)
    else:
        found = sweeping.plan(repository, grace=grace, empty_trash=empty_trash)
    return SweepResult(repository.store.url, apply, grace, found)
