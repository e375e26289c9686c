"""What is done before and after a job, and that no failure of ours changes what the job does. Real jobs, no torch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import runs
from cachekeeper.errors import CachekeeperError, Unreachable, UsageError
from cachekeeper.repository import open_repository
from cachekeeper.testing import make_cache
from cachekeeper.verbs.clear import bring_back, cleared
from cachekeeper.verbs.run import Listener, RunResult, Trouble, run
from cachekeeper.verbs.run.job import compiles
from cachekeeper.verbs.snapshot import snapshot
from cachekeeper.watching import held, watcher_of
from tests import samples
from tests.test_supervision import gone
from tests.verbs.conftest import Machine, tree, unplaced

STARTUP = str(Path(cachekeeper.__file__).parent / "guard" / "startup")
TELL = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open('told', 'w'))"


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("CACHEKEEPER_WAIT", "0")
    return tmp_path / "work"


@pytest.fixture
def saved(machine: Machine, store: Path, cache: Path) -> str:
    return snapshot("drafter", cache_dir=cache, store=store).snapshot.id


def job(store: Path, target: Path, *command: str, **options: object) -> RunResult:
    """The job leaves the arguments and the environment that it had in `told`."""
    words = command or (sys.executable, "-c", TELL, "a b", "--name", "y")
    return run(words, name="drafter", store=store, cache_dir=target, **options)  # type: ignore[arg-type]


def told(work: Path) -> tuple[list[str], dict[str, str]]:
    arguments, environment = json.loads((work / "told").read_text())
    return arguments, environment


def test_a_job_on_a_restored_cache(saved: str, store: Path, cache: Path, work: Path, tmp_path: Path):
    before = dict(os.environ)
    result = job(store, tmp_path / "new")
    assert dict(os.environ) == before
    assert (result.exit_code, result.signal, result.troubles, result.notes) == (0, 0, (), ())
    assert result.restored and result.restored.snapshot and result.restored.snapshot.id == saved
    assert unplaced(tmp_path / "new") == unplaced(cache)
    arguments, environment = told(work)
    assert arguments == ["a b", "--name", "y"]
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "new")
    assert environment["TRITON_CACHE_DIR"] == str(tmp_path / "new" / "triton" / "0")
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == STARTUP
    assert json.loads(environment["CACHEKEEPER_GUARD"]) == {
        "fallback": "warn",
        "carry": False,
        "assert_warm": False,
        "telemetry": True,
    }
    assert result.python is True and result.torch is False and result.new_entries == 0
    kept = runs.find()
    assert environment["CACHEKEEPER_RUN"] == str(kept.directory) and result.id == kept.id
    assert (kept.name, kept.restored, kept.exit_code, kept.new_entries) == ("drafter", saved, 0, 0)
    assert kept.command == result.command and kept.ended and kept.cache_dir == str(tmp_path / "new")


def test_the_job_has_its_secrets_and_nobody_else(store: Path, work: Path):
    result = run([sys.executable, "-c", TELL, "--token", "X"], store=store, restore=False)
    assert told(work)[0] == ["--token", "X"]
    assert result.command[-2:] == runs.find().command[-2:] == ("--token", "***")


def test_what_the_job_has_otherwise(saved: str, store: Path, work: Path, tmp_path: Path, monkeypatch):
    """Without the guard; what the person has on PYTHONPATH stays; what an outer run has set does not."""
    monkeypatch.setenv("PYTHONPATH", "/one:/two")
    monkeypatch.setenv("CACHEKEEPER_GUARD", "{}")
    monkeypatch.setenv("CACHEKEEPER_RUN", "/outer")
    job(store, tmp_path / "new", fallback="error", carry=True)
    assert told(work)[1]["PYTHONPATH"] == f"{STARTUP}:/one:/two"
    assert json.loads(told(work)[1]["CACHEKEEPER_GUARD"])["fallback"] == "error"
    result = job(store, tmp_path / "new", guard=False)
    assert told(work)[1]["PYTHONPATH"] == "/one:/two" and "CACHEKEEPER_GUARD" not in told(work)[1]
    assert told(work)[1]["CACHEKEEPER_RUN"] == str(runs.find().directory)
    assert result.python is None and runs.find().guarded is False
    monkeypatch.setenv("CACHEKEEPER_TELEMETRY", "0")
    number = len(runs.runs())
    result = job(store, tmp_path / "new")
    assert len(runs.runs()) == number and result.id == "" and "CACHEKEEPER_RUN" not in told(work)[1]
    assert json.loads(told(work)[1]["CACHEKEEPER_GUARD"])["telemetry"] is False


def test_without_a_name_nothing_is_restored(saved: str, store: Path, work: Path, tmp_path: Path):
    command = (sys.executable, "-c", TELL)
    result = run(command, store=store, cache_dir=tmp_path / "new")
    assert result.restored is None and result.troubles == () and len(result.notes) == 1
    assert told(work)[1]["TRITON_CACHE_DIR"] == f"{tmp_path}/new/triton/shared"
    result = run(command, store=store, cache_dir=tmp_path / "new", restore=True)
    assert result.restored and result.restored.snapshot and result.restored.snapshot.id == saved
    result = run(command, name="drafter", store=store, cache_dir=tmp_path / "other", restore=False)
    assert result.restored is None and result.notes == ()
    assert run(command, store=store, cache_dir=tmp_path / "other", restore=False).notes == ()


def test_damage_in_the_store_heals_with_the_run_that_met_it(
    saved: str, store: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What the job built is stored anew, though files of the same content are in the damaged pack."""
    [pack] = store.glob("packs/*")
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(data)
    target = tmp_path / "inductor-of-the-job"
    build = (sys.executable, "-c", "import shutil, sys; shutil.copytree(*sys.argv[1:], dirs_exist_ok=True)")
    cold = job(store, target, *build, str(cache), str(target), snapshot_on_success=True)
    assert [trouble.code for trouble in cold.troubles] == ["damaged-store"] and cold.restored is None
    assert cold.saved and cold.saved.name_moved
    shutil.rmtree(target)
    warm = job(store, target, snapshot_on_success=True)
    assert warm.troubles == () and warm.restored and warm.restored.snapshot
    assert warm.restored.snapshot.id == cold.saved.snapshot.id and tree(target).keys() == tree(cache).keys()


