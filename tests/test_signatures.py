"""Signatures in a store: what is signed, what is asked for, and what this machine remembers."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cachekeeper import signatures, signing
from cachekeeper.config import cache_home
from cachekeeper.errors import (
    BadSignature,
    DamagedStore,
    NotFound,
    Replayed,
    SwappedName,
    Unproven,
    Unreachable,
    Unsigned,
    Untrusted,
    UsageError,
    WrongKey,
)
from cachekeeper.records import checked, with_checksum
from cachekeeper.repository import Repository
from cachekeeper.signatures import Claim, Trust, choose, found, sign, sign_saved
from cachekeeper.signing import PrivateKey
from cachekeeper.stores import LocalStore, MemoryStore
from cachekeeper.stores.cached import CachedStore
from tests import samples

HERE = samples.fingerprint()


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


def save(repository: Repository, name: str = "drafter", **changes: object) -> str:
    """The id of a snapshot that a name points to now."""
    saved = repository.commit(samples.header(name=name, **changes), samples.tables()).id
    if name:
        repository.move_name(name, saved)
    return saved


def save_signed(repository: Repository, key: PrivateKey, name: str = "drafter", **changes: object) -> str:
    saved = save(repository, name, **changes)
    sign_saved(repository, key, saved, name)
    return saved


def put(store: MemoryStore, key: str, data: bytes) -> None:
    store.delete(key)
    assert store.create(key, data)


def chosen(repository: Repository, reference: str, trusted: Trust | None) -> str:
    return choose(repository, reference, HERE, trusted=trusted).snapshot.id


# Objects


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


# Memory


@pytest.fixture
def three(repository: Repository, key: PrivateKey) -> list[str]:
    """Three snapshots that drafter pointed to, all signed."""
    return [save_signed(repository, key, message=str(number)) for number in range(3)]


def go_back(store: MemoryStore, *numbers: int) -> None:
    for number in numbers:
        store.delete(f"names/drafter/{number:08d}")


def remembered() -> list[Path]:
    return sorted((cache_home() / "trust").glob("*.json"))


def test_what_a_name_has_left_is_refused(repository, store: MemoryStore, trusted: Trust, three: list[str]):
    assert chosen(repository, "drafter", trusted) == three[2]
    go_back(store, 3)
    with pytest.raises(Replayed) as caught:
        chosen(repository, "drafter", trusted)
    facts = "\n".join(caught.value.facts)
    assert f"move 2 -> {three[1][:8]}" in facts and f"move 3 -> {three[2][:8]}" in facts
    assert chosen(repository, three[1], trusted) == three[1]
    assert chosen(repository, "drafter@{1}", trusted) == three[0]


def test_a_machine_that_has_seen_nothing_cannot_know(repository, store: MemoryStore, trusted: Trust, three: list[str]):
    go_back(store, 3)
    assert chosen(repository, "drafter", trusted) == three[1]
    [file] = remembered()
    assert file.parent.stat().st_mode & 0o777 == 0o700
    document = checked(file.read_bytes())
    assert (document["name"], document["number"], document["snapshot"]) == ("drafter", 2, three[1])


def test_moving_on_is_remembered(repository, store: MemoryStore, key, trusted: Trust, three: list[str]):
    for _ in range(2):
        chosen(repository, "drafter", trusted)
        newest = save_signed(repository, key, message=f"more {len(repository.history('drafter'))}")
        assert chosen(repository, "drafter", trusted) == newest
    go_back(store, 5)
    with pytest.raises(Replayed):
        chosen(repository, "drafter", trusted)


def test_another_history_is_refused(repository, store: MemoryStore, key, trusted: Trust, three: list[str]):
    chosen(repository, "drafter", trusted)
    go_back(store, 3)
    store.delete(Claim("", "drafter", 3).place + key.public.id)
    save_signed(repository, key, message="written in a store that was rolled back")
    with pytest.raises(Replayed, match="another history"):
        chosen(repository, "drafter", trusted)


def test_a_person_may_allow_it(repository, store: MemoryStore, key, three: list[str]):
    trusted, allowing = Trust((key.public,)), Trust((key.public,), allow_older=True)
    chosen(repository, "drafter", trusted)
    go_back(store, 3)
    assert chosen(repository, "drafter", allowing) == three[1]
    assert chosen(repository, "drafter", trusted) == three[1]
    go_back(store, 2)
    with pytest.raises(Replayed):
        chosen(repository, "drafter", trusted)


def test_looking_only_remembers_nothing_and_refuses_all_the_same(repository, store: MemoryStore, key, three):
    looking = Trust((key.public,), remember=False)
    chosen(repository, "drafter", looking)
    assert not (cache_home() / "trust").exists()
    chosen(repository, "drafter", Trust((key.public,)))
    go_back(store, 3)
    with pytest.raises(Replayed):
        chosen(repository, "drafter", looking)


def test_stores_names_and_keys_are_remembered_apart(repository, store: MemoryStore, key, three):
    both = Trust((key.public, signing.new_private_key().public))
    chosen(repository, "drafter", Trust((key.public,)))
    save_signed(repository, key, "other")
    chosen(repository, "other", Trust((key.public,)))
    go_back(store, 3)
    assert chosen(repository, "drafter", both) == three[1]
    assert len(remembered()) == 3


def test_what_was_refused_is_not_remembered(repository, store: MemoryStore, key, trusted: Trust, three: list[str]):
    repository.move_name("drafter", three[0])
    with pytest.raises(Unsigned):
        chosen(repository, "drafter", trusted)
    assert remembered() == []


@pytest.mark.parametrize("content", [b"", b"garbage", b"[]", with_checksum({"number": 1})])
def test_a_memory_that_cannot_be_read_is_no_memory_of_nothing(repository, key, three: list[str], content: bytes):
    trusted = Trust((key.public,))
    chosen(repository, "drafter", trusted)
    [file] = remembered()
    file.write_bytes(content)
    with pytest.raises(Replayed, match="cannot tell whether drafter went back"):
        chosen(repository, "drafter", trusted)
    chosen(repository, "drafter", Trust((key.public,), allow_older=True))
    chosen(repository, "drafter", trusted)


def test_where_nothing_can_be_remembered_it_is_said(repository, trusted: Trust, three: list[str]):
    cache_home().parent.mkdir(parents=True, exist_ok=True)
    cache_home().write_text("no directory")
    [note] = choose(repository, "drafter", HERE, trusted=trusted).notes
    assert note.startswith("where drafter points cannot be remembered in ")


def test_many_restores_at_once_keep_the_highest(key: PrivateKey):
    trusted = Trust((key.public,))

    def look(number: int) -> None:
        with contextlib.suppress(Replayed):
            signatures._refuse_older("file:///store", Claim("ab" * 32, "drafter", number), trusted)

    for turn in range(5):
        numbers = [turn * 40 + number for number in random.Random(turn).sample(range(40), 40)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(look, numbers))
        [file] = remembered()
        assert checked(file.read_bytes())["number"] == max(numbers)


class Away(MemoryStore):
    """A store that can be out of reach."""

    url, far, away = "s3://bucket", True, False

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return super().read(self._there(key), start, length)

    def size(self, key: str) -> int:
        return super().size(self._there(key))

    def list(self, prefix: str, most: int | None = None):
        return super().list(self._there(prefix), most)

    def _there(self, key: str) -> str:
        if self.away:
            raise Unreachable("no answer")
        return key


def test_what_this_machine_keeps_of_a_far_store_is_enough(key: PrivateKey, trusted: Trust, tmp_path: Path):
    far = Away()
    saved = save_signed(Repository(far), key)
    repository = Repository(CachedStore(far, LocalStore(tmp_path / "near")))
    for reference in ("drafter", saved):
        assert chosen(repository, reference, trusted) == saved
    repository.manifest(saved)  # as a restore does; headers alone are not kept
    far.away = True
    repository = Repository(CachedStore(far, LocalStore(tmp_path / "near")))
    for reference in ("drafter", saved):
        assert chosen(repository, reference, trusted) == saved
    with pytest.raises(Unreachable):
        chosen(Repository(CachedStore(far, LocalStore(tmp_path / "empty"))), saved, trusted)


# Settings


def test_who_is_trusted(key: PrivateKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert signatures.trust(None) is None
    assert signatures.trust(key.public.line) == Trust((key.public,))
    monkeypatch.setenv("CACHEKEEPER_REQUIRE_SIGNATURE", key.public.line)
    assert signatures.trust(None, allow_older=True, remember=False) == Trust((key.public,), True, False)
    with pytest.raises(UsageError):
        signatures.trust("")


def test_without_the_library_nothing_is_trusted(key: PrivateKey, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(UsageError, match="cryptography"):
        signatures.trust(key.public.line)


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
