"""Run a job on a restored cache, guarded, and tell what it compiled."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from .. import guard as guarding
from .. import preflight, restored, runs
from ..config import setting
from ..environment import cache_directory
from ..errors import CachekeeperError, CheckFailed, UsageError
from ..guard.alarm import MODES
from ..inductor import Place, job_environment
from ..keyfiles import chosen_private_key
from ..livecache import LiveCache, chosen_cache_dir
from ..masking import without_secrets
from ..repository import check_name, open_repository
from ..runs import RunInfo
from ..runs.stopping import Stop
from ..runs.stopping import stopped as find_stop
from ..runs.totals import Totals, totals
from ..signing import PrivateKey
from ..stores import Store
from ..supervision import Ended, find_command, interruptible, supervise
from ..targets import for_people
from ..telemetry import Log, is_wanted
from ..units import short_id
from ..warming import Listener as WarmupListener
from ..warming import places
from ..watching import Tell
from ..watching.beside import Beside
from .restore import Progress, RestoreResult
from .restore import restore as bring_back
from .snapshot import SnapshotResult, checked_tags
from .snapshot import snapshot as save
from .warmup import WarmupResult
from .warmup import warmup as warm_up
from .watch import watch as keep_whole

NOT_STARTED = 125
STOPPED = 3
_STARTUP = Path(guarding.__file__).with_name("startup")
Done = TypeVar("Done")


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


class Listener:
    """Is told what happens; does nothing with it."""

    def trouble(self, trouble: Trouble) -> None:
        """Something of ours failed."""

    def note(self, text: str) -> None:
        """What a person should know before the job."""

    def warmup(self) -> WarmupListener:
        """A warmup begins: who is told of its steps."""
        return WarmupListener()


def run(
    command: Sequence[str],
    *,
    name: str | None = None,
    store: str | os.PathLike[str] | Store | Callable[[], Store] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    restore: bool | None = None,
    snapshot_on_success: bool = False,
    tags: Mapping[str, str] | None = None,
    assert_warm: bool = False,
    guard: bool = True,
    fallback: str | None = None,
    carry: bool = False,
    warmup: str | None = None,
    watch: bool = False,
    strict: bool = False,
    listener: Listener | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> RunResult:
    """Restore a cache, run a command on it as a child with our terminal, and tell what it compiled.

    Whatever of ours fails, the job runs, cold if need be, and its exit code stays: see `RunResult.troubles`. Call it
    in the main thread; signals for this process are the job's until it has ended.

    Args:
        command: the program and its arguments.
        name: of the snapshot to restore and to save; default as configured.
        store: URL, directory, or a function that opens it; default as configured.
        cache_dir: default: the directory that torch would use here.
        restore: default: where there is a name. True without a name: the newest snapshot that fits this machine.
        snapshot_on_success: save under the name where the job ends with 0 and the cache has entries that the snapshot
            has not: some appeared, or there is no such snapshot yet; or a warmup has proved it. The key that signs it
            is loaded before the job.
        tags: of that snapshot, as for `snapshot`.
        assert_warm: end the job at the first graph that the caches do not have. A job that succeeds in which no
            process imported torch under the guard is not warm either.
        guard: load `cachekeeper.guard` into each Python process of the job.
        fallback, carry: as for `cachekeeper.guard.install`; only with the guard.
        warmup: a target to warm up before the job, unless what was restored is proven for the same target.
        watch: put back what vanishes from the cache, or breaks, while the job runs: as `watch`, in a process of its
            own that ends with this one. Only where something was restored.
        strict: what of ours fails before the job is raised, and the job is not started. With `snapshot_on_success`,
            a name that has no snapshot yet is no failure.
        listener: is told of troubles as they come.

    Raises:
        UsageError: the arguments make no sense.
        NotFound, CachekeeperError: the command cannot be started; exit code 127 or 126, as a shell has it.
        CachekeeperError: with `strict`, of any kind, with exit code 125.
        KeyboardInterrupt: before the job was started.
    """
    _check(command, assert_warm, guard, fallback, carry)
    given = _checked_tags(tags, snapshot_on_success)
    find_command(command[0])
    options: dict[str, Any] = {"fallback": fallback or "warn", "carry": carry, "assert_warm": assert_warm}
    job = _Job(tuple(command), store, strict, listener or Listener(), progress)
    job.look_at_settings(name, cache_dir)
    job.saves, job.tags = snapshot_on_success, given
    if job.saves and not job.name:
        job.failed("nothing will be saved", UsageError("there is no name", hint="give one with --name"))
    elif job.saves:
        job.load_key()
    with _variables_kept():
        job.restore(restore, "the job starts as it is" if warmup is None else "warming up first")
        if warmup is not None:
            job.warm(warmup)
        job.begin(guard, assert_warm)
        with job.watching(watch):
            ended = job.start(options if guard else None)
        return job.finish(ended)


def _check(command: Sequence[str], assert_warm: bool, guard: bool, fallback: str | None, carry: bool) -> None:
    """Refuse arguments that make no sense."""
    if isinstance(command, (str, bytes)):
        words = os.fsdecode(command)
        raise UsageError(f"the command is a text and no list: {words!r}", hint=f"give its words: {words.split()}")
    if not command:
        raise UsageError("there is no command to run", hint="as `cachekeeper run --name drafter -- python train.py`")
    if fallback is not None and fallback not in MODES:
        raise UsageError(f"no fallback {fallback!r}", hint=f"it is one of {', '.join(MODES)}")
    if guard:
        return
    if assert_warm:
        raise UsageError("assert_warm needs the guard, which sees what misses", hint="leave out --no-guard")
    if fallback is not None or carry:
        option = "fallback" if fallback is not None else "carry"
        raise UsageError(f"{option} is for the guard, which is not wanted", hint=f"leave out --no-guard or --{option}")


def _checked_tags(tags: Mapping[str, str] | None, wanted: bool) -> Mapping[str, str]:
    if tags and not wanted:
        raise UsageError(
            "tags are of the snapshot, which is not wanted", hint="give --snapshot-on-success, or no --tag"
        )
    return checked_tags(tags or {})


@contextmanager
def _variables_kept() -> Iterator[None]:
    """What is set in this process's environment for the job is not there after it."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for variable in os.environ.keys() - before.keys():
            del os.environ[variable]
        os.environ.update(before)


