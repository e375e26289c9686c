"""The job itself: its environment, its process, and what it told."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ... import guard as guarding
from ... import runs
from ...errors import CachekeeperError, CheckFailed
from ...inductor import Place
from ...manifest import Snapshot
from ...masking import without_secrets
from ...repository import open_repository
from ...runs import RunInfo
from ...runs.stopping import stopped as find_stop
from ...runs.totals import totals
from ...supervision import Ended, interruptible, supervise
from ...telemetry import Log, is_wanted
from ...variables import SUPERVISED
from .cache import JobCache
from .result import NOT_STARTED, STOPPED, Compiles, RunResult, Watched
from .saving import Saving
from .troubles import Troubles

_STARTUP = Path(guarding.__file__).with_name("startup")


class Job:
    """One command, run on a cache.

    Attributes:
        command: as it was given.
        info: the run that keeps what it tells; None where there is none.
        before: what the cache held when it started; None where that is not known.
        ended: how it ended, once it has.
    """

    def __init__(self, command: tuple[str, ...], cache: JobCache, troubles: Troubles) -> None:
        self.command = command
        self._cache = cache
        self._troubles = troubles
        self.info: RunInfo | None = None
        self.before: frozenset[Place] | None = None
        self.ended = Ended(0)
        self._asserting = False

    def begin(self, guarded: bool, assert_warm: bool) -> None:
        """Make the directory of the run, where what the job tells is kept."""
        if not is_wanted(os.environ) and not assert_warm:
            return
        snapshot = self._cache.snapshot
        facts = {
            "name": self._cache.name,
            "restored": snapshot.id if snapshot else "",
            "cache_dir": str(self._cache.directory),
            "guarded": guarded,
            "telemetry": is_wanted(os.environ),
        }
        what = "nothing of this run is kept" + ", and no miss stops it" * assert_warm
        self.info = info = self._troubles.attempt(what, lambda: runs.begin(self.command, **facts))
        if info and snapshot:
            what = "what the snapshot knows of its graphs is not at hand"
            self._troubles.attempt(what, lambda: self._keep_known(info, snapshot))

    def _keep_known(self, info: RunInfo, snapshot: Snapshot) -> None:
        log = open_repository(self._cache.store()).telemetry(snapshot)
        if log is not None:
            runs.keep_known(info, log)

    def start(self, options: Mapping[str, Any] | None) -> None:
        """Run the job to its end; `options` are the guard's, or None for no guard."""
        if self._cache.warmed or self._troubles.found:
            self.before = self._cache.entries()
        else:
            self.before = self._cache.before
        self._asserting = bool(self.info and options and options["assert_warm"])
        environment = self._environment(options)
        mark = f"{runs.VARIABLE}={self.info.directory}" if self.info else ""
        stop = self.was_stopped if self._asserting else None
        self._began = time.monotonic()
        self._troubles.job_started = True
        self.ended = supervise(self.command, environment, stop=stop, mark=mark)

    def _environment(self, options: Mapping[str, Any] | None) -> dict[str, str]:
        environment = dict(os.environ)
        for variable in (runs.VARIABLE, guarding.VARIABLE, SUPERVISED):
            environment.pop(variable, None)  # of a run that this one is a part of
        ours = dict(self._cache.variables)
        if self.info:
            ours[runs.VARIABLE] = str(self.info.directory)
            ours[SUPERVISED] = "1"
        if options is not None:
            told = {"assert_warm": self._asserting, "telemetry": self.info is not None}
            ours[guarding.VARIABLE] = json.dumps({**options, **told})
            ours["PYTHONPATH"] = _first_on_path(environment.get("PYTHONPATH", ""))
        self._ours = ours
        return environment | ours

    def was_stopped(self) -> bool:
        """True where a process says that a miss ends the job."""
        return self.info is not None and find_stop(self.info) is not None

    def add_note(self, text: str) -> None:
        """Keep a sentence more with what the job told."""
        if (info := self.info) is not None:
            what = "what became of the run is not kept"
            self._troubles.attempt(what, lambda: runs.update(info, notes=(*info.notes, text)))

    def finish(self, saving: Saving | None, watched: Watched | None) -> RunResult:
        """Gather what the job told, save its cache, and put down what became of it."""
        result = RunResult(
            without_secrets(self.command),
            self.ended.code,
            self.ended.signal,
            time.monotonic() - self._began,
            self.info.id if self.info else "",
            self._cache.name,
            self._cache.directory,
            self._ours,
            self._cache.restored,
            self._cache.warmed,
            job_exit_code=self.ended.code,
            watched=watched,
        )
        with interruptible():
            try:
                result = self._told(result)
                self._put_down(result)
                result = self._saved(result, saving)
            except KeyboardInterrupt:
                error = CachekeeperError("interrupted", hint="`cachekeeper snapshot` saves what is there")
                self._troubles.failed("nothing more is done after the job", error)
                result = self._without_success(result)
            if result.saved or self._troubles.found:
                self._put_down(result)
        return replace(result, troubles=self._troubles.found, notes=(*self._troubles.notes, *result.notes))

    def _told(self, result: RunResult) -> RunResult:
        """The result with what the processes left in the directory of the run."""
        self._after = after = self._cache.entries()
        if after is not None and self.before is not None:
            result = replace(result, new_entries=len(after - self.before))
        if self.info is None:
            return result
        info = self.info
        if is_wanted(os.environ):
            what = "what compiled is not known"
            compiled = self._troubles.attempt(what, lambda: compiles(runs.logs(info, components=False)))
            result = replace(result, compiled=compiled)
        if guarding.VARIABLE in self._ours:
            python, torch = (info.directory.joinpath(f"loaded-{what}").exists() for what in ("python", "torch"))
            result = replace(result, python=python, torch=torch)
        if not self._asserting:
            return result
        if stopped := find_stop(info):
            return replace(result, stopped=stopped, exit_code=STOPPED, signal=0)
        if not result.torch:
            hint = "the guard needs Python 3.10 or later, without -I, -E, -S; or the job does not use torch"
            error = CheckFailed("no process imported torch under the guard", hint=hint)
            self._troubles.failed("nothing was asserted", error)
            return replace(result, exit_code=result.exit_code or STOPPED)
        return result

    def _saved(self, result: RunResult, saving: Saving | None) -> RunResult:
        """The result with a snapshot, where the job succeeded and there is something new to save."""
        if saving is None or result.exit_code != 0 or not saving.is_due(self._after, result.new_entries):
            return result
        saved = saving.save(result.new_entries, self.info)
        result = replace(result, saved=saved)
        return self._without_success(result) if saved is None or saved.shrunk_from else result

    def _without_success(self, result: RunResult) -> RunResult:
        """The result, which `strict` does not let be a success."""
        return replace(result, exit_code=NOT_STARTED) if self._troubles.strict and result.exit_code == 0 else result

    def _put_down(self, result: RunResult) -> None:
        """Keep with what the job told what became of it."""
        if (info := self.info) is None:
            return
        theirs = result.exit_code != result.job_exit_code and not result.stopped
        job = (f"exit {result.exit_code} is cachekeeper's: the job ended with {result.job_exit_code}",) * theirs

        def update() -> RunInfo:
            return runs.update(
                info,
                ended=time.time(),
                exit_code=result.exit_code,
                saved=result.saved.snapshot.id if result.saved else "",
                new_entries=result.new_entries,
                notes=(*self._troubles.notes, *map(str, self._troubles.found), *job),
            )

        self.info = self._troubles.attempt("what became of the run is not kept", update) or info


def _first_on_path(path: str) -> str:
    """PYTHONPATH with the guard's startup in front, once: an outer run has put it there, too."""
    rest = path.split(os.pathsep) if path else []
    return os.pathsep.join([str(_STARTUP), *(place for place in rest if place != str(_STARTUP))])


def compiles(logs: Sequence[Log]) -> Compiles:
    """What the processes of a run told."""
    fallbacks = [f"{event.function}: {event.reason}" for log in logs for event in log.fallbacks]
    notes = [event.text for log in logs for event in log.notes]
    return Compiles(
        totals(logs),
        sum(bool(log.compiled or log.frames) for log in logs),
        tuple(dict.fromkeys(fallbacks)),
        tuple(dict.fromkeys(notes)),
        sum(log.torn or log.end is None or bool(log.end.dropped) for log in logs),
    )
