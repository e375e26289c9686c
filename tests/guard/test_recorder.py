"""The recorder: whole lines after a kill, a fork and a full disk; bounded; never an error in the job."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cachekeeper import telemetry
from cachekeeper.guard.recorder import Recorder, this_process
from cachekeeper.models import Graph
from cachekeeper.telemetry import Compiled, End, Fallback, Log, Note, Process


def compiled(number: int, state: str = "miss", size: int = 500) -> Compiled:
    lines = (f"[{number}] gm: {'x' * size}", "[0] inductor_config[a]: 1")
    return Compiled(float(number), "MainThread", Graph("fx", state, f"f{number}", components=lines))


def fallback(number: int = 0) -> Fallback:
    return Fallback(1.0, "worker", f"f{number}", "recompile limit")


def logs(directory: Path) -> list[Log]:
    return sorted((telemetry.read(path) for path in directory.iterdir()), key=lambda log: log.process.began)


def test_a_process_writes_a_file_once_it_has_something_to_tell(tmp_path: Path):
    recorder = Recorder(tmp_path)
    recorder.record(this_process(measures={"tracing": "on"}))
    assert list(tmp_path.iterdir()) == []
    recorder.record(compiled(1))
    recorder.record(fallback())
    recorder.close()
    recorder.record(fallback())
    recorder.close()
    [path] = tmp_path.iterdir()
    assert path == recorder.path and path.stat().st_mode & 0o777 == 0o600
    log = telemetry.read(path)
    assert log.compiled == (compiled(1),) and log.fallbacks == (fallback(),) and not log.torn
    assert log.end is not None and log.end.dropped == 0
    assert (log.process.pid, log.process.measures) == (os.getpid(), {"tracing": "on"})
    assert log.process.argv == tuple(sys.argv) and log.process.python == sys.version.split()[0]


def test_one_that_tells_nothing_leaves_nothing(tmp_path: Path):
    recorder = Recorder(tmp_path)
    recorder.record(this_process())
    recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_known_later_of_the_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recorder = Recorder(tmp_path)
    monkeypatch.setenv("RANK", "3")  # a worker that sets it itself, after the guard was installed
    recorder.record(fallback())
    process = this_process(measures={"backward": "cannot: no such function"})
    recorder.record(process)
    recorder.record(process)
    log = logs(tmp_path)[0]
    assert (log.process.rank, log.process.measures) == (3, {"backward": "cannot: no such function"})
    assert recorder.path is not None and recorder.path.read_bytes().count(b'"kind":"process"') == 2


def test_many_threads_write_whole_lines(tmp_path: Path):
    recorder = Recorder(tmp_path)

    def tell(thread: int) -> None:
        for number in range(100):
            recorder.record(Note(1.0, str(thread), str(number)))

    threads = [threading.Thread(target=tell, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [log] = logs(tmp_path)
    told = {thread: [note.text for note in log.notes if note.thread == str(thread)] for thread in range(8)}
    assert told == {thread: [str(number) for number in range(100)] for thread in range(8)}


WRITER = """
import sys, threading
from pathlib import Path
from cachekeeper.guard.recorder import Recorder
from cachekeeper.models import Graph
from cachekeeper.telemetry import Compiled
recorder = Recorder(Path(sys.argv[1]), limit_bytes=1 << 30)
def tell(thread):
    number = 0
    while True:
        lines = (f"[{thread}{number}] gm: " + "x" * (number % 3000), "[a] config: 1")
        recorder.record(Compiled(float(number), str(thread), Graph("fx", "miss", "k", components=lines)))
        number += 1
        if number == 10:
            print(flush=True)
for thread in range(4):
    threading.Thread(target=tell, args=(thread,)).start()
