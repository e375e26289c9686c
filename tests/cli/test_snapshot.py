"""The command: options to the verb, its result in every mode, its exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import cachekeeper

from .conftest import Command


def test_in_every_mode(home: Path, command: Command):
    words = command("snapshot", "drafter")
    assert words.code == 0 and words.err == ""
    quiet = command("snapshot", "drafter", "-q")
    assert quiet.code == 0 and quiet.err == "" and len(quiet.out) == 65
    document = command("snapshot", "drafter", "--json").json
    assert document["schema"] == "cachekeeper.snapshot/1"
    assert document["snapshot"]["id"] == cachekeeper.show("drafter").snapshot.id
    assert document["snapshot"]["header"]["counts"]["fxgraph"]["entries"] == 2
    assert document["name_moved"] is True and document["stored"] == 0


def test_options_reach_the_verb(home: Path, command: Command, tmp_path: Path):
    (home / "inductor" / "precompiled_headers").mkdir()
    (home / "inductor" / "precompiled_headers" / "x.gch").write_bytes(b"x")
    shutil.copytree(home / "inductor" / "triton" / "0", tmp_path / "kernels")
    options = ["-m", "why not", "--metric", "tok_s=21500", "--metric", "loss=-1e-3", "--with-headers", "--full"]
    options += ["--tag", "dataset=pile-v2", "--tag", "batch=8=2x4", "--tag", "none="]
    header = command("snapshot", "x", *options, "--also", tmp_path / "kernels", "--json").json["snapshot"]["header"]
    assert header["message"] == "why not"
    assert header["metrics"] == {"tok_s": 21500.0, "loss": -0.001}
    assert header["tags"] == {"dataset": "pile-v2", "batch": "8=2x4", "none": ""}
    assert header["counts"]["headers"]["files"] == 1
    assert header["also"] == {"kernels": str(tmp_path / "kernels")}


def test_the_hint_can_be_pasted(home: Path, command: Command):
    assert "`cachekeeper restore 'a name!' --verify`" in command("snapshot", "a name!").out


def test_the_same_twice_is_said_once(home: Path, command: Command):
    options = ["--tag", "a=1", "--tag", "a=1", "--metric", "x=1", "--metric", "x=1.0"]
    header = command("snapshot", "x", *options, "--json").json["snapshot"]["header"]
    assert (header["tags"], header["metrics"]) == ({"a": "1"}, {"x": 1.0})


def test_what_is_wrong_with_a_tag_is_said(home: Path, command: Command):
    said = command("snapshot", "--tag", "a=1", "--tag", "a=2").err
    assert "'a' is given twice" in said
    assert "'a=nan': nan is no number to compare" in command("snapshot", "--metric", "a=nan").err
    said = command("snapshot", "--metric", "a b=5").err
    assert "not a metric: 'a b': a key has 1 to 100 letters, digits, and . _ - / %" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["--metric", "tok_s"],
        ["--metric", "tok_s=fast"],
        ["--metric", "=1"],
        ["--metric", "x=nan"],
        ["--tag", "dataset"],
        ["--tag", "=pile-v2"],
        ["--tag", " =pile-v2"],
        ["--tag", "a=1", "--tag", "a=2"],
        ["--tag", "a b=1"],
        ["--tag", "a=\x1b[31m"],
        ["--tag", "hf_token=x"],
        ["--metric", "a=1", "--metric", "a=2"],
        ["--metric", "a b=5"],
        ["--wait", "-1"],
        ["--wait", "soon"],
        ["one", "two"],
        ["latest"],
        ["--also", "."],
        ["--store", "ftp://host/x"],
    ],
)
def test_usage(home: Path, command: Command, arguments: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(home)
    said = command("snapshot", *arguments)
    assert said.code == 2 and said.out == "" and said.err.startswith("error[usage]: ")
    assert command("snapshot", *arguments, "--json").error["code"] == "usage"
    assert not (home / "store").exists()


def test_damage_is_exit_3(home: Path, command: Command):
    config = next((home / "inductor").glob("??/*.best_config"))
    config.write_bytes(b"{")
    said = command("snapshot", "drafter")
    assert said.code == 3 and said.out == ""
    assert said.err.startswith("error[damaged-cache]: ") and config.name in said.err
    assert command("snapshot", "drafter", "--json").error["facts"][0].endswith("(char 1)")
    allowed = command("snapshot", "drafter", "--allow-damaged")
    assert allowed.code == 0 and "warning: saved damaged: " in allowed.err


def test_nothing_to_save_is_exit_5(home: Path, command: Command):
    said = command("snapshot", "--cache-dir", home / "none")
    assert said.code == 5 and said.err.startswith("error[empty-cache]: nothing to save: ")
    assert f"  {home}/inductor  " in said.err
    assert "hint: if it is that one: `cachekeeper snapshot --cache-dir /" in said.err


def test_a_name_that_was_not_moved_is_exit_3(home: Path, command: Command, saved: str):
    for place in ("fxgraph", "aotautograd", "triton"):
        shutil.rmtree(home / "inductor" / place)
    next((home / "inductor").glob("??/*.best_config")).unlink()
    said = command("snapshot", "drafter")
    assert said.code == 3 and "drafter was not moved" in said.err and "--force" in said.err
    identifier = said.out.split("Saved ")[1].split(":")[0]
    assert f"cachekeeper restore {identifier}" in said.out
    assert command("snapshot", "drafter", "--json").code == 3
    assert command("snapshot", "drafter", "--force").code == 0


def test_a_store_that_cannot_be_written_is_exit_6(home: Path, command: Command):
    (home / "file").write_text("")
    assert command("snapshot", "--store", home / "file").code == 6


def test_a_directory_whose_name_is_no_unicode(home: Path, command: Command):
    odd = home / "odd-\udcff"
    shutil.copytree(home / "inductor", odd)
    assert "Scanned  " in command("snapshot", "--cache-dir", odd).out
    assert command("snapshot", "--cache-dir", odd, "--json").json["name"] == ""


def test_signed(home: Path, own_environment: Path, command: Command, monkeypatch: pytest.MonkeyPatch):
    said = command("snapshot", "drafter", "--sign")
    assert said.code == 2 and "there is no signing key" in said.err and not (home / "store").exists()
    made = cachekeeper.keygen()
    said = command("snapshot", "drafter", "--sign")
    assert said.code == 0 and f"\nSigned   by key {made.key[:16]}\n" in said.out
    assert command("snapshot", "drafter", "--sign", made.file, "--json").json["signed_by"] == made.key
    assert command("snapshot", "drafter", "--json").json["signed_by"] == ""
    said = command("snapshot", "--sign", "drafter")
    assert said.code == 2 and "`--sign` takes the word behind it as the file" in said.err
    monkeypatch.setenv("CACHEKEEPER_SIGNING_KEY", str(made.file))
    assert command("snapshot", "drafter", "--json").json["signed_by"] == made.key