# Failures of ours

Break = Callable[[Path, Path, Machine, pytest.MonkeyPatch], dict[str, object]]


def damaged(store: Path, target: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    for pack in store.glob("packs/*"):
        pack.unlink()
    return {}


def another_environment(store, target, machine, monkeypatch):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    return {}


def no_such_name(store, target, machine, monkeypatch):
    return {"name": "draftr"}


def unreachable(store, target, machine, monkeypatch):
    def opened() -> None:
        raise Unreachable("no answer from s3.example", hint="is it up?")

    return {"store": opened}


def no_place_for_the_cache(store, target, machine, monkeypatch):
    target.write_text("a file")
    return {}


def no_place_for_runs(store, target, machine, monkeypatch):
    monkeypatch.setenv("CACHEKEEPER_RUNS", "/proc/no/such")
    return {}


def a_bad_setting(store, target, machine, monkeypatch):
    Path("cachekeeper.toml").write_text("nmae = 'x'\n")
    return {}


def a_fault_of_ours(store, target, machine, monkeypatch):
    def opened() -> None:
        raise RuntimeError("a bug")

    return {"store": opened}


FAILURES = [
    (damaged, "damaged-store"),
    (another_environment, "environment-mismatch"),
    (no_such_name, "not-found"),
    (unreachable, "unreachable"),
    (no_place_for_the_cache, "local-disk"),
    (no_place_for_runs, "local-disk"),
    (a_bad_setting, "usage"),
    (a_fault_of_ours, "unexpected"),
]


@pytest.mark.parametrize(("fail", "code"), FAILURES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_failure_of_ours_is_a_warning(
    fail: Break, code: str, saved: str, store: Path, work: Path, tmp_path: Path, machine: Machine, monkeypatch
):
    heard: list[Trouble] = []

    class Ears(Listener):
        def trouble(self, trouble: Trouble) -> None:
            assert not (work / "told").exists()
            heard.append(trouble)

    target = tmp_path / "new"
    options = {"name": "drafter", "store": store, "cache_dir": target, **fail(store, target, machine, monkeypatch)}
    command = (sys.executable, "-c", TELL + "; sys.exit(9)")
    with pytest.raises(CachekeeperError) as caught:
        run(command, strict=True, **options)  # type: ignore[arg-type]
    assert caught.value.exit_code == 125 and caught.value.code == code
    assert not (work / "told").exists()
    result = run(command, listener=Ears(), **options)  # type: ignore[arg-type]
    assert result.exit_code == 9
    assert [trouble.code for trouble in result.troubles] == [code] and heard == list(result.troubles)
    assert told(work)[1]["TORCHINDUCTOR_CACHE_DIR"] == str(target)


@pytest.mark.parametrize("options", [{}, {"restore": False, "name": "drafter"}])
def test_a_cache_directory_that_cannot_be_one_is_said_without_a_name(options: dict[str, object], tmp_path: Path):
    (tmp_path / "file").write_text("")
    result = run(("true",), cache_dir=tmp_path / "file" / "cache", **options)  # type: ignore[arg-type]
    told = [(trouble.what, trouble.code) for trouble in result.troubles]
    assert result.exit_code == 0 and told == [("the cache directory cannot be used", "local-disk")]


@pytest.mark.usefixtures("importable")
def test_with_strict_one_line_starts_the_first_run_and_the_next(machine: Machine, store: Path, tmp_path: Path):
    target = tmp_path / "new"
    first = job(store, target, *compiling(target, 1), snapshot_on_success=True, strict=True)
    assert first.exit_code == 0 and first.saved and first.notes[0].startswith("nothing restored yet: no snapshots in ")
    shutil.rmtree(target)
    second = job(store, target, "true", snapshot_on_success=True, strict=True)
    assert second.exit_code == 0 and second.restored and second.restored.new and second.notes == ()
    for name in ("drafter@{7}", "draftr"):
        told = run(("true",), name=name, store=store, cache_dir=target, snapshot_on_success=True)
        assert bool(told.troubles) == ("@" in name) and ("did you mean `drafter`?" in str(told.notes)) != ("@" in name)


def test_with_strict_a_store_that_cannot_be_made_is_said_before_the_job(machine: Machine, work: Path):
    with pytest.raises(CachekeeperError) as caught:
        job(Path("/proc/no/store"), work / "new", snapshot_on_success=True, strict=True)
    assert caught.value.exit_code == 125 and not (work / "told").exists()


def test_with_telemetry_off_nothing_is_counted(saved: str, store: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("CACHEKEEPER_TELEMETRY", "0")
    assert job(store, tmp_path / "new").compiled is None
    assert job(store, tmp_path / "new", assert_warm=True).compiled is None


def test_usage(tmp_path: Path):
    with pytest.raises(UsageError):
        run(())
    with pytest.raises(UsageError):
        run(("true",), assert_warm=True, guard=False)
    for option in ({"fallback": "warn"}, {"carry": True}):
        with pytest.raises(UsageError, match="is for the guard"):
            run(("true",), guard=False, **option)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no fallback 'x'"):
        run(("true",), fallback="x")
    with pytest.raises(UsageError) as wrong:
        run("python job.py")
    assert wrong.value.hint == "give its words: ['python', 'job.py']"
    with pytest.raises(CachekeeperError) as caught:
        run(("no-such-command",), name="drafter", store=tmp_path / "store")
    assert caught.value.exit_code == 127 and not (tmp_path / "store").exists()


# After the job

MORE = """
import sys
from pathlib import Path
from cachekeeper.testing import make_cache
make_cache(Path(sys.argv[1]), seed=int(sys.argv[2]), kernels=1, graphs=1)
"""


def compiling(target: Path, seed: int, then: str = "") -> tuple[str, ...]:
    return (sys.executable, "-c", MORE + then, str(target), str(seed))


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(cachekeeper.__file__).parents[1]))


@pytest.mark.usefixtures("importable")
def test_what_appeared_is_saved(machine: Machine, store: Path, work: Path, tmp_path: Path):
    target = tmp_path / "new"
    cold = job(store, target, *compiling(target, 1), snapshot_on_success=True)
    assert cold.saved and cold.saved.name_moved and cold.new_entries and cold.new_entries > 3
    assert cold.troubles == () and len(cold.notes) == 1 and cold.notes[0].startswith("nothing restored yet: ")
    assert runs.find().saved == cold.saved.snapshot.id
    shutil.rmtree(target)
    warm = job(store, target, snapshot_on_success=True)
    assert warm.saved is None and warm.new_entries == 0 and warm.restored and warm.restored.new
    failed = job(store, target, *compiling(target, 2, "sys.exit(4)"), snapshot_on_success=True)
    assert failed.saved is None and failed.exit_code == 4 and failed.new_entries
    more = job(store, target, *compiling(target, 3), snapshot_on_success=True)
    assert more.saved and more.saved.snapshot.header.parent == cold.saved.snapshot.id
    assert job(store, target, *compiling(target, 4)).saved is None  # nobody asked for it


def test_a_cache_that_no_snapshot_has_is_saved(machine: Machine, cache: Path, store: Path):
    result = job(store, cache, "true", snapshot_on_success=True)
    assert result.saved and result.new_entries == 0
    assert job(store, cache, "true", snapshot_on_success=True).saved is None


def test_its_snapshot_has_the_tags(machine: Machine, cache: Path, store: Path):
    result = job(store, cache, "true", snapshot_on_success=True, tags={"dataset": "pile-v2"})
    assert result.saved and result.saved.snapshot.header.tags == {"dataset": "pile-v2"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tags": {"a": "b"}}, "which is not wanted"),
        ({"tags": {"": "b"}, "snapshot_on_success": True}, "not a tag: the key ''"),
    ],
)
def test_tags_that_make_no_sense_start_no_job(store: Path, work: Path, options: dict[str, object], words: str):
    with pytest.raises(UsageError, match=words):
        job(store, work / "new", **options)
    assert not (work / "told").exists()


