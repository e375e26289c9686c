"""Caches carried in and out, and united, on a GPU and on two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import CheckFailed

from .test_gpu import JOB
from .test_warmup import GPUS, two_gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPUS == 0, reason="no NVIDIA GPU"),
    pytest.mark.timeout(550),
]


def run(cache: Path, *arguments: object, environment: dict[str, str] | None = None) -> dict:
    cache.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, str(JOB), *map(str, arguments)],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), **(environment or {})},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(arguments, {**found, "new_files": Counter(name.split("/")[0][:10] for name in found["new_files"])})
    return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the cache of a job, `0`, its Mega-Cache as torch saved it, and a store; `1` of a second GPU."""
    work = tmp_path_factory.mktemp("formats")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda n: run(work / str(n), n, f"save={work}/{n}.mega"), range(min(GPUS, 2))))
    for number in range(min(GPUS, 2)):
        cachekeeper.snapshot(f"rank{number}", cache_dir=work / str(number), store=work / "store")
    return work


def test_torchs_own_mega_cache_imported_and_restored(filled: Path, tmp_path: Path):
    result = cachekeeper.import_cache(filled / "0.mega", name="mega", store=filled / "store")
    print(result.artifacts, result.lacks, result.notes)
    restored = cachekeeper.restore("mega", cache_dir=tmp_path / "cache", store=filled / "store", verify=True)
    found = run(tmp_path / "cache", 0, environment=restored.environment)
    assert found["misses"] == 0 and found["hits"] > 0


def test_a_snapshot_exported_as_a_mega_cache_is_taken_by_torch(filled: Path, tmp_path: Path):
    result = cachekeeper.export("rank0", tmp_path / "out.mega", store=filled / "store")
    print(result.lacks)
    found = run(tmp_path / "cache", 0, f"load={tmp_path}/out.mega")
    assert found["loaded"]["inductor"] > 0 and found["loaded"]["autotune"] > 0
    assert found["misses"] == 0 and found["hits"] > 0


def test_through_a_tar_file(filled: Path, tmp_path: Path):
    cachekeeper.export("rank0", tmp_path / "out.tar.zst", store=filled / "store")
    cachekeeper.import_cache(tmp_path / "out.tar.zst", name="tar", store=tmp_path / "store")
    restored = cachekeeper.restore("tar", cache_dir=tmp_path / "cache", store=tmp_path / "store", verify=True)
    found = run(tmp_path / "cache", 0, environment=restored.environment)
    assert found["misses"] == 0 and found["new_files"] == []


@two_gpus
def test_the_caches_of_two_devices_united(filled: Path, tmp_path: Path):
    """Each device compiled in a directory of its own; the other's graphs are other graphs."""
    store = filled / "store"
    plain = cachekeeper.merge(["rank0", "rank1"], store=store, dry_run=True)
    print(dict(plain.shares), Counter(c.kind for c in plain.conflicts))
    if plain.conflicts:
        with pytest.raises(CheckFailed):
            cachekeeper.merge(["rank0", "rank1"], name="job", store=store)
    cachekeeper.merge(["rank0", "rank1"], name="job", store=store, prefer="first")
    restored = cachekeeper.restore("job", cache_dir=tmp_path / "cache", store=store, verify=True)
    for number in (0, 1):
        found = run(tmp_path / "cache", number, environment=restored.environment)
        assert found["misses"] == 0 and found["hits"] > 0 and found["new_files"] == []
