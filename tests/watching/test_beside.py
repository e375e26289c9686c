"""A watch in a child of a process: it goes when that goes, and is in nobody's way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cachekeeper.errors import Busy
from cachekeeper.watching import Event, Tell
from cachekeeper.watching.beside import Beside

from .guarding import wait_for


def wait_until(until: int) -> None:
    import select

    select.select([until], [], [])


def test_what_it_told():
    def work(until: int, tell: Tell) -> None:
        tell(Event("gone", "gone 1 entry", ("a/b",), seconds=0.5))
        wait_until(until)
        tell(Event("ended", "ended"))

    events = Beside(work).finish()
    assert [(event.event, event.entries, event.seconds) for event in events] == [
        ("gone", ("a/b",), 0.5),
        ("ended", (), 0.0),
    ]


def test_an_error_is_told_and_raised_nowhere():
    def work(until: int, tell: Tell) -> None:
        raise Busy("it is watched already", hint="wait")

    [event] = Beside(work).finish()
    assert (event.event, event.code) == ("trouble", "busy") and "watched already" in event.text


def test_what_it_told_before_it_was_killed():
    def work(until: int, tell: Tell) -> None:
        tell(Event("watching", "x"))
        os.kill(os.getpid(), signal.SIGKILL)

    assert [event.event for event in Beside(work).finish()] == ["watching"]


def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cachekeeper.watching.beside._PATIENCE", 0.1)
    beside = Beside(lambda until, tell: time.sleep(60))
    assert beside.finish() == []
    with pytest.raises(ProcessLookupError):
        os.kill(beside._pid, 0)


def test_it_holds_nothing_that_was_open_and_hears_no_signal(tmp_path: Path):
    reader, writer = os.pipe()

    def work(until: int, tell: Tell) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        open_here = sorted(map(int, os.listdir("/proc/self/fd")))
        tell(Event("note", "", files=len(open_here)))
        wait_until(until)

    beside = Beside(work)
    os.close(writer)
    assert os.read(reader, 1) == b""  # the child does not hold it
    [event] = beside.finish()
    assert event.files == 3 + 2 + 1  # standard streams, the pipe, the report, and the listing itself


PARENT = """
import sys, time
from cachekeeper.watching.beside import Beside
def work(until, tell):
    import select
    select.select([until], [], [])
beside = Beside(work)
print(beside._pid, flush=True)
time.sleep(60)
"""


def test_it_ends_when_its_parent_is_killed():
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        parent.kill()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split())
