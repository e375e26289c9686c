"""The command: one line, more with -v, JSON, and an exit code for a launch script."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from .conftest import Command


@pytest.fixture
def cache(home: Path, command: Command, saved: str) -> Path:
    shutil.rmtree(home / "inductor")
    command("restore", "drafter")
    return home / "inductor"


def test_one_line_when_all_is_well(cache: Path, command: Command, saved: str):
    line = f"intact   {cache}   27 files as in {saved[:8]} (drafter)\n"
    assert command("status") == (0, line, "")
    assert command("status", cache, "--quick").out == line.replace("\n", "; by size, no byte read\n")
    assert command("status", "--quiet") == (0, "", "")


def test_gone_and_damaged(cache: Path, command: Command, saved: str):
    graph = next(cache.glob("fxgraph/*/f*"))
    shutil.rmtree(graph)
    next(cache.glob("triton/0/*/*.cubin")).write_bytes(b"")
    said = command("status")
    assert said.code == 3 and said.out.count("\n") == 2
    assert re.search(r"1 entry damaged, 1 of 13 entries gone as of \d{4}-\S+Z; against " + saved[:8], said.out)
    said = command("status", "-v")
    assert f"\n  {graph.relative_to(cache)}\n" in said.out and "gone  1\n" in said.out and "damaged  1\n" in said.out
    for out in (said.out, command("status").out):
        assert "hint: put triton/0/" in out
        assert f" and 1 more back with `cachekeeper restore {saved[:8]} --cache-dir {cache}`" in out
    document = command("status", "--json").json
    assert (document["schema"], document["ok"], document["state"]) == ("cachekeeper.status/1", False, "damaged")
    assert document["gone"] == [str(graph.relative_to(cache))] and len(document["damaged"]) == 1
    assert command("restore", saved).code == command("status").code == 0


def test_grown_and_newer(home: Path, cache: Path, command: Command, saved: str):
    (cache / "cache" / ("a" * 64)).write_text("{}")
    assert "grown by 1 entry; against" in command("status").out
    shutil.copytree(cache, home / "other")
    newer = command("snapshot", "drafter", "-q", "--cache-dir", home / "other").out[:8]
    said = command("status")
    assert said.code == 0 and f"against {saved[:8]} (drafter); drafter is {newer} now\n" in said.out


@pytest.mark.parametrize("marker", [True, False])
def test_empty_absent_and_unknown(home: Path, cache: Path, command: Command, saved: str, marker: bool):
    for path in cache.iterdir():
        if path.name != ".cachekeeper" or not marker:
            shutil.rmtree(path)
    said = command("status")
    assert (said.code, said.out[:9]) == (5, "empty    ")
    assert (f"13 entries of {saved[:8]} (drafter) gone" if marker else "never restored") in said.out
    absent = command("status", home / "absent")
    assert absent.code == 5 and f"`cachekeeper restore NAME --cache-dir {home / 'absent'}`" in absent.out


def test_an_unknown_state_says_what_to_do(cache: Path, command: Command):
    (cache / ".cachekeeper" / "restored.json").unlink()
    said = command("status")
    assert (
        said.code == 5 and said.out.startswith("unknown  ") and "hint: name a snapshot with --against NAME" in said.out
    )
    assert command("status", "").code == 2


def test_against_and_its_errors(cache: Path, command: Command, saved: str):
    assert command("status", "--against", "drafter").code == 0
    assert command("status", "--against", "nobody", "--json").error["code"] == "not-found"


def test_after_a_clear_it_says_how_the_cache_comes_back(cache: Path, command: Command, saved: str):
    command("clear", cache)
    said = command("status")
    assert said.code == 5 and "it was cleared at 20" in said.out and "never restored" not in said.out
    assert f"`cachekeeper clear {cache} --undo` brings it back, or `cachekeeper restore {saved[:8]}" in said.out
