"""What can only be claimed on a GPU. Skipped without one; `python -m pytest tests/gpu -s` prints the figures."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cachekeeper

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU"),
    pytest.mark.timeout(550),
]
JOB = Path(__file__).with_name("job.py")


def run_job(cache: Path, environment: dict[str, str] | None = None, device: int = 0) -> dict:
    own = {"TORCHINDUCTOR_CACHE_DIR": str(cache), **(environment or {})}
    done = subprocess.run(
        [sys.executable, str(JOB), str(device)], env={**os.environ, **own}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps({**result, "new_files": len(result["new_files"])}))
    return result


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict]:
    """A cache that a job filled, the store with its snapshot, and what the job printed."""
    work = tmp_path_factory.mktemp("gpu")
    cold = run_job(work / "cache")
    assert cold["misses"] > 0 and cold["new_files"]
    result = cachekeeper.snapshot("job", cache_dir=work / "cache", store=work / "store")
    header = result.snapshot.header
    print(dict(header.counts), dict(header.triton_dirs), header.targets, header.fingerprint.id)
    print(cachekeeper.verify(directory=work / "cache").damaged)
    assert header.entries_of("triton") > 0 and header.targets
    return work / "cache", work / "store", cold


def check_warm(result: dict, cold: dict) -> None:
    assert result["misses"] == 0 and result["hits"] > 0
    assert result["new_files"] == []
    assert result["value"] == pytest.approx(cold["value"], rel=1e-3)


def test_the_fingerprint_agrees_with_torch() -> None:
    from cachekeeper.verbs.fingerprint import fingerprint

    report = fingerprint(deep=True)
    for check in report.deep:
        print(check)
    assert report.agrees


def test_restored_to_the_same_directory(warm: tuple[Path, Path, dict], tmp_path: Path) -> None:
    cache, store, cold = warm
    cache.rename(tmp_path / "lost")
    try:
        result = cachekeeper.restore("job", cache_dir=cache, store=store, verify=True)
        check_warm(run_job(cache, result.environment), cold)
    finally:
        shutil.rmtree(cache, ignore_errors=True)
        (tmp_path / "lost").rename(cache)


def test_restored_elsewhere_with_the_old_directory_gone(warm: tuple[Path, Path, dict], tmp_path: Path) -> None:
    cache, store, cold = warm
    cache.rename(tmp_path / "lost")
    try:
        result = cachekeeper.restore("job", cache_dir=tmp_path / "new", store=store, verify=True)
        check_warm(run_job(tmp_path / "new", result.environment), cold)
        assert not cache.exists()  # torch alone would write autotune results there
    finally:
        shutil.rmtree(cache, ignore_errors=True)
        (tmp_path / "lost").rename(cache)


def test_restored_elsewhere_with_the_old_directory_damaged(warm: tuple[Path, Path, dict], tmp_path: Path) -> None:
    """Nothing may be read from where the cache was: every file there is emptied."""
    cache, store, cold = warm
    shutil.copytree(cache, tmp_path / "good")
    for path in cache.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    try:
        result = cachekeeper.restore("job", cache_dir=tmp_path / "new", store=store, verify=True)
        check_warm(run_job(tmp_path / "new", result.environment), cold)
    finally:
        shutil.rmtree(cache)
        (tmp_path / "good").rename(cache)


def test_ranks_that_filled_a_directory_each(tmp_path: Path) -> None:
    """Two processes, a GPU each, as torchrun starts them: a restored job names one TRITON_CACHE_DIR for both."""
    if int(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ")) < 2:
        pytest.skip("needs two GPUs")
    cold = [run_job(tmp_path / "cache", device=device) for device in (0, 1)]
    header = cachekeeper.snapshot("ranks", cache_dir=tmp_path / "cache", store=tmp_path / "store").snapshot.header
    print(dict(header.triton_dirs))
    assert set(header.triton_dirs) == {"triton/0", "triton/1"}
    (tmp_path / "cache").rename(tmp_path / "lost")
    result = cachekeeper.restore("ranks", cache_dir=tmp_path / "new", store=tmp_path / "store")
    for device in (0, 1):
        check_warm(run_job(tmp_path / "new", result.environment, device), cold[device])


def test_a_copied_cache_reads_the_old_directory(warm: tuple[Path, Path, dict], tmp_path: Path) -> None:
    """What restoring prevents: the groups of a cache moved by hand point to where it was."""
    cache, _, _ = warm
    copy = shutil.copytree(cache, tmp_path / "copy")
    damaged = cachekeeper.verify(directory=copy).damaged
    assert damaged and all("points to another directory" in reason for reason in damaged.values())


def test_an_emptied_cubin_is_found_and_mended(warm: tuple[Path, Path, dict], tmp_path: Path) -> None:
    _, store, cold = warm
    result = cachekeeper.restore("job", cache_dir=tmp_path / "new", store=store)
    cubin = next((tmp_path / "new").rglob("*.cubin"))
    cubin.write_bytes(b"")
    assert not cachekeeper.verify("job", live=tmp_path / "new", store=store).ok
    mended = cachekeeper.restore("job", cache_dir=tmp_path / "new", store=store)
    assert len(mended.mended) == 1
    check_warm(run_job(tmp_path / "new", result.environment), cold)
