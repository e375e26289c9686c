"""A new key."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import LocalDiskError, UsageError
from cachekeeper.keyfiles import private_key, trusted_keys


def test_a_key_for_this_user(own_environment: Path):
    made = cachekeeper.keygen()
    assert made.file == own_environment / ".config" / "cachekeeper" / "signing_key"
    assert made.public_file == made.file.with_name("signing_key.pub")
    key = private_key(made.file).public
    assert (made.key, made.fingerprint, made.public_key) == (key.id, key.fingerprint, key.line)
    assert trusted_keys(made.public_file) == (key,) and "@" in key.comment


def test_a_key_in_a_file(own_environment: Path, tmp_path: Path):
    assert cachekeeper.keygen(str(tmp_path / "keys" / "release")).file == tmp_path / "keys" / "release"
    assert cachekeeper.keygen("~/release").file == own_environment / "release"


def test_nothing_is_written_over(tmp_path: Path):
    made = cachekeeper.keygen(tmp_path / "key")
    before = made.file.read_bytes()
    with pytest.raises(UsageError):
        cachekeeper.keygen(tmp_path / "key")
    made.file.rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"key\.pub is there already"):
        cachekeeper.keygen(tmp_path / "key")
    assert not made.file.exists() and (tmp_path / "elsewhere").read_bytes() == before


def test_where_it_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LocalDiskError, match="cannot write the signing key"):
        cachekeeper.keygen(tmp_path / "file" / "key")


def test_two_keys_differ(tmp_path: Path):
    assert cachekeeper.keygen(tmp_path / "a").key != cachekeeper.keygen(tmp_path / "b").key
