"""The command: what it says and answers in every mode, and its exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cachekeeper.repository import Move, open_repository
from cachekeeper.testing import make_triton_entry
from tests.verbs.conftest import settle, unplaced

from .conftest import Command


def size(said: str) -> str:
    """Without lengths, which depend on zstd's version."""
    return re.sub(r"[\d.]+ KiB", "9.9 KiB", said)


def spoil(home: Path) -> Path:
    """Damage the one pack of the store."""
    [pack] = (home / "store").glob("packs/*")
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.chmod(0o644)
    pack.write_bytes(data)
    return pack


def test_in_words(home: Path, command: Command, saved: str):
    said = command("copy", home / "store", home / "other")
    assert (said.code, said.err) == (0, "")
    assert size(said.out) == (
        "Copied   1 snapshot, 1 pack, 9.9 KiB\n"
        f"Names    drafter -> {saved[:8]}\n"
        f"ok  file://{home}/store -> file://{home}/other\n"
    )
    said = command("copy", home / "store", home / "other")
    assert said == (
        0,
        f"Copied   nothing: 1 snapshot was already there\nok  file://{home}/store -> file://{home}/other\n",
        "",
    )
    make_triton_entry(home / "inductor" / "triton" / "0", seed=77)
    settle(home / "inductor")
    command("snapshot", "other/name")
    said = command("copy", home / "store", home / "other")
    assert size(said.out).startswith(
        "Copied   1 snapshot, 1 pack, 9.9 KiB   (1 snapshot was already there)\nNames    other/name -> "
    )


def test_what_was_copied_restores(home: Path, command: Command, saved: str):
    assert command("copy", home / "store", home / "other", "drafter").code == 0
    assert command("restore", "drafter", "--store", home / "other", "--cache-dir", home / "back").code == 0
    assert unplaced(home / "back") == unplaced(home / "inductor")


def test_several_names(home: Path, command: Command, saved: str):
    command("snapshot", "second")
    said = command("copy", home / "store", home / "other").out.splitlines()
    assert said[1] == f"Names    drafter -> {saved[:8]}" and said[2].startswith("         second -> ")


def test_a_dry_run(home: Path, command: Command, saved: str):
    said = command("copy", home / "store", home / "other", "--dry-run")
    assert said.code == 0 and not (home / "other").exists()
    assert size(said.out) == (
        "Would copy   1 snapshot, 1 pack, 9.9 KiB\n"
        f"Would move   drafter -> {saved[:8]}\n"
        f"ok  Would copy file://{home}/store -> file://{home}/other\n"
    )


def test_a_name_that_stays(home: Path, command: Command, saved: str):
    command("copy", home / "store", home / "other", saved)
    repository = open_repository(home / "other")
    other = command("snapshot", "--store", home / "other", "--quiet").out.strip()
    assert repository.append_move("drafter", Move(1, other, "2999-01-01T00:00:00Z", "a@b"))
    said = command("copy", home / "store", home / "other")
    assert f"Kept     drafter -> {other[:8]}   (moved later there)\n" in said.out and said.code == 0


def test_json_and_quiet(home: Path, command: Command, saved: str):
    document = command("copy", home / "store", home / "a", "--json").json
    assert document["schema"] == "cachekeeper.copy/1" and document["ok"] is True and document["dry_run"] is False
    assert (document["copied"], document["there"], document["packs"]) == ([saved], [], 1)
    assert (document["names"], document["kept"], document["damaged"]) == ({"drafter": saved}, {}, {})
    assert (document["source"], document["destination"]) == (f"file://{home}/store", f"file://{home}/a")
    assert command("copy", home / "store", home / "b", "-q") == (0, saved + "\n", "")
    assert command("copy", home / "store", home / "b", "-q") == (0, "", "")


def test_damage_is_exit_3(home: Path, command: Command, saved: str):
    pack = spoil(home)
    reason = f"pack {pack.name[:8]} is damaged in file://{home}/store: its bytes do not match its name"
    said = command("copy", home / "store", home / "other")
    assert said.code == 3
    assert said.err == f"warning: not copied: snapshot {saved[:8]}: {reason}\n"
    assert said.out == (
        "Copied   nothing\n"
        f"NOT ok: 1 damaged; file://{home}/store -> file://{home}/other\n"
        f"hint: see what is wrong with `cachekeeper verify --all --store file://{home}/store`\n"
    )
    assert command("copy", home / "store", home / "other", "--quiet") == (3, "", said.err)
    said = command("copy", home / "store", home / "other", "--json")
    assert said.code == 3 and said.json["ok"] is False
    assert said.json["damaged"] == {f"snapshot {saved[:8]}": reason}


def test_damage_at_the_destination_says_so(home: Path, command: Command, saved: str):
    command("copy", home / "store", home / "other")
    [pack] = (home / "other").glob("packs/*")
    pack.chmod(0o644)
    pack.write_bytes(b"short")
    said = command("copy", home / "store", home / "other")
    assert said.code == 3 and f"is damaged in file://{home}/other: 5 bytes instead of" in said.err


def test_not_found_is_exit_5(home: Path, command: Command, saved: str):
    said = command("copy", home / "store", home / "other", "draftr")
    assert said.code == 5 and "hint: did you mean `drafter`?" in said.err
    assert command("copy", home / "none", home / "other", "--json").error["code"] == "not-found"
    assert not (home / "other").exists() and not (home / "none").exists()


@pytest.mark.parametrize("arguments", [[], ["store"], ["store", "store"], ["", "x"], ["store", "ftp://x/y"]])
def test_usage_is_exit_2(home: Path, command: Command, saved: str, arguments: list[str], monkeypatch):
    monkeypatch.chdir(home)
    said = command("copy", *arguments)
    assert said.code == 2 and said.err.startswith("error[usage]: ")


def test_a_destination_that_cannot_be_made_is_an_error_of_the_store(home: Path, command: Command, saved: str):
    (home / "file").write_text("")
    assert command("copy", home / "store", home / "file" / "x").code == 6
