"""The commands: each has help with examples, each option is documented, and a slip of the pen is understood."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import cachekeeper
from cachekeeper.cli.group import COMMANDS, cli

from .conftest import Command

CONTEXT = cli.make_context("cachekeeper", ["version"])
HERE = Path(__file__).parent
# command -> verb and module, where the command's word is none for Python
VERBS = {"import": "import_cache"}


def get(name: str) -> click.Command:
    found = cli.get_command(CONTEXT, name)
    assert found is not None
    return found


def test_every_command_has_a_module_and_every_module_a_command():
    package = Path(cachekeeper.__file__).parent / "cli"
    shared = {
        "__init__",
        "diff_parts",
        "entry",
        "group",
        "one_kernel",
        "options",
        "output",
        "pages",
        "proof",
        "warming",
    }
    assert {path.stem for path in package.glob("*.py")} - shared == {VERBS.get(name, name) for name in COMMANDS}


def test_every_verb_is_a_command_a_function_and_has_tests():
    commands = set(COMMANDS) - {"completion", "version"}
    for name in commands:
        verb = VERBS.get(name, name)
        assert callable(getattr(cachekeeper, verb))
        assert any((HERE.parent / place / f"test_{verb}.py").exists() for place in ("verbs", "torch_cpu")), verb
        assert (HERE / f"test_{name}.py").exists(), name
    # `verify --replay`, and the decorator
    assert set(cachekeeper.__all__) - {VERBS.get(name, name) for name in commands} == {"__version__", "plan", "replay"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help(name: str, command: Command):
    said = command(name, "--help")
    assert said.code == 0 and said.err == ""
    assert f"Usage: cachekeeper {name}" in said.out
    assert f"Examples:\n    cachekeeper {name}" in said.out or "Examples:\n    eval " in said.out
    assert command(name, "-h").out == said.out
    assert max(map(len, said.out.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented(name: str):
    for parameter in get(name).params:
        if isinstance(parameter, click.Option):
            assert parameter.help and parameter.help.endswith((".", "]", ")")), parameter.name


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_parse(name: str):
    lines = (get(name).epilog or "").replace("\b", "").splitlines()
    examples = [line.strip() for line in lines if "cachekeeper" in line]
    assert examples
    for line in examples:
        # Without what a shell makes of it, and the words for people behind it.
        words = shlex.split(re.split(r" {2,}| \|", line.removeprefix('eval "$(').removesuffix(')"'))[0])
        assert words[0] == "cachekeeper"
        get(words[1]).make_context(words[1], words[2:], parent=CONTEXT)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "completion"])
def test_every_command_has_json_and_quiet(name: str):
    options = {option for parameter in get(name).params for option in parameter.opts}
    assert {"--json", "--quiet"} <= options


def test_without_a_command_there_is_help(command: Command):
    assert command() == command("--help")
    assert max(map(len, command().out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("word", "meant"), [("snapsho", "snapshot"), ("list", ""), ("resotre", "restore"), ("verfy", "verify")]
)
def test_a_slip_of_the_pen(word: str, meant: str, command: Command):
    said = command(word)
    assert said.code == 2 and said.out == ""
    assert f"error[usage]: no command '{word}'." in said.err
    assert (f"Did you mean `{meant}`?" in said.err) == bool(meant)


def test_versions(command: Command):
    assert command("--version").out == f"cachekeeper {cachekeeper.__version__}\n"
    assert command("version").out == f"cachekeeper {cachekeeper.__version__}  (store format 1)\n"
    assert command("version", "--quiet").out == f"{cachekeeper.__version__}\n"
    assert command("version", "--json").json == {
        "schema": "cachekeeper.version/1",
        "version": cachekeeper.__version__,
        "format": 1,
    }


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, command: Command):
    said = command("completion", shell)
    assert said.code == 0 and "_CACHEKEEPER_COMPLETE" in said.out


@pytest.mark.parametrize(("words", "found"), [("cachekeeper sn", "snapshot"), ("cachekeeper ls --st", "--store")])
def test_completion_completes(words: str, found: str):
    environ = {**os.environ, "_CACHEKEEPER_COMPLETE": "bash_complete", "COMP_WORDS": words}
    environ["COMP_CWORD"] = str(len(words.split()) - 1)
    result = subprocess.run(
        [sys.executable, "-m", "cachekeeper"], env=environ, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0 and result.stdout == f"plain,{found}\n"
