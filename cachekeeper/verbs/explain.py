"""Say why graphs of a run missed, and what to do."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..errors import UsageError
from ..explaining import Explanation, explain_run
from ..runs import RunInfo, find, known, logs, runs
from ..runs.stopping import Stop, stopped
from ..telemetry import Log
from .stats import of_run, silence

# Of earlier runs there are read so many, fewer where that takes longer than so many seconds.
_MOST_EARLIER = 20
_FEWEST_EARLIER = 5
_PATIENCE = 1.0


@dataclass(frozen=True)
class ExplainResult:
    """Why graphs of a run missed.

    Attributes:
        run: the run.
        going: it is not over: this is what it has told so far.
        crashed: number of its processes that are gone and did not say that they ended.
        snapshot: the snapshot that it began with has told of its graphs.
        earlier: ids of the runs before it that its graphs are compared with.
        explanation: the causes.
        notes: what a person should know, a sentence each.
        stopped: the miss for which `--assert-warm` ended it; None where it did not.
    """

    run: RunInfo
    going: bool
    crashed: int
    snapshot: bool
    earlier: tuple[str, ...]
    explanation: Explanation
    notes: tuple[str, ...] = ()
    stopped: Stop | None = None

    @property
    def ok(self) -> bool:
        """True where nothing missed."""
        return not self.explanation.misses and self.stopped is None


def explain(reference: str | None = None, *, last: bool = False) -> ExplainResult:
    """Look at the misses of a run, by default the last one.

    They are compared with the graphs of the snapshot that the run began with, with what it found, and with those of
    earlier runs of the same name or script: of the last five, and of more where they are soon read.

    Args:
        reference: id of a run, its last six digits, the beginning of either, or "last".
        last: the last run.

    Raises:
        NotFound: no such run.
        UsageError: several begin so; a run and the last one.
        LocalDiskError: where runs are kept cannot be looked at.
    """
    if reference is not None and last:
        raise UsageError("give a run or --last, not both")
    run = find(reference)
    told, kept = logs(run), known(run)
    before = _earlier(run)
    explanation = explain_run(told, kept, [log for _, found in before for log in found])
    stats, stop = of_run(run, told), stopped(run)
    notes = _notes(run, [other for other, _ in before], explanation)
    if not told and stop is None:
        notes.append(silence(run))
    return ExplainResult(
        run=run,
        going=stats.going,
        crashed=stats.crashed,
        snapshot=kept is not None,
        earlier=tuple(other.id for other, _ in before),
        explanation=explanation,
        notes=tuple(notes),
        stopped=stop,
    )


def _earlier(run: RunInfo) -> list[tuple[RunInfo, list[Log]]]:
    """The newest runs before it of the same job that told something."""
    found: list[tuple[RunInfo, list[Log]]] = []
    began = time.monotonic()
    for other in runs():
        same = (other.name == run.name and bool(run.name)) or _script(other.command) == _script(run.command)
        if same and other.id != run.id and other.began < run.began and (told := logs(other)):
            found.append((other, told))
            late = time.monotonic() - began > _PATIENCE
            if len(found) == _MOST_EARLIER or (late and len(found) >= _FEWEST_EARLIER):
                break
    return found


def _script(command: Sequence[str]) -> str:
    """What a command runs: arguments differ from run to run, and so does what stands before a script."""
    script = next((word for word in command if word.endswith(".py")), "")
    module = next((after for word, after in pairwise(command) if word == "-m"), "")
    return os.path.basename(script) or module or shlex.join(command)


def _notes(run: RunInfo, earlier: Sequence[RunInfo], explanation: Explanation) -> list[str]:
    notes = list(dict.fromkeys((*run.notes, *explanation.notes)))
    elsewhere = {other.cache_dir for other in earlier if other.cache_dir} - {run.cache_dir}
    if run.cache_dir and elsewhere and any("gone" in cause.kinds for cause in explanation.misses):
        notes.append(f"this run's cache is {run.cache_dir}; that of earlier ones was {', '.join(sorted(elsewhere))}")
    return notes
