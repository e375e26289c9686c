"""The command."""

from __future__ import annotations

from pathlib import Path

from tests import samples
from tests.verbs.conftest import Machine

from .conftest import Command


def test_in_every_mode(home: Path, command: Command, saved: str):
    words = command("show", "drafter")
    assert words.code == 0 and words.err == "" and words.out.startswith(f"snapshot     {saved}\n")
    assert command("show", "drafter", "-q").out == saved + "\n"
    document = command("show", "drafter", "--json").json
    assert document["schema"] == "cachekeeper.show/1" and document["fits"] is True
    assert document["snapshot"]["header"]["fingerprint"]["must"]["torch"] == {"value": "2.11.0", "unknown": ""}


def test_why_not_here(home: Path, command: Command, saved: str, machine: Machine):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    out = command("show", "drafter").out
    assert "here?        no: torch\n" in out
    assert "  torch  2.11.0 -> here 2.12.0   (torch would ignore every entry)\n" in out


def test_exit_codes(home: Path, command: Command, saved: str):
    assert command("show", "draftr").code == 5
    assert command("show").code == 2
    (home / "store" / "format.json").chmod(0o644)
    (home / "store" / "format.json").write_text('{"format": 2}')
    said = command("show", "drafter")
    assert said.code == 6 and "pip install -U cachekeeper" in said.err
