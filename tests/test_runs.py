"""The directory of runs: begun, found, pruned; what vanishes or is damaged is passed over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cachekeeper import runs, telemetry
from cachekeeper.errors import LocalDiskError, NotFound, UsageError
from cachekeeper.models import Graph
from cachekeeper.runs.merging import within
from cachekeeper.runs.stopping import Stop, stopped
from cachekeeper.telemetry import Compiled, Frame, Log, Process


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs are kept."""
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def log(pid: int = 5, began: float = 1e9) -> Log:
    graph = Graph("fx", "hit", f"f{pid}", components=("[a] gm: x",))
    return Log(Process(pid, "host", began), (Compiled(began, "MainThread", graph),))


def over(**facts: object) -> runs.RunInfo:
    """A run that has ended."""
    return runs.update(runs.begin(("python", "train.py"), **facts), ended=time.time(), exit_code=0)


def test_a_run_comes_back(kept: Path):
    run = runs.begin(["python", "train.py"], name="drafter", restored="ab" * 32, notes=("cold",))
    assert run.directory == kept / run.id and run.ended is None and abs(run.began - time.time()) < 60
    assert runs.find() == runs.find(run.id) == runs.find(run.id[:17]) == run
    ended = runs.update(run, ended=run.began + 5, exit_code=130, new_entries=4, saved="cd" * 32)
    assert runs.runs() == [ended] and ended.exit_code == 130
    modes = [path.stat().st_mode & 0o777 for path in (kept, run.directory, run.directory / "run.json")]
    assert modes == [0o700, 0o700, 0o600]
    assert [path.name for path in run.directory.iterdir()] == ["run.json"]


def test_the_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert runs.home() == tmp_path / "runs"
    monkeypatch.delenv("CACHEKEEPER_RUNS")
    assert runs.home() == Path(os.environ["HOME"]) / ".local/state/cachekeeper/runs"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert runs.home() == Path("/state/cachekeeper/runs")


def test_the_newest_is_first_and_the_last():
    older = over(began=1000.0)
    newer = over(began=2000.0)
    assert runs.runs() == [newer, older] and runs.find(None) == newer


def test_nothing_found_says_what_to_do():
    with pytest.raises(NotFound, match="cachekeeper run"):
        runs.find()
    over(), over()
    with pytest.raises(NotFound, match="cachekeeper stats"):
        runs.find("1999")
    with pytest.raises(UsageError, match="2 runs begin with '20'"):
        runs.find("20")


def made(identifier: str) -> str:
    """A run of that id."""
    run = over()
    run.directory.rename(run.directory.with_name(identifier))
    return identifier


def test_the_digits_that_are_shown_are_found_by_their_beginnings():
    one, other = made("20260102-000000-5fc1b9"), made("20260103-000000-5fd000")
    for text in ("5fc1b9", "5fc1", "5fc", "20260102", one):
        assert runs.find(text).id == one
    with pytest.raises(UsageError, match="2 runs begin with '5f'"):
        runs.find("5f")
    # All six digits of one are the beginning of the other's id.
    made("20260201-000000-202601")
    assert runs.find("202601").id == "20260201-000000-202601" and runs.find("20260103").id == other


def test_last_is_the_last_run():
    over(began=1000.0)
    newer = over(began=2000.0)
    assert runs.find("last") == newer


@pytest.mark.parametrize("text", ["", " "])
def test_no_text_is_no_run(text: str):
    for _ in range(3):
        with pytest.raises(UsageError, match="no run is named"):
            runs.find(text)
        over()


def test_of_many_runs_that_begin_alike_some_are_named():
    ids = [made(f"20260102-0000{second:02}-abcdef") for second in range(17)]
    with pytest.raises(UsageError, match="17 runs begin with 'abc'") as caught:
        runs.find("abc")
    assert len(caught.value.facts) == 11 and caught.value.facts[-1] == "and 7 more"
    assert set(caught.value.facts[:10]) < set(ids)


def test_runs_that_cannot_be_looked_at_are_not_none(kept: Path):
    assert runs.runs() == []
    kept.write_text("a file is in the way")
    for look in (runs.runs, runs.find):
        with pytest.raises(LocalDiskError, match="CACHEKEEPER_RUNS"):
            look()


def test_what_a_process_said_that_was_ended():
    run = over(telemetry=False)
    assert runs.find() == run and not run.telemetry and stopped(run) is None
    said = {"graph": "forward of step (train.py:7)", "function": "step", "thread": "worker", "why": ["a", "b"]}
    for number, data in enumerate((json.dumps(said), "{", '{"why": 5}', "[]", "[" * 100_000)):
        path = run.directory / f"stop-{number}.json"
        path.write_text(data)
        os.utime(path, ns=(1000 - number, 1000 - number))  # the first one counts
        assert stopped(run) == (Stop() if number else Stop("forward of step (train.py:7)", "worker", ("a", "b")))


def test_logs_come_in_order_and_what_is_none_is_passed_over():
    run = runs.begin(("x",))
    for name, data in {
        "h-9-a.jsonl": telemetry.encode(log(9, 2e9)),
        "h-5-b.jsonl": telemetry.encode(log(5)) + b'{"kind": "comp',
        "foreign.jsonl": b"\x00\xff",
        "empty.jsonl": b"",
        "stop-5.json": b"{}",
    }.items():
        (run.directory / name).write_bytes(data)
    (run.directory / "directory.jsonl").mkdir()
    (run.directory / "gone.jsonl").symlink_to("/nowhere")
    runs.keep_known(run, log(1))
    first, second = runs.logs(run)
    assert (first.process.pid, first.torn, second) == (5, True, log(9, 2e9))
    assert runs.known(run) == log(1) and runs.known(over()) is None


