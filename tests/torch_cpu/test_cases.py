"""Reports from public issue threads, tried with a real torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import EmptyCache
from cachekeeper.verbs.restore import RestoreResult

from .conftest import Filled
from .job import files_in
from .running import Run, check_warm, environment_of
from .running import cachekeeper as command

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("torch")]
RunJob = Callable[..., Run]


def test_a_cache_that_a_job_left_empty(filled: Filled, tmp_path: Path, run_job: RunJob) -> None:
    """vLLM#56879: every directory is there and nothing in it; that is a failure, not a snapshot of nothing."""
    cache = tmp_path / "cache"
    for path in filled.cache.rglob("*") if filled.cache.exists() else ():
        if path.is_dir():
            (cache / path.relative_to(filled.cache)).mkdir(parents=True, exist_ok=True)
    cache.mkdir(exist_ok=True)
    eager = run_job(cache, "scale", environment={"TORCHDYNAMO_DISABLE": "1"})
    assert eager.code == 0 and (eager.hits, eager.misses) == (0, 0)
    with pytest.raises(EmptyCache):
        cachekeeper.snapshot("empty", cache_dir=cache, store=tmp_path / "store", wait=0)
    with pytest.raises(EmptyCache):
        cachekeeper.verify(directory=cache)
    found = cachekeeper.verify("main", live=cache, store=filled.store)
    assert not found.ok and not found.damaged
    done = command("snapshot", "--cache-dir", str(cache), "--store", str(tmp_path / "store"), "--wait", "0")
    assert done.returncode == 5
    assert str(cache) in done.stderr


def test_a_relative_directory_and_a_job_that_moves(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_job: RunJob
) -> None:
    """pytorch#150843: TORCHINDUCTOR_CACHE_DIR=./cache is another directory for a job that goes elsewhere."""
    start, elsewhere, further = (tmp_path / name for name in ("start", "elsewhere", "further"))
    for directory in (start, elsewhere, further):
        directory.mkdir()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "./cache")
    monkeypatch.chdir(start)
    result = cachekeeper.restore("main", store=filled.store)
    assert result.cache_dir == start / "cache"
    assert environment_of(result)["TORCHINDUCTOR_CACHE_DIR"] == str(start / "cache")

    moves = ["sh", "-c", 'cd "$0" && exec "$@"', str(elsewhere)]
    parts = (f"chdir={further}", "scale")
    check_warm(run_job("unused", *parts, environment=environment_of(result), prefix=moves), filled.cold)
    assert [*elsewhere.iterdir(), *further.iterdir()] == []
    monkeypatch.chdir(elsewhere)
    with pytest.raises(EmptyCache) as caught:
        cachekeeper.snapshot("moved", store=filled.store, wait=0)
    assert str(elsewhere / "cache") in caught.value.message


def test_threads_use_a_restored_cache(filled: Filled, restored: RestoreResult, run_job: RunJob) -> None:
    """pytorch#118260, #168042: four threads call first at the same moment; the entries are those of the snapshot."""
    before = set(files_in(restored.cache_dir))
    check_warm(run_job(restored.cache_dir, "threads", environment=environment_of(restored)), filled.cold)
    assert set(files_in(restored.cache_dir)) == before
    assert cachekeeper.verify("main", live=restored.cache_dir, store=filled.store).ok
