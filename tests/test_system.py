"""On a system that is not Linux: help and the version work, all else is one clear error, and nothing a traceback."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cachekeeper.cli.group import COMMANDS

# What Python lacks there, once the libraries that look at the system themselves are loaded.
ELSEWHERE = """
import click, click.shell_completion, ctypes, os, signal, subprocess, sys
sys.platform = {platform!r}
sys.modules.update(dict.fromkeys(["fcntl", "grp", "pwd", "resource", "termios"]))
for name in ("O_PATH", "O_TMPFILE", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "geteuid", "statvfs"):
    delattr(os, name)
del signal.SIGPIPE
"""


def elsewhere(code: str, platform: str = "win32") -> subprocess.CompletedProcess[str]:
    program = ELSEWHERE.format(platform=platform) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)


def command(*arguments: str, platform: str = "win32") -> subprocess.CompletedProcess[str]:
    return elsewhere(f"from cachekeeper.cli import main\nsys.exit(main({list(arguments)}))", platform)


@pytest.mark.parametrize("arguments", [["--help"], [], ["--version"], ["version"], ["completion", "zsh"]])
def test_what_needs_no_linux_works(arguments: list[str]):
    result = command(*arguments)
    assert (result.returncode, result.stderr) == (0, "") and "cachekeeper" in result.stdout


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_a_command_is_one_clear_error(platform: str):
    result = command("restore", "drafter", platform=platform)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"error[unsupported-system]: cachekeeper needs Linux; this is {platform}\n"
        "  Windows and macOS are not supported in this version\n"
        "hint: use it on the Linux machine, or in the Linux container, that runs the job\n"
    )


def test_the_error_is_json_too():
    result = command("ls", "--json")
    error = json.loads(result.stderr)
    assert (result.returncode, error["code"], error["exit_code"]) == (1, "unsupported-system", 1)


def test_it_is_so_for_every_command():
    told = f"""
from cachekeeper.cli.group import cli
from cachekeeper.errors import UnsupportedSystem
for name in {list(COMMANDS)}:
    try:
        cli.get_command(None, name)
        print(name)
    except UnsupportedSystem:
        pass
"""
    result = elsewhere(told)
    assert (result.stdout.split(), result.stderr) == (["completion", "version"], "")


@pytest.mark.parametrize(
    "code",
    [
        "import cachekeeper; cachekeeper.restore",
        "import cachekeeper.guard; cachekeeper.guard.install()",
        "import cachekeeper.testing; cachekeeper.testing.StoreContract",
    ],
)
def test_the_library_raises_the_same(code: str):
    result = elsewhere(code)
    assert result.returncode == 1 and "UnsupportedSystem: cachekeeper needs Linux; this is win32" in result.stderr


def test_importing_the_package_works():
    code = "import cachekeeper, cachekeeper.errors, cachekeeper.guard; cachekeeper.plan; print(cachekeeper.__version__)"
    assert elsewhere(code).returncode == 0
