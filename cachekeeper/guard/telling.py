"""What the compiles of this process come to: told to the run's telemetry, and to whoever waits for warmth."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from .. import runs
from ..errors import CachekeeperError
from ..inductor.keys.changes import explain
from ..inside.compiles import Answer, Compiled
from ..models import Graph
from ..runs.stopping import say_why
from ..telemetry import Compiled as CompiledEvent
from ..telemetry import Event, Fallback, Frame, Note, Process, is_wanted
from ..variables import SUPERVISED
from .alarm import say
from .recorder import Recorder, this_process

STOPPED = 3
_PATIENCE = 60.0


class Telling:
    """Writes telemetry of this process into the run that `cachekeeper run` began, or one of its own.

    Args:
        telemetry: False: write nothing.
    """

    def __init__(self, telemetry: bool) -> None:
        self._wanted = telemetry and is_wanted(os.environ)
        self._recorder: Recorder | None = None
        self._installed = time.time()
        self._one_at_a_time = threading.Lock()
        self._measures: dict[str, str] = {}

    def measures(self, measures: dict[str, str]) -> None:
        """What became of the guard's measures, for the first line of this process."""
        self._measures = measures
        if self._recorder is not None:
            self._recorder.record(self._process())

    def answered(self, answers: Sequence[Answer]) -> None:
        """What the caches said to this thread."""
        for answer in answers:
            self._record(CompiledEvent(time.time(), _thread(), answer.graph, answer.seconds))

    def compiled(self, compiled: Compiled, answers: Sequence[Answer]) -> None:
        """A compile in this thread is over; `answers` is what the caches said in it."""
        self.answered(answers)
        self._record(
            Frame(time.time(), _thread(), compiled.function, compiled.seconds, compiled.failed, compiled.backward)
        )

    def fallback(self, function: str, reason: str) -> None:
        """Something ran uncompiled in this thread."""
        self._record(Fallback(time.time(), _thread(), function, reason))

    def note(self, text: str) -> None:
        """Something that a person should know of this thread."""
        self._record(Note(time.time(), _thread(), text))

    @property
    def directory(self) -> Path | None:
        """Of the run, if there is one already."""
        return runs.current()

    def _record(self, event: Event) -> None:
        if self._wanted:
            recorder = self._recorder or self._begin()
            if recorder is not None:
                recorder.record(event)

    def _begin(self) -> Recorder | None:
        with self._one_at_a_time:
            if self._recorder is None and self._wanted:
                try:
                    self._recorder = Recorder(self.directory or self._own_run())
                except (CachekeeperError, OSError) as error:
                    self._wanted = False
                    say(f"no telemetry of this process: {error}")
                    return None
                self._recorder.record(self._process())
                atexit.register(self._recorder.close)
            return self._recorder

    def _own_run(self) -> Path:
        run = runs.begin([sys.executable, *sys.argv], began=self._installed)
        # Children of this process belong to the same run.
        os.environ[runs.VARIABLE] = str(run.directory)
        atexit.register(_end_run, run, os.getpid())
        return run.directory

    def _process(self) -> Process:
        return this_process(measures=self._measures)

    def close(self) -> None:
        """Write nothing any more."""
        if self._recorder is not None:
            self._recorder.close()
        self._recorder, self._wanted = None, False


def _end_run(run: runs.RunInfo, pid: int) -> None:
    if os.getpid() == pid:
        try:
            runs.update(run, ended=time.time())
        except CachekeeperError:
            return


def _thread() -> str:
    return threading.current_thread().name


class WarmOrNothing:
    """Ends the job at the first graph that the caches do not have: `--assert-warm`."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        known = runs.known_in(directory) if directory else None
        self._known = [event.graph.components for event in known.compiled] if known else []

    def stop(self, graph: Graph) -> None:
        """Say why, tell the process that began the run, and end this one."""
        why = [graph.reason] if graph.reason else explain(graph.components, self._known)
        words = "; ".join(why) or "nothing like it is known"
        say(f"NOT WARM  {graph} in thread {_thread()} missed: {words}")
        try:
            if self._directory is not None:
                say_why(self._directory, graph, _thread(), why)
                if os.environ.get(SUPERVISED):
                    time.sleep(_PATIENCE)  # whoever began the run ends all of its processes, not only this one
        finally:
            os._exit(STOPPED)