"""


def test_after_a_kill_every_line_before_is_there(tmp_path: Path):
    for attempt in range(4):
        directory = tmp_path / str(attempt)
        directory.mkdir()
        with subprocess.Popen([sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(random.Random(attempt).random() / 10)
            writer.send_signal(signal.SIGKILL)
        [log] = logs(directory)
        [path] = directory.iterdir()
        assert log.end is None and len(log.compiled) + 1 == path.read_bytes().count(b"\n") > 10
        for thread in "0123":
            own = [event for event in log.compiled if event.thread == thread]
            assert [event.at for event in own] == [float(number) for number in range(len(own))]
            assert all(len(event.graph.components) == 2 for event in own)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_a_file_of_its_own(tmp_path: Path):
    recorder = Recorder(tmp_path)
    recorder.record(compiled(1))
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with recorder._one_at_a_time:
            locked.set()
            done.wait()

    holder = threading.Thread(target=hold)  # as a thread that is about to write while another one forks
    holder.start()
    locked.wait()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        recorder.record(compiled(2))
        recorder.close()
        os._exit(0)
    done.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
    recorder.record(compiled(3))
    recorder.close()
    parent, own = logs(tmp_path)
    assert (parent.process.pid, parent.compiled) == (os.getpid(), (compiled(1), compiled(3)))
    assert (own.process.pid, own.compiled) == (child, (compiled(2),))
    assert parent.end is not None and own.end is not None


def _tell(recorder: Recorder) -> None:
    recorder.record(compiled(1))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_worker_of_multiprocessing_ends_in_order(tmp_path: Path):
    recorder = Recorder(tmp_path)
    worker = multiprocessing.get_context("fork").Process(target=_tell, args=(recorder,))
    worker.start()
    worker.join()
    [log] = logs(tmp_path)
    assert log.end is not None and log.process.pid == worker.pid


# Bounds


def test_near_the_limit_hits_give_way_first(tmp_path: Path):
    recorder = Recorder(tmp_path, limit_bytes=64 << 10)
    for number in range(200):
        recorder.record(compiled(number, "hit"))
    for number in range(199, 219):
        recorder.record(compiled(number, "miss"))
    recorder.record(fallback())
    recorder.close()
    [log] = logs(tmp_path)
    hits, misses = ([e for e in log.compiled if e.graph.state == state] for state in ("hit", "miss"))
    bare = [event for event in hits if not event.graph.components]
    assert 40 < len(hits) < 200 and bare and hits[-len(bare) :] == bare
    assert [event.graph.key for event in misses] == [f"f{number}" for number in range(199, 219)]
    # What had no room with the last hit is told with the miss.
    assert misses[0] == compiled(199) and log.fallbacks == (fallback(),)
    assert log.end is not None and log.end.dropped == 200 - len(hits) + len(bare) + 20 - sum(
        bool(event.graph.components) for event in misses
    )
    assert [note.text for note in log.notes] == ["no room: from here on, something is missing"]
    [path] = tmp_path.iterdir()
    assert path.stat().st_size <= 64 << 10


def test_beyond_the_limit_is_only_counted(tmp_path: Path):
    recorder = Recorder(tmp_path, limit_bytes=8 << 10)
    for number in range(1000):
        recorder.record(fallback(number))
    recorder.close()
    [log] = logs(tmp_path)
    assert log.end is not None and 20 < len(log.fallbacks) == 1000 - log.end.dropped
    assert recorder.path is not None and recorder.path.stat().st_size <= 8 << 10


def test_a_run_of_many_processes_is_bounded(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    for _ in range(20):
        recorder = Recorder(tmp_path, limit_bytes=8 << 10, run_limit=30 << 10)
        for number in range(100):
            recorder.record(fallback(number))
        recorder.close()
    assert 20 << 10 < sum(path.stat().st_size for path in tmp_path.iterdir()) <= 30 << 10
    assert "enough for one run" in capfd.readouterr().err


def test_a_long_text_is_cut(tmp_path: Path):
    recorder = Recorder(tmp_path)
    recorder.record(Note(1.0, "", "x" * 100_000))
    [log] = logs(tmp_path)
    assert len(log.notes[0].text) == 2000 and log.notes[0].text.endswith("...")


# Nothing is raised into the job


def test_no_directory_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    recorder = Recorder(tmp_path / "gone")
    for number in range(3):
        recorder.record(compiled(number))
    recorder.close()
    error = capfd.readouterr().err
    assert error.count("\n") == 1 and "telemetry of process" in error and "gone" in error


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    tmp_path.chmod(0o500)
    Recorder(tmp_path).record(compiled(1))
    assert capfd.readouterr().err.count("\n") == 1


def test_a_directory_that_goes_away_meanwhile_is_no_matter(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    recorder = Recorder(tmp_path)
    recorder.record(compiled(1))
    assert recorder.path is not None
    recorder.path.unlink()
    recorder.record(compiled(2))
    recorder.close()
    assert capfd.readouterr().err == ""


FULL = """
import resource, signal, sys
from pathlib import Path
from cachekeeper.guard.recorder import Recorder
from cachekeeper.telemetry import Note
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
recorder = Recorder(Path(sys.argv[1]))
for number in range(100):
    recorder.record(Note(float(number), "", "x" * 100))
recorder.close()
"""


def test_a_full_disk_ends_telemetry_with_one_line(tmp_path: Path):
    result = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    assert result.stderr.count("\n") == 1 and "ends here" in result.stderr
    [log] = logs(tmp_path)
    assert log.torn and log.end is None and len(log.notes) > 20


def test_an_event_that_is_none_is_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    recorder = Recorder(tmp_path)
    recorder.record(Compiled(1.0, "", Graph("fx", "miss", "k", components=("a", object()))))  # type: ignore[arg-type]
    recorder.record("nothing")  # type: ignore[arg-type]
    recorder.record(Compiled(1.0, "", Graph("fx", "miss", "k", components=("a", "b"))))
    recorder.close()
    [log] = logs(tmp_path)
    assert log.end == End(log.end.at, 2) if log.end else False
    assert [event.graph.components for event in log.compiled] == [("a", "b")] and capfd.readouterr().err == ""


def test_a_process_is_what_this_one_is():
    process = this_process(torch="2.13.0")
    assert isinstance(process, Process) and process.torch == "2.13.0" and abs(process.began - time.time()) < 60
