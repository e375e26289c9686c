"""The cache, saved after a job that succeeded."""

from __future__ import annotations

from collections.abc import Mapping

from ...inductor import Place
from ...keyfiles import chosen_private_key
from ...progress import Progress
from ...repository import open_repository
from ...runs import RunInfo
from ...signing import PrivateKey
from ..snapshot import SnapshotResult
from ..snapshot import snapshot as save
from .cache import JobCache
from .troubles import Troubles


class Saving:
    """A snapshot that is to be.

    The key that will sign it is loaded at once: a job takes hours, and nobody is there to mend it after them.

    Args:
        tags: of the snapshot.
    """

    def __init__(self, cache: JobCache, tags: Mapping[str, str], troubles: Troubles, progress: Progress) -> None:
        self._cache = cache
        self._tags = tags
        self._troubles = troubles
        self._progress = progress
        self._key: PrivateKey | None = troubles.attempt("nothing will be saved", lambda: chosen_private_key(None))

    def is_due(self, after: frozenset[Place] | None, new: int | None) -> bool:
        """True where there is something to save that is not saved yet.

        Args:
            after: what the cache holds now.
            new: number of entries that the job added.
        """
        cache = self._cache
        if not cache.usable or not after:
            return False
        if cache.failed is not None or cache.unsaved or self._is_proven(new) or cache.before is None:
            return True
        return bool(after - cache.before)

    def _is_proven(self, new: int | None) -> bool:
        """A proof is of the cache that the warmup ended with."""
        return bool(self._cache.warmed and self._cache.warmed.proof) and new == 0

    def save(self, new: int | None, info: RunInfo | None) -> SnapshotResult | None:
        """Save it; None where that failed.

        Args:
            new: as for `is_due`.
            info: the run, whose telemetry the snapshot keeps.
        """
        cache = self._cache
        key = self._key  # where it could not be loaded, it is tried again
        proof = cache.warmed.proof if cache.warmed and self._is_proven(new) else None
        return self._troubles.attempt(
            "not saved",
            lambda: save(
                cache.name,
                cache_dir=cache.directory,
                store=cache.store(),
                tags=self._tags,
                proof=proof,
                run=info,
                force=self._takes_over(),
                sign=key,
                progress=self._progress,
            ),
        )

    def _takes_over(self) -> bool:
        """True where the name points to a snapshot with which the job has just failed: a smaller one is better."""
        failed = self._cache.failed
        return bool(failed) and open_repository(self._cache.store()).latest(self._cache.name) == failed
