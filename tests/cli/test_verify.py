"""The command: exit 0 where all is right, 3 where it is not, in every mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachekeeper.testing import make_triton_entry

from .conftest import Command


def damage(home: Path) -> None:
    next((home / "inductor").rglob("*.cubin")).write_bytes(b"")


def spoil(home: Path) -> None:
    for pack in (home / "store").glob("packs/*"):
        pack.unlink()


@pytest.mark.parametrize("arguments", [["drafter"], ["--all"], [], ["drafter", "--live", "inductor"]])
def test_sound(home: Path, command: Command, saved: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(home)
    words = command("verify", *arguments)
    assert words.code == 0 and words.err == "" and words.out.endswith("ok  every SHA-256 matches\n")
    assert command("verify", *arguments, "--quiet") == (0, "", "")
    document = command("verify", *arguments, "--json").json
    assert document["schema"] == "cachekeeper.verify/1"
    assert document["ok"] is True and document["checked"] == 27 and document["snapshots"] == [saved]


def test_a_sound_directory(home: Path, command: Command):
    assert command("verify", "--dir", home / "inductor").out.endswith("ok  no structural damage\n")


def test_damage_in_the_store_is_exit_3(home: Path, command: Command, saved: str):
    spoil(home)
    for arguments in (["drafter"], ["--all"]):
        said = command("verify", *arguments)
        assert said.code == 3 and "NOT ok: " in said.out and "cachekeeper snapshot NAME --full" in said.out
        assert command("verify", *arguments, "--quiet").code == 3
        assert command("verify", *arguments, "--json").json["ok"] is False


def test_damage_in_a_live_cache_is_exit_3(home: Path, command: Command, saved: str):
    damage(home)
    said = command("verify", "drafter", "--live", home / "inductor")
    assert said.code == 3 and f"cachekeeper restore {saved[:8]}" in said.out
    assert len(command("verify", "drafter", "--live", home / "inductor", "--json").json["damaged"]) == 1


def test_damage_in_a_directory_is_exit_3(home: Path, command: Command):
    damage(home)
    said = command("verify", "--dir", home / "inductor")
    assert said.code == 3 and "NOT ok: 2 damaged, 0 missing" in said.out and "restore NAME --repair" in said.out


def test_extra_files_are_exit_0_and_told(home: Path, command: Command, saved: str):
    make_triton_entry(home / "inductor" / "triton" / "0", seed=77)
    said = command("verify", "--live", home / "inductor")
    assert said.code == 0 and "extra  7\n" in said.out


def test_many_lines_are_cut_on_a_screen_and_whole_in_json(home: Path, command: Command, saved: str):
    for number in range(5):
        make_triton_entry(home / "inductor" / "triton" / "0", seed=700 + number)
    assert "  and 15 more (all of them with --json)\n" in command("verify", "--live", home / "inductor").out
    assert len(command("verify", "--live", home / "inductor", "--json").json["extra"]) == 35


@pytest.mark.parametrize(
    "arguments", [["--all", "--dir", "x"], ["--live", "x", "--all"], ["drafter", "--all"], ["a", "b"]]
)
def test_usage(command: Command, arguments: list[str]):
    assert command("verify", *arguments).code == 2


def test_not_found_is_exit_5(home: Path, command: Command):
    assert command("verify").code == 5
    assert command("verify", "--dir", home / "none").code == 5
    (home / "empty").mkdir()
    assert command("verify", "--dir", home / "empty", "--json").error["code"] == "empty-cache"


def test_a_damaged_manifest_is_exit_3(home: Path, command: Command, saved: str):
    path = home / "store" / "snapshots" / f"{saved}.json.zst"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-5])
    assert command("verify", "drafter").code == 3
    assert command("verify", "--all").code == 3
