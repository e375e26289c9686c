"""`clear` and `move` with real torch: refused under a running job, and warm again after undo and in the new place."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import Busy
from cachekeeper.livecache import LiveCache
from cachekeeper.verbs.clear import bring_back, clear
from cachekeeper.verbs.move import move
from cachekeeper.verbs.restore import RestoreResult
from cachekeeper.verbs.status import status

from .conftest import Filled
from .running import Run, Started, check_warm, environment_of
from .running import cachekeeper as command

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("torch")]
RunJob = Callable[..., Run]


def test_refused_while_a_job_compiles_and_back_after_it(
    compilers: Path, tmp_path: Path, run_job: RunJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHEKEEPER_STORE", str(tmp_path / "store"))
    cache = tmp_path / "inductor"
    cache.mkdir()
    job = Started(compilers, cache, ["block"])
    refusals, cleared = 0, False
    while job.running():
        # Between two graphs nothing may be open: only what torch locks all the while counts.
        with LiveCache(cache) as live:
            compiling = live.lock_held()
        if compiling:
            try:
                clear(cache)
            except Busy as error:
                refusals += 1
                assert error.facts
            else:  # the compilation ended in between
                bring_back(cache, in_use=True)
                cleared = True
        time.sleep(0.05)
    cold = job.finish()
    assert cold.code == 0, cold.errors
    assert refusals > 0 and cold.misses > 0
    print("refused", refusals, "times")
    if cleared:
        run_job(cache, "block")

    result = clear(cache)
    assert result.files > 0 and os.listdir(cache) == []
    bring_back(cache)
    check_warm(run_job(cache, "block"), cold, headers=True)


def test_a_cleared_cache_is_cold_and_what_it_compiles_meanwhile_is_kept(
    filled: Filled, restored: RestoreResult, run_job: RunJob
) -> None:
    environment = environment_of(restored)
    clear(restored.cache_dir)
    run = run_job(restored.cache_dir, "scale", environment=environment)
    assert run.code == 0 and run.misses > 0
    undone = bring_back(restored.cache_dir)
    assert undone.now_in_trash is not None and any(undone.now_in_trash.rglob("*.py"))
    check_warm(run_job(restored.cache_dir, environment=environment), filled.cold)


def test_moved_it_is_warm_in_the_new_place_with_the_old_one_gone(
    filled: Filled, restored: RestoreResult, tmp_path: Path, run_job: RunJob
) -> None:
    result = move(restored.cache_dir, tmp_path / "elsewhere" / "inductor")
    shutil.rmtree(result.trash.parent)
    restored.cache_dir.rmdir()
    run = run_job(result.target, environment=result.environment)
    check_warm(run, filled.cold)
    assert not restored.cache_dir.exists()


def test_status_tells_a_job_that_compiled_from_a_wipe(filled: Filled, restored: RestoreResult, run_job: RunJob) -> None:
    cache, environment = restored.cache_dir, environment_of(restored)
    assert status(cache, store=filled.store).state == "intact"
    check_warm(run_job(cache, environment=environment), filled.cold)
    assert status(cache, store=filled.store).state == "intact"
    assert run_job(cache, "scale=35", environment=environment).misses > 0
    result = status(cache, store=filled.store)
    assert (result.state, result.exit_code) == ("grown", 0), result
    shutil.rmtree(cache / "fxgraph")
    result = status(cache, store=filled.store)
    assert (result.state, result.exit_code) == ("gone", 3), result
    done = command("restore", "main", "--cache-dir", str(cache), "--store", str(filled.store))
    assert done.returncode == 0, done.stderr
    check_warm(run_job(cache, environment=environment), filled.cold)
    assert cachekeeper.verify("main", live=cache, store=filled.store).ok
