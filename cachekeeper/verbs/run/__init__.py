"""Run a job on a restored cache, guarded, and tell what it compiled.

cache      where it is, what is brought back before the job, and what it holds
watching   kept whole while the job runs          saving   and saved after it
job        its environment, its process, what it told
retrying   started once more, cold, where it failed
troubles   what fails of ours                     result   what became of it all
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...errors import UsageError
from ...guard.alarm import MODES
from ...progress import Progress
from ...stores import Store
from ...supervision import find_command
from ..snapshot import checked_tags
from .cache import JobCache
from .job import Job
from .result import NOT_STARTED, Compiles, Retried, RunResult, Trouble, Watched
from .retrying import WITHIN, Retry
from .saving import Saving
from .troubles import Listener, Troubles
from .watching import Watching

__all__ = ["NOT_STARTED", "Compiles", "Listener", "Retried", "RunResult", "Trouble", "Watched", "run"]


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
    retry_cold: bool = False,
    retry_within: float = WITHIN,
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
        retry_cold: where the job fails by itself on a cache that was not empty, put that cache aside, whole, as `clear`
            does, and start the command once more on an empty one: see `RunResult.retried`. Not where a signal from
            outside came, the guard raised, no process imported torch, or others use the cache. With
            `snapshot_on_success` what comes of it takes over the name from the snapshot that was restored, however
            much smaller it is.
        retry_within: seconds from its start in which the job must have failed for that.
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
    _check_retry(retry_cold, retry_within, assert_warm)
    given = _checked_tags(tags, snapshot_on_success)
    find_command(command[0])
    options: dict[str, Any] = {"fallback": fallback or "warn", "carry": carry, "assert_warm": assert_warm}
    troubles = Troubles(strict, listener or Listener())
    cache = JobCache(name, cache_dir, store, troubles, progress)
    saving = None
    if snapshot_on_success and not cache.name:
        troubles.failed("nothing will be saved", UsageError("there is no name", hint="give one with --name"))
    elif snapshot_on_success:
        saving = Saving(cache, given, troubles, progress)
    job = Job(tuple(command), cache, troubles)
    with _variables_kept():
        cache.restore(restore, saving is not None, "the job starts cold" if warmup is None else "warming up first")
        if warmup is not None:
            cache.warm(warmup)
        job.begin(guard, assert_warm)
        with Watching(cache, troubles, watch) as watching:
            job.start(options if guard else None)
        result = job.finish(saving, watching.done)
        if retry_cold and result.job_exit_code:
            retry = Retry(cache, troubles, saving, retry_within, options if guard else None)
            return retry.after(job, result)
        return result


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


def _check_retry(wanted: bool, within: float, assert_warm: bool) -> None:
    if wanted and assert_warm:
        raise UsageError("retry_cold and assert_warm: a cold start misses", hint="leave out one of the two")
    if not within > 0:
        raise UsageError(f"retry_within is {within}: it is a number of seconds above 0")


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
