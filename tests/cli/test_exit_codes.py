"""Each exit code of the README's table, from a real command: none is left out, and no error class has another."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from tests import samples
from tests.test_errors import EXIT_CODES
from tests.test_system import command as elsewhere
from tests.verbs.conftest import Machine

from .conftest import Command

PROGRAM = [sys.executable, "-m", "cachekeeper"]


def run(*arguments: str) -> int:
    """The exit code of a command in a process of its own."""
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, check=False, timeout=60).returncode


def without_packs(home: Path, command: Command) -> int:
    shutil.rmtree(home / "store" / "packs")
    return command("verify", "drafter").code


def while_in_use(home: Path, command: Command) -> int:
    library = str(next((home / "inductor").glob("??/*.so")))
    code = f"import sys; f = open({library!r}); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        said = command("clear").code
        process.kill()
    return said


def of_everybody(home: Path, command: Command) -> int:
    (home / "inductor").chmod(0o777)
    return command("snapshot").code


def stopped_by(number: int) -> int:
    """The exit code of a watch that a signal ends."""
    start = "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler); os.execv"
    program = f"{start}({PROGRAM[0]!r}, {[*PROGRAM, 'watch', 'drafter']})"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout and b"watching" in process.stdout.readline()
        process.send_signal(number)
        return process.wait(60)


ENDS: dict[int, Callable[[Path, Command], int]] = {
    0: lambda home, command: command("ls").code,
    1: lambda home, command: elsewhere("ls").returncode,
    2: lambda home, command: command("ls", "--nothing").code,
    3: without_packs,
    5: lambda home, command: command("show", "nothing").code,
    6: lambda home, command: command("snapshot", "--read-only").code,
    7: while_in_use,
    8: of_everybody,
    125: lambda home, command: run("run", "--strict", "--name", "nothing", "--", "true"),
    126: lambda home, command: run("run", "--", "/etc/passwd"),
    127: lambda home, command: run("run", "--", "no-such-command"),
    130: lambda home, command: stopped_by(signal.SIGINT),
    143: lambda home, command: stopped_by(signal.SIGTERM),
}


@pytest.mark.parametrize("code", ENDS)
def test_a_command_ends_with_it(home: Path, command: Command, saved: str, code: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(cachekeeper.__file__).parents[1]), prepend=os.pathsep)
    assert ENDS[code](home, command) == code


def test_another_environment(home: Path, command: Command, saved: str, machine: Machine):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    assert command("restore", "drafter").code == 4


def test_none_is_left_out():
    readme = (Path(cachekeeper.__file__).parents[1] / "README.md").read_text()
    [table] = re.findall(r"^## Exit codes\n(.*?)(?=^## )", readme, re.DOTALL | re.MULTILINE)
    documented = [code for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(", ")]
    assert sorted(map(int, documented)) == sorted({*ENDS, 4})
    assert set(EXIT_CODES.values()) <= {*ENDS, 4}
