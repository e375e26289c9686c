"""The command: each of its four works in every mode, and its exit codes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cachekeeper.disk import locked

from .conftest import Command


def test_cleared_listed_and_back_in_words(home: Path, command: Command):
    cache = home / "inductor"
    said = command("clear")
    assert said.code == 0
    assert said.err == "warning: 13 entries that no snapshot is known to hold\n"
    trash = next((home / ".inductor.cleared").iterdir())
    assert f"Moved to     {trash}\n" in said.out
    assert f"ok  cleared {cache}: 13 entries, 27 files, " in said.out
    assert " (with locks, headers and what was put aside)\n" in said.out
    assert f"hint: `cachekeeper clear {cache} --undo` brings it back\n" in said.out
    heading, row, place, hint = command("clear", "--list").out.splitlines()
    assert heading.split() == ["WHEN", "AGE", "FILES", "SIZE", "SNAPSHOT"]
    assert row.startswith(f"{trash.name}  ") and row.endswith("  -") and "     30  " in row
    assert (place, hint) == (f"in {trash.parent}", "hint: `cachekeeper clear --undo WHEN` brings one back")
    assert command("clear", "--undo").out.startswith(f"ok  {cache} is back, 30 files, ")
    assert command("clear", "--list") == (0, "ok  the trash is empty\n", "")


def test_in_json_and_quietly(home: Path, command: Command):
    cache = home / "inductor"
    dry = command("clear", cache, "--dry-run", "--json").json
    assert (dry["schema"], dry["dry_run"], dry["trash"], dry["files"]) == ("cachekeeper.clear/1", True, None, 27)
    document = command("clear", cache, "--json").json
    assert document["trash"] == f"{home}/.inductor.cleared/{document['item']}"
    listed = command("clear", cache, "--list", "--json").json
    assert [item["name"] for item in listed["items"]] == [document["item"]]
    assert command("clear", cache, "--list", "-q").out == document["item"] + "\n"
    undone = command("clear", cache, "--undo", document["item"], "--json").json
    assert (undone["item"]["name"], undone["now_in_trash"]) == (document["item"], None)
    assert command("clear", cache, "--quiet").out.startswith(f"{home}/.inductor.cleared/")
    emptied = command("clear", cache, "--empty-trash", "--json").json
    assert len(emptied["deleted"]) == 1 and emptied["bytes"] == emptied["deleted"][0]["bytes"] > 0
    assert command("clear", cache, "--json").json["trash"] is None


def test_undo_takes_the_directory_too(home: Path, command: Command):
    command("clear", home / "inductor")
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
    assert command("clear", "--undo", home / "inductor").code == 0


def test_emptying_says_what_it_deletes(home: Path, command: Command):
    command("clear")
    trash = next((home / ".inductor.cleared").iterdir())
    assert command("clear", "--empty-trash", "--older-than", "7d").out == "ok  nothing to delete that is so old\n"
    assert command("clear", "--empty-trash", "--dry-run").out.startswith(f"would delete  {trash}   30 files, ")
    said = command("clear", "--empty-trash", "--older-than", "0s")
    assert said.out.startswith(f"deleted  {trash}   30 files, ") and "ok  deleted 1 item, " in said.out
    assert command("clear", "--empty-trash").out == "ok  nothing to delete: the trash is empty\n"


def test_what_was_restored_is_named(home: Path, command: Command, saved: str):
    command("restore", "drafter")
    again = f"hint: `cachekeeper restore {saved[:8]} --cache-dir {home / 'inductor'}` restores what"
    assert again in command("clear").out
    assert command("clear", "--list").out.splitlines()[1].endswith(f"  {saved[:8]}")
    [item] = command("clear", "--list", "--json").json["items"]
    assert item["snapshot"] == saved


@pytest.mark.parametrize(
    "options",
    [
        *(("--undo", "--list"), ("--list", "--empty-trash"), ("--older-than", "7d"), ("--list", "--dry-run")),
        *(("--empty-trash", "--older-than", age) for age in ("7", "d", "-1d", "1y", "")),
    ],
)
def test_options_that_make_no_sense(home: Path, command: Command, options: tuple[str, ...]):
    assert command("clear", *options).code == 2
    assert not (home / ".inductor.cleared").exists()


def test_exit_codes(home: Path, command: Command):
    cache = home / "inductor"
    assert command("clear", "/", "--json").error["code"] == "usage"
    assert command("clear", home / "absent").code == 5
    assert command("clear", cache, "--undo").code == 5
    with locked(cache):
        assert command("clear", cache).code == 7
    if os.geteuid() == 0:
        os.chown(cache, 12345, -1)
        assert command("clear", cache).code == 8
