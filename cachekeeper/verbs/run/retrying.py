"""The command, started once more on an empty cache, where it failed by itself on one that was not empty.

Never twice, and never where others use the cache: it is put aside whole, and nothing is deleted.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ... import runs
from ...errors import Busy, CachekeeperError, NotFound
from ...inductor import Place
from ...mending import with_one_kernel_directory
from ...repository import open_repository
from ...runs import RunInfo
from ...supervision import Ended, interruptible
from ...units import as_duration, count, format_duration, short_id
from ..clear import ClearResult, clear
from .cache import JobCache
from .job import Job
from .result import Retried, RunResult
from .saving import Saving
from .troubles import Troubles

WITHIN = 1800.0
_WHAT = "not started again, cold"
# Processes of a job that broke down may need a moment to see it.
_PATIENCE = 10.0
_PAUSE = 0.2
_SIGNAL = 128
# What a process brings upon itself, as when it runs a broken library.
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS}


class Retry:
    """What is done after a first attempt.

    Args:
        saving: what comes of it is saved.
        within: seconds in which the first attempt must have failed.
        options: the guard's, or None for no guard.
    """

    def __init__(
        self,
        cache: JobCache,
        troubles: Troubles,
        saving: Saving | None,
        within: float,
        options: Mapping[str, Any] | None,
    ) -> None:
        self._cache = cache
        self._troubles = troubles
        self._saving = saving
        self._within = within
        self._options = options

    def after(self, job: Job, first: RunResult) -> RunResult:
        """What became of a second attempt, or of the first where there is to be none; a note says why not."""
        result = None
        with interruptible():
            try:
                if reason := self._against(job, first):
                    self._troubles.note(f"{_WHAT}: {reason}")
                else:
                    result = self._troubles.attempt(_WHAT, lambda: self._again(job, first))
            except KeyboardInterrupt:
                place = shlex.quote(str(self._cache.directory))
                hint = f"`cachekeeper clear {place} --list` shows whether its cache was put aside"
                self._troubles.failed(_WHAT, CachekeeperError("interrupted", hint=hint))
        return result or replace(first, troubles=self._troubles.found, notes=tuple(self._troubles.notes))

    def _against(self, job: Job, first: RunResult) -> str:
        """Why the cache is not what the first attempt failed of, or is not known to be; "" where it may be."""
        if job.ended.signalled or not _by_itself(job.ended):
            return "a signal from outside ended the job, or came while it ran"
        if first.seconds > self._within:
            limit = as_duration(self._within)
            return f"it failed after {format_duration(first.seconds)}, and --retry-within is {limit}"
        if job.before is None:
            return "what its cache held is not known"
        if not job.before:
            return "it was cold already, its cache was empty"
        if job.was_stopped():
            return "a graph that missed ended it"
        if first.python and not first.torch:
            return "no process of it imported torch"
        raising = self._options is not None and self._options["fallback"] == "error"
        if raising and (first.compiled is None or first.compiled.fallbacks):
            return "the guard may have ended it (fallback=error)"
        return ""

    def _again(self, job: Job, first: RunResult) -> RunResult:
        others = self._others(job)
        cleared = self._put_aside(job, first)
        assert cleared.trash is not None
        self._troubles.note(
            f"the job failed (exit {first.exit_code} after {format_duration(first.seconds)}): its cache is put aside "
            f"in {cleared.trash}, and it starts once more, cold"
        )
        for text in cleared.notes:
            self._troubles.note(text)
        self._cache.start_anew()
        second = Job(job.command, self._cache, self._troubles)
        second.begin(self._options is not None, False)
        job.add_note("started once more, cold" + (f": run {runs.short(second.info.id)}" if second.info else ""))
        second.start(self._options)
        retried = Retried(replace(first, troubles=(), notes=()), cleared.trash, cleared.item, others)
        return replace(second.finish(self._saving, None), retried=retried)

    def _others(self, job: Job) -> int | None:
        """How many entries the job found that are not of the snapshot."""
        snapshot, before = self._cache.snapshot, job.before or frozenset()
        if snapshot is None:
            return len(before)

        def look() -> int:
            manifest = with_one_kernel_directory(open_repository(self._cache.store()).manifest(snapshot.id))
            return len(before - {Place(*entry) for entry in manifest.tables.entries})

        return self._troubles.attempt("what its cache held beside the snapshot is not known", look)

    def _put_aside(self, job: Job, first: RunResult) -> ClearResult:
        """Clear the cache once nobody uses it.

        Raises:
            Busy: somebody does all the same.
            NotFound: there is nothing left of it.
            CachekeeperError: as for `clear`.
        """
        directory = self._cache.directory
        open_repository(self._cache.store()).refuse_inside(directory)
        known = f"run {first.id}: " if first.id else ""
        snapshot, name = self._cache.snapshot, self._cache.name
        on = (f" on {short_id(snapshot.id)}" + f" ({name})" * bool(name)) if snapshot else ""
        reason = f"{known}exit {first.exit_code} after {format_duration(first.seconds)}{on}; started once more, cold"
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self._refuse_other_runs(job.info)
                cleared = clear(directory, reason=reason)
                break
            except Busy as error:
                if time.monotonic() >= deadline:
                    hint = "once nobody uses it: `cachekeeper clear`, then start the job again"
                    raise Busy(error.message, facts=error.facts, hint=hint) from None
                time.sleep(_PAUSE)
        if cleared.trash is None:
            raise NotFound(f"nothing is left in {directory} to put aside", facts=cleared.notes)
        return cleared

    def _refuse_other_runs(self, own: RunInfo | None) -> None:
        """A job that has loaded all that it needs holds no file open, and still uses the cache."""
        mine = {own.directory if own else None, runs.current()}
        place = os.path.realpath(self._cache.directory)
        others = [
            run
            for run in runs.runs()
            if run.directory not in mine and os.path.realpath(run.cache_dir or "/") == place and runs.is_going(run)
        ]
        if others:
            facts = [f"run {runs.short(run.id)}, process {run.pid} on {run.host}" for run in others[:6]]
            raise Busy(f"{count(len(others), 'other job')} started by `cachekeeper run` on {place}", facts=facts)


def _by_itself(ended: Ended) -> bool:
    """False where a signal that a process does not bring upon itself ended it, or as a shell says a part of it."""
    number = ended.signal or (ended.code - _SIGNAL if _SIGNAL < ended.code <= _SIGNAL + signal.SIGRTMAX else 0)
    return not number or number in _FAULTS
