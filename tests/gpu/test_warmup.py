"""Warmups on a GPU, and on two: what serves what. `python -m pytest tests/gpu/test_warmup.py -s` prints the figures."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.verbs.warmup import WarmupResult

GPUS = (
    len(subprocess.run(["nvidia-smi", "-L"], capture_output=True).stdout.splitlines())
    if shutil.which("nvidia-smi")
    else 0
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPUS == 0, reason="no NVIDIA GPU"),
    pytest.mark.timeout(550),
]
TARGET = f"{Path(__file__).with_name('drafter.py')}:step"
two_gpus = pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")


def shown(result: WarmupResult) -> WarmupResult:
    for word, reports in (("cold", result.warmed), ("warm", result.proved)):
        for r in reports:
            graphs = [r.number_of("fx", state) for state in ("hit", "miss", "bypass")]
            kernels = (r.triton_hits, r.triton_built)
            print(word, r, f"{r.seconds:.1f} s", r.new_entries, graphs, kernels, r.peak_memory, r.left_memory)
    print(result.doubts)
    return result


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[WarmupResult, Path]:
    """A warmup of one device, and the store with its snapshot."""
    work = tmp_path_factory.mktemp("one")
    result = cachekeeper.warmup(TARGET, devices=["cuda:0"], cache_dir=work / "cache", name="one", store=work / "store")
    return shown(result), work / "store"


def test_a_warmup_is_proved_and_saved(one: tuple[WarmupResult, Path]):
    result, store = one
    assert result.ok and result.proof and result.saved
    assert [str(step) for step in result.warmed] == [
        "cuda:0 train 256",
        "cuda:0 train 512",
        "cuda:0 infer 256",
        "cuda:0 infer 512",
    ]
    for cold, warm in zip(result.warmed, result.proved, strict=True):
        expected = 2 if cold.mode == "train" else 1
        assert cold.number_of("fx", "miss") == warm.number_of("fx", "hit") == expected
        assert warm.number_of("fx", "miss") == warm.number_of("aot", "miss") == 0
        assert cold.new_files and not warm.new_files and not warm.triton_built and not warm.compilers
        assert cold.calls == warm.calls == expected
        assert 0 < warm.left_memory < warm.peak_memory < 1 << 30
        assert {graph.device for graph in warm.graphs if graph.cache == "fx"} == {"cuda:0"}
    assert cachekeeper.show("one", store=store).snapshot.header.proof == result.proof


def test_its_snapshot_is_proved_again_elsewhere(one: tuple[WarmupResult, Path]):
    found = cachekeeper.replay("one", TARGET, store=one[1])
    assert found.ok and len(found.replayed) == 4


def test_another_shape_shows_as_a_miss(one: tuple[WarmupResult, Path]):
    found = cachekeeper.replay("one", TARGET, devices=["cuda:0"], modes=["infer"], shapes=[768], store=one[1])
    print(found.doubts)
    assert not found.ok and list(found.doubts) == ["cuda:0 infer 768"]


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_one_mode_does_not_serve_the_other(mode: str, tmp_path: Path):
    result = shown(
        cachekeeper.warmup(
            TARGET,
            devices=["cuda:0"],
            modes=[mode],
            shapes=[256],
            cache_dir=tmp_path / "cache",
            name="half",
            store=tmp_path / "store",
        )
    )
    assert result.ok
    other = {"train": "infer", "infer": "train"}[mode]
    found = cachekeeper.replay("half", TARGET, modes=[other], store=tmp_path / "store")
    print(found.doubts)
    assert [report.mode for report in found.replayed] == [other]
    assert not found.ok and "missed" in found.doubts[f"cuda:0 {other} 256"][0]


@two_gpus
def test_a_second_device_is_not_served_by_the_first(one: tuple[WarmupResult, Path]):
    found = cachekeeper.replay("one", TARGET, devices=["cuda:0", "cuda:1"], store=one[1])
    print(found.doubts)
    assert {step.split()[0] for step in found.doubts} == {"cuda:1"}
    assert len(found.doubts) == 4


@two_gpus
@pytest.mark.parametrize("apart", [False, True])
def test_both_devices_warmed(apart: bool, tmp_path: Path):
    result = shown(
        cachekeeper.warmup(
            TARGET,
            devices=["cuda:0", "cuda:1"],
            shapes=[256],
            per_device_process=apart,
            in_thread=True,
            cache_dir=tmp_path / "cache",
        )
    )
    assert result.ok and len(result.proved) == 4
    for cold, warm in zip(result.warmed, result.proved, strict=True):
        assert cold.number_of("fx", "miss") > 0 and warm.number_of("fx", "miss") == 0
        assert {graph.device for graph in cold.graphs if graph.cache == "fx"} == {cold.device}


def test_what_is_left_behind_is_seen(tmp_path: Path):
    result = cachekeeper.warmup(
        TARGET.replace(":step", ":leaky"),
        devices=["cuda:0"],
        modes=["infer"],
        shapes=[256],
        cache_dir=tmp_path / "cache",
        prove=False,
    )
    assert 1 << 30 < result.warmed[0].left_memory < 2 << 30


@pytest.mark.skipif(sys.version_info < (3, 12), reason="noticed from Python 3.12 on")
def test_a_function_that_runs_as_plain_python_is_seen(tmp_path: Path):
    result = cachekeeper.warmup(
        TARGET.replace(":step", ":eager"), devices=["cuda:0"], modes=["infer"], cache_dir=tmp_path / "cache"
    )
    print(result.doubts)
    assert not result.ok
    assert ["'plain' (" in line for line in result.doubts["cuda:0 infer"]] == [True]


def test_dense_attention_is_seen(tmp_path: Path):
    result = cachekeeper.warmup(
        TARGET.replace(":step", ":dense"), devices=["cuda:0"], modes=["infer"], cache_dir=tmp_path / "cache"
    )
    assert not result.ok and "runs uncompiled: dense" in result.doubts["cuda:0 infer"][0]
