"""Say why graphs of a run missed, and what to do."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..errors import UsageError
from ..explaining import Explanation, explain_run
from ..runs import RunInfo, find, known, logs, runs
from ..telemetry import Log
from .stats import of_run

_EARLIER = 5


@dataclass(frozen=True)
class ExplainResult:
    """Why graphs of a run missed.

    Attributes:
        run: the run.
        going: it is not over: this is what it has told so far.
        crashed: number of its processes that ended without a word, as after a kill.
        snapshot: the snapshot that it began with has told of its graphs.
        earlier: ids of the runs before it that its graphs are compared with.
        explanation: the causes.
        notes: what a person should know, a sentence each.
    """

    run: RunInfo
    going: bool
    crashed: int
    snapshot: bool
    earlier: tuple[str, ...]
    explanation: Explanation
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True where nothing missed."""
        return not self.explanation.misses


def explain(reference: str | None = None, *, last: bool = False) -> ExplainResult:
    """Look at the misses of a run, by default the last one.

    They are compared with the graphs of the snapshot that the run began with, with what it found, and with those of up
    to five earlier runs of the same name or script.

    Args:
        reference: id of a run, the beginning of it, or its last six digits.
        last: the last run.

    Raises:
        NotFound: no such run.
        UsageError: several begin so; a run and the last one.
    """
    if reference is not None and last:
        raise UsageError("give a run or --last, not both")
    run = find(reference)
    told, kept = logs(run), known(run)
    before = _earlier(run)
    explanation = explain_run(told, kept, [log for _, found in before for log in found])
    stats = of_run(run, told)
    return ExplainResult(
        run=run,
        going=stats.going,
        crashed=stats.crashed,
        snapshot=kept is not None,
        earlier=tuple(other.id for other, _ in before),
        explanation=explanation,
        notes=tuple(_notes(run, [other for other, _ in before], explanation)),
    )


def _earlier(run: RunInfo) -> list[tuple[RunInfo, list[Log]]]:
    """The newest runs before it of the same job that told something."""
    found: list[tuple[RunInfo, list[Log]]] = []
    for other in runs():
        same = (other.name == run.name and bool(run.name)) or _script(other.command) == _script(run.command)
        if same and other.id != run.id and other.began < run.began and (told := logs(other)):
            found.append((other, told))
            if len(found) == _EARLIER:
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
