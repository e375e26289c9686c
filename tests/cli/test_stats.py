"""The command `stats`: the list and one run at 80 columns, JSON, nothing yet."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cachekeeper import runs, telemetry
from cachekeeper.cli.stats import _guard
from cachekeeper.models import Graph
from cachekeeper.telemetry import Compiled, End, Fallback, Frame, Log, Note, Process

from .conftest import Command


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs are kept."""
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def make(age: float, **facts: object) -> runs.RunInfo:
    """A run of two ranks, of which one was killed."""
    began = time.time() - age
    run = runs.begin(("python", "train.py", "--name", "a b"), began=began, ended=began + 41, **facts)
    step, worker = "step (train.py:12)", "worker-1"
    for rank in range(2):
        log = Log(
            Process(4711 + rank, "node-a", began, rank=rank, measures={"tracing": "on"}),
            (
                *(Compiled(began + n, "MainThread", Graph("fx", "hit", f"f{n}", function=step)) for n in range(3)),
                Compiled(began + 4, worker, Graph("fx", "miss", "f9", function=step)),
            ),
            (Frame(began + 4, "MainThread", step, 2.0), Frame(began + 4, worker, step, 1.0)),
            (Fallback(began + 5, worker, step, "recompile limit\x1b[2J"),) * 2,
            (Note(began, worker, "settings differ"),),
            End(began + 40, 7) if rank else None,
        )
        run.directory.joinpath(f"node-a-{rank}.jsonl").write_bytes(telemetry.encode(log))
    return run


def test_the_list(command: Command):
    make(7300, exit_code=0)
    new = make(130, exit_code=137, name="drafter", restored="51d9aa30" + "0" * 56, saved="7c1e04ab" + "0" * 56)
    said = command("stats")
    old = runs.runs()[1]
    assert said.out.splitlines() == [
        "RUN     AGE    EXIT  HIT  MISS  BYPASS  SPENT  FALLBACKS  FROM      SAVED",
        f"{new.id[-6:]}  2 min   137    6     2       0  2.0 s          4  51d9aa30  7c1e04ab",
        "        drafter: python train.py --name 'a b'",
        "        1 of 2 processes did not say that they ended",
        f"{old.id[-6:]}  2 h       0    6     2       0  2.0 s          4  -         -",
        "        python train.py --name 'a b'",
        "        1 of 2 processes did not say that they ended",
    ]
    assert command("stats", "--limit", "1").out.splitlines()[-1] == "and 1 older; --limit shows more"
    assert command("stats", "--quiet").out.split() == [new.id, old.id]


def test_one_run(command: Command):
    run = make(130, exit_code=0, cache_dir="/tmp/c", new_entries=3, notes=("restored late",))
    said = command("stats", "--last")
    assert command("stats", run.id) == command("stats", run.id[-6:-1]) == command("stats", "last") == said
    text = re.sub(r" +\n", "\n", said.out)
    assert f"run          {run.id}   2 min ago\n" in text
    assert "exit         0 after 41 s\n" in text and "restored     nothing\n" in text and "new entries  3\n" in text
    assert "Inductor     6 hit, 2 missed, 0 bypassed\n" in text
    assert "compiling    2.0 s for 4 functions, 2 of them again; 6.0 s over all threads\n" in text
    assert "guard        all 1 measure on\n" in text
    assert "note: restored late\n" in text and "note: settings differ\n" in text
    assert "fallback: step (train.py:12) in worker-1: recompile limit?[2J   (4 times)\n" in text
    assert "note: 7 events had no room" in text
    assert text[text.index("HIT") :].splitlines()[:8] == [
        "HIT  MISS  BYPASS  TRACED  AGAIN  SECONDS  FALLBACKS  PROCESS",
        "  3     1       0       2      1      3.0          2  rank 0, 4711 (no end)",
        "  3     0       0       1      0      2.0          0    MainThread",
        "  0     1       0       1      0      1.0          2    worker-1",
        "  3     1       0       2      1      3.0          2  rank 1, 4712 (ended)",
        "  3     0       0       1      0      2.0          0    MainThread",
        "  0     1       0       1      0      1.0          2    worker-1",
        "fallback: step (train.py:12) in worker-1: recompile limit?[2J   (4 times)",
    ]
    assert "  6     2       0       4      2      6.0          4  step (train.py:12)\n" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_warm_run_is_not_called_compiling(command: Command):
    """Each process traces its functions: only then does it ask the cache."""
    run = runs.begin(("python", "train.py"), ended=time.time(), exit_code=0)
    log = Log(
        Process(4711, "node-a", run.began),
        tuple(Compiled(run.began, "MainThread", Graph(cache, "hit", "f", function="step")) for cache in ("fx", "aot")),
        (Frame(run.began, "MainThread", "step", 13.0),),
    )
    run.directory.joinpath("node-a-0.jsonl").write_bytes(telemetry.encode(log))
    said = command("stats", run.id).out
    assert "tracing      13 s for 1 function, every graph found\n" in said and "ompil" not in said
    missed = replace(log, compiled=(*log.compiled, Compiled(run.began, "MainThread", Graph("aot", "miss", "g"))))
    run.directory.joinpath("node-a-0.jsonl").write_bytes(telemetry.encode(missed))
    assert "compiling    13 s for 1 function\n" in command("stats", run.id).out


