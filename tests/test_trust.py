"""What must vouch for a snapshot: what is asked for, and what is refused."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cachekeeper import signing, trust
from cachekeeper.errors import (
    BadSignature,
    DamagedStore,
    NotFound,
    Replayed,
    SwappedName,
    Unproven,
    Unsigned,
    Untrusted,
    UsageError,
    WrongKey,
)
from cachekeeper.records import checked, with_checksum
from cachekeeper.repository import Repository
from cachekeeper.signatures import Claim, found, sign, sign_saved
from cachekeeper.signing import PrivateKey
from cachekeeper.stores import MemoryStore
from cachekeeper.trust import Trust, choose
from tests import samples
from tests.signed import HERE, chosen, put, save, save_signed


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def repository(store: MemoryStore) -> Repository:
    found = Repository(store)
    found.prepare()
    return found


@pytest.fixture
def key() -> PrivateKey:
    return signing.new_private_key("me@here")


@pytest.fixture
def trusted(key: PrivateKey) -> Trust:
    return Trust((key.public,))


# What is asked for


@pytest.mark.parametrize("reference", ["drafter", "drafter@{{0}}", "latest", "{id}", "{id:.6}"])
def test_what_is_signed_is_chosen(repository: Repository, key: PrivateKey, trusted: Trust, reference: str):
    saved = save_signed(repository, key)
    result = choose(repository, reference.format(id=saved), HERE, trusted=trusted)
    assert (result.snapshot.id, result.signed_by, result.notes) == (saved, key.public.id, ())


@pytest.mark.parametrize("reference", ["drafter", "drafter@{{0}}", "latest", "{id}", "{id:.6}"])
def test_what_nobody_signed_is_not(repository: Repository, trusted: Trust, reference: str):
    saved = save(repository)
    with pytest.raises(Unsigned):
        chosen(repository, reference.format(id=saved), trusted)
    assert choose(repository, reference.format(id=saved), HERE).signed_by == ""


def test_a_name_needs_both_signatures(repository: Repository, store: MemoryStore, key: PrivateKey, trusted: Trust):
    saved = save(repository)
    sign(repository, key, Claim(saved))
    with pytest.raises(Unsigned, match=r"nobody has signed move 1 of drafter to snapshot"):
        chosen(repository, "drafter", trusted)
    sign(repository, key, Claim(saved, "drafter", 1))
    assert chosen(repository, "drafter", trusted) == saved
    store.delete(Claim(saved).place + key.public.id)
    with pytest.raises(Unsigned, match=r"nobody has signed snapshot"):
        chosen(repository, "drafter", trusted)


def test_any_of_the_trusted_keys_will_do(repository: Repository, store: MemoryStore, key: PrivateKey):
    first, stranger, mallory = (signing.new_private_key() for _ in range(3))
    saved = save_signed(repository, key)
    sign_saved(repository, mallory, saved, "drafter")
    store.create(Claim(saved).place + first.public.id, b"garbage")
    assert choose(repository, "drafter", HERE, trusted=Trust((first.public, key.public))).signed_by == key.public.id
    with pytest.raises(WrongKey) as caught:
        chosen(repository, "drafter", Trust((stranger.public,)))
    facts = "\n".join(caught.value.facts)
    assert all(each.public.id[:16] in facts for each in (key, mallory, stranger))


def test_every_flipped_byte_is_noticed(repository: Repository, store: MemoryStore, key: PrivateKey, trusted: Trust):
    claim = Claim(save(repository))
    sign(repository, key, claim)
    place = claim.place + key.public.id
    data = store.read(place)
    for at in range(len(data)):
        put(store, place, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(BadSignature):
            chosen(repository, claim.snapshot, trusted)
    put(store, place, data)
    assert chosen(repository, claim.snapshot, trusted) == claim.snapshot


def forged(change: Callable[[dict[str, object]], object]) -> Callable[[bytes], bytes]:
    """The same object with its document changed, and a checksum that fits."""

    def made(data: bytes) -> bytes:
        document = checked(data)
        change(document)
        return with_checksum(document)

    return made


@pytest.mark.parametrize(
    "change",
    [
        forged(lambda document: document.update(signature=base64.b64encode(bytes(64)).decode())),
        forged(lambda document: document.update(signature=base64.b64encode(bytes(63)).decode())),
        forged(lambda document: document.update(signature="!")),
        forged(lambda document: document.update(signature=["AAAA"])),
        forged(lambda document: document.update(signature=None)),
        forged(lambda document: document.update(public_key=signing.PublicKey(bytes(32)).line)),
        forged(lambda document: document.update(public_key=7)),
        forged(lambda document: document.update(snapshot=7)),
        forged(lambda document: document.update(name="x", number="7")),
        forged(lambda document: document.update(name=[], number=True)),
        forged(lambda document: document.update(when="yesterday")),
        forged(lambda document: document.pop("who")),
        forged(lambda document: document.clear()),
        lambda data: b"[" * 10_000,
        lambda data: b"[]",
        lambda data: b"null",
        lambda data: b"\xff" * 100,
        lambda data: data[:-1],
        lambda data: data + b" ",
        lambda data: data + b" " * 100_000,
        lambda data: b"",
    ],
)
def test_a_hostile_object_is_a_bad_signature(
    repository: Repository, store: MemoryStore, key: PrivateKey, trusted: Trust, change: Callable[[bytes], bytes]
):
    claim = Claim(save(repository))
    sign(repository, key, claim)
    place = claim.place + key.public.id
    put(store, place, change(store.read(place)))
    with pytest.raises(BadSignature):
        chosen(repository, claim.snapshot, trusted)
    assert found(repository, claim)[0].damage or change.__name__ == "made"


def test_a_later_version_may_say_more(repository: Repository, store: MemoryStore, key: PrivateKey, trusted: Trust):
    claim = Claim(save(repository))
    sign(repository, key, claim)
    place = claim.place + key.public.id
    put(store, place, forged(lambda document: document.update(more=[1]))(store.read(place)))
    assert chosen(repository, claim.snapshot, trusted) == claim.snapshot


def test_nothing_of_a_snapshot_is_read_before_it_is_vouched_for(
    repository: Repository, store: MemoryStore, key: PrivateKey, trusted: Trust, monkeypatch: pytest.MonkeyPatch
):
    saved = save(repository)
    sign(repository, key, Claim(saved, "drafter", 1))
    put(store, f"snapshots/{saved}.json.zst", b"a bomb")
    with pytest.raises(Unsigned):
        chosen(repository, "drafter", trusted)
    with pytest.raises(Unsigned):
        chosen(repository, saved, trusted)
    sign(repository, key, Claim(saved))
    with pytest.raises(DamagedStore):
        chosen(repository, "drafter", trusted)


def test_a_damaged_move_and_a_short_history(repository: Repository, store: MemoryStore, key, trusted: Trust):
    save_signed(repository, key)
    with pytest.raises(NotFound, match="drafter has only 1 entry in its history"):
        chosen(repository, "drafter@{1}", trusted)
    with pytest.raises(NotFound):
        chosen(repository, "draftr", trusted)
    put(store, "names/drafter/00000001", b"garbage")
    with pytest.raises(DamagedStore, match="what drafter points to is damaged"):
        chosen(repository, "drafter", trusted)


# Latest


def test_latest_is_the_newest_that_is_signed(repository: Repository, store: MemoryStore, key: PrivateKey, trusted):
    first = save_signed(repository, key, created="2026-01-31T08:15:00Z")
    second = save_signed(repository, key, "", created="2026-01-31T08:16:00Z")
    save(repository, created="2026-01-31T08:17:00Z")
    bad = save_signed(repository, key, created="2026-01-31T08:18:00Z")
    put(store, Claim(bad).place + key.public.id, b"garbage")
    save_signed(repository, signing.new_private_key(), created="2026-01-31T08:19:00Z")
    save_signed(repository, key, created="2026-01-31T08:20:00Z", fingerprint=samples.fingerprint(torch="2.12.0"))
    assert chosen(repository, "latest", trusted) == second
    store.delete(f"snapshots/{second}.json.zst")
    assert chosen(repository, "latest", trusted) == first


def test_latest_where_there_is_none(repository: Repository, key: PrivateKey, trusted: Trust):
    with pytest.raises(NotFound):
        chosen(repository, "latest", trusted)
    save_signed(repository, key, fingerprint=samples.fingerprint(torch="2.12.0"))
    with pytest.raises(NotFound, match="fits this machine"):
        chosen(repository, "latest", trusted)
    save(repository)
    with pytest.raises(Unsigned, match="that fits this machine is signed by a trusted key"):
        chosen(repository, "latest", trusted)
    save_signed(repository, key, message="other")
    with pytest.raises(Unproven):
        choose(repository, "latest", HERE, proven=True, trusted=trusted)
    with pytest.raises(Unproven):
        choose(repository, "drafter", HERE, proven=True, trusted=trusted)


# Swapped names


def test_a_name_that_points_to_what_was_saved_under_another(
    repository: Repository, store: MemoryStore, key: PrivateKey, trusted: Trust
):
    save_signed(repository, key)
    other = save_signed(repository, key, "other")
    repository.move_name("drafter", other)
    with pytest.raises(SwappedName, match="drafter points to a snapshot that was saved as other"):
        chosen(repository, "drafter", trusted)
    sign(repository, key, Claim(other, "drafter", 2))  # as somebody who was deceived would
    with pytest.raises(SwappedName):
        chosen(repository, "drafter", trusted)
    unnamed = save_signed(repository, key, "")
    repository.move_name("drafter", unnamed)
    with pytest.raises(SwappedName, match="saved without a name"):
        chosen(repository, "drafter", trusted)


def test_the_signature_of_another_move(repository: Repository, store: MemoryStore, key: PrivateKey, trusted: Trust):
    first = save_signed(repository, key)
    save_signed(repository, key, message="second")
    save_signed(repository, key, "other")
    of_drafter = store.read(Claim(first, "drafter", 1).place + key.public.id)
    of_other = store.read(Claim("", "other", 1).place + key.public.id)
    of_snapshot = store.read(Claim(first).place + key.public.id)
    repository.move_name("drafter", first)
    place = Claim(first, "drafter", 3).place + key.public.id
    for data, error in ((of_drafter, Replayed), (of_other, SwappedName), (of_snapshot, BadSignature)):
        put(store, place, data)
        with pytest.raises(error):
            chosen(repository, "drafter", trusted)


# Settings


def test_who_is_trusted(key: PrivateKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert trust.required(None) is None
    assert trust.required(key.public.line) == Trust((key.public,))
    monkeypatch.setenv("CACHEKEEPER_REQUIRE_SIGNATURE", key.public.line)
    assert trust.required(None, allow_older=True, remember=False) == Trust((key.public,), True, False)
    with pytest.raises(UsageError):
        trust.required("")


def test_without_the_library_nothing_is_trusted(key: PrivateKey, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(UsageError, match="cryptography"):
        trust.required(key.public.line)


def test_every_error_says_what_to_do(repository, store: MemoryStore, key, trusted: Trust):
    saved = save(repository)
    for prepare in (
        lambda: None,
        lambda: sign(repository, signing.new_private_key(), Claim(saved, "drafter", 1)),
        lambda: store.create(Claim(saved, "drafter", 1).place + key.public.id, b"garbage"),
    ):
        prepare()
        with pytest.raises(Untrusted) as caught:
            chosen(repository, "drafter", trusted)
        assert caught.value.hint and caught.value.facts and caught.value.exit_code == 3
        json.dumps([caught.value.message, *caught.value.facts])
