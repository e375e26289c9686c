"""What became of a job, and of its cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...runs.stopping import Stop
from ...runs.totals import Totals
from ..restore import RestoreResult
from ..snapshot import SnapshotResult
from ..warmup import WarmupResult

NOT_STARTED = 125
STOPPED = 3


@dataclass(frozen=True)
class Trouble:
    """Something of ours that failed; the job goes its way.

    Attributes:
        what: what is not done for it, as "nothing restored".
        code: of the error, as "not-found"; "unexpected" for one that nobody foresaw.
    """

    what: str
    code: str
    message: str
    facts: tuple[str, ...] = ()
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.message}"


@dataclass(frozen=True)
class Compiles:
    """What the processes of a job compiled.

    Attributes:
        totals: of all processes.
        processes: number of those that compiled anything.
        fallbacks: what ran uncompiled though it was to be compiled, and why; each once.
        notes: what else the processes say, as that threads see other settings; each once.
        incomplete: number of processes that did not end in order, or had more to tell than there was room for.
    """

    totals: Totals
    processes: int = 0
    fallbacks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    incomplete: int = 0


@dataclass(frozen=True)
class Watched:
    """What a watch did while the job ran.

    Attributes:
        entries, files, bytes: what was put back; an entry that vanished twice counts twice.
        lost: entries that could not be put back.
        notes: what else it met, a sentence each.
    """

    entries: int = 0
    files: int = 0
    bytes: int = 0
    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Retried:
    """A first attempt that failed, after which the command was started once more on an empty cache.

    Attributes:
        first: what became of it: `exit_code`, `seconds`, what was restored, and so on; its troubles and notes are with
            those of the second.
        trash: where its cache is now, whole; `clear --undo` with `item` brings it back.
        others: number of entries that it had beside those of the snapshot; None where that is not known.
    """

    first: RunResult
    trash: Path
    item: str
    others: int | None = None


@dataclass(frozen=True)
class RunResult:
    """What became of a job, and of its cache.

    Attributes:
        command: without its secrets.
        exit_code: the job's, 128 + n for a signal; 3 where `assert_warm` ended it, or had nothing to watch in a job
            that succeeded; 125 with `strict` where it succeeded and could not be saved.
        job_exit_code: the job's own in any case.
        signal: what killed the job, or 0.
        seconds: from the job's start to its end.
        id: of the run, as `stats` and `explain` take it; "" where nothing is kept of it.
        environment: variables that the job got from us.
        restored: None where nothing was; `troubles` and `notes` say why.
        warmed: the warmup before the job, if there was one.
        new_entries: number of entries that the job added to the cache; None where that is not known.
        python, torch: a Python process of the job could load the guard; one that imports torch did. None unguarded.
        compiled: what the guarded processes told; None where telemetry is off or nothing is kept of the run.
        stopped: why `assert_warm` ended the job.
        saved: the new snapshot.
        watched: what was put back while the job ran; None where nothing was watched.
        retried: the first attempt, where all the rest is of a second one.
        troubles: what of ours failed; the first ones before the job.
        notes: what a person should know, a sentence each.
    """

    command: tuple[str, ...]
    exit_code: int
    signal: int
    seconds: float
    id: str
    name: str
    cache_dir: Path
    environment: Mapping[str, str]
    restored: RestoreResult | None = None
    warmed: WarmupResult | None = None
    new_entries: int | None = None
    python: bool | None = None
    torch: bool | None = None
    compiled: Compiles | None = None
    stopped: Stop | None = None
    saved: SnapshotResult | None = None
    troubles: tuple[Trouble, ...] = ()
    notes: tuple[str, ...] = ()
    job_exit_code: int | None = None
    watched: Watched | None = None
    retried: Retried | None = None
