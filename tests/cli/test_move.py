"""The command: its arguments, its words, and what a shell makes of --export."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .conftest import Command


def test_in_words(home: Path, command: Command):
    said = command("move", home / "inductor", home / "new")
    assert said.code == 0 and said.err == ""
    trash = next((home / ".inductor.cleared").iterdir())
    assert f"The old one  {trash}\n" in said.out
    assert f"ok  moved to {home}/new: 27 files, " in said.out
    assert f"\n  export TORCHINDUCTOR_CACHE_DIR={home}/new\n  export TRITON_CACHE_DIR={home}/new/triton/0\n" in said.out
    assert f"hint: `cachekeeper clear {home}/inductor --empty-trash` deletes the old one\n" in said.out


def test_one_argument_is_where_to(home: Path, command: Command):
    document = command("move", home / "new", "--json").json
    assert document["schema"] == "cachekeeper.move/1"
    assert (document["cache_dir"], document["target"]) == (f"{home}/inductor", f"{home}/new")


def test_without_arguments_it_leaves_for_the_home(home: Path, command: Command):
    assert command("move", "--quiet") == (0, f"{os.environ['XDG_CACHE_HOME']}/torchinductor\n", "")


def test_export_is_for_eval(home: Path):
    target = home / "it's new"
    script = f"""eval "$({sys.executable} -m cachekeeper move "$1" --export)"
printf '%s\\n' "$TORCHINDUCTOR_CACHE_DIR" "$TRITON_CACHE_DIR" """
    done = subprocess.run(["sh", "-c", script, "sh", str(target)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{target}\n{target}/triton/0\n"
    assert "ok  moved to" in done.stderr


def test_exit_codes(home: Path, command: Command):
    assert command("move", "a", "b", "c").code == 2
    assert command("move", home / "absent", home / "new").code == 5
    assert command("move", home / "inductor").code == 2
