"""The command: what it says and answers in every mode, and its exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import cachekeeper
from cachekeeper.cli import pin as cli_pin
from cachekeeper.pins import Pin
from tests.test_pins import LockingStore

from .conftest import Command

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
NO_LOCK = "note: this store has no object lock: the pin holds for cachekeeper's own commands only\n"


def test_in_words(home: Path, command: Command, saved: str):
    said = command("pin", "drafter", "--reason", "release 2.1")
    assert (said.code, said.err) == (0, "")
    assert re.fullmatch(rf"Pinned      {saved[:8]}   {TIME} by \S+@\S+: release 2\.1\nok  pinned\n{NO_LOCK}", said.out)
    said = command("pin", saved[:8])
    assert re.fullmatch(rf"Was pinned  {saved[:8]}   {TIME} by \S+@\S+: release 2\.1\nok  pinned\n{NO_LOCK}", said.out)
    said = command("pin", "drafter", "--reason", "other")
    hint = f"hint: it keeps its reason; to change that: `cachekeeper unpin {saved[:8]}`, then pin it again\n"
    assert said.code == 0 and hint in said.out


def test_json_and_quiet(home: Path, command: Command, saved: str):
    document = command("pin", "drafter", "--json").json
    assert document["schema"] == "cachekeeper.pin/1" and document["store"] == (home / "store").as_uri()
    assert document["already"] == [] and document["locked"] is False
    [pin] = document["pins"]
    assert (pin["snapshot"], pin["reason"], pin["locked"], pin["damage"]) == (saved, "", False, "")
    assert "format.json" in pin["objects"]
    assert command("pin", "drafter", "--json").json["already"] == [saved]
    assert command("pin", "drafter", "-q") == (0, f"{saved}\n", "")


def test_where_the_store_locks(home: Path, command: Command, saved: str, monkeypatch):
    store = LockingStore()
    cachekeeper.copy(home / "store", store)
    monkeypatch.setattr("cachekeeper.stores.open_store", lambda *_, **__: store)
    said = command("pin", saved)
    assert said.out.endswith(
        "ok  locked in the bucket: nobody can delete these versions until `unpin`\n"
        "note: a plain delete still hides an object; deleting its delete marker brings it back\n"
    )
    assert command("show", saved).out.count("(locked in the store)\n") == 1


def test_ls_and_show(home: Path, command: Command, saved: str):
    assert command("ls").out.rstrip().endswith("  yes")
    assert command("ls", "--json").json["snapshots"][0]["pinned"] is False
    assert "pinned" not in command("show", "drafter").out
    assert command("show", "drafter", "--json").json["pin"] is None
    command("pin", "drafter", "--reason", "release 2.1")
    assert command("ls").out.rstrip().endswith("  yes (pinned)")
    assert command("ls", "drafter").out.rstrip().endswith("  yes (pinned)")
    assert command("ls", "--json").json["snapshots"][0]["pinned"] is True
    line = rf"^pinned       {TIME} by \S+@\S+: release 2\.1   \(not locked in the store\)$"
    assert re.search(line, command("show", "drafter").out, re.MULTILINE)
    assert command("show", "drafter", "--json").json["pin"]["reason"] == "release 2.1"


def test_a_damaged_pin_in_words():
    assert cli_pin.described(Pin("ab", damage="it is cut")) == "nobody can tell by whom: it is cut"


def test_text_from_a_store_cannot_drive_a_terminal(home: Path, command: Command, saved: str):
    assert "\x1b" not in command("pin", "drafter", "--reason", "\x1b[2J\n\x07").out
    assert "\x1b" not in command("show", "drafter").out
    assert command("pin", "drafter", "--reason", "\udcff").code == 0


def test_exit_codes(home: Path, command: Command, saved: str):
    assert command("pin").code == 2
    said = command("pin", "draftr")
    assert said.code == 5 and "hint: did you mean `drafter`?" in said.err
    assert command("pin", "drafter", "--store", home / "none", "--json").error["code"] == "not-found"
    said = command("pin", "drafter", "--read-only")
    assert said.code == 6 and said.err.startswith("error[read-only]: ")
    assert not (home / "store" / "pins").exists()
    [pack] = (home / "store" / "packs").iterdir()
    pack.unlink()
    assert command("pin", "drafter").code == 3


def test_latest_is_refused(home: Path, command: Command, saved: str):
    said = command("pin", "latest")
    assert said.code == 2 and "`latest` is another snapshot on another machine" in said.err
