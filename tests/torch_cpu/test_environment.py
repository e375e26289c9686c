"""What `restore` says about an environment is what torch does in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import EnvironmentMismatch

from .conftest import Filled
from .running import Run, check_warm, environment_of
from .running import cachekeeper as command

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("torch")]
RunJob = Callable[..., Run]

DIFFERENT = {
    "OMP_NUM_THREADS=1": "threads",
    "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES=0": "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES",
    "TORCH_COMPILE_CACHE_KEY_TAG=other": "TORCH_COMPILE_CACHE_KEY_TAG",
}
HARMLESS = {"TORCH_LOGS": "recompiles", "TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTHONHASHSEED": "7"}


@pytest.mark.parametrize("setting", DIFFERENT)
def test_a_difference_that_is_refused_is_a_miss(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_job: RunJob, setting: str
) -> None:
    monkeypatch.setenv(*setting.split("="))
    with pytest.raises(EnvironmentMismatch) as caught:
        cachekeeper.restore("main", cache_dir=tmp_path / "new", store=filled.store)
    assert [fact.split()[0] for fact in caught.value.facts] == [DIFFERENT[setting]]
    assert not (tmp_path / "new").exists()
    forced = cachekeeper.restore("main", cache_dir=tmp_path / "new", store=filled.store, allow_mismatch=True)
    run = run_job(tmp_path / "new", "scale", environment=environment_of(forced))
    assert run.code == 0, run.errors
    assert run.hits == 0 and run.misses > 0
    assert any(path.startswith("fxgraph/") for path in run.new_files)
    assert run.outputs.items() <= filled.cold.outputs.items()


def test_differences_that_are_not_refused_are_hits(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_job: RunJob
) -> None:
    for name, value in HARMLESS.items():
        monkeypatch.setenv(name, value)
    result = cachekeeper.restore("main", cache_dir=tmp_path / "new", store=filled.store)
    assert result.comparison and result.comparison.must == ()
    check_warm(run_job(tmp_path / "new", "scale", environment=environment_of(result)), filled.cold)


def test_the_command_says_which_fact(filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    done = command("restore", "main", "--store", str(filled.store), "--cache-dir", str(tmp_path / "new"))
    assert done.returncode == 4
    assert "error[environment-mismatch]" in done.stderr
    assert "threads" in done.stderr
