"""cachekeeper explain, as a person meets it."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cachekeeper import runs
from cachekeeper.telemetry import Compiled, End, Fallback, Frame, Log, encode
from tests.test_explaining import graph, told

from .conftest import Command


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs are kept."""
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def begun(ago: float, *logs: Log, crashed: bool = False, **facts: object) -> runs.RunInfo:
    now = time.time()
    given = {"began": now - ago, "ended": now, "exit_code": 0, "restored": "7c1e04ab" * 8, **facts}
    run = runs.begin(("python", "train.py", "--steps", "5"), **given)
    for number, log in enumerate(logs):
        whole = log if crashed else replace(log, end=End(1.0))
        run.directory.joinpath(f"host-{number}.jsonl").write_bytes(encode(whole))
    return run


def many(state: str = "miss", **settings: str) -> list:
    names = [f"layer_{number} (model.py:{number})" for number in range(200)]
    return [graph(body=f"    a = torch.ops.aten.op{n}.default(b)\n", function=name, state=state, **settings)
            for n, name in enumerate(names)]  # fmt: skip


def test_one_cause_is_one_line_with_what_to_do(command: Command):
    run = begun(90, told(*many(config_max_autotune="True"), graph(cpp_runtime_thread_count="1")))
    runs.keep_known(run, told(*many("hit"), graph()))
    said = command("explain")
    assert said.code == 0 and said.err == ""
    assert (
        said.out
        == f"""\
run        {run.id}, 1 minute ago: python train.py --steps 5
compared   snapshot 7c1e04ab: 201 graphs known
graphs     0 hit, 201 missed; 6 minutes of 6 minutes compiling for what missed

200 graphs  6 minutes  inductor config max_autotune: False -> True
  of       inference of layer_0 (model.py:0), inference of layer_1 (model.py:1),
           inference of layer_2 (model.py:2) and 197 more
  on       thread MainThread
  to do    set it as the known graphs were compiled with, or warm with the new
           value; for every thread in the environment (TORCHINDUCTOR_...) or
           with torch.compile(options=...)

1 graph         2.0 s  number of CPU threads: 2 -> 1
  of       inference of step (train.py:7)
  on       thread MainThread
  to do    the number of CPU threads is in the key: set OMP_NUM_THREADS alike in
           the warmup and the job (torchrun sets it to 1)

"""
    )


def test_ranks_details_and_what_else_went_wrong(command: Command):
    begun(90, told(graph()))
    known = graph("TensorMetadata(shape=torch.Size([8, 4]), stride=(4, 1))")
    two = [graph(f"TensorMetadata(shape=torch.Size([{size}, 4]), stride=(4, 1))") for size in (9, 10)]
    bypass = graph(cache="aot", state="bypass", reason="Cannot cache a graph with freezing enabled")
    fallback = Fallback(1.0, "worker", "step (train.py:7)", "recompile_limit (8) reached; 0/7: size mismatch")
    logs = [told(*two, bypass, rank=rank, fallbacks=(fallback,) * rank) for rank in range(2)]
    run = begun(30, *logs, crashed=True)
    runs.keep_known(run, told(known))
    out = command("explain").out
    assert "compared   snapshot 7c1e04ab, 1 earlier run: 2 graphs known\n" in out
    assert "graphs     0 hit, 4 missed, 2 bypassed; 8.0 s of 12 s compiling" in out
    assert "4 graphs        8.0 s  size 8 -> 9, 10\n" in out
    assert "  as       input 0: shape (8, 4) -> (9, 4) | input 0: shape (8, 4) -> (10, 4)\n" in out
    assert "  on       thread MainThread; rank 0, 1\n" in out
    assert "  keys     2: several processes or threads asked for the same\n" in out
    assert "2 graphs    bypassed: Cannot cache a graph with freezing enabled\n" in out
    assert "1 time      UNCOMPILED: recompile_limit (8) reached; 0/7: size mismatch\n" in out
    assert "note: 2 of 2 processes did not say that they ended: what was compiled last may" in out
    assert max(map(len, out.splitlines())) <= 80


def test_only_traced_again(command: Command):
    run = begun(30, told(graph(cache="aot", grad_enabled="False"), graph(state="hit")))
    runs.keep_known(run, told(graph(cache="aot"), graph()))
    out = command("explain").out
    assert "graphs     1 hit, 0 missed, 1 traced again;" in out
    assert "grad mode: on -> off\n" in out and "  but      only traced again: Inductor's cache had it\n" in out


