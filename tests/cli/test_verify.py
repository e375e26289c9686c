"""The command: exit 0 where all is right, 3 where it is not, in every mode."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cachekeeper.repository import open_repository
from cachekeeper.testing import make_triton_entry
from tests.verbs.conftest import settle

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
    assert said.code == 3 and "\nhint: add --repair: " in said.out
    assert len(command("verify", "drafter", "--live", home / "inductor", "--json").json["damaged"]) == 1


def test_damage_in_a_directory_is_exit_3(home: Path, command: Command):
    damage(home)
    said = command("verify", "--dir", home / "inductor")
    assert said.code == 3 and "NOT ok: 2 damaged, 0 missing" in said.out
    assert "cachekeeper verify NAME --live DIR --repair" in said.out


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
    "arguments",
    [
        ["--all", "--dir", "x"],
        ["--live", "x", "--all"],
        ["drafter", "--all"],
        ["a", "b"],
        ["drafter", "--repair"],
        ["--all", "--repair"],
        ["drafter", "--replay", "train.py:step", "--repair"],
    ],
)
def test_usage(command: Command, arguments: list[str]):
    assert command("verify", *arguments).code == 2


def test_not_found_is_exit_5(home: Path, command: Command):
    assert command("verify").code == 5
    assert command("verify", "--dir", home / "none").code == 5
    (home / "empty").mkdir()
    assert command("verify", "--dir", home / "empty", "--json").error["code"] == "empty-cache"


@pytest.mark.parametrize("gone", [False, True])
def test_a_bad_pack_is_told_once_with_what_suffers(home: Path, command: Command, saved: str, gone: bool):
    command("snapshot", "again", "--message", "the same", "--wait", "0")
    [pack] = (home / "store").glob("packs/*")
    data = bytearray(pack.read_bytes())
    data[200:-2000:97] = bytes(len(data[200:-2000:97]))
    pack.chmod(0o644)
    pack.unlink() if gone else pack.write_bytes(data)
    said = command("verify", "--all")
    [told] = command("verify", "--all", "--json").json["packs"]
    number = len(open_repository(home / "store").manifest(saved).tables.entries)
    damaged = told["damaged"]
    assert told["pack"] == pack.name and told["missing"] is gone and 5 < damaged <= number
    assert damaged == number or not gone
    line = f"  pack {pack.name[:8]}: {damaged} of {number} entries of 2 snapshots\n"
    word, counts = ("missing", "0 damaged, 1 missing") if gone else ("damaged", "1 damaged, 0 missing")
    assert said.code == 3 and f"\n{word}  1\n{line}hint: add -v to see the entries\nNOT ok: {counts}\n" in said.out
    listed = command("verify", "--all", "-v").out
    assert listed.count(f"  {saved[:8]}:") > 5 and all(len(line) <= 80 for line in said.out.splitlines()[:4])
    shutil.rmtree(home / "inductor")
    what = "missing" if gone else "damaged"
    assert f"\n  pack {pack.name[:8]} is {what}: {damaged} entries\n" in command("restore", "drafter").err


def test_a_damaged_manifest_is_exit_3(home: Path, command: Command, saved: str):
    path = home / "store" / "snapshots" / f"{saved}.json.zst"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-5])
    assert command("verify", "drafter").code == 3
    assert command("verify", "--all").code == 3


# --repair


def test_a_repair_in_words(home: Path, command: Command, saved: str):
    damage(home)
    next((home / "inductor").glob("??/*.py")).unlink()
    kernel = next((home / "inductor").rglob("*.cubin")).parent
    stray = make_triton_entry(home / "inductor" / "triton" / "0", seed=77)
    next(stray.glob("*.ptx")).unlink()
    settle(home / "inductor")
    said = command("verify", "drafter", "--live", home / "inductor", "--repair")
    assert (said.code, said.err) == (0, "")
    [mark] = (home / "inductor" / ".cachekeeper" / "quarantine").iterdir()
    [module] = [line for line in said.out.splitlines() if line.startswith("  ") and "triton/" not in line]
    assert said.out.splitlines() == [
        f"Checked  a live cache against snapshot {saved[:8]}   27 files   25.5 KiB",
        "mended  1",
        f"  triton/0/{kernel.name}  0 bytes instead of 3,128",
        "put back  1",
        module,
        "dropped  1",
        f"  triton/0/{stray.name}  incomplete group: triton_poi_fused_add_0.ptx missing or empty",
        f"Quarantine  {mark}",
        "ok  1 mended, 1 put back, 1 dropped: torch builds what was dropped again",
    ]
    settle(home / "inductor")
    again = command("verify", "drafter", "--live", home / "inductor", "--repair")
    assert again.code == 0 and again.out.endswith("ok  every SHA-256 matches: nothing to repair\n")


def test_a_repair_for_programs(home: Path, command: Command, saved: str):
    damage(home)
    settle(home / "inductor")
    document = command("verify", "--live", home / "inductor", "--repair", "--json").json
    assert document["ok"] is True and document["repair"] is True and len(document["damaged"]) == 1
    assert len(document["mended"]) == 1 and document["dropped"] == document["unmended"] == {}
    evidence = json.loads((Path(document["quarantine"]) / "evidence.json").read_text())
    assert evidence["snapshot"] == saved
    assert command("verify", "--live", home / "inductor", "--repair", "--quiet") == (0, "", "")


def test_a_repair_from_a_damaged_store_warns(home: Path, command: Command, saved: str):
    damage(home)
    settle(home / "inductor")
    spoil(home)
    said = command("verify", "--live", home / "inductor", "--repair")
    assert said.code == 3 and said.err.startswith("warning: damaged in the store: triton/0/")
    assert "NOT ok: 0 mended, 0 put back, 1 dropped; 1 entry of the snapshot not there\n" in said.out
    assert "\nhint: from a good cache, `cachekeeper snapshot NAME --full`" in said.out


def test_what_is_missing_and_damaged_in_the_store_is_not_dropped(home: Path, command: Command, saved: str):
    module = next((home / "inductor").glob("??/*.py"))
    module.unlink()
    settle(home / "inductor")
    spoil(home)
    for _ in range(2):
        said = command("verify", "--live", home / "inductor", "--repair")
        assert said.code == 3 and "dropped  " not in said.out and "Quarantine" not in said.out
        assert (
            f"cannot be put back  1\n  {module.parent.name}/{module.stem} (module)  missing; the store's copy is"
            in said.out
        )
        assert "NOT ok: 0 mended, 0 put back, 0 dropped; 1 entry of the snapshot not there\n" in said.out
    document = command("verify", "--live", home / "inductor", "--repair", "--json").json
    assert document["ok"] is False and len(document["lost"]) == 1 and document["dropped"] == {}


def test_a_repair_without_a_snapshot(home: Path, command: Command):
    damage(home)
    settle(home / "inductor")
    said = command("verify", "--dir", home / "inductor", "--repair")
    assert said.code == 0 and "ok  0 mended, 0 put back, 1 dropped: torch builds what was dropped again\n" in said.out
    assert not (home / "store").exists()


def test_what_cannot_be_repaired_is_exit_3(home: Path, command: Command):
    (home / "inductor" / "mine").mkdir()
    (home / "inductor" / "mine" / "x.so").write_bytes(b"x")
    settle(home / "inductor")
    said = command("verify", "--dir", home / "inductor", "--repair")
    assert said.code == 3 and "still damaged  1\n  mine/x.so  not an ELF file; left alone" in said.out
    assert "NOT ok: 0 mended, 0 put back, 0 dropped, 1 still damaged\nhint: " in said.out


def test_a_hint_for_each_kind_of_damage_in_a_store(home: Path, command: Command, saved: str):
    manifest = home / "store" / "snapshots" / f"{saved}.json.zst"
    manifest.chmod(0o644)
    whole = manifest.read_bytes()
    manifest.write_bytes(b"x")
    said = command("verify", "--all")
    assert said.code == 3 and f"hint: `cachekeeper rm {saved[:8]}` takes the snapshot away" in said.out
    assert "--full" not in said.out and "  name drafter  points to" in said.out
    manifest.write_bytes(whole)
    move = home / "store" / "names" / "drafter" / "00000001"
    move.chmod(0o644)
    move.write_bytes(b"x")
    said = command("verify", "--all")
    assert said.code == 3 and "`cachekeeper snapshot drafter` points the name to a new one\n" in said.out
    assert command("snapshot", "drafter").code == 0
    said = command("verify", "--all")
    assert said.code == 3 and "  name drafter@{1}  its bytes do not match its checksum\n" in said.out
    assert "hint: drafter itself is whole, and nothing mends its past; `cachekeeper copy` to a new" in said.out
