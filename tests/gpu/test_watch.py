"""A cache of kernels for a GPU that is wiped under a job, cleaned file by file, damaged and moved: it stays whole.

Skipped without a GPU; `python -m pytest tests/gpu/test_watch.py -s` prints the figures.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.livecache import users_of
from cachekeeper.verbs.clear import bring_back

from .test_gpu import JOB, check_warm, run_job

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU"),
    pytest.mark.timeout(550),
]
_PATIENCE = 60.0
_ROUNDS = 2


class Restored:
    """A restored cache, its store, and what the job printed that filled it."""

    def __init__(self, cache: Path, store: Path, cold: dict, environment: dict[str, str]) -> None:
        self.cache, self.store, self.cold, self.environment = cache, store, cold, environment

    def missing(self) -> tuple[str, ...]:
        return cachekeeper.verify("job", live=self.cache, store=self.store).missing

    def becomes_whole(self) -> float:
        """Seconds until every file of the snapshot is there."""
        began = time.monotonic()
        while time.monotonic() - began < _PATIENCE:
            if self.cache.exists() and not self.missing():
                return time.monotonic() - began
            time.sleep(0.05)
        raise AssertionError(f"not whole: {self.missing()[:5]}")

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[dict]]:
        """Watch in the block; afterwards the list has what the watch told."""
        command = [sys.executable, "-m", "cachekeeper", "watch", "--json", "--interval", "5"]
        places = ["--cache-dir", str(self.cache), "--store", str(self.store)]
        told: list[dict] = []
        with subprocess.Popen([*command, *places], stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout
            try:
                first = json.loads(watch.stdout.readline())
                assert first["event"] == "watching", first
                yield told
            finally:
                watch.terminate()
                told += map(json.loads, watch.stdout)
                print("\n".join(event["text"] for event in told[-20:]))
        events = [event["event"] for event in told]
        print({event: events.count(event) for event in sorted(set(events))})

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, **self.environment, "TORCHINDUCTOR_CACHE_DIR": str(self.cache)}
        command = [sys.executable, str(JOB), "0", *words]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    work = tmp_path_factory.mktemp("gpu")
    cold = run_job(work / "cache")
    cachekeeper.snapshot("job", cache_dir=work / "cache", store=work / "store")
    return work / "store", cold


@pytest.fixture
def restored(filled: tuple[Path, dict], tmp_path: Path) -> Restored:
    store, cold = filled
    result = cachekeeper.restore("job", cache_dir=tmp_path / "live", store=store, verify=True)
    assert result.environment
    return Restored(tmp_path / "live", store, cold, result.environment)


def ended(job: subprocess.Popen[str]) -> dict:
    out, errors = job.communicate(timeout=300)
    assert job.returncode == 0, errors[-3000:]
    return dict(json.loads(out.splitlines()[-1]))


def test_wiped_under_a_running_job(restored: Restored) -> None:
    for delay in (0.0, 1.0, 2.5):
        with restored.watched() as told:
            job = restored.start()
            while job.poll() is None and not any(users_of(restored.cache)):
                time.sleep(0.02)
            time.sleep(delay)
            shutil.rmtree(restored.cache, ignore_errors=True)  # the job may write into it meanwhile
            whole = restored.becomes_whole()
            result = ended(job)
            assert not restored.missing()
        print(
            f"wiped {delay} s after the job's first read: whole {whole:.2f} s later; the job: {result['misses']} misses"
        )
        assert any(event["event"] == "put-back" for event in told)
        check_warm(run_job(restored.cache, restored.environment), restored.cold)


def test_kernels_vanish_at_random_under_jobs_that_compile(restored: Restored, tmp_path: Path) -> None:
    """Triton writes beside what is put back; what is new is kept, and no job fails."""
    chance = random.Random(0)
    saved = sorted(kernel.name for kernel in (restored.cache / "triton" / "0").glob("*"))
    with restored.watched() as told:
        for number in range(_ROUNDS):
            job = restored.start(f"length={512 + 128 * number}")
            while job.poll() is None:
                for name in chance.sample(saved, min(3, len(saved))):
                    with contextlib.suppress(OSError):  # at once: of a kernel that lacks its cubin alone, Triton raises
                        (restored.cache / "triton" / "0" / name).rename(tmp_path / f"{name}-{time.monotonic_ns()}")
                time.sleep(0.2)
            ended(job)
        restored.becomes_whole()
    assert any(event["event"] == "put-back" for event in told)
    check_warm(run_job(restored.cache, restored.environment), restored.cold)
    again = ended(restored.start("length=512"))  # what the first of these jobs compiled is there, too
    assert (again["misses"], again["new_files"]) == (0, [])


def test_a_flipped_bit_in_a_cubin_is_mended(restored: Restored) -> None:
    cubin = max((restored.cache / "triton").rglob("*.cubin"), key=lambda path: path.stat().st_size)
    data = bytearray(cubin.read_bytes())
    data[len(data) // 2] ^= 1
    cubin.write_bytes(data)
    found = cachekeeper.verify("job", live=restored.cache, store=restored.store, repair=True)
    assert found.ok and len(found.mended) == 1 and found.quarantine
    assert (found.quarantine / cubin.relative_to(restored.cache)).read_bytes() == data
    check_warm(run_job(restored.cache, restored.environment), restored.cold)


def test_moved_and_cleared_and_back(restored: Restored, tmp_path: Path) -> None:
    moved = cachekeeper.move(restored.cache, tmp_path / "there")
    assert moved.environment
    shutil.rmtree(moved.trash)
    check_warm(run_job(tmp_path / "there", moved.environment), restored.cold)
    cachekeeper.clear(tmp_path / "there")
    assert not list((tmp_path / "there").iterdir())
    bring_back(tmp_path / "there")
    check_warm(run_job(tmp_path / "there", moved.environment), restored.cold)
