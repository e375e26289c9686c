"""The guard in real processes: what it changes and takes back, what it says, what it raises."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cachekeeper import runs
from cachekeeper.telemetry import Log

pytestmark = pytest.mark.torch
JOBS = Path(__file__).with_name("guard_jobs.py")


class Done(NamedTuple):
    """What a job printed, what was said beside, its exit code, and what it told: a log for each guard."""

    said: dict[str, Any]
    stderr: str
    code: int
    logs: list[Log]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(tmp_path / "runs"))

    def run(*arguments: str, **environment: str) -> Done:
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), **environment}
        done = subprocess.run(
            [sys.executable, str(JOBS), *arguments], env=os.environ | variables, capture_output=True, text=True
        )
        logs = [log for one in runs.runs()[:1] for log in runs.logs(one)]
        said = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
        return Done(said, done.stderr, done.returncode, sorted(logs, key=lambda log: log.process.began))

    return run


def test_torch_is_put_back_as_it_was(job):
    done = job("taken_back")
    assert done.code == 0, done.stderr
    assert done.said["left"] == []
    # The one lock is dynamo's own, where dynamo was imported before the guard came.
    assert set(done.said["changed"]) >= {
        *("trace", "is_fx_symbolic_tracing", "is_fx_tracing", "compilation_env", "compile", "backward", "dense"),
        *("start", "trace handlers", "dynamo handlers", "patch_method", "is_compiling", "flags", "modes"),
    }
    assert set(done.said["measures"].values()) == {"on"} and len(done.said["measures"]) == 7
    assert done.said["gone"] is True
    assert "UNCOMPILED" not in done.stderr


def test_what_runs_uncompiled_is_said_or_raised(job):
    done = job("fallbacks")
    assert done.code == 0, done.stderr
    assert done.said["warned"] == ["", "", ""]
    # Each call that would run uncompiled raises, not the first one alone; what is compiled goes on.
    assert done.said["raised"] == ["", "RanUncompiled", "", "RanUncompiled"]
    assert "flex_attention in thread MainThread runs uncompiled: dense" in done.said["dense"]
    assert "(1, 2, 16, 16)" in done.said["dense"]
    lines = [line for line in done.stderr.splitlines() if line.startswith("cachekeeper: UNCOMPILED")]
    assert sum("step (guard_jobs.py:" in line and "recompile_limit (1) reached" in line for line in lines) == 1
    assert sum("flex_attention" in line for line in lines) == 1
    assert sum("called while FX traces it" in line and "<lambda> (guard_jobs.py:" in line for line in lines) == 1
    warned, raised = ([event.function.partition(" ")[0] for event in log.fallbacks] for log in done.logs)
    assert warned == ["step", "flex_attention", "<lambda>"]
    assert raised == ["other", "other", "flex_attention"]


def test_a_worker_lacks_settings_and_it_is_said(job):
    done = job("settings", "look")
    assert done.code == 0, done.stderr
    assert done.said == {"MainThread": True, "worker": False, "own": False, "pool_0": False}
    said = [line for line in done.stderr.splitlines() if "SETTINGS" in line]
    assert len(said) == 1  # once; and what a thread has set itself is its own business
    there, here = "is False in the thread that started this one, True here", "(in thread worker)"
    assert f"torch._inductor.config.epilogue_fusion {there}" in said[0] and here in said[0]
    assert len(done.logs[0].notes) == 2


def test_settings_are_carried_to_a_worker(job):
    done = job("settings", "carry")
    assert done.said == {"MainThread": True, "worker": True, "own": False, "pool_0": True}
    assert done.stderr.count("True here; carried over") == 1
    assert len(done.logs[0].notes) == 2


def test_a_backward_that_cannot_be_compiled(job):
    done = job("no_backward")
    assert done.said["loss"] == pytest.approx(4 * math.sin(2))
    assert "no lowering for a test" in done.said["raised"]


def test_compiles_are_told_whatever_torch_logs(job):
    """Cold, then warm: a forward and its backward, each with what its key is made of."""
    for state, aot in (("miss", "miss"), ("hit", "hit")):
        done = job("told")
        assert done.code == 0
        (log,) = done.logs
        graphs = [event.graph for event in log.compiled]
        assert sorted((graph.cache, graph.state) for graph in graphs) == [("aot", aot), ("fx", state), ("fx", state)]
        of_inductor = [graph for graph in graphs if graph.cache == "fx"]
        assert {graph.direction for graph in of_inductor} == {"forward", "backward"}
        assert all(len(graph.components) > 100 and graph.key for graph in of_inductor)
        assert {frame.function.partition(" ")[0] for frame in log.frames} == {"<lambda>"}
        assert log.end is not None and log.end.dropped == 0
        assert set(log.process.measures.values()) == {"on"}


def test_of_the_script_and_the_run_the_stricter_holds(job):
    assert job("stricter").said["found"] == [["warn", False], ["error", True], ["off", False]]


def test_a_job_that_must_be_warm(job):
    cold = job("warm")
    assert cold.code == 3
    (log,) = cold.logs
    assert [(event.graph.cache, event.graph.state) for event in log.compiled] == [("aot", "miss")]
    assert log.end is not None
    assert "NOT WARM" in cold.stderr and "<lambda> (guard_jobs.py:" in cold.stderr
