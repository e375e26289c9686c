"""The command: a table, ids alone, or JSON."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cachekeeper.cli import ls as cli_ls
from cachekeeper.models import Fact
from cachekeeper.units import format_bytes
from tests import samples
from tests.verbs.conftest import Machine

from .conftest import Command


def test_in_every_mode(home: Path, command: Command, saved: str):
    other = command("snapshot", "-m", "other", "-q").out.strip()
    words = command("ls")
    assert words.code == 0 and words.err == ""
    heading, *rows = words.out.splitlines()
    assert heading.split() == ["ID", "NAME", "AGE", "SIZE", "GRAPHS", "ENVIRONMENT", "HERE?"]
    assert [row.split()[0] for row in rows] == [other[:8], saved[:8]]
    assert rows[0].split()[1] == "-" and rows[1].split()[1] == "drafter" and rows[1].endswith("  yes")
    assert command("ls", "-q").out == f"{other}\n{saved}\n"
    document = command("ls", "--json").json
    assert document["schema"] == "cachekeeper.ls/1" and document["store"] == (home / "store").as_uri()
    row = document["snapshots"][1]
    assert (row["id"], row["names"], row["graphs"], row["fits"]) == (saved, ["drafter"], 2, True)
    assert row["environment"] == "H200 sm_90 cu130 2.11.0" and row["differences"] == []
    assert row["stored"] != row["bytes"]
    files = " ".join(rows[1].split()[4:6])
    assert files == format_bytes(row["bytes"]) and f", {files}, " in command("show", "drafter").out


def test_why_not_here(home: Path, command: Command, saved: str, machine: Machine):
    machine.fingerprint = samples.fingerprint(torch="2.12.0", capability="sm_100")
    assert command("ls").out.rstrip().endswith("  no: gpu, torch, kernels")
    [row] = command("ls", "--json").json["snapshots"]
    assert row["fits"] is False and [item["name"] for item in row["differences"]] == ["gpu", "torch", "kernels"]


def test_without_torch_nobody_knows(home: Path, command: Command, saved: str, machine: Machine):
    here = samples.fingerprint()
    unknown = Fact(unknown="torch is not installed")
    must = {name: unknown if name in ("torch", "cuda", "hip", "triton") else fact for name, fact in here.must.items()}
    machine.fingerprint = replace(here, must=must)
    assert command("ls").out.rstrip().endswith("  unknown: no torch in this Python")


def test_of_many_differences_a_few_are_named(home: Path, command: Command, saved: str, machine: Machine):
    here = samples.fingerprint()
    machine.fingerprint = replace(here, must={name: Fact("other") for name in here.must})
    said = command("ls").out.rstrip()
    assert re.search(r"  no: \w+, \w+, \w+ and \d+ more \(show ID\)$", said)
    assert "(show ID)" not in command("show", "drafter").out


def test_columns_stay_aligned(home: Path, command: Command, saved: str):
    command("snapshot", "team/a-long-name")
    command("snapshot", "größe")
    lines = command("ls").out.splitlines()
    assert len({line.index(word) for line, word in zip(lines, ["ENV", "H200", "H200", "H200"], strict=True)}) == 1


def test_a_narrow_terminal_still_shows_the_last_column(
    home: Path, command: Command, saved: str, monkeypatch: pytest.MonkeyPatch
):
    command("snapshot", "a-model-with-quite-a-long-name", "-m", "other")
    command("pin", "drafter")
    whole = command("ls").out.splitlines()
    assert max(map(len, whole)) > 80
    monkeypatch.setattr(cli_ls, "_columns", lambda: 80)
    lines = command("ls").out.splitlines()
    assert max(map(len, lines)) <= 80 and lines[2].split()[1] == "drafter"
    assert lines[1].split()[1].startswith("a-model-wit") and lines[1].split()[1].endswith("...")
    at = lines[0].index("HERE?")
    assert lines[1][at:].startswith("yes") and lines[2][at:] == "yes (pinned)"
    assert all("2.11.0" in line for line in lines[1:])
    monkeypatch.setattr(cli_ls, "_columns", lambda: 200)
    assert "a-model-with-quite-a-long-name" in command("ls").out and "..." not in command("ls").out


def test_no_store_is_exit_5(home: Path, command: Command):
    said = command("ls")
    assert said.code == 5 and "hint: save one with `cachekeeper snapshot NAME`" in said.err
    assert command("ls", "--json").error["code"] == "not-found"


def test_no_such_name_is_exit_5(home: Path, command: Command, saved: str):
    assert command("ls", "draftr").code == 5


def test_what_cannot_be_read_is_a_warning(home: Path, command: Command, saved: str):
    (home / "store/snapshots" / ("ab" * 32 + ".json.zst")).write_bytes(b"garbage")
    said = command("ls")
    assert said.code == 0 and said.err.startswith("warning: unreadable: abababab: ")
    assert len(command("ls", "--json").json["unreadable"]) == 1


def test_text_from_a_store_cannot_drive_a_terminal(home: Path, command: Command):
    command("snapshot", "x", "-m", "\x1b[2J\x1b]0;owned\x07")
    assert "\x1b" not in command("show", "x").out


def test_what_was_removed(home: Path, command: Command, saved: str):
    assert command("ls", "--trash").out == "nothing is in the trash\n"
    other = command("snapshot", "drafter", "-q", "-m", "other").out.strip()
    command("rm", saved, "--reason", "old")
    [heading, row, hint] = command("ls", "--trash").out.splitlines()
    assert heading.split() == ["ID", "NAME", "REMOVED", "LEFT", "BY"] and hint.startswith("hint: `cachekeeper undo ID`")
    assert re.fullmatch(rf"{saved[:8]}  drafter  \d+(\.\d)? s ago  14 days  \S+@\S+: old", row) and len(row) <= 80
    assert command("ls", "--trash", "-q").out == f"{saved}\n"
    document = command("ls", "--trash", "--json").json
    assert document["schema"] == "cachekeeper.trash/1" and document["removed"][0]["id"] == saved
    assert command("ls", "other", "--trash").out == "nothing is in the trash\n"
    lines = command("ls", "drafter").out.splitlines()
    assert lines[1].startswith(other[:8])
    assert re.fullmatch(rf"{saved[:8]}  drafter@\{{1\}}  removed .* ago: `cachekeeper undo {saved[:8]}`", lines[2])
    [removed] = command("ls", "drafter", "--json").json["removed"]
    assert (removed["id"], removed["names"], removed["gone"]) == (saved, ["drafter@{1}"], False)
    command("sweep", "--apply", "--empty-trash")
    assert command("ls", "drafter").out.endswith(": gone for good\n")


def test_a_name_of_which_nothing_is_left(home: Path, command: Command, saved: str):
    command("rm", "drafter", "--force")
    assert command("ls").out == "no snapshots yet\n"
    assert re.fullmatch(rf"{saved[:8]}  drafter  removed .*\n", command("ls", "drafter").out)


def test_a_damaged_removal_is_a_warning(home: Path, command: Command, saved: str):
    command("rm", "drafter", "--force")
    [path] = (home / "store" / "trash" / saved).iterdir()
    path.chmod(0o644)
    path.write_bytes(b'{"grace": Infinity}\n')
    said = command("ls", "--trash")
    assert said.code == 0 and said.err.startswith(f"warning: {saved[:8]}: ") and " damaged" in said.out


def test_what_was_saved_though_it_holds_secrets(home: Path, command: Command):
    module = next((home / "inductor").glob("??/*.py"))
    module.write_bytes(module.read_bytes() + b"# hf_" + b"qWmRzTvKxLpYbNcJdHsGfDaQeUiOyPt4k2\n")
    assert command("snapshot", "drafter", "--allow-secrets").code == 0
    [row] = command("ls", "--json").json["snapshots"]
    assert row["secrets"] == [f"{module.relative_to(home / 'inductor')}  a Hugging Face token"]
