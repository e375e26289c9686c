"""What runs come to: numbers by cache, process, thread and function; crashes; nothing there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import runs, telemetry
from cachekeeper.errors import NotFound, UsageError
from cachekeeper.models import Graph
from cachekeeper.runs.totals import by_function, by_thread, totals
from cachekeeper.telemetry import Compiled, End, Event, Fallback, Frame, Log, Note, Process

BEGAN = 1_800_000_000.0


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs are kept."""
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def asked(
    at: float, cache: str, state: str, function: str = "step (train.py:3)", thread: str = "MainThread"
) -> Compiled:
    """An answer of a cache, so many seconds after the beginning."""
    key = "" if state == "bypass" else f"{cache[0]}{function}{at}"
    return Compiled(
        BEGAN + at, thread, Graph(cache, state, key, function=function, components=("[a] gm: x", "[b] y: z"))
    )


def frame(at: float, seconds: float, function: str = "step (train.py:3)", thread: str = "MainThread") -> Frame:
    """A compile that took so many seconds and ended so many after the beginning."""
    return Frame(BEGAN + at, thread, function, seconds)


TRAINING = (
    asked(1, "aot", "miss"),
    asked(2, "fx", "miss"),
    frame(3, 3.0),
    asked(4, "aot", "bypass", "eval (train.py:9)", "worker"),
    asked(4, "fx", "hit", "eval (train.py:9)", "worker"),
    frame(4, 2.0, "eval (train.py:9)", "worker"),
    replace(frame(2.5, 1.0), backward=True),
    frame(7, 0.5),
    Fallback(BEGAN + 8, "worker", "eval (train.py:9)", "recompile limit"),
    Note(BEGAN + 8, "worker", "settings differ"),
)


def log(*events: Event, pid: int = 1 << 40, rank: int | None = None, measures: str = "on") -> Log:
    """What a process told; by default one that is not there any more."""
    process = Process(pid, os.uname().nodename, BEGAN, rank=rank, measures={"tracing": measures})
    encoder = telemetry.Encoder()
    return telemetry.decode([encoder.encode(event) for event in (process, *events)])


def begun(*told: Log, **facts: object) -> runs.RunInfo:
    """A run of these processes, which is over."""
    given = {"began": BEGAN, "ended": BEGAN + 20, "exit_code": 0, **facts}
    run = runs.begin(("python", "train.py"), **given)
    for number, each in enumerate(told):
        run.directory.joinpath(f"host-{number}.jsonl").write_bytes(telemetry.encode(each))
    return run


def test_numbers_of_a_process():
    found = totals([log(*TRAINING)])
    assert found.caches == {"fx": {"hit": 1, "miss": 1, "bypass": 0}, "aot": {"hit": 0, "miss": 1, "bypass": 1}}
    assert (found.hits, found.misses, found.bypasses, found.fallbacks) == (1, 1, 1, 1)
    assert (found.compiles, found.recompiles) == (4, 1)
    # The worker compiled from 2 to 4, the main thread from 0 to 3, its backward within that, and from 6.5 to 7.
    assert (found.seconds, found.thread_seconds) == (4.5, 5.5)


def test_ranks_at_the_same_time_take_no_more_time():
    found = totals([log(*TRAINING), log(*TRAINING, rank=1)])
    assert (found.seconds, found.thread_seconds, found.misses, found.recompiles) == (4.5, 11.0, 2, 2)


def test_a_process_that_asks_no_inductor_cache_is_counted_by_the_other():
    found = totals([log(asked(1, "aot", "hit")), log(asked(1, "fx", "hit"), asked(1, "aot", "miss"))])
    assert (found.hits, found.misses) == (2, 0)


def test_nothing_comes_to_nothing():
    found = totals([])
    assert (found.hits, found.seconds, found.caches["fx"]) == (0, 0.0, {"hit": 0, "miss": 0, "bypass": 0})


def test_a_cache_that_is_not_known_yet_is_counted():
    assert totals([log(asked(1, "new", "odd"))]).caches["new"]["odd"] == 1


def test_rows_of_threads_and_functions():
    rows = {row.name: row.totals for row in by_thread(log(*TRAINING))}
    assert list(rows) == ["MainThread", "worker"]
    assert (rows["worker"].hits, rows["worker"].thread_seconds, rows["worker"].fallbacks) == (1, 2.0, 1)
    functions = by_function([log(*TRAINING), log(*TRAINING)])
    assert [row.name for row in functions] == ["step (train.py:3)", "eval (train.py:9)"]
    assert (functions[0].totals.misses, functions[0].totals.recompiles) == (2, 2)