def test_how_a_run_ended(command: Command):
    run = make(100, exit_code=None)
    assert "exit         not known, ended after 41 s\n" in command("stats", run.id).out
    runs.update(run, ended=None, host="another")
    assert re.search(r"exit         still running after 10\d s\n", command("stats", run.id).out)
    runs.update(run, ended=None, pid=0, host=os.uname().nodename)
    assert "exit         nobody saw it end, last heard of after 40 s\n" in command("stats", run.id).out


def test_a_run_that_told_nothing(command: Command):
    run = runs.begin(("true",), ended=time.time())
    assert "\nno process has told of a compile: nothing was compiled" in command("stats", run.id).out
    runs.update(run, telemetry=False)
    assert "\ntelemetry was off (CACHEKEEPER_TELEMETRY=0): no process" in command("stats", run.id).out
    run.directory.joinpath("stop-5.json").write_text("{}")
    out = " ".join(command("stats", run.id).out.split())
    assert f"`--assert-warm` ended the job; `cachekeeper explain {run.id[-6:]}` says why it did" in out


def test_what_is_long_is_wrapped(command: Command):
    run = runs.begin(("python", "train.py", *["--long-argument"] * 9), notes=("many words " * 9,))
    process = Process(1, "h", 1.0, measures={"tracing": "cannot: " + "words " * 20})
    fallbacks = tuple(Fallback(1.0, "worker", f"f{n}", "a reason of many words " * 4) for n in range(22))
    log = Log(process, (), (), fallbacks, (Note(1.0, "worker", "settings of this thread differ " * 5),))
    run.directory.joinpath("h-1.jsonl").write_bytes(telemetry.encode(log))
    lines = command("stats", run.id).out.splitlines()
    assert max(map(len, lines)) <= 80
    first = next(n for n, line in enumerate(lines) if line.startswith("fallback: f0 in worker: a reason"))
    assert lines[first + 1].startswith("      ")
    assert sum(line.startswith("fallback: ") for line in lines) == 20
    assert "and 2 more (all of them with --json)" in lines and sum(line.startswith("note: ") for line in lines) == 2


@pytest.mark.parametrize(
    ("measures", "lines"),
    [
        ({}, []),
        ({"a": "on", "b": "on"}, ["all 2 measures on"]),
        ({"a": "on", "b": "cannot: x", "c": "on"}, ["b: cannot: x", "the other 2 measures on"]),
        ({"b": "cannot: x"}, ["b: cannot: x"]),
    ],
)
def test_measures_that_are_on_are_counted(measures: dict[str, str], lines: list[str]):
    assert _guard(measures) == lines


def test_json(command: Command):
    run = make(130, exit_code=0)
    document = command("stats", "--json").json
    assert document["schema"] == "cachekeeper.stats/1" and document["more"] == 0
    [each] = document["runs"]
    assert each["run"]["id"] == run.id and each["run"]["directory"] == str(run.directory)
    assert each["totals"]["caches"]["fx"] == {"hit": 6, "miss": 2, "bypass": 0} and each["crashed"] == 1
    assert document["processes"] == document["functions"] == []
    document = command("stats", "--last", "--json").json
    assert [item["process"]["rank"] for item in document["processes"]] == [0, 1]
    assert document["processes"][0]["threads"][1]["totals"]["misses"] == 1
    assert document["functions"][0]["name"] == "step (train.py:12)"


def test_nothing_yet(command: Command, kept: Path, monkeypatch: pytest.MonkeyPatch):
    said = command("stats")
    assert said.code == 5 and said.out.startswith(f"no runs yet in {kept}\nhint: run the job with `cachekeeper run")
    assert command("stats", "--json").json["runs"] == []
    assert command("stats", "--last").code == 5
    monkeypatch.setenv("CACHEKEEPER_TELEMETRY", "0")
    assert "telemetry is off" in command("stats").out
    kept.write_text("a file is in the way")
    assert command("stats").code == command("stats", "--last").code == 8


def test_what_makes_no_sense(command: Command):
    make(10)
    assert command("stats", "--last", "2").code == 2 and command("stats", "--limit", "0").code == 2
    assert command("stats", "nothing").code == 5 and command("stats", "").code == 2
