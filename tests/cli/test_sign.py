"""The command: what it says and answers in every mode, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper

from .conftest import Command


@pytest.fixture
def key(home: Path) -> cachekeeper.verbs.keygen.KeygenResult:
    return cachekeeper.keygen(home / "key")


def test_in_words(home: Path, command: Command, saved: str, key):
    said = command("sign", "drafter", "--key", key.file)
    by = f"ok  signed by key {key.key[:16]}   {key.fingerprint}\n"
    short = saved[:8]
    assert said == (0, f"Signed      snapshot {short}\nSigned      move 1 of drafter to snapshot {short}\n{by}", "")
    said = command("sign", short, "--key", key.file)
    assert said == (0, f"Was signed  snapshot {short}\n{by}", "")


def test_json_and_quiet(home: Path, command: Command, saved: str, key, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_SIGNING_KEY", str(key.file))
    document = command("sign", "drafter", "--json").json
    assert document["schema"] == "cachekeeper.sign/1" and document["store"] == (home / "store").as_uri()
    snapshot, move = document["signed"]
    assert snapshot == {"snapshot": saved, "name": "", "number": 0}
    assert move == {"snapshot": saved, "name": "drafter", "number": 1}
    assert document["already"] == [] and document["key"] == key.key
    assert command("sign", "drafter", saved, "-q") == (0, f"{saved}\n", "")


def test_exit_codes(home: Path, command: Command, saved: str, key):
    assert command("sign").code == 2
    said = command("sign", "drafter")
    assert said.code == 2 and "hint: make one with `cachekeeper keygen`" in said.err
    assert command("sign", "draftr", "--key", key.file).code == 5
    assert command("sign", "drafter", "--key", key.file, "--read-only").code == 6
    key.file.chmod(0o644)
    said = command("sign", "drafter", "--key", key.file)
    assert said.code == 8 and "others may read or write the signing key" in said.err
    key.file.chmod(0o600)
    (home / "store" / "snapshots" / f"{saved}.json.zst").chmod(0o644)
    (home / "store" / "snapshots" / f"{saved}.json.zst").write_bytes(b"garbage")
    assert command("sign", "drafter", "--key", key.file).code == 3
