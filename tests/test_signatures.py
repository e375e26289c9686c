"""Signatures in a store: what is signed, and what is found."""

from __future__ import annotations

import base64

import pytest

from cachekeeper import signatures, signing
from cachekeeper.errors import (
    BadSignature,
    Unsigned,
)
from cachekeeper.records import checked
from cachekeeper.repository import Repository
from cachekeeper.signatures import Claim, found, sign, sign_saved
from cachekeeper.signing import PrivateKey
from cachekeeper.stores import MemoryStore
from cachekeeper.trust import Trust
from tests.signed import chosen, save, save_signed


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


def test_what_lies_in_a_store(repository: Repository, store: MemoryStore, key: PrivateKey):
    saved = save_signed(repository, key, "team/b\u00e4r")
    places = [key for key, *_ in store.list("signatures/")]
    of_snapshot, of_move = (
        f"signatures/{saved}/{key.public.id}",
        f"signatures/names/team/b%C3%A4r/00000001/{key.public.id}",
    )
    assert places == sorted([of_snapshot, of_move])
    document = checked(store.read(of_move))
    assert (document["name"], document["number"], document["snapshot"]) == ("team/b\u00e4r", 1, saved)
    assert signing.public_key(document["public_key"]) == key.public and " me@here" not in document["public_key"]
    signed = b'cachekeeper signature 1: name\n{"name":"team/b\\u00e4r","number":1,"snapshot":"%s"}' % saved.encode()
    assert key.public.verifies(base64.b64decode(document["signature"]), signed)
    document = checked(store.read(of_snapshot))
    assert document.keys() == {"public_key", "signature", "snapshot", "when", "who"}
    signed = b'cachekeeper signature 1: snapshot\n{"snapshot":"%s"}' % saved.encode()
    assert key.public.verifies(base64.b64decode(document["signature"]), signed)
    assert signatures.keys_of(repository, saved) == [of_snapshot]


def test_signing_again_changes_nothing_that_is_good(repository: Repository, store: MemoryStore, key: PrivateKey):
    claim = Claim("ab" * 32)
    assert sign(repository, key, claim)
    before = store.read(claim.place + key.public.id)
    assert not sign(repository, key, claim) and store.read(claim.place + key.public.id) == before


@pytest.mark.parametrize("there", [b"", b"garbage", b"x" * 100_000, "another"])
def test_signing_replaces_what_is_no_signature(
    repository: Repository, store: MemoryStore, key: PrivateKey, there: bytes | str
):
    claim, other = Claim("ab" * 32), Claim("cd" * 32)
    sign(repository, key, other)
    data = store.read(other.place + key.public.id) if isinstance(there, str) else there
    store.create(claim.place + key.public.id, data)
    assert sign(repository, key, claim)
    [signature] = found(repository, claim)
    assert signature.claim == claim and not signature.damage


def test_what_is_found_says_only_who_is_said_to_have_signed(
    repository: Repository, store: MemoryStore, key: PrivateKey
):
    claim = Claim("ab" * 32)
    sign(repository, key, claim)
    store.create(f"{claim.place}{'00' * 32}", b"garbage")
    store.create(f"{claim.place}{'11' * 32}", b"x" * 100_000)
    store.create(f"{claim.place}README", b"passed over")
    by_key = {each.key: each for each in found(repository, claim)}
    assert len(by_key) == 3
    assert by_key[key.public.id].damage == "" and "@" in by_key[key.public.id].who
    assert by_key["00" * 32].damage == "its bytes are not those of a signature by this key"
    assert by_key["11" * 32].damage == "it has 100,000 bytes"


def test_a_signature_under_the_id_of_another_key_is_none(repository: Repository, store: MemoryStore, key: PrivateKey):
    claim, other = Claim(save(repository)), signing.new_private_key()
    sign(repository, other, claim)
    store.create(claim.place + key.public.id, store.read(claim.place + other.public.id))
    with pytest.raises(BadSignature):
        chosen(repository, claim.snapshot, Trust((key.public,)))


def test_a_snapshot_of_which_the_name_moved_on_meanwhile(repository: Repository, key: PrivateKey, trusted: Trust):
    first = save(repository)
    second = save(repository, message="by somebody else")
    assert sign_saved(repository, key, first, "drafter") == key.public.id
    with pytest.raises(Unsigned):
        chosen(repository, "drafter", trusted)
    assert chosen(repository, "drafter@{1}", trusted) == first != second
    assert sign_saved(repository, None, second, "drafter") == ""
