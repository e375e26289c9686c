"""The guard with real torch: what fails without it passes with it. `python -m tests.guard.stress` does more."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ..guard.stacks import cause
from ..guard.stress import Result, Row, one, table
from ..guard.stress_job import Round

TORCH = [
    pytest.mark.torch,
    pytest.mark.xdist_group("guard-threads"),
    pytest.mark.skipif(not shutil.which("g++"), reason="no g++"),
]
FX = "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function"


def go(scenario: str, guard: str, cache: Path, threads: int = 3) -> Result:
    round_ = Round(scenario, threads, ("cpu",), guard, deadline=150, functions=("mlp",), shapes=(16, 32))
    result = one(Row(sys.executable, "warm", round_), cache)
    print(scenario, guard, result.seconds, result.problems[:5], result.said, result.stderr[-1500:], sep="\n")
    return result


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For those that do not ask what a cache holds: the libraries in it save time."""
    return tmp_path_factory.mktemp("threads") / "cache"


class TestThreads:
    pytestmark = TORCH

    def test_a_tracer_breaks_those_who_train_but_not_with_the_guard(self, cache: Path) -> None:
        without, guarded = (go("beside-tracer", guard, cache) for guard in ("off", "on"))
        assert any(problem.startswith((FX, "AssertionError: CURRENT_PATCHER")) for problem in without.problems)
        assert guarded.problems == []
        # Both trainers, with what they call, twice; one of them has both shapes.
        assert guarded.said["facts"]["compared"] == 2 * (1 + 2)
        assert guarded.said["facts"]["sample_gradients"] > 0
        assert "cannot" not in str(guarded.said["measures"])

    def test_the_flag_is_not_left_set(self, cache: Path) -> None:
        without, guarded = (go("interleaved", guard, cache) for guard in ("off", "on"))
        assert without.said["facts"]["flag_left_set"] and any(FX in problem for problem in without.problems)
        assert not guarded.said["facts"]["flag_left_set"] and guarded.problems == []


FILE = "/site-packages/torch/x.py"


def stack(number: int, *frames: tuple[str, str]) -> Mapping[str, Any]:
    return {"id": number, "name": f"thread {number}", "frames": [(FILE, 1, name, line) for name, line in frames]}


def test_the_cause_of_a_hang_is_named() -> None:
    compiling = stack(1, ("_engine_run_backward", "run_backward("), ("create_joint", "grad("), ("compile_inner", "..."))
    backward = stack(2, ("_backward_impl", "with compile_lock:"), ("backward", "f(args)"))
    elsewhere = {"id": 3, "name": "main", "frames": [("/lib/threading.py", 1, "join", "lock.acquire()")]}
    assert cause([compiling, backward, elsewhere], owner=1) == (
        "thread 1 holds Dynamo's compile lock and waits for autograd's thread while it traces a backward; "
        "thread 2 waits for a lock (with compile_lock:) to compile a backward"
    )
    assert cause([elsewhere], owner=None) == "no thread is in torch"


def test_a_round_is_bad_where_anything_went_wrong() -> None:
    row = Row("python", "warm", Round("train", 2, ("cpu",), "on", 1.0, ("mlp",), (1,)))
    clean = {"outcome": "finished", "torch": "2", "calls": 3, "errors": [], "uncompiled": {}, "wrong": []}
    graphs = {"graphs": {"hit": 0, "miss": 0}, "cpu_seconds": 1.0}
    said: list[Mapping[str, Any]] = [
        clean,
        {**clean, "outcome": "hung", "cause": "both wait"},
        {**clean, "errors": [{"type": "E"}]},
        {**clean, "uncompiled": {"trainer 0: mlp": 2}},
        {**clean, "wrong": ["off by 1"]},
        {},
    ]
    results = [Result(row, 1.0, 0, {**one, **graphs} if one else {}, "Killed") for one in said]
    assert [result.problems for result in results] == [
        [],
        ["hung: both wait"],
        ["E"],
        ["uncompiled: mlp"] * 2,
        ["wrong: off by 1"],
        ["died with 0: Killed"],
    ]
    head, line = table(results).splitlines()
    found = dict(zip(head.split(), line.split(), strict=False))
    assert (found["rounds"], found["bad"], found["errors/calls"], found["hung"]) == ("6", "5", "1/15", "2")
