"""Which runs are compared with which, and what is said of a run besides its causes."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import runs, telemetry
from cachekeeper.errors import NotFound, UsageError
from cachekeeper.runs.stopping import Stop
from cachekeeper.telemetry import End, Log
from tests.test_explaining import graph, told

BEGAN = 1_800_000_000.0
WANTED = {"config_max_autotune": "True"}


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs are kept."""
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def begun(at: float, *logs: Log, command: str = "python train.py", **facts: object) -> runs.RunInfo:
    """A run of these processes, so many seconds after the first."""
    given = {"began": BEGAN + at, "ended": BEGAN + at + 5, "exit_code": 0, **facts}
    run = runs.begin(command.split(), **given)
    for number, log in enumerate(logs):
        run.directory.joinpath(f"host-{number}.jsonl").write_bytes(telemetry.encode(log))
    return run


def test_the_last_run_is_explained_by_default():
    begun(0, told(graph()))
    last = begun(9, told(graph(**WANTED)))
    for found in (cachekeeper.explain(), cachekeeper.explain(last=True), cachekeeper.explain(last.id[-6:])):
        assert found.run.id == last.id and not found.ok
        assert found.explanation.misses[0].words == ("inductor config max_autotune: False -> True",)


def test_with_the_snapshot_that_it_began_with():
    run = begun(0, told(graph(**WANTED)))
    assert cachekeeper.explain().explanation.misses[0].kinds == ("cold",)
    runs.keep_known(run, told(graph()))
    found = cachekeeper.explain()
    assert found.snapshot and found.explanation.known == 1
    assert found.explanation.misses[0].words == ("inductor config max_autotune: False -> True",)


@pytest.mark.parametrize(
    ("earlier", "compared"),
    [
        ({"command": "python train.py"}, True),
        ({"command": "torchrun --nproc-per-node 2 src/train.py --steps 5"}, True),
        ({"command": "python other.py"}, False),
        ({"command": "python other.py", "name": "drafter"}, True),
        ({"command": "python other.py", "name": "else"}, False),
    ],
)
def test_with_earlier_runs_of_the_same_name_or_script(earlier: dict[str, str], compared: bool):
    before = begun(0, told(graph()), **earlier)
    begun(9, told(graph(**WANTED)), name="drafter")
    found = cachekeeper.explain()
    assert found.earlier == ((before.id,) if compared else ())


@pytest.mark.parametrize(
    ("one", "other", "compared"),
    [
        ("python -m package.train --lr 1", "python -m package.train", True),
        ("python -m package.train", "python -m package.eval", False),
        ("./launch.sh a", "./launch.sh a", True),
        ("./launch.sh a", "./launch.sh b", False),
    ],
)
def test_modules_and_other_commands(one: str, other: str, compared: bool):
    begun(0, told(graph()), command=one)
    begun(9, told(graph(**WANTED)), command=other)
    assert bool(cachekeeper.explain().earlier) == compared


def test_with_many_runs_before_it_that_told_something_and_with_none_after_it(monkeypatch: pytest.MonkeyPatch):
    ids = [begun(number, told(graph())).id for number in range(22)]
    begun(30)
    run = begun(31, told(graph(**WANTED)))
    begun(32, told(graph(**WANTED)))
    monkeypatch.setattr("cachekeeper.verbs.explain._PATIENCE", 60.0)
    assert cachekeeper.explain(run.id).earlier == tuple(reversed(ids[2:]))
    monkeypatch.setattr("cachekeeper.verbs.explain._PATIENCE", 0.0)
    assert cachekeeper.explain(run.id).earlier == tuple(reversed(ids[17:]))


def test_a_snapshot_that_was_refused_leaves_the_run_that_is_alike():
    """A run with all defaults, six with other settings, and one more setting in the last."""
    begun(0, told(graph()), name="drafter")
    for number in range(6):
        others = {"config_epilogue_fusion": "False", "cpp_runtime_thread_count": str(10 + number)}
        begun(1 + number, told(graph(**others)), name="drafter")
    begun(9, told(graph(**WANTED)), name="drafter", notes=("nothing restored: of another torch",))
    found = cachekeeper.explain()
    assert found.explanation.misses[0].words == ("inductor config max_autotune: False -> True",)
    assert found.notes == ("nothing restored: of another torch",)


def test_the_job_that_was_ended_at_its_first_miss_is_not_fine():
    run = begun(0)
    run.directory.joinpath("stop-5.json").write_text(
        '{"graph": "forward of step (train.py:7)", "why": ["size 8 -> 9"]}'
    )
    found = cachekeeper.explain()
    assert found.stopped == Stop("forward of step (train.py:7)", "", ("size 8 -> 9",))
    assert not found.ok and found.notes == ()


@pytest.mark.parametrize(
    ("facts", "begins"),
    [
        ({"telemetry": False}, "telemetry was off (CACHEKEEPER_TELEMETRY=0)"),
        ({"guarded": False}, "no process has told of a compile: the run was without the guard"),
        ({}, "no process has told of a compile: nothing was compiled with torch"),
    ],
)
def test_why_nobody_told_anything(facts: dict[str, bool], begins: str):
    begun(0, **facts)
    [note] = cachekeeper.explain().notes
    assert note.startswith(begins)


def test_what_is_not_there():
    with pytest.raises(NotFound, match="no run in"):
        cachekeeper.explain()
    begun(0, told(graph()))
    with pytest.raises(NotFound, match="no run '2031'"):
        cachekeeper.explain("2031")
    with pytest.raises(UsageError, match="not both"):
        cachekeeper.explain("2031", last=True)


def test_a_run_without_misses_or_without_a_word_is_fine():
    begun(0)
    assert cachekeeper.explain().ok and cachekeeper.explain().explanation.processes == 0
    begun(1, told(graph(state="hit")))
    assert cachekeeper.explain().ok and cachekeeper.explain().explanation.found == 1


def test_processes_that_were_killed_are_counted():
    begun(0, told(graph()), told(graph(), end=End(BEGAN + 1)))
    assert cachekeeper.explain().crashed == 1 and not cachekeeper.explain().going


def test_another_cache_directory_is_a_reason_for_what_is_gone():
    begun(0, told(graph(state="hit")), cache_dir="/tmp/a")
    begun(1, told(graph()), cache_dir="/tmp/b", notes=("a note of the run",))
    found = cachekeeper.explain()
    assert found.explanation.misses[0].kinds == ("gone",)
    assert found.notes == ("a note of the run", "this run's cache is /tmp/b; that of earlier ones was /tmp/a")
    begun(2, told(graph(**WANTED)), cache_dir="/tmp/b")
    assert cachekeeper.explain().notes == ()