def test_a_run_that_is_removed_meanwhile_has_no_logs():
    run = runs.begin(("x",))
    (run.directory / "run.json").unlink()
    run.directory.rmdir()
    assert runs.logs(run) == [] and runs.known(run) is None and runs.runs() == []
    with pytest.raises(LocalDiskError, match="cannot write"):
        runs.update(run, ended=1.0)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b'{"command": "x"}',
        b'{"command": ["x"], "began": "yesterday"}',
        b'{"command": ["x"], "began": NaN}',
        b'{"command": ["x"], "began": null}',
        b'{"command": ["x"], "began": 1, "name": 5}',
        b'{"command": 5, "began": 1}',
        b'{"command": ["x"], "began": 1, "telemetry": "no"}',
    ],
)
def test_a_damaged_run_is_passed_over(kept: Path, damaged: bytes):
    good = over()
    (bad := kept / "20200101-000000-abcdef").mkdir()
    (bad / "run.json").write_bytes(damaged)
    assert runs.runs() == [good]


def test_a_later_version_may_say_more():
    run = over()
    document = json.loads((run.directory / "run.json").read_text())
    (run.directory / "run.json").write_text(json.dumps({**document, "later": {"x": 1}}))
    assert runs.runs() == [run]


# Pruned


def test_the_newest_are_kept(kept: Path):
    (kept / "20200101-000000-abcdef" / "not-ours").mkdir(parents=True)
    (kept / "notes.txt").write_text("a person's own")
    made = [over(began=1000.0 + n) for n in range(5)]
    runs.prune(keep=3)
    left = {run.id for run in runs.runs()}
    assert len(left) == 2 and left <= {run.id for run in made} and (kept / "notes.txt").exists()


def test_no_more_bytes_than_wanted(kept: Path):
    for n in range(4):
        run = over()
        run.directory.joinpath("a.jsonl").write_bytes(b"x" * 1000)
        run.directory.rename(kept / f"2026010{n + 1}-000000-abcdef")
    runs.prune(keep_bytes=3000)
    assert sorted(path.name[:8] for path in kept.iterdir()) == ["20260103", "20260104"]


def test_a_run_that_is_going_stays(monkeypatch: pytest.MonkeyPatch):
    going = runs.begin(("x",))
    crashed = runs.begin(("x",), pid=process_that_ended())
    elsewhere = runs.begin(("x",), host="another")
    silent = runs.begin(("x",), host="another", began=1000.0)
    fresh = runs.begin(("x",))
    (fresh.directory / "run.json").unlink()  # as one that is just being made
    os.utime(silent.directory / "run.json", (1000, 1000))
    assert [runs.is_going(run) for run in (going, crashed, elsewhere, silent, over())] == [
        True,
        False,
        True,
        False,
        False,
    ]
    runs.prune(keep=1)
    assert {run.id for run in runs.runs()} == {going.id, elsewhere.id} and fresh.directory.exists()


def process_that_ended() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_a_process_with_the_number_of_an_older_one_is_another():
    assert runs.is_alive(os.getpid(), time.time())
    assert not runs.is_alive(os.getpid(), time.time() - 86400)
    assert not runs.is_alive(0, time.time()) and not runs.is_alive(-1, time.time())
    assert not runs.is_alive(1 << 70, time.time())


def test_no_room_is_an_error_that_says_what_to_do(kept: Path):
    kept.write_text("a file is in the way")
    with pytest.raises(LocalDiskError, match="CACHEKEEPER_TELEMETRY=0"):
        runs.begin(("x",))


def test_the_run_that_a_process_belongs_to(tmp_path: Path):
    assert runs.current({}) is None and runs.current({"CACHEKEEPER_RUN": str(tmp_path / "gone")}) is None
    assert runs.current({"CACHEKEEPER_RUN": str(tmp_path)}) == tmp_path


def test_what_a_job_imports_is_the_standard_library():
    code = (
        "import sys; before = set(sys.modules); import cachekeeper.runs, cachekeeper.telemetry, "
        "cachekeeper.guard.recorder; print(*{name.partition('.')[0] for name in set(sys.modules) - before} "
        "- set(sys.stdlib_module_names)); print('cachekeeper.config' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["cachekeeper", "False"]


def test_a_run_is_kept_without_its_secrets(tmp_path: Path):
    run = runs.begin(["python", "t.py", "--hf-token", "X", "--steps", "5"])
    assert run.command == ("python", "t.py", "--hf-token", "***", "--steps", "5")
    info = run.directory / "run.json"
    assert json.loads(info.read_bytes())["command"] == list(run.command)
    info.write_bytes(info.read_bytes().replace(b"***", b"as an earlier version kept it"))
    assert runs.find().command == run.command


def test_less_room_costs_what_is_least_missed():
    """Whatever the limit, the lines keep to it as long as the first does, and can be read."""
    events = [
        Compiled(float(n), "t", Graph("fx", "hit" if n % 3 else "miss", f"f{n}", components=("x" * 90, f"{n}")))
        for n in range(9)
    ]
    whole = Log(Process(5, "host", 1e9), tuple(events), (Frame(1.0, "t", "f", 1.0),))
    sizes = []
    for limit in (*range(200, len(telemetry.encode(whole)), 50), 10_000):
        lines = within(whole, limit)
        found = telemetry.decode(lines.splitlines(keepends=True))
        assert len(lines) <= limit and found.process == whole.process
        sizes.append((sum(bool(e.graph.components) for e in found.compiled), len(found.compiled), len(lines)))
        misses = [event for event in found.compiled if event.graph.state == "miss"]
        assert len(misses) == 3 or all(event.graph.state == "miss" for event in found.compiled)
    assert sizes == sorted(sizes) and sizes[0][1] == 0 and found == whole
