"""The cache, kept whole while the job runs."""

from __future__ import annotations

from types import TracebackType

from ... import restored
from ...errors import CachekeeperError
from ...watching import Tell
from ...watching.beside import Beside
from ..watch import watch as keep_whole
from .cache import JobCache
from .result import Watched
from .troubles import Troubles


class Watching:
    """Keeps what was restored whole in a block, in a process of its own.

    Attributes:
        done: what was put back, after the block; None where nothing was watched.
    """

    def __init__(self, cache: JobCache, troubles: Troubles, wanted: bool) -> None:
        self._cache = cache
        self._troubles = troubles
        self._wanted = wanted
        self._beside: Beside | None = None
        self.done: Watched | None = None

    def __enter__(self) -> Watching:
        if self._wanted:
            self._beside = self._troubles.attempt("the cache is not watched", self._begin)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (beside := self._beside) is not None:
            self._troubles.attempt("the cache was not watched to the end", lambda: self._end(beside))

    def _begin(self) -> Beside | None:
        snapshot, directory, store = self._cache.snapshot, self._cache.directory, self._cache.given_store
        if snapshot is None:
            self._troubles.note("the cache is not watched: nothing was restored")
            return None

        before = restored.read_in(directory)  # here, since the job may wipe the directory at once

        def work(until: int, tell: Tell) -> None:
            # Opened anew: a connection cannot be shared with the parent.
            own = store() if callable(store) else store
            keep_whole(snapshot.id, cache_dir=directory, store=own, until=until, before=before, tell=tell)

        beside = Beside(work)
        beside.wait_for_word()
        return beside

    def _end(self, beside: Beside) -> None:
        events = beside.finish()
        put_back = [event for event in events if event.event == "put-back"]
        notes = [event.text for event in events if event.event in ("trouble", "restless", "note")]
        ended = events[-1] if events and events[-1].event == "ended" else None
        self.done = Watched(
            sum(len(event.entries) for event in put_back),
            sum(event.files for event in put_back),
            sum(event.bytes for event in put_back),
            ended.entries if ended else (),
            tuple(dict.fromkeys(notes)),
        )
        if ended is None:
            raise CachekeeperError(notes[-1] if notes else "the process of the watch was killed")
