"""The outermost layer: errors and signals -> words and exit codes; odd terminals, pipes and locales."""

from __future__ import annotations

import errno
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from cachekeeper.cli import entry
from cachekeeper.errors import Busy, CachekeeperError
from tests.verbs.conftest import tree

from .conftest import Command

PROGRAM = [sys.executable, "-m", "cachekeeper"]


# Errors


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch):
    """Makes `ls` raise."""

    def arrange(error: BaseException) -> None:
        def raising(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("cachekeeper.verbs.ls.ls", raising)

    return arrange


def test_an_error_in_words(command: Command, fail):
    fail(Busy("it is in use", facts=["process  1", "process  2"], hint="wait"))
    assert command("ls") == (7, "", "error[busy]: it is in use\n  process  1\n  process  2\nhint: wait\n")


def test_an_error_as_json(command: Command, fail):
    fail(Busy("it is in use", facts=["process  1"], hint="wait"))
    assert command("ls", "--json").error == {
        "schema": "cachekeeper.error/1",
        "code": "busy",
        "exit_code": 7,
        "message": "it is in use",
        "facts": ["process  1"],
        "hint": "wait",
    }


@pytest.mark.parametrize("arguments", [["ls", "--nonsense"], ["nonsense"], ["show"], ["restore", "--only"]])
def test_usage_errors_as_json(command: Command, arguments: list[str]):
    error = command(*arguments, "--json").error
    assert (error["code"], error["exit_code"]) == ("usage", 2)
    assert "see `cachekeeper" in error["hint"]


def test_an_error_cannot_drive_a_terminal(command: Command, fail):
    fail(CachekeeperError("a\x1b[2J", facts=["b\x07"], hint="c\r"))
    assert command("ls").err == "error[unexpected]: a?[2J\n  b?\nhint: c?\n"


def test_what_nobody_expected_is_not_hidden(command: Command, fail):
    fail(ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        command("ls")


def test_an_interrupt_is_130(command: Command, fail):
    fail(KeyboardInterrupt())
    said = command("ls")
    assert said.code == 130 and said.out == "" and said.err.endswith("interrupted; nothing is half done\n")


def test_a_termination_is_143(command: Command, fail):
    fail(entry._Terminated())
    assert command("ls") == (143, "", "terminated; nothing is half done\n")


def test_the_handler_of_sigterm_is_put_back(command: Command):
    import signal

    before = signal.getsignal(signal.SIGTERM)
    command("version")
    assert signal.getsignal(signal.SIGTERM) is before


# Signals in the middle of the work


def interrupted(signal_name: str, where: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """A command that gets a signal at its fifth call of a method."""
    code = f"""
import importlib, os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in what a shell starts in the background
module, name, method = {where.split(":")!r}
kind = getattr(importlib.import_module(module), name)
whole, calls = getattr(kind, method), []
def counting(*arguments):
    calls.append(1)
    if len(calls) == 5:
        os.kill(os.getpid(), signal.{signal_name})
        time.sleep(0.2)
    return whole(*arguments)
setattr(kind, method, counting)
from cachekeeper.cli import main
sys.exit(main({arguments!r}))
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_restore_that_is_stopped_leaves_nothing_half_done(home: Path, saved: str, name: str, code: int):
    next((home / "inductor").glob("??/*.so")).write_bytes(b"wrong")
    for path in (home / "inductor").rglob("*.ptx"):
        path.unlink()
    before = tree(home / "inductor")
    result = interrupted(name, "cachekeeper.staging:Stage:write", ["restore", saved, "--allow-mismatch"])
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr and result.stdout == ""
    assert tree(home / "inductor") == before
    assert {path.name for path in (home / "inductor" / ".cachekeeper").iterdir()} == {"restored.json"}


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_snapshot_that_is_stopped_leaves_no_snapshot(home: Path, name: str, code: int):
    result = interrupted(name, "cachekeeper.capture:Capturer:_note", ["snapshot", "drafter"])
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr and result.stdout == ""
    assert list((home / "store").glob("snapshots/*")) == list((home / "store").glob("names/*")) == []
    assert [path for path in (home / "store").rglob("*") if path.name.startswith(".")] == []


# Pipes, locales and terminals


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PROGRAM, *arguments], env={**os.environ, **environ}, capture_output=True, check=False, timeout=60
    )


def test_a_reader_that_is_gone_is_no_matter(home: Path, saved: str):
    for arguments in (["ls"], ["show", "drafter"], ["ls", "--json"], ["--help"], ["verify", "--all"]):
        reader, writer = os.pipe()
        os.close(reader)
        process = subprocess.run([*PROGRAM, *arguments], stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
        os.close(writer)
        assert (process.returncode, process.stderr) == (141, b""), arguments


def test_head_gets_its_line(home: Path, saved: str):
    program = " ".join(PROGRAM)
    result = subprocess.run(["sh", "-c", f"{program} show drafter | head -1"], capture_output=True, check=False)
    assert result.stdout == f"snapshot     {saved}\n".encode() and result.stderr == b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8:strict"])
def test_text_that_the_terminal_does_not_know(home: Path, command: Command, encoding: str):
    odd = "größe ☃"
    command("snapshot", odd, "-m", "\udcff☃", "--quiet")
    for arguments in (["ls"], ["show", odd], ["show", "nothing ☃"], ["ls", odd, "--json"], ["restore", odd, "--json"]):
        result = run(*arguments, PYTHONIOENCODING=encoding)
        assert b"Traceback" not in result.stderr, (arguments, result.stderr.decode(errors="replace"))
        if arguments == ["ls", odd, "--json"]:
            assert json.loads(result.stdout.decode("utf-8"))["snapshots"][0]["names"] == [odd]


def test_a_plain_c_locale(home: Path, saved: str):
    result = run("ls", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert result.returncode == 0 and saved[:8].encode() in result.stdout


def on_a_terminal(*arguments: str, **environ: str) -> str:
    """What a command writes on a terminal of its own."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, *arguments], env={**os.environ, "TERM": "xterm", **environ}, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    parts = []
    while True:
        try:
            part = os.read(controller, 65536)
        except OSError as error:
            assert error.errno == errno.EIO  # Linux's way to say that the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(controller)
    process.wait(timeout=60)
    return b"".join(parts).decode()


def test_a_terminal_gets_a_bar_and_colours(home: Path, command: Command):
    (home / "inductor" / "other").mkdir()
    (home / "inductor" / "other" / "large").write_bytes(os.urandom(20 << 20))
    out = on_a_terminal("snapshot", "drafter", COLUMNS="200")
    assert "Packing     [" in out and "\x1b[32mok\x1b[0m  Saved" in out
    # Wherever a bar was drawn, the line is cleared before words come.
    last = out.rindex("%  ")
    assert "\r\x1b[K" in out[last:] and out.index("\r\x1b[K", last) < out.index("Scanned  ")


def test_a_terminal_without_colours(home: Path, saved: str):
    assert "\x1b[3" not in on_a_terminal("verify", "drafter", NO_COLOR="1")
    assert "\x1b[3" not in on_a_terminal("show", "nothing", NO_COLOR="1")
    assert "\x1b[31merror[not-found]\x1b[0m" in on_a_terminal("show", "nothing")


def test_a_narrow_terminal(home: Path, saved: str):
    lines = on_a_terminal("ls", COLUMNS="40").splitlines()
    assert len(lines) == 2 and max(map(len, lines)) <= 40