@pytest.mark.usefixtures("importable")
def test_a_failure_to_save_changes_no_exit_code_but_with_strict(saved: str, store: Path, tmp_path: Path, monkeypatch):
    target = tmp_path / "new"
    monkeypatch.setenv("CACHEKEEPER_READ_ONLY", "1")
    result = job(store, target, *compiling(target, 5), snapshot_on_success=True)
    assert result.exit_code == 0 and [(t.what, t.code) for t in result.troubles] == [("not saved", "read-only")]
    result = job(store, target, *compiling(target, 6), snapshot_on_success=True, strict=True)
    assert result.exit_code == 125 and runs.find().exit_code == 125
    result = job(store, target, *compiling(target, 7, "sys.exit(4)"), snapshot_on_success=True, strict=True)
    assert result.exit_code == 4 and result.troubles == ()


def test_an_interrupt_while_we_save_changes_no_exit_code(machine: Machine, store: Path, cache: Path, monkeypatch):
    from cachekeeper.verbs.run import saving

    def save(*arguments: object, **options: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    monkeypatch.setattr(saving, "save", save)
    result = job(store, cache, "true", snapshot_on_success=True)
    assert result.exit_code == 0 and result.saved is None
    assert [trouble.what for trouble in result.troubles][-1] == "nothing more is done after the job"


def test_saving_needs_a_name(machine: Machine, store: Path, cache: Path):
    result = run(("true",), store=store, cache_dir=cache, snapshot_on_success=True)
    assert [trouble.what for trouble in result.troubles] == ["nothing will be saved"] and result.saved is None


# The key that signs what is saved


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return cachekeeper.keygen(tmp_path / "key").file


def test_a_key_that_cannot_sign_is_said_before_the_job(
    machine: Machine, store: Path, cache: Path, work: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CACHEKEEPER_SIGNING_KEY", str(work / "no key"))
    with pytest.raises(UsageError, match="there is no signing key") as caught:
        job(store, cache, snapshot_on_success=True, strict=True)
    assert caught.value.exit_code == 125 and not (work / "told").exists()
    result = job(store, cache, snapshot_on_success=True)
    assert result.exit_code == 0 and result.saved is None and (work / "told").exists()
    assert [(t.what, t.code) for t in result.troubles] == [("nothing will be saved", "usage"), ("not saved", "usage")]
    assert job(store, cache, restore=False).troubles == ()  # nothing is to be signed


def test_a_key_that_appears_while_the_job_runs_signs(
    machine: Machine, store: Path, cache: Path, key: Path, monkeypatch: pytest.MonkeyPatch
):
    later = key.with_name("later")
    monkeypatch.setenv("CACHEKEEPER_SIGNING_KEY", str(later))
    result = job(store, cache, "cp", "-p", str(key), str(later), snapshot_on_success=True)
    assert [trouble.what for trouble in result.troubles] == ["nothing will be saved"]
    assert result.saved and result.saved.signed_by


def test_a_key_that_is_gone_after_the_job_signs(
    machine: Machine, store: Path, cache: Path, key: Path, monkeypatch: pytest.MonkeyPatch
):
    """As one with a passphrase, which nobody is there to type after hours."""
    monkeypatch.setenv("CACHEKEEPER_SIGNING_KEY", str(key))
    result = job(store, cache, "rm", str(key), snapshot_on_success=True, strict=True)
    assert result.exit_code == 0 and result.troubles == () and result.saved and result.saved.signed_by


def test_what_the_processes_told(tmp_path: Path):
    """Numbers as `stats` has them; each text once; processes that did not come to their end."""
    from cachekeeper.models import Graph
    from cachekeeper.telemetry import Compiled, End, Fallback, Frame, Log, Note, Process

    process = Process(pid=1, host="h", began=0.0)
    hit, miss = (Compiled(10.0, "t", Graph("fx", state, "k"), None) for state in ("hit", "miss"))
    fallback, note = Fallback(11.0, "t", "step", "too often"), Note(11.0, "t", "sees other settings")
    frames = (Frame(10.0, "t", "step", 4.0), Frame(12.0, "u", "step", 4.0))
    whole = Log(process, (hit, miss), frames, (fallback, fallback), (note, note), End(20.0))
    found = compiles([whole, Log(process, (miss,)), Log(process, end=End(1.0, dropped=2))])
    assert (found.totals.hits, found.totals.misses, found.totals.seconds) == (1, 2, 6.0)
    assert found.fallbacks == ("step: too often",) and found.notes == ("sees other settings",)
    assert (found.processes, found.incomplete) == (2, 2)


def test_the_first_miss_ends_the_whole_job(machine: Machine, store: Path, tmp_path: Path):
    """As the guard tells of it; the shell that started the process, and one that listens to nothing, end too."""
    stop = 'f"{directory}/stop-{os.getpid()}.json"'
    code = f"""
import json, os, time
directory = os.environ["CACHEKEEPER_RUN"]
with open("said", "w") as file:
    json.dump({{"graph": "forward of step (a.py:1) on cpu", "why": ["input 0: stride", "b"]}}, file)
os.rename("said", {stop})  # whole, as the guard writes it
time.sleep(60)
"""
    script = 'setsid sleep 60 & echo $! > sleeper; "$0" -c "$1"; echo never > after'
    result = job(store, tmp_path / "new", "sh", "-c", script, sys.executable, code, assert_warm=True)
    assert (result.exit_code, result.signal) == (3, 0) and result.seconds < 10
    assert result.stopped and result.stopped.why == ("input 0: stride", "b") and "step (a.py:1)" in result.stopped.graph
    assert not Path("after").exists()
    assert gone(int(Path("sleeper").read_text()))
    assert runs.find().exit_code == 3


def test_where_nothing_was_watched_nothing_is_asserted(saved: str, store: Path, tmp_path: Path):
    result = job(store, tmp_path / "new", "true", assert_warm=True)
    assert [trouble.what for trouble in result.troubles] == ["nothing was asserted"]
    assert (result.exit_code, result.job_exit_code) == (3, 0)
    assert runs.find().exit_code == 3 and "exit 3 is cachekeeper's: the job ended with 0" in runs.find().notes
    strict = job(store, tmp_path / "new", "true", assert_warm=True, strict=True)
    assert (strict.exit_code, strict.job_exit_code) == (3, 0)
    failed = job(store, tmp_path / "new", "sh", "-c", "exit 4", assert_warm=True, strict=True)
    assert failed.exit_code == 4 and not any("cachekeeper's" in note for note in runs.find().notes)


def test_a_warmup_is_run_unless_the_snapshot_is_proven(machine: Machine, store: Path, tmp_path: Path, monkeypatch):
    from cachekeeper.verbs.run import cache
    from cachekeeper.verbs.warmup import WarmupResult

    asked: list[tuple[str, Path, str]] = []

    def warm_up(target: str, *, cache_dir: Path, listener: object) -> WarmupResult:
        asked.append((target, cache_dir, os.environ["TORCHINDUCTOR_CACHE_DIR"]))
        make_cache(cache_dir, seed=9, kernels=1, graphs=0)
        return WarmupResult(target, cache_dir, (), proof=samples.proof())

    monkeypatch.setattr(cache, "warm_up", warm_up)
    target = tmp_path / "new"
    first = job(store, target, "true", warmup="train.py:step", snapshot_on_success=True)
    assert asked == [("train.py:step", target, str(target))] and first.warmed
    assert first.new_entries == 0  # what the warmup made is not the job's
    assert first.saved and first.saved.snapshot.header.proof
    assert first.notes[0].endswith("; warming up first; its cache is saved after exit code 0")
    for same in ("train.py:step", f"{os.getcwd()}/train.py:step"):
        proven = job(store, target, "true", warmup=same)
        assert proven.warmed is None and len(asked) == 1
        assert proven.notes == ("the warmup is left out: drafter is proven for train.py:step",)
    other = job(store, target, "true", warmup="serve.py:step")
    assert other.warmed and other.notes == () and asked.pop()[0] == "serve.py:step"
    snapshot("drafter", cache_dir=target, store=store)
    again = job(store, target, "true", warmup="train.py:step", snapshot_on_success=True)
    assert len(asked) == 2 and again.saved and again.saved.snapshot.header.proof  # nothing new but the proof


def test_a_warmup_that_fails_is_a_warning(machine: Machine, store: Path, tmp_path: Path):
    result = job(store, tmp_path / "new", "true", warmup="no_such.py:step")
    assert result.exit_code == 0
    assert [trouble.what for trouble in result.troubles] == [
        "nothing restored, warming up first",
        "the warmup proves nothing",
    ]


def test_a_target_that_is_none_is_an_error_though_the_snapshot_is_proven(
    machine: Machine, store: Path, cache: Path, tmp_path: Path
):
    snapshot("drafter", cache_dir=cache, store=store, proof=samples.proof())
    result = job(store, tmp_path / "new", "true", warmup="nonsense")
    assert [trouble.what for trouble in result.troubles] == ["the warmup proves nothing"]
    with pytest.raises(CachekeeperError) as caught:
        job(store, tmp_path / "new", sys.executable, "-c", TELL, warmup="nonsense", strict=True)
    assert caught.value.exit_code == 125 and not Path("told").exists()


# With a watch

WIPED = """
import shutil, sys, time
from pathlib import Path
live = Path(sys.argv[1])
files = [path for path in live.rglob("*") if path.is_file() and ".cachekeeper" not in path.parts]
shutil.rmtree(live)
deadline = time.monotonic() + 60
while not all(path.exists() for path in files):
    assert time.monotonic() < deadline
    time.sleep(0.02)
sys.exit(9)
"""


def test_a_watch_keeps_the_cache_whole_while_the_job_runs(saved: str, store: Path, cache: Path, tmp_path: Path):
    live = tmp_path / "new"
    result = job(store, live, sys.executable, "-c", WIPED, str(live), watch=True)
    assert (result.exit_code, result.troubles, result.new_entries) == (9, (), 0)
    assert result.watched and (result.watched.lost, result.watched.notes) == ((), ())
    assert result.watched.entries > 10 and result.watched.files == len(unplaced(cache))
    assert unplaced(live) == unplaced(cache) and watcher_of(live) is None


def test_without_a_watch_nobody_puts_anything_back(saved: str, store: Path, tmp_path: Path):
    live = tmp_path / "new"
    result = job(store, live, "rm", "-rf", str(live))
    assert result.watched is None and not live.exists()


def test_where_nothing_was_restored_nothing_is_watched(machine: Machine, store: Path, tmp_path: Path):
    result = job(store, tmp_path / "new", "true", watch=True, snapshot_on_success=True)
    assert result.watched is None and result.exit_code == 0
    assert result.notes[-1] == "the cache is not watched: nothing was restored"


def test_a_watch_that_cannot_be_harms_no_job(saved: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    live = tmp_path / "new"
    live.mkdir()
    with held(live):
        result = job(store, live, "sh", "-c", "exit 4", watch=True, strict=True)
    assert result.exit_code == 4
    assert [(trouble.what, trouble.message) for trouble in result.troubles] == [
        ("the cache was not watched to the end", f"{live} is watched already; by process {os.getpid()}")
    ]

    def refuse() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    result = job(store, live, "sh", "-c", "exit 4", watch=True)
    assert result.exit_code == 4 and [trouble.what for trouble in result.troubles] == ["the cache is not watched"]


@pytest.mark.usefixtures("importable")
def test_a_watch_that_is_killed_is_told_of(saved: str, store: Path, tmp_path: Path):
    live = tmp_path / "new"
    script = (
        "import os, time\nfrom pathlib import Path\nfrom cachekeeper.watching import watcher_of\n"
        f"while (pid := watcher_of(Path({str(live)!r}))) is None: time.sleep(0.01)\n"
        "os.kill(pid, 9)\n"
    )
    result = job(store, live, sys.executable, "-c", script, watch=True)
    assert result.exit_code == 0
    assert [trouble.message for trouble in result.troubles] == ["the process of the watch was killed"]


def test_what_is_lost_is_told_and_the_job_goes_on(saved: str, store: Path, tmp_path: Path):
    live = tmp_path / "new"
    wipe = f"rm -r {store}/packs {live}/fxgraph; sleep 1.5; exit 4"
    result = job(store, live, "sh", "-c", wipe, watch=True)
    assert result.exit_code == 4 and result.watched and len(result.watched.lost) == 3
    assert "cannot put back 3 entries: damaged in file://" in result.watched.notes[0]


# Started once more, cold

TORCH = """
import os, signal, sys, time
from pathlib import Path
Path(os.environ["CACHEKEEPER_RUN"], "loaded-torch").touch()
print("started", file=open("starts", "a"))
"""
# As a cache whose second use raises: it fails where a file of the snapshot is there.
POISONED = """
live = Path(sys.argv[1])
if any(live.rglob("*.so")):
    {fail}
from cachekeeper.testing import make_cache
make_cache(live, seed=8, kernels=1, graphs=1)
"""


def poisoned(target: Path, fail: str = 'raise SystemExit("broken")') -> tuple[str, ...]:
    return (sys.executable, "-c", TORCH + POISONED.format(fail=fail), str(target))


def starts() -> int:
    return len(Path("starts").read_text().splitlines())


@pytest.mark.usefixtures("importable")
def test_a_job_that_fails_on_its_cache_is_started_once_more_without(saved: str, store: Path, cache: Path, tmp_path):
    live = tmp_path / "new"
    result = job(store, live, *poisoned(live), retry_cold=True)
    assert (result.exit_code, result.job_exit_code, starts(), result.troubles) == (0, 0, 2, ())
    retried = result.retried
    assert retried and (retried.first.exit_code, retried.others) == (1, 0) and retried.first.seconds > 0
    assert retried.first.restored and retried.first.restored.snapshot.id == saved and result.restored is None
    assert result.new_entries and result.saved is None
    first, second = runs.find(retried.first.id), runs.find(result.id)
    assert (first.exit_code, first.restored, second.exit_code, second.restored) == (1, saved, 0, "")
    assert f"started once more, cold: run {runs.short(second.id)}" in first.notes
    assert unplaced(retried.trash).keys() == unplaced(cache).keys()  # the evidence
    [item] = cleared(live)
    assert (item.item.name, item.snapshot) == (retried.item, saved)
    known = f"run {first.id}: exit 1 after "
    assert item.item.reason.startswith(known) and f"on {saved[:8]} (drafter); started once" in item.item.reason
    bring_back(live)
    assert unplaced(live) == unplaced(cache) and not (live / ".cachekeeper" / "reason.txt").exists()


@pytest.mark.usefixtures("importable")
def test_what_comes_of_it_takes_over_the_name_though_it_is_much_smaller(saved: str, store: Path, tmp_path: Path):
    live = tmp_path / "new"
    result = job(store, live, *poisoned(live), retry_cold=True, snapshot_on_success=True)
    assert result.saved and result.saved.name_moved and result.saved.snapshot.header.entries < 10
    repository = open_repository(store)
    assert [move.snapshot for move in repository.history("drafter")] == [saved, result.saved.snapshot.id]
    assert runs.find(result.id).saved == result.saved.snapshot.id
    again = job(store, live, "true", retry_cold=True)
    assert again.restored and again.restored.snapshot.id == result.saved.snapshot.id


@pytest.mark.usefixtures("importable")
def test_a_name_that_moved_meanwhile_keeps_its_larger_snapshot(saved: str, store: Path, cache: Path, tmp_path: Path):
    live = tmp_path / "new"
    repository = open_repository(store)
    other = snapshot(cache_dir=cache, store=store, message="another").snapshot.id
    move = (
        f"from cachekeeper.repository import open_repository; "
        f"open_repository({str(store)!r}).move_name('drafter', {other!r}); sys.exit(4)"
    )
    result = job(store, live, *poisoned(live, move), retry_cold=True, snapshot_on_success=True)
    assert result.retried and result.saved and not result.saved.name_moved and result.saved.shrunk_from
    assert repository.latest("drafter") == other


def test_a_job_that_fails_cold_too_is_not_started_a_third_time(saved: str, store: Path, tmp_path: Path):
    code = TORCH + "sys.exit(5 + len(open('starts').readlines()))"
    result = job(store, tmp_path / "new", sys.executable, "-c", code, retry_cold=True, snapshot_on_success=True)
    assert (result.exit_code, starts(), result.saved) == (7, 2, None)
    assert result.retried and result.retried.first.exit_code == 6


@pytest.mark.usefixtures("importable")
def test_a_crash_is_a_failure_by_itself(saved: str, store: Path, tmp_path: Path):
    live = tmp_path / "new"
    result = job(store, live, *poisoned(live, "os.kill(os.getpid(), 11)"), retry_cold=True)
    assert result.exit_code == 0 and result.retried and result.retried.first.signal == signal.SIGSEGV


@pytest.mark.usefixtures("importable")
def test_the_entries_beside_those_of_the_snapshot_are_counted(saved: str, store: Path, tmp_path: Path):
    live = tmp_path / "new"
    make_cache(live, seed=5, kernels=0, graphs=1)
    result = job(store, live, *poisoned(live), retry_cold=True)
    assert result.retried and result.retried.others == 6
    alone = run(poisoned(live), cache_dir=live, store=store, restore=False, retry_cold=True, snapshot_on_success=True)
    assert alone.retried and alone.retried.first.restored is None and alone.retried.others


SENT = "signal.signal(10, signal.SIG_IGN); os.system(f'kill -USR1 {os.getppid()}'); time.sleep(0.5); sys.exit(4)"
UNTORCHED = "Path(os.environ['CACHEKEEPER_RUN'], 'loaded-torch').unlink(); sys.exit(4)"
MISSED = "Path(os.environ['CACHEKEEPER_RUN'], 'stop-1.json').write_text('{}'); sys.exit(3)"
NOT_AGAIN = [
    ({"retry_within": 1e-3}, "sys.exit(4)", "it failed after "),
    ({}, "os.kill(os.getpid(), 15)", "a signal from outside"),
    ({}, "sys.exit(137)", "a signal from outside"),
    ({}, SENT, "a signal from outside"),
    ({}, UNTORCHED, "no process of it imported torch"),
    ({}, MISSED, "a graph that missed"),
    ({"restore": False}, "sys.exit(4)", "it was cold already"),
]


@pytest.mark.parametrize(("options", "end", "words"), NOT_AGAIN)
def test_when_it_is_not_started_again(
    options: dict[str, object], end: str, words: str, saved: str, store: Path, tmp_path: Path
):
    live = tmp_path / "new"
    result = job(store, live, sys.executable, "-c", TORCH + end, retry_cold=True, **options)
    assert result.exit_code and result.retried is None and starts() == 1 and cleared(live) == ()
    assert result.notes[-1].startswith("not started again, cold: ") and words in result.notes[-1]


def test_where_the_guard_raised_it_is_not_started_again(saved: str, store: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("CACHEKEEPER_TELEMETRY", "0")
    code = (TORCH + "sys.exit(4)").replace('Path(os.environ["CACHEKEEPER_RUN"], "loaded-torch").touch()', "")
    result = job(store, tmp_path / "new", sys.executable, "-c", code, retry_cold=True, fallback="error")
    assert result.retried is None and "the guard may have ended it" in result.notes[-1]
    assert job(store, tmp_path / "new", sys.executable, "-c", code, retry_cold=True).retried


def test_it_is_not_started_again_where_others_use_the_cache(saved: str, store: Path, tmp_path: Path, monkeypatch):
    from cachekeeper.verbs.run import retrying

    monkeypatch.setattr(retrying, "_PATIENCE", 0.3)
    live = tmp_path / "new"
    command = (sys.executable, "-c", TORCH + "sys.exit(4)")
    cachekeeper.restore("drafter", cache_dir=live, store=store)
    with next(live.rglob("*.so")).open() as file, subprocess.Popen(("sleep", "60"), stdin=file) as user:
        result = job(store, live, *command, retry_cold=True)
        user.kill()
    [trouble] = result.troubles
    assert (result.exit_code, result.retried, starts()) == (4, None, 1)
    assert (trouble.what, trouble.code) == ("not started again, cold", "busy") and str(user.pid) in trouble.facts[0]
    runs.begin(("serve.py",), cache_dir=str(live))
    result = job(store, live, *command, retry_cold=True)
    assert result.retried is None and "1 other job started by `cachekeeper run`" in result.troubles[0].message
    with held(live):
        result = job(store, live, *command, retry_cold=True)
    assert result.retried is None and result.troubles[0].code == "busy" and starts() == 3


def test_a_retry_makes_no_sense_with_assert_warm():
    with pytest.raises(UsageError, match="a cold start misses"):
        run(("true",), retry_cold=True, assert_warm=True)
    with pytest.raises(UsageError, match="retry_within is 0"):
        run(("true",), retry_cold=True, retry_within=0)
