"""Somebody who can write to the store changes it: each time nothing is restored, and the error says what was done."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import keyfiles
from cachekeeper.errors import (
    BadSignature,
    CachekeeperError,
    DamagedStore,
    NotFound,
    Replayed,
    SwappedName,
    Unsigned,
    UsageError,
    WrongKey,
)
from cachekeeper.repository import Repository, open_repository
from cachekeeper.signatures import Claim
from cachekeeper.stores import LocalStore, Store
from cachekeeper.testing import make_cache, make_triton_entry
from tests.faults.scene import files_in
from tests.s3.conftest import bucket, credentials, server

__all__ = ["bucket", "credentials", "server"]


class Poisoned:
    """A store with snapshots that are signed, and what somebody can do to it who has no key.

    Attributes:
        drafter: the snapshots of drafter, oldest first.
        other: that of other.
        key, trusted: files of the private and the public key.
    """

    def __init__(self, base: Path, store: Store) -> None:
        self.base, self.store, self.target = base, store, base / "target"
        made = cachekeeper.keygen(base / "key")
        self.key, self.trusted, self.id = made.file, made.public_file, made.key
        self.cache = make_cache(base / "cache", kernels=1, graphs=1)
        self.drafter = [self.save("drafter"), self.save("drafter"), self.save("drafter")]
        self.other = self.save("other")

    def save(self, name: str, sign: Path | str | None = "") -> str:
        """A snapshot of the cache, which has grown."""
        make_triton_entry(self.cache / "triton" / "0", seed=len(list((self.cache / "triton" / "0").iterdir())) + 50)
        sign = self.key if sign == "" else sign
        saved = cachekeeper.snapshot(name, cache_dir=self.cache, store=self.store, wait=0, sign=sign, force=True)
        return saved.snapshot.id

    @property
    def repository(self) -> Repository:
        return open_repository(self.store)

    def restore(self, reference: str = "drafter", key: object = None, **options: object) -> str:
        result = cachekeeper.restore(
            reference,
            cache_dir=self.target,
            store=self.store,
            require_signature=self.trusted if key is None else key,
            **options,
        )
        assert result.snapshot is not None
        return result.snapshot.id

    def refused(
        self, error: type[CachekeeperError], reference: str = "drafter", key: object = None
    ) -> CachekeeperError:
        """Restoring fails with this very error, and nothing is in the target."""
        with pytest.raises(CachekeeperError) as caught:
            self.restore(reference, key)
        assert type(caught.value) is error, caught.value
        assert files_in(self.target) == {} and caught.value.hint
        return caught.value

    def write(self, key: str, data: bytes) -> None:
        self.store.delete(key)
        assert self.store.create(key, data)

    def sign_key(self, claim: Claim, key: str = "") -> str:
        return claim.place + (key or self.id)

    def move(self, number: int) -> Claim:
        return Claim(self.drafter[number - 1], "drafter", number)

    def copy_signature(self, source: Claim, target: Claim) -> None:
        self.write(self.sign_key(target), self.store.read(self.sign_key(source)))


@pytest.fixture
def poisoned(place: Path) -> Poisoned:
    return Poisoned(place, LocalStore(place / "store"))


def manifest_of(identifier: str) -> str:
    return f"snapshots/{identifier}.json.zst"


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


# Each changes the store, and names the error that follows.


def changed_pack(found: Poisoned) -> type[CachekeeperError]:
    for pack in found.repository.manifest(found.drafter[2]).tables.packs:
        found.write(f"packs/{pack.id}", flipped(found.store.read(f"packs/{pack.id}")))
    return DamagedStore


def changed_manifest(found: Poisoned) -> type[CachekeeperError]:
    key = manifest_of(found.drafter[2])
    found.write(key, flipped(found.store.read(key)))
    return DamagedStore


def another_manifest_under_that_id(found: Poisoned) -> type[CachekeeperError]:
    found.write(manifest_of(found.drafter[2]), found.store.read(manifest_of(found.other)))
    return DamagedStore


def another_name(found: Poisoned) -> type[CachekeeperError]:
    found.repository.move_name("drafter", found.other)
    return SwappedName


def another_name_with_its_signature(found: Poisoned) -> type[CachekeeperError]:
    number = found.repository.move_name("drafter", found.other).number
    found.copy_signature(Claim(found.other, "other", 1), Claim(found.other, "drafter", number))
    return SwappedName


def another_snapshot_at_the_same_move(found: Poisoned) -> type[CachekeeperError]:
    found.write("names/drafter/00000003", found.store.read("names/drafter/00000001"))
    return SwappedName


def an_old_move_again(found: Poisoned) -> type[CachekeeperError]:
    number = found.repository.move_name("drafter", found.drafter[0]).number
    found.copy_signature(found.move(1), Claim(found.drafter[0], "drafter", number))
    return Replayed


def an_old_move_without_a_signature(found: Poisoned) -> type[CachekeeperError]:
    found.repository.move_name("drafter", found.drafter[0])
    return Unsigned


def newest_moves_deleted(found: Poisoned) -> type[CachekeeperError]:
    found.restore()
    shutil.rmtree(found.target)
    found.store.delete("names/drafter/00000003")
    return Replayed


def a_move_of_the_same_number_instead(found: Poisoned) -> type[CachekeeperError]:
    """As where a store is rolled back and written to again, by somebody with the key."""
    found.restore()
    shutil.rmtree(found.target)
    for key in ("names/drafter/00000003", found.sign_key(found.move(3))):
        found.store.delete(key)
    found.save("drafter")
    return Replayed


def an_unsigned_snapshot(found: Poisoned) -> type[CachekeeperError]:
    found.save("drafter", sign=None)
    return Unsigned


def a_signature_taken_away(found: Poisoned) -> type[CachekeeperError]:
    found.store.delete(found.sign_key(Claim(found.drafter[2])))
    return Unsigned


def a_snapshot_of_somebody_with_another_key(found: Poisoned) -> type[CachekeeperError]:
    found.save("drafter", sign=cachekeeper.keygen(found.base / "mallory").file)
    return WrongKey


def the_signature_of_another_key_instead(found: Poisoned) -> type[CachekeeperError]:
    mallory = cachekeeper.keygen(found.base / "mallory")
    cachekeeper.sign("drafter", key=mallory.file, store=found.store)
    for claim in (Claim(found.drafter[2]), found.move(3)):
        found.write(found.sign_key(claim), found.store.read(found.sign_key(claim, mallory.key)))
    return BadSignature


def the_signature_of_another_snapshot(found: Poisoned) -> type[CachekeeperError]:
    found.copy_signature(Claim(found.other), Claim(found.drafter[2]))
    return BadSignature


def a_signature_of_a_move_as_that_of_a_snapshot(found: Poisoned) -> type[CachekeeperError]:
    found.copy_signature(found.move(3), Claim(found.drafter[2]))
    return BadSignature


def a_cut_signature(found: Poisoned) -> type[CachekeeperError]:
    key = found.sign_key(found.move(3))
    found.write(key, found.store.read(key)[:-20])
    return BadSignature


def an_empty_signature(found: Poisoned) -> type[CachekeeperError]:
    found.write(found.sign_key(Claim(found.drafter[2])), b"")
    return BadSignature


def garbage_for_a_signature(found: Poisoned) -> type[CachekeeperError]:
    found.write(found.sign_key(found.move(3)), os.urandom(400))
    return BadSignature


def a_huge_signature(found: Poisoned) -> type[CachekeeperError]:
    found.write(found.sign_key(found.move(3)), b" " * (64 << 20))
    return BadSignature


def all_is_deleted(found: Poisoned) -> type[CachekeeperError]:
    for key, *_ in list(found.store.list("")):
        found.store.delete(key)
    return NotFound


POISONS = [
    changed_pack,
    changed_manifest,
    another_manifest_under_that_id,
    another_name,
    another_name_with_its_signature,
    another_snapshot_at_the_same_move,
    an_old_move_again,
    an_old_move_without_a_signature,
    newest_moves_deleted,
    a_move_of_the_same_number_instead,
    an_unsigned_snapshot,
    a_signature_taken_away,
    a_snapshot_of_somebody_with_another_key,
    the_signature_of_another_key_instead,
    the_signature_of_another_snapshot,
    a_signature_of_a_move_as_that_of_a_snapshot,
    a_cut_signature,
    an_empty_signature,
    garbage_for_a_signature,
    a_huge_signature,
    all_is_deleted,
]


def test_what_nobody_changed_is_restored(poisoned: Poisoned):
    assert poisoned.restore(verify=True) == poisoned.drafter[2]
    assert poisoned.restore("other") == poisoned.other
    assert poisoned.restore(poisoned.drafter[0]) == poisoned.drafter[0]
    assert poisoned.restore("drafter@{1}") == poisoned.drafter[1]


@pytest.mark.parametrize("poison", POISONS, ids=lambda poison: poison.__name__)
def test_refused(poisoned: Poisoned, poison: Callable[[Poisoned], type[CachekeeperError]]):
    poisoned.refused(poison(poisoned))


SOME = [
    changed_manifest,
    another_name_with_its_signature,
    newest_moves_deleted,
    an_unsigned_snapshot,
    a_snapshot_of_somebody_with_another_key,
    garbage_for_a_signature,
]


def test_refused_in_a_bucket(tmp_path: Path, credentials: None, bucket: str):
    for poison in SOME:
        base = tmp_path / poison.__name__
        base.mkdir()
        found = Poisoned(base, open_repository(f"s3://{bucket}/{poison.__name__}").store)
        found.refused(poison(found))


# An older copy of the whole store, and a machine that cannot know


def test_a_store_that_was_rolled_back(poisoned: Poisoned, place: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copytree(place / "store", place / "backup")
    newest = poisoned.save("drafter")
    assert poisoned.restore() == newest
    shutil.rmtree(poisoned.target)
    shutil.rmtree(place / "store")
    shutil.copytree(place / "backup", place / "store")
    error = poisoned.refused(Replayed)
    assert "--allow-older" in error.hint
    assert poisoned.restore(allow_older=True) == poisoned.drafter[2]
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "another machine"))
    assert poisoned.restore() == poisoned.drafter[2]


# The attacker beside


def test_a_valid_signature_of_somebody_else_beside_changes_nothing(poisoned: Poisoned):
    cachekeeper.sign(["drafter", "other"], key=cachekeeper.keygen(poisoned.base / "mallory").file, store=poisoned.store)
    assert poisoned.restore() == poisoned.drafter[2]
    poisoned.write(f"{poisoned.move(3).place}{'00' * 32}", b"garbage")
    assert poisoned.restore() == poisoned.drafter[2]


def test_latest_passes_over_what_is_not_signed(poisoned: Poisoned):
    newest = poisoned.save("other")
    poisoned.save("drafter", sign=None)
    poisoned.save("drafter", sign=cachekeeper.keygen(poisoned.base / "mallory").file)
    assert poisoned.restore("latest") == newest


def test_signing_does_not_fall_for_a_swapped_name(poisoned: Poisoned):
    poisoned.repository.move_name("drafter", poisoned.other)
    with pytest.raises(SwappedName):
        cachekeeper.sign("drafter", key=poisoned.key, store=poisoned.store)
    poisoned.refused(SwappedName)


# The key that is asked for


def test_keys_that_are_none(poisoned: Poisoned, place: Path):
    public = keyfiles.private_key(poisoned.key).public
    bad = place / "trusted"
    bad.write_text(f"{public.line}\nnot a key\n")
    for key in (poisoned.key, bad, place / "none", place, "", "ssh-rsa AAAA", public.line[:-30], os.devnull):
        poisoned.refused(UsageError, key=key)


def test_missing_ok_is_not_trust(poisoned: Poisoned, place: Path):
    poisoned.save("drafter", sign=None)
    for reference, key in (("drafter", poisoned.trusted), ("latest-but-one", place / "none"), ("drafter", "")):
        with pytest.raises((Unsigned, UsageError)):
            poisoned.restore(reference, key, missing_ok=True)
    assert files_in(poisoned.target) == {}


def test_without_the_library_nothing_is_restored(poisoned: Poisoned, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    poisoned.refused(UsageError)


def test_the_setting_holds_for_a_job_too(poisoned: Poisoned, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_REQUIRE_SIGNATURE", str(poisoned.trusted))
    poisoned.save("drafter", sign=None)
    options = {"name": "drafter", "cache_dir": poisoned.target, "store": poisoned.store, "guard": False}
    result = cachekeeper.run(["true"], **options)
    assert result.restored is None and "nobody has signed" in str(result.troubles)
    assert files_in(poisoned.target) == {}
    cachekeeper.sign("drafter", key=poisoned.key, store=poisoned.store)
    result = cachekeeper.run(["true"], **options)
    assert result.restored.signed_by == poisoned.id and files_in(poisoned.target)