def test_no_seconds_are_told_where_none_are_known(command: Command):
    begun(30, told(compiled=(Compiled(1.0, "MainThread", graph(cache="aot")),)))
    assert "\ngraphs     0 hit, 1 missed\n" in command("explain").out


def test_only_the_first_causes_are_shown(command: Command):
    settings = [{f"config_setting_{number:02}": "1"} for number in range(12)]
    run = begun(30, told(*(graph(**each) for each in settings)))
    runs.keep_known(run, told(graph()))
    out = command("explain").out
    assert out.count("inductor config setting_") == 10 and "\nand 2 more causes (all of them with --json)\n" in out
    assert len(command("explain", "--json").json["explanation"]["misses"]) == 12


def test_exit_codes(command: Command):
    said = command("explain")
    assert said.code == 5 and "cachekeeper run" in said.err
    run = begun(30, told(graph()))
    assert command("explain").code == command("explain", run.id[-6:-2]).code == command("explain", "last").code == 0
    assert command("explain", "").code == 2
    assert command("explain", "--exit-code").code == command("explain", "--last", "--exit-code", "--json").code == 3
    assert command("explain", "0" * 8).code == 5 and command("explain", run.id, "--last").code == 2
    begun(1, told(graph(state="hit")))
    assert command("explain", "--exit-code").code == 0


def test_as_json_and_quiet(command: Command):
    run = begun(30, told(graph(), frames=(Frame(0.5, "MainThread", "step (train.py:7)", 4.0),)))
    document = command("explain", "--json").json
    assert document["schema"] == "cachekeeper.explain/1" and document["ok"] is False
    [cause] = document["explanation"]["misses"]
    assert (cause["kinds"], cause["seconds"], cause["graphs"][0]["graph"]["components"]) == (["cold"], 4.0, [])
    assert command("explain", "-q").out == f"{run.id}\n"


def test_nothing_missed(command: Command):
    begun(30, told(graph(state="hit")))
    said = command("explain").out.splitlines()
    assert said[1:] == [
        "compared   only with this run itself: snapshot 7c1e04ab does not list its",
        "           graphs, and no earlier run of this name or script told of any",
        "graphs     1 hit, 0 missed",
        "ok  Nothing missed",
    ]


def test_what_a_run_without_a_snapshot_is_compared_with(command: Command):
    begun(30, told(graph(state="hit")), restored="", name="drafter")
    out = " ".join(command("explain").out.split())
    assert "compared only with this run itself: it restored no snapshot, and no earlier run of this name" in out
    begun(20, told(graph(state="hit")), restored="", name="drafter")
    assert "compared   1 earlier run: 1 graph known; drafter was not restored\n" in command("explain").out


def test_a_job_that_assert_warm_ended(command: Command):
    """One that told nothing else, and one that also told of the miss."""
    bare, told_too = begun(30), begun(20, told(graph()), crashed=True)
    said = '{"graph": "inference of step (train.py:7)", "thread": "worker", "why": ["size 8 -> 9", "dtype a -> b"]}'
    for run in (bare, told_too):
        run.directory.joinpath("stop-5.json").write_text(said)
        said_of_it = command("explain", run.id, "--exit-code")
        ended = "ended      by --assert-warm, as inference of step (train.py:7) missed in thread\n           worker\n"
        assert said_of_it.code == 3 and ended in said_of_it.out
        assert "telemetry" not in said_of_it.out and "did not say" not in said_of_it.out
        why = "why        size 8 -> 9\nwhy        dtype a -> b\n"
        assert (why in said_of_it.out) == (run is bare)
    assert command("explain", bare.id, "--json").json["stopped"]["why"] == ["size 8 -> 9", "dtype a -> b"]


def test_nothing_told(command: Command):
    begun(30)
    out = " ".join(command("explain").out.split())
    assert "graphs none note: no process has told of a compile: nothing was compiled" in out
    assert "Nothing missed" not in out


def test_a_run_that_is_still_going(command: Command):
    begun(30, told(graph(state="hit")), ended=None, exit_code=None, pid=os.getpid())
    out = command("explain").out
    assert "note: the run is still going: this is what it has told so far\n" in out
    assert out.endswith("ok  Nothing missed so far\n")
