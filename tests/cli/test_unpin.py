"""The command: what it says and answers in every mode, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import cachekeeper
from cachekeeper.stores import MemoryStore
from tests.test_pins import LockingStore, spoil

from .conftest import Command


def test_in_words(home: Path, command: Command, saved: str):
    command("pin", "drafter")
    assert command("unpin", "drafter") == (0, f"Unpinned        {saved[:8]}\nok  unpinned\n", "")
    assert command("unpin", "drafter") == (0, f"Was not pinned  {saved[:8]}\n", "")
    assert command("ls").out.rstrip().endswith("  yes")


def test_json_and_quiet(home: Path, command: Command, saved: str):
    command("pin", "drafter")
    document = command("unpin", "drafter", "--json").json
    assert document["schema"] == "cachekeeper.unpin/1" and document["store"] == (home / "store").as_uri()
    assert (document["unpinned"], document["already"], document["locks"]) == ([saved], [], False)
    assert command("unpin", "drafter", "--json").json["already"] == [saved]
    assert command("unpin", "drafter", "-q") == (0, "", "")
    command("pin", "drafter")
    assert command("unpin", "drafter", "-q") == (0, f"{saved}\n", "")


def test_where_the_store_locks(home: Path, command: Command, saved: str, monkeypatch):
    other = command("snapshot", "other", "-m", "other", "-q").out.strip()
    store = LockingStore()
    cachekeeper.copy(home / "store", store)
    monkeypatch.setattr("cachekeeper.stores.open_store", lambda *_, **__: store)
    command("pin", saved, other)
    said = command("unpin", saved)
    note = "note: other pins keep 2 objects of that locked\n"
    assert said == (0, f"Unpinned        {saved[:8]}\n{note}ok  unlocked and unpinned\n", "")
    [pack] = (key for key, *_ in store.list("packs/"))
    MemoryStore.delete(store, pack)
    said = command("unpin", other)
    assert said.code == 0 and said.err.startswith("warning: 1 object not in the store, so that no lock was taken off")
    assert f"  {pack}\nhint: where a delete marker hides one, delete the marker, then `unpin` again\n" in said.out


def test_what_nobody_can_tell(home: Path, command: Command, saved: str, monkeypatch):
    store = LockingStore()
    cachekeeper.copy(home / "store", store)
    monkeypatch.setattr("cachekeeper.stores.open_store", lambda *_, **__: store)
    command("pin", saved)
    spoil(store, f"pins/{saved}")
    spoil(store, f"snapshots/{saved}.json.zst")
    said = command("unpin", saved)
    assert said.code == 0
    assert said.err == (
        f"warning: the pin and the manifest of {saved[:8]} are damaged: its packs may still be locked\n"
    )


def test_exit_codes(home: Path, command: Command, saved: str):
    assert command("unpin").code == 2
    said = command("unpin", "draftr")
    assert said.code == 5 and "hint: did you mean `drafter`?" in said.err
    assert command("unpin", "drafter", "--store", home / "none", "--json").error["code"] == "not-found"
    command("pin", "drafter")
    said = command("unpin", "drafter", "--read-only")
    assert said.code == 6 and said.err.startswith("error[read-only]: ")
    assert command("ls").out.rstrip().endswith("(pinned)")


def test_latest_is_refused(home: Path, command: Command, saved: str):
    said = command("unpin", "latest")
    assert said.code == 2 and "`latest` is another snapshot on another machine" in said.err
