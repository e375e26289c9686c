"""What this machine remembers of where a name pointed."""

from __future__ import annotations

import contextlib
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cachekeeper import rollback, signing
from cachekeeper.config import cache_home
from cachekeeper.errors import (
    Replayed,
    Unreachable,
    Unsigned,
)
from cachekeeper.records import checked, with_checksum
from cachekeeper.repository import Repository
from cachekeeper.signatures import Claim
from cachekeeper.signing import PrivateKey
from cachekeeper.stores import LocalStore, MemoryStore
from cachekeeper.stores.cached import CachedStore
from cachekeeper.trust import Trust, choose
from tests.signed import HERE, chosen, save_signed


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
    def look(number: int) -> None:
        with contextlib.suppress(Replayed):
            rollback.refuse_older("file:///store", Claim("ab" * 32, "drafter", number), (key.public,))

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