class _Job:
    """One job: what is done before, with and after it."""

    def __init__(
        self,
        command: tuple[str, ...],
        store: str | os.PathLike[str] | Store | Callable[[], Store] | None,
        strict: bool,
        listener: Listener,
        progress: Progress,
    ) -> None:
        self._command = command
        self._store = store
        self._strict = strict
        self._listener = listener
        self._progress = progress
        self._started = False
        self._usable = True
        self._watched: dict[str, str] = {}
        self._before: frozenset[Place] | None = None
        self._after: frozenset[Place] | None = None
        self._unsaved = False
        self._asserting = False
        self._given = store
        self._watch: Watched | None = None
        self._restored: RestoreResult | None = None
        self._warmed: WarmupResult | None = None
        self._info: RunInfo | None = None
        self._troubles: list[Trouble] = []
        self._notes: list[str] = []
        self.name = ""
        self.saves = False
        self.tags: Mapping[str, str] = {}
        self._key: PrivateKey | None = None

    # Trouble

    def attempt(self, what: str, do: Callable[[], Done]) -> Done | None:
        """Do something of ours; where it fails, `what` is not done, and None comes back.

        Raises:
            CachekeeperError: with `strict`, before the job.
        """
        try:
            return do()
        except Exception as error:
            self.failed(what, error)
            return None

    def failed(self, what: str, error: Exception) -> None:
        """Take note of a failure of ours, or with `strict` do not start the job."""
        known = error if isinstance(error, CachekeeperError) else None
        if self._strict and not self._started:
            raised = known or CachekeeperError(f"{what}: {error!r}", hint="please report it")
            raised.exit_code = NOT_STARTED
            raise raised from None
        if known is None:
            trouble = Trouble(what, "unexpected", repr(error))
        else:
            trouble = Trouble(what, known.code, known.message, known.facts, known.hint)
        self._troubles.append(trouble)
        self._listener.trouble(trouble)

    def _note(self, text: str) -> None:
        self._notes.append(text)
        self._listener.note(text)

    # Before the job

    def look_at_settings(self, name: str | None, cache_dir: str | os.PathLike[str] | None) -> None:
        """Find out the name and the directory."""

        def look() -> tuple[str, Path, bool]:
            found = setting("name", name)
            if found is not None:
                check_name(found.partition("@")[0])
            return found or "", chosen_cache_dir(cache_dir), setting("cache_dir", cache_dir) is not None

        settings = self.attempt("nothing restored and nothing saved", look)
        self._usable = settings is not None
        own = Path(cache_dir) if cache_dir else cache_directory().path
        self.name, self.cache_dir, self._chosen = settings or ("", own, False)

    def load_key(self) -> None:
        """Load the key that will sign the snapshot: a job takes hours, and nobody is there to mend it after them."""
        self._key = self.attempt("nothing will be saved", lambda: chosen_private_key(None))

    def restore(self, wanted: bool | None, next_step: str) -> None:
        """Bring the snapshot back, and set the variables by which the job finds its cache.

        Args:
            next_step: what comes next where there is none to bring back, in words.
        """
        number = len(self._troubles)
        if self._usable and self._chosen:
            self.attempt("the cache directory cannot be used", self._check_directory)
        usable = self._usable and len(self._troubles) == number
        if usable and (self.name if wanted is None else wanted):
            self._restored = self.attempt(f"nothing restored, {next_step}", lambda: self._bring_back(next_step))
        elif usable and wanted is None:
            self._note("nothing restored: there is no name (--name, or CACHEKEEPER_NAME)")
        if self._restored and self._restored.environment:
            variables, self._watched = dict(self._restored.environment), {"": str(self.cache_dir)}
        else:
            found = self.attempt("the cache is not looked at", lambda: places(self.cache_dir))
            variables, self._watched = found or (job_environment(self.cache_dir, {}, ()), {})
        self._variables = variables
        os.environ.update(variables)  # the warmup and the snapshot see what the job sees
        self._before = self._entries()

    def _check_directory(self) -> None:
        preflight.make_target(self.cache_dir)
        preflight.check(self.cache_dir, (), native=False)

    def _bring_back(self, next_step: str) -> RestoreResult | None:
        """What was restored; None for a name that this run is the first to save."""
        self._unsaved = True  # unless it is there
        try:
            result = bring_back(
                self.name or None, cache_dir=self.cache_dir, store=self._opened(), progress=self._progress
            )
        except CachekeeperError as error:
            self._unsaved = error.code == "not-found"
            if not self._unsaved or not self.saves or not self.name or "@" in self.name:
                raise
            meant = f" ({error.hint})" if error.hint.startswith("did you mean") else ""
            self._note(
                f"nothing restored yet: {error.message}{meant}; {next_step}; its cache is saved after exit code 0"
            )
            if self._strict:
                open_repository(self._opened()).prepare()  # what is wrong with it is said before the job
            return None
        self._unsaved = False
        return result

    def _opened(self) -> str | os.PathLike[str] | Store | None:
        if callable(self._store):
            self._store = self._store()
        return self._store

    def warm(self, target: str) -> None:
        """Run a warmup on the job's cache, unless what was restored is proven for the same target."""
        self._warmed = self.attempt("the warmup proves nothing", lambda: self._warm_up(target))

    def _warm_up(self, target: str) -> WarmupResult | None:
        snapshot = self._restored.snapshot if self._restored else None
        proof = snapshot.header.proof if snapshot else None
        if snapshot and proof and proof.target == for_people(target):
            name = self.name or short_id(snapshot.id)
            self._note(f"the warmup is left out: {name} is proven for {proof.target}")
            return None
        result = warm_up(target, cache_dir=self.cache_dir, listener=self._listener.warmup())
        if not result.ok:
            doubts = [f"{step}: {why}" for step, lines in result.doubts.items() for why in lines[:1]]
            facts = doubts + [f"{report}: {report.error_line}" for report in result.failed]
            hint = f"see more with `cachekeeper warmup {target}`"
            raise CachekeeperError("a step raised, or would not be warm", facts=facts, hint=hint)
        return result

    def begin(self, guarded: bool, assert_warm: bool) -> None:
        """Make the directory of the run, where what the job tells is kept."""
        if not is_wanted(os.environ) and not assert_warm:
            return
        snapshot = self._restored.snapshot if self._restored else None
        facts = {
            "name": self.name,
            "restored": snapshot.id if snapshot else "",
            "cache_dir": str(self.cache_dir),
            "guarded": guarded,
            "telemetry": is_wanted(os.environ),
        }
        what = "nothing of this run is kept" + ", and no miss stops it" * assert_warm
        self._info = self.attempt(what, lambda: runs.begin(self._command, **facts))
        if self._info and snapshot:
            self.attempt("what the snapshot knows of its graphs is not at hand", self._keep_known)

    def _keep_known(self) -> None:
        assert self._info and self._restored and self._restored.snapshot
        log = open_repository(self._opened()).telemetry(self._restored.snapshot)
        if log is not None:
            runs.keep_known(self._info, log)

    # The job

    @contextmanager
    def watching(self, wanted: bool) -> Iterator[None]:
        """Keep what was restored whole in the block."""
        beside = self.attempt("the cache is not watched", self._begin_watch) if wanted else None
        try:
            yield
        finally:
            if beside is not None:
                self.attempt("the cache was not watched to the end", lambda: self._end_watch(beside))

    def _begin_watch(self) -> Beside | None:
        snapshot = self._restored.snapshot if self._restored else None
        if snapshot is None:
            self._note("the cache is not watched: nothing was restored")
            return None

        before = restored.read_in(self.cache_dir)  # here, since the job may wipe the directory at once

        def work(until: int, tell: Tell) -> None:
            # Opened anew: a connection cannot be shared with the parent.
            store = self._given() if callable(self._given) else self._given
            keep_whole(snapshot.id, cache_dir=self.cache_dir, store=store, until=until, before=before, tell=tell)

        return Beside(work)

    def _end_watch(self, beside: Beside) -> None:
        events = beside.finish()
        put_back = [event for event in events if event.event == "put-back"]
        notes = [event.text for event in events if event.event in ("trouble", "restless", "note")]
        ended = events[-1] if events and events[-1].event == "ended" else None
        self._watch = Watched(
            sum(len(event.entries) for event in put_back),
            sum(event.files for event in put_back),
            sum(event.bytes for event in put_back),
            ended.entries if ended else (),
            tuple(dict.fromkeys(notes)),
        )
        if ended is None:
            raise CachekeeperError(notes[-1] if notes else "the process of the watch was killed")

    def start(self, options: Mapping[str, Any] | None) -> Ended:
        """Run the job to its end; `options` are the guard's, or None for no guard."""
        if self._warmed or self._troubles:
            self._job_before = self._entries()
        else:
            self._job_before = self._before
        self._asserting = bool(self._info and options and options["assert_warm"])
        environment = self._environment(options)
        mark = f"{runs.VARIABLE}={self._info.directory}" if self._info else ""
        stop = self._is_to_stop if self._asserting else None
        self._began = time.monotonic()
        self._started = True
        return supervise(self._command, environment, stop=stop, mark=mark)

    def _environment(self, options: Mapping[str, Any] | None) -> dict[str, str]:
        environment = dict(os.environ)
        for variable in (runs.VARIABLE, guarding.VARIABLE, "CACHEKEEPER_SUPERVISED"):
            environment.pop(variable, None)  # of a run that this one is a part of
        ours = dict(self._variables)
        if self._info:
            ours[runs.VARIABLE] = str(self._info.directory)
            ours["CACHEKEEPER_SUPERVISED"] = "1"
        if options is not None:
            told = {"assert_warm": self._asserting, "telemetry": self._info is not None}
            ours[guarding.VARIABLE] = json.dumps({**options, **told})
            ours["PYTHONPATH"] = _first_on_path(environment.get("PYTHONPATH", ""))
        self._ours = ours
        return environment | ours

    def _is_to_stop(self) -> bool:
        return self._info is not None and find_stop(self._info) is not None

    # After the job

    def finish(self, ended: Ended) -> RunResult:
        """Gather what the job told, save its cache, and put down what became of it."""
        result = RunResult(
            without_secrets(self._command),
            ended.code,
            ended.signal,
            time.monotonic() - self._began,
            self._info.id if self._info else "",
            self.name,
            self.cache_dir,
            self._ours,
            self._restored,
            self._warmed,
            job_exit_code=ended.code,
            watched=self._watch,
        )
        with interruptible():
            try:
                result = self._told(result)
                self.attempt("what became of the run is not kept", lambda: self._put_down(result))
                if self.saves and result.exit_code == 0 and self.name:
                    result = self._saved(result)
            except KeyboardInterrupt:
                error = CachekeeperError("interrupted", hint="`cachekeeper snapshot` saves what is there")
                self.failed("nothing more is done after the job", error)
                result = self._without_success(result)
            if self._info and (result.saved or self._troubles):
                self.attempt("what became of the run is not kept", lambda: self._put_down(result))
        return replace(result, troubles=tuple(self._troubles), notes=(*self._notes, *result.notes))

    def _told(self, result: RunResult) -> RunResult:
        """The result with what the processes left in the directory of the run."""
        self._after = after = self._entries()
        if after is not None and self._job_before is not None:
            result = replace(result, new_entries=len(after - self._job_before))
        if self._info is None:
            return result
        info = self._info
        if is_wanted(os.environ):
            compiled = self.attempt("what compiled is not known", lambda: compiles(runs.logs(info, components=False)))
            result = replace(result, compiled=compiled)
        if guarding.VARIABLE in self._ours:
            python, torch = (info.directory.joinpath(f"loaded-{what}").exists() for what in ("python", "torch"))
            result = replace(result, python=python, torch=torch)
        if not self._asserting:
            return result
        if stopped := find_stop(info):
            return replace(result, stopped=stopped, exit_code=STOPPED, signal=0)
        if not result.torch:
            hint = "the guard needs Python 3.10 or later, without -I, -E, -S"
            self.failed("nothing was asserted", CheckFailed("no process imported torch under the guard", hint=hint))
            return replace(result, exit_code=result.exit_code or STOPPED)
        return result

    def _saved(self, result: RunResult) -> RunResult:
        """The result with a snapshot, where there is something new to save."""
        after = self._after
        if not self._usable or after is None or not after:
            return result
        # A proof is of the cache that the warmup ended with.
        proof = self._warmed.proof if self._warmed and result.new_entries == 0 else None
        if not self._unsaved and not proof and self._before is not None and not after - self._before:
            return result

        def keep() -> SnapshotResult:
            return save(
                self.name,
                cache_dir=self.cache_dir,
                store=self._opened(),
                tags=self.tags,
                proof=proof,
                run=self._info,
                sign=self._key,  # where it could not be loaded, it is tried again
                progress=self._progress,
            )

        saved = self.attempt("not saved", keep)
        result = replace(result, saved=saved)
        return self._without_success(result) if saved is None or saved.shrunk_from else result

    def _without_success(self, result: RunResult) -> RunResult:
        """The result, which `strict` does not let be a success."""
        return replace(result, exit_code=NOT_STARTED) if self._strict and result.exit_code == 0 else result

    def _put_down(self, result: RunResult) -> None:
        if self._info is not None:
            theirs = result.exit_code != result.job_exit_code and not result.stopped
            job = (f"exit {result.exit_code} is cachekeeper's: the job ended with {result.job_exit_code}",) * theirs
            self._info = runs.update(
                self._info,
                ended=time.time(),
                exit_code=result.exit_code,
                saved=result.saved.snapshot.id if result.saved else "",
                new_entries=result.new_entries,
                notes=(*self._notes, *map(str, self._troubles), *job),
            )

    def _entries(self) -> frozenset[Place] | None:
        """What the cache holds; None where that cannot be said."""

        def look() -> frozenset[Place]:
            there = {label: Path(path) for label, path in self._watched.items() if os.path.isdir(path)}
            root = there.pop("", None)
            if root is None:
                return frozenset()
            with LiveCache(root, there) as live:
                return frozenset(source.place for source in live.scan().files)

        return self.attempt("the cache is not looked at", look)


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
