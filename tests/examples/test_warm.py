"""The warmup examples, from beginning to end on the CPU: warmed and proved, saved, restored elsewhere, and run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cachekeeper.repository import open_repository

from ..conftest import _PREFIXES

REPOSITORY = Path(__file__).parents[2]
TRANSFORMER = REPOSITORY / "examples" / "warm_transformer.py"
DRAFTER = REPOSITORY / "examples" / "warm_flex_drafter.py"
TORCH = [pytest.mark.torch, pytest.mark.xdist_group("examples")]
ON_CPU = ("--mode", "infer", "--shape", "128", "--shape", "256")


@dataclass(frozen=True)
class Warmed:
    """A cache that was warmed and saved, and restored into another directory; the first one is gone."""

    code: int
    said: Mapping[str, Any]
    restored: Path
    environment: Mapping[str, str]

    def steps(self, process: str) -> dict[str, Any]:
        return {f"{step['mode']} {step['shape']}": step for step in self.said[process]}


def environment(work: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIXES)}
    own = {"CACHEKEEPER_STORE": str(work / "store"), "PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": ""}
    return kept | own


def start(*arguments: object, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=env,
        cwd=Path(env["CACHEKEEPER_STORE"]).parent,
        capture_output=True,
        text=True,
    )
    print(done.stdout[-2000:], done.stderr[-4000:], sep="\n")
    return done


def job(*arguments: object, env: Mapping[str, str]) -> dict[str, Any]:
    """What a job printed."""
    done = start(*arguments, env=env)
    assert done.returncode == 0
    said = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(said, dict)
    return said


def files_in(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file() and path.suffix != ".lock"}


def warm(work: Path, example: Path, *plan: str) -> Warmed:
    """Warm, save, and restore elsewhere."""
    if not shutil.which("g++"):
        pytest.skip("no g++")
    env, cache, restored = environment(work), work / "cache", work / "restored"
    keeper = ("-m", "cachekeeper")
    done = start(
        *keeper, "warmup", f"{example}:step", *plan, "--cache-dir", cache, "--snapshot", "it", "--json", env=env
    )
    said = json.loads(done.stdout or "{}")
    if done.returncode == 0:
        shutil.rmtree(cache)
        back = start(*keeper, "restore", "it", "--cache-dir", restored, "--verify", "--json", env=env)
        assert back.returncode == 0
        env |= json.loads(back.stdout)["environment"]
    return Warmed(done.returncode, said, restored, env)


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Warmed:
    return warm(tmp_path_factory.mktemp("transformer"), TRANSFORMER)


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Warmed:
    return warm(tmp_path_factory.mktemp("drafter"), DRAFTER, "--device", "cpu", *ON_CPU)


def graphs(step: Mapping[str, Any], state: str) -> int:
    return sum(graph["state"] == state for graph in step["graphs"])


class TestTransformer:
    pytestmark = TORCH

    def test_the_warmup_is_proved_and_saved(self, transformer: Warmed) -> None:
        assert transformer.code == 0
        assert transformer.said["doubts"] == {} and transformer.said["saved"]["name_moved"]
        proved = {f"{step['mode']} {step['shape']}": step for step in transformer.said["proof"]["steps"]}
        assert list(proved) == ["train 2x64", "train 4x128", "infer 2x64", "infer 4x128"]
        assert all(step["graphs"] > 0 for step in proved.values())
        assert proved["train 2x64"]["hits"] == 2 and proved["infer 2x64"]["hits"] == 1

    def test_what_its_keys_were_made_of_is_in_the_snapshot(self, transformer: Warmed) -> None:
        log = open_repository(transformer.environment["CACHEKEEPER_STORE"]).telemetry(
            transformer.said["saved"]["snapshot"]["id"]
        )
        assert log is not None
        kept = {event.graph.key: event.graph for event in log.compiled if event.graph.cache == "fx"}
        assert sorted(graph.direction for graph in kept.values()) == ["backward", "forward", "inference"]
        assert all(len(graph.components) > 100 for graph in kept.values())

    def test_one_graph_serves_both_shapes(self, transformer: Warmed) -> None:
        cold = transformer.steps("warmed")
        assert graphs(cold["train 2x64"], "miss") > 0 and graphs(cold["infer 2x64"], "miss") > 0
        assert cold["train 4x128"]["graphs"] == cold["infer 4x128"]["graphs"] == []
        assert not any(step["graph_breaks"] or step["fallbacks"] or step["notes"] for step in cold.values())

    def test_the_job_misses_nothing_on_what_was_restored(self, transformer: Warmed) -> None:
        before = files_in(transformer.restored)
        said = job(TRANSFORMER, "--steps", "40", env=transformer.environment)
        assert (said["hits"], said["misses"], said["bypasses"]) == (3, 0, 0)
        assert files_in(transformer.restored) == before
        first, last = said["loss"]
        assert last < first - 1 and said["tok_s"] > 0


class TestDrafter:
    pytestmark = TORCH

    def test_each_shape_has_its_graph(self, drafter: Warmed) -> None:
        assert drafter.code == 0
        cold = drafter.steps("warmed")
        assert list(cold) == ["infer 128", "infer 256"]
        assert all(graphs(step, "miss") == 2 for step in cold.values())
        assert [step["hits"] for step in drafter.said["proof"]["steps"]] == [1, 1]
        assert not any(step["graph_breaks"] or step["fallbacks"] or step["notes"] for step in cold.values())

    def test_the_job_misses_nothing_on_what_was_restored(self, drafter: Warmed) -> None:
        before = files_in(drafter.restored)
        said = job(DRAFTER, *ON_CPU, "--steps", "4", env=drafter.environment)
        assert (said["hits"], said["misses"], said["bypasses"]) == (2, 0, 0)
        assert said["dense_calls"] == 0 and said["devices"]["cpu"]["infer_tok_s"] > 0
        assert files_in(drafter.restored) == before

    def test_attention_that_runs_dense_is_told(self, tmp_path: Path) -> None:
        env = environment(tmp_path) | {"TORCHDYNAMO_DISABLE": "1", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
        done = start(DRAFTER, *ON_CPU, "--steps", "1", env=env)
        assert done.returncode == 1
        # Two layers, the two shapes of the main thread and one of the worker.
        assert json.loads(done.stdout.splitlines()[-1])["dense_calls"] == 2 * 3

    def test_the_plan_is_of_training_and_drafting_up_to_8192_tokens(self, tmp_path: Path) -> None:
        arguments = ("warmup", f"{DRAFTER}:step", "--device", "cpu", "--dry-run", "--json")
        steps = job("-m", "cachekeeper", *arguments, env=environment(tmp_path))["steps"]
        shapes = ["512", "1024", "2048", "4096", "8192"]
        assert steps == [["cpu", mode, shape] for mode in ("train", "infer") for shape in shapes]
