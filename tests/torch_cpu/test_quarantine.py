"""`verify --repair` on what torch compiled: what is mended is warm, what is dropped is built again, and only that."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.verbs.restore import RestoreResult
from cachekeeper.verbs.verify import VerifyResult

from .conftest import Filled
from .running import Run, check_warm, environment_of, unchanged_but

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("torch")]
RunJob = Callable[..., Run]


def settle(cache: Path) -> None:
    """Nobody has written into it for a while, as its times say."""
    for path in [cache, *cache.rglob("*")]:
        os.utime(path, (time.time() - 100,) * 2, follow_symlinks=False)


def repair(filled: Filled, cache: Path) -> VerifyResult:
    return cachekeeper.verify("main", live=cache, store=filled.store, repair=True)


def libraries(cache: Path) -> dict[str, Path]:
    return {str(path.relative_to(cache)): path for path in sorted(cache.glob("??/*.main.so"))}


def test_damaged_libraries_are_mended_and_the_job_builds_nothing(
    filled: Filled, restored: RestoreResult, run_job: RunJob
) -> None:
    cache = restored.cache_dir
    cut, flipped, *_ = libraries(cache).items()
    cut[1].write_bytes(cut[1].read_bytes()[:2000])
    data = bytearray(flipped[1].read_bytes())
    data[len(data) // 2] ^= 0x10
    flipped[1].write_bytes(data)
    settle(cache)
    with unchanged_but(cache, cut[0], flipped[0]):
        result = repair(filled, cache)
    assert result.ok and len(result.mended) == 2 and not result.dropped
    assert (Path(result.quarantine or "") / flipped[0]).read_bytes() == data
    check_warm(run_job(cache, environment=environment_of(restored)), filled.cold)


def test_a_damaged_entry_that_no_snapshot_has_is_dropped_and_only_that_is_built_again(
    filled: Filled, restored: RestoreResult, run_job: RunJob
) -> None:
    cache = restored.cache_dir
    saved = libraries(cache).keys()
    grown = run_job(cache, "scale=57", environment=environment_of(restored))
    assert grown.code == 0 and grown.misses > 0 and len(grown.builds) == 1
    [(name, library)] = ((name, path) for name, path in libraries(cache).items() if name not in saved)
    library.write_bytes(b"")
    broken = run_job(cache, "scale=57", environment=environment_of(restored))
    assert broken.code != 0 and "ImportError" in broken.errors

    settle(cache)
    result = repair(filled, cache)
    assert result.ok and result.dropped == {name: "empty file"} and not library.exists()
    evidence = json.loads((Path(result.quarantine or "") / "evidence.json").read_text())
    assert [(file["path"], file["structure"], file["expected"]) for file in evidence["files"]] == [
        (name, "empty file", None)
    ]

    again = run_job(cache, "scale=57", environment=environment_of(restored))
    assert again.code == 0, again.errors
    assert again.outputs == grown.outputs and len(again.builds) == 1 and name in again.new_files
    assert len(again.new_files) <= 3
    everything = run_job(cache, environment=environment_of(restored))
    check_warm(everything, filled.cold)