def test_the_last_runs():
    for number in range(3):
        begun(log(*TRAINING), began=BEGAN + number)
    result = cachekeeper.stats(limit=2)
    assert [each.run.began for each in result.runs] == [BEGAN + 2, BEGAN + 1] and result.more == 1
    assert result.runs[1].seconds == 20 and result.runs[1].totals.misses == 1
    assert result.processes == () and cachekeeper.stats().more == 0


def test_one_run():
    begun(log(*TRAINING), began=BEGAN + 5)
    run = begun(log(*TRAINING, rank=0), log(rank=1, measures="cannot: no such function"))
    for result in (cachekeeper.stats(run.id), cachekeeper.stats(runs.short(run.id))):
        [each] = result.runs
        assert each.run == run and each.processes == 2
        assert [item.process.rank for item in result.processes] == [0, 1]
        assert len(result.processes[0].threads) == 2 and len(result.functions) == 2
        assert result.processes[0].fallbacks and result.processes[0].notes[0].text == "settings differ"
    from cachekeeper.verbs.stats import measures

    assert measures(result.processes) == {"tracing": "on; cannot: no such function"}
    assert cachekeeper.stats(last=True).runs[0].run.began == BEGAN + 5


def states(result: object) -> list[str]:
    assert isinstance(result, cachekeeper.verbs.stats.StatsResult)
    return [item.state for item in result.processes]


def test_who_ended_and_who_did_not():
    ended = log(*TRAINING, End(BEGAN + 9, 3))
    over = begun(ended, log(*TRAINING))
    result = cachekeeper.stats(over.id)
    assert states(result) == ["ended", "no end"] and (result.runs[0].crashed, result.runs[0].dropped) == (1, 3)
    # One that nobody saw the end of, whose first process is gone; and one that is going, of which one process is.
    lost = begun(ended, log(*TRAINING), ended=None, exit_code=None, pid=gone())
    [each] = cachekeeper.stats(lost.id).runs
    assert (each.going, each.crashed, each.seconds) == (False, 1, 9.0)
    mine = replace(log(*TRAINING).process, pid=os.getpid(), began=time.time())
    going = begun(Log(mine), log(*TRAINING), ended=None, exit_code=None, began=time.time() - 5)
    result = cachekeeper.stats(going.id)
    assert sorted(states(result)) == ["no end", "running"] and result.runs[0].going
    assert 4 < (result.runs[0].seconds or 0) < 60


def gone() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_a_run_that_is_begun_by_its_first_compile():
    run = begun(log(frame(3, 8.0)))
    assert cachekeeper.stats(run.id).runs[0].seconds == 25


def test_a_run_that_told_nothing():
    run = begun(ended=None, exit_code=None, pid=gone())
    [each] = cachekeeper.stats(run.id).runs
    assert (each.processes, each.seconds, each.totals.compiles) == (0, None, 0)


def test_what_makes_no_sense():
    with pytest.raises(NotFound, match="cachekeeper run"):
        cachekeeper.stats(last=True)
    begun()
    for wrong in ({"reference": "x", "last": True}, {"limit": 0}):
        with pytest.raises(UsageError):
            cachekeeper.stats(**wrong)
    with pytest.raises(NotFound):
        cachekeeper.stats("x")
    assert cachekeeper.stats().runs


def test_a_list_reads_no_components(monkeypatch: pytest.MonkeyPatch):
    run = begun(log(*TRAINING))
    assert [event.graph.components for event in runs.logs(run)[0].compiled if event.graph.components]
    bare = runs.logs(run, components=False)[0]
    assert not any(event.graph.components for event in bare.compiled)
    assert replace(bare, compiled=()) == replace(runs.logs(run)[0], compiled=())
    assert [event.graph.key for event in bare.compiled] == [event.graph.key for event in every(run)]


def every(run: runs.RunInfo) -> Iterable[Compiled]:
    return runs.logs(run)[0].compiled


def test_a_text_like_the_mark_of_components_is_text():
    name = 'x,"from":1,"components":'
    told = log(asked(1, "fx", "hit", name))
    [event] = telemetry.decode(telemetry.encode(told).splitlines(keepends=True), components=False).compiled
    assert event.graph.function == name and event.graph.components == ()
