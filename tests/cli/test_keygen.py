"""The command: what it says and answers in every mode, and its exit codes."""

from __future__ import annotations

import sys
from pathlib import Path

from cachekeeper.keyfiles import private_key

from .conftest import Command


def test_in_words(home: Path, command: Command):
    said = command("keygen", home / "key")
    key = private_key(home / "key").public
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        f"Private      {home}/key   (only you can read it; it signs)\n"
        f"Public       {home}/key.pub   (give it to those who restore)\n"
        f"Key          {key.id[:16]}\n"
        f"Fingerprint  {key.fingerprint}\n"
        "ok  made a key\n"
        f"hint: sign with `cachekeeper snapshot NAME --sign {home}/key`\n"
        f"hint: restore with `--require-signature {home}/key.pub`\n"
    )


def test_the_default_key_signs_without_being_named(command: Command):
    assert "hint: sign with `cachekeeper snapshot NAME --sign`\n" in command("keygen").out


def test_json_and_quiet(home: Path, own_environment: Path, command: Command):
    said = command("keygen", home / "key", "--json")
    document, key = said.json, private_key(home / "key").public
    assert document == {
        "schema": "cachekeeper.keygen/1",
        "file": f"{home}/key",
        "public_file": f"{home}/key.pub",
        "key": key.id,
        "fingerprint": key.fingerprint,
        "public_key": key.line,
    }
    assert "PRIVATE" not in said.out
    said = command("keygen", "-q")
    assert said.out == private_key(own_environment / ".config/cachekeeper/signing_key").public.id + "\n"


def test_exit_codes(home: Path, command: Command, monkeypatch):
    assert command("keygen", home / "key").code == 0
    said = command("keygen", home / "key")
    assert said.code == 2 and said.err.startswith(f"error[usage]: {home}/key is there already")
    (home / "file").write_bytes(b"")
    assert command("keygen", home / "file" / "key").code == 8
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    error = command("keygen", home / "other", "--json").error
    assert error["exit_code"] == 2 and "pip install 'cachekeeper[sign]'" in error["hint"]
    assert not (home / "other").exists()
