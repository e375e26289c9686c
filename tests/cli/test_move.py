"""The command: its arguments, its words, and what a shell makes of --export."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cachekeeper.testing import make_cache

from .conftest import Command


def test_in_words(home: Path, command: Command):
    said = command("move", home / "inductor", "--to", home / "new")
    assert said.code == 0 and said.err == ""
    trash = next((home / ".inductor.cleared").iterdir())
    assert f"The old one  {trash}\n" in said.out
    assert f"ok  moved {home}/inductor to {home}/new: 27 files, " in said.out
    assert f"\n  export TORCHINDUCTOR_CACHE_DIR={home}/new\n  export TRITON_CACHE_DIR={home}/new/triton/0\n" in said.out
    assert f"hint: `cachekeeper clear {home}/inductor --empty-trash` deletes the old one\n" in said.out
    assert "Beside it" not in said.out and "Replaced" not in said.out


def test_one_argument_is_the_cache(home: Path, command: Command):
    other = make_cache(home / "other", seed=8)
    document = command("move", other, "--json").json
    assert document["schema"] == "cachekeeper.move/1"
    assert (document["cache_dir"], document["target"]) == (
        str(other),
        f"{os.environ['XDG_CACHE_HOME']}/torchinductor",
    )
    assert next((home / "inductor").iterdir())


def test_a_dry_run_says_both_places_and_moves_nothing(home: Path, command: Command):
    said = command("move", "--to", home / "new", "--dry-run")
    assert said.code == 0
    assert f"ok  would move {home}/inductor to {home}/new: 27 files, " in said.out
    assert "Verified" not in said.out and "export" not in said.out
    assert not (home / "new").exists() and not (home / ".inductor.cleared").exists()
    assert command("move", "--to", home / "new", "--dry-run", "--export").code == 2


def test_what_was_in_the_other_place_is_told(home: Path, command: Command):
    there = make_cache(home / "there", seed=8)
    source = next((home / "inductor" / "fxgraph").rglob("[!.]*/*/*"))
    path = there / source.relative_to(home / "inductor")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"other")
    planned = command("move", "--to", there, "--dry-run")
    assert ", 1 would replace what is there and differs" in planned.out
    said = command("move", "--to", there)
    aside = next((there / ".cachekeeper" / "aside").iterdir())
    assert f"Replaced     1 file; what was there is put aside in {aside}\n" in said.out
    assert f" files of another cache in {there}, which stay\n" in said.out


def test_without_arguments_it_leaves_for_the_home(home: Path, command: Command):
    assert command("move", "--quiet") == (0, f"{os.environ['XDG_CACHE_HOME']}/torchinductor\n", "")


def test_export_is_for_eval(home: Path):
    target = home / "it's new"
    script = f"""eval "$({sys.executable} -m cachekeeper move --to "$1" --export)"
printf '%s\\n' "$TORCHINDUCTOR_CACHE_DIR" "$TRITON_CACHE_DIR" """
    done = subprocess.run(["sh", "-c", script, "sh", str(target)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{target}\n{target}/triton/0\n"
    assert "ok  moved " in done.stderr


def test_exit_codes(home: Path, command: Command):
    assert command("move", home / "inductor", home / "new").code == 2
    assert command("move", home / "absent", "--to", home / "new").code == 5
    assert command("move", "--to", home / "inductor").code == 2
