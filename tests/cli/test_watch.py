"""`cachekeeper watch`: one line an event, and its exit codes; real processes where signals matter."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachekeeper.watching import held, watcher_of
from tests.watching.guarding import wait_for

from .conftest import Command

CACHEKEEPER = [sys.executable, "-m", "cachekeeper"]
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ .+")


@pytest.fixture(autouse=True)
def this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.fixture
def live(saved: str, home: Path, command: Command) -> Path:
    assert command("restore", "drafter", "--cache-dir", home / "live").code == 0
    return home / "live"


class Watching:
    """`cachekeeper watch` as a process."""

    def __init__(self, live: Path, *arguments: object, **options: object) -> None:
        words = [*CACHEKEEPER, "watch", "--cache-dir", live, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        self.process = subprocess.Popen(list(map(str, words)), text=True, **pipes)  # type: ignore[call-overload]
        self._live = live

    def __enter__(self) -> Watching:
        wait_for(lambda: watcher_of(self._live) == self.process.pid)
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def read_until(self, word: str) -> str:
        """The first line with a word in it."""
        assert self.process.stdout
        return next(line for line in self.process.stdout if word in line)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def test_once(live: Path, command: Command):
    said = command("watch", "--cache-dir", live, "--once")
    assert (said.code, said.err) == (0, "") and said.out.endswith(": nothing to put back\n")
    shutil.rmtree(live / "aotautograd")
    said = command("watch", "--cache-dir", live, "--once", "--quiet")
    assert said == (0, "", "")
    shutil.rmtree(live / "aotautograd")
    said = command("watch", "--cache-dir", live, "--once")
    gone, put_back, summary = said.out.splitlines()
    assert all(map(LINE.fullmatch, said.out.splitlines()))
    assert re.search(r"Z gone 2 entries \(aotautograd/\w+\.\.\., aotautograd/\w+\.\.\.\)$", gone)
    assert re.search(r"Z put back 2 entries, 3\.9 KiB, 0\.\d\d s \(aotautograd", put_back)
    assert summary.endswith(": put back 2 entries, 3.9 KiB in all")


def test_once_where_it_cannot_be_put_back(live: Path, home: Path, command: Command):
    for pack in (home / "store").glob("packs/*"):
        pack.unlink()
    shutil.rmtree(live / "aotautograd")
    said = command("watch", "--cache-dir", live, "--once", "--quiet")
    assert said.code == 3 and "cannot put back 2 entries: damaged in file://" in said.out
    said = command("watch", "--cache-dir", live, "--once", "--json")
    assert said.code == 3
    events = [json.loads(line) for line in said.out.splitlines()]
    assert {event["schema"] for event in events} == {"cachekeeper.watch/1"}
    assert [event["event"] for event in events] == ["gone", "trouble", "ended"]
    assert events[1]["code"] == "damaged-store" and len(events[1]["entries"]) == len(events[2]["entries"]) == 2


def test_refused(live: Path, home: Path, command: Command):
    with held(live):
        said = command("watch", "--cache-dir", live, "--json")
        assert said.code == 7 and said.error["code"] == "busy"
    assert command("watch", "--cache-dir", home / "new", "--json").error["exit_code"] == 5
    assert command("watch", "nothing", "--cache-dir", live).code == 5
    assert command("watch", "--rate", "0").code == 2 and command("watch", "--interval", "x").code == 2
    assert command("watch", "--cache-dir", live, "--log", live / "x" / "log").code == 2
    said = command("watch", "--cache-dir", live, "--log", "/no/such/log", "--json")
    assert said.code == 8 and said.error["message"] == "cannot write the log"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_says_what_it_did_when_it_is_ended(live: Path, number: int, code: int):
    with Watching(live) as watching:
        assert "watching 27 files of " in watching.read_until("watching")
        shutil.rmtree(live)
        watching.read_until("put back")
        ended, out, err = watching.end(number)
    assert ended == code and "nothing is half done" in err
    assert re.search(r"Z ended after .*: put back \d+ entries, [\d.]+ KiB in all\n$", out)


def test_the_log_is_appended_to_whoever_rotates_it(live: Path, home: Path):
    log = home / "watch.log"
    log.write_text("before\n")
    with Watching(live, "--log", log, "--json") as watching:
        wait_for(lambda: "watching" in log.read_text())
        log.rename(home / "watch.log.1")
        shutil.rmtree(live)
        wait_for(lambda: log.exists() and "put-back" in log.read_text())
        code, out, _ = watching.end()
    assert (code, out) == (143, "")
    assert (home / "watch.log.1").read_text().startswith("before\n{")
    assert json.loads(log.read_text().splitlines()[-1])["event"] == "ended"


def test_who_reads_our_words_may_go(live: Path, saved: str):
    with Watching(live) as watching:
        watching.read_until("watching")
        assert watching.process.stdout
        watching.process.stdout.close()
        for _ in range(2):
            library = min(live.glob("??/*.so"))
            library.unlink()
            wait_for(library.exists)
        watching.process.send_signal(signal.SIGTERM)
        assert watching.process.wait(60) == 143


@pytest.fixture
def notified(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What systemd listens to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(home / "notify"))
        channel.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(home / "notify"))
        yield channel


def test_systemd_is_told_when_it_has_begun(live: Path, notified: socket.socket):
    with Watching(live):
        words = notified.recv(4096).decode().splitlines()
    assert words[0] == "READY=1" and words[1].startswith("STATUS=watching 27 files of ")


def test_a_name_of_the_kernels_own_is_told_too(live: Path, monkeypatch: pytest.MonkeyPatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(f"\0cachekeeper-{os.getpid()}")
        channel.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@cachekeeper-{os.getpid()}")
        with Watching(live):
            assert channel.recv(4096).startswith(b"READY=1\n")


def test_nothing_but_what_it_needs_is_loaded(live: Path):
    """No torch, and nothing of S3 for a store in a directory."""
    with Watching(live) as watching:
        watching.read_until("watching")
        time.sleep(0.2)
        maps = Path(f"/proc/{watching.process.pid}/maps").read_text()
    assert "libtorch" not in maps and "botocore" not in maps and "_ssl" not in maps
