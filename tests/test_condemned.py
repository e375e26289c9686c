"""The list of condemned packs: which one counts, and what nonsense in its place does."""

from __future__ import annotations

import pytest

from cachekeeper import condemned
from cachekeeper.condemned import Condemned, Doom
from cachekeeper.records import with_checksum
from cachekeeper.repository import Repository
from cachekeeper.stores import MemoryStore
from tests.gc.scripted import ScriptedStore, packs_of, put, save

A, B = "aa" * 32, "bb" * 32


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


def test_there_has_never_been_one(store: ScriptedStore):
    assert condemned.generation(store) == 0
    assert condemned.read(store) == Condemned(0, {}) and not condemned.read(store).among([A])


def test_it_reads_back_and_only_the_last_one_stays(store: ScriptedStore):
    for number in (1, 2, 10):
        assert condemned.write(store, Condemned(number, {A: Doom(number, 12.5)}))
    assert store.keys("gc/") == ["gc/00000010"] and condemned.generation(store) == 10
    found = condemned.read(store)
    assert found == Condemned(10, {A: Doom(10, 12.5)}) and found.among([A, B]) == {A}


def test_of_one_number_there_is_one(store: ScriptedStore):
    assert condemned.write(store, Condemned(1, {A: Doom(1, 0.0)}))
    assert not condemned.write(store, Condemned(1, {B: Doom(1, 0.0)}))
    assert condemned.read(store).packs == {A: Doom(1, 0.0)}


def test_a_list_that_is_replaced_while_it_is_read(store: ScriptedStore):
    condemned.write(store, Condemned(1, {A: Doom(1, 0.0)}))
    store.before("read", "gc/", lambda: condemned.write(store, Condemned(2, {B: Doom(2, 0.0)})))
    assert condemned.read(store) == Condemned(2, {B: Doom(2, 0.0)})


def test_other_objects_there_are_no_lists(store: ScriptedStore):
    for name in ("lock", "1", "000000001", "0000000a"):
        store.create(f"gc/{name}", b"")
    assert condemned.generation(store) == 0
    assert condemned.write(store, Condemned(1, {})) and len(store.keys("gc/")) == 5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[" * 100_000,
        with_checksum({"packs": {A: [1, 0.0]}})[:-2],
        with_checksum({}),
        with_checksum({"packs": []}),
        with_checksum({"packs": {A: 5}}),
        with_checksum({"packs": {A: [1]}}),
        with_checksum({"packs": {A: [1, 2, 3]}}),
        with_checksum({"packs": {A: [None, 0]}}),
        with_checksum({"packs": {A: [float("inf"), 0]}}),
        with_checksum({"packs": {A: [1, 10**400]}}),
        with_checksum({"packs": {A: {"generation": 1}}}),
    ],
    ids=lambda data: repr(data[:50]),
)
def test_where_it_cannot_be_read_any_pack_may_be_on_it(store: ScriptedStore, data: bytes):
    store.create("gc/00000004", data)
    found = condemned.read(store)
    assert (found.generation, found.known) == (4, False) and found.among([A, B]) == {A, B}


def test_a_snapshot_beside_a_damaged_list_uses_no_pack_that_was_there(store: ScriptedStore):
    repository = Repository(store)
    repository.prepare()
    orphan = put(store, 1)
    MemoryStore.create(store, "gc/00000004", b"damaged")
    assert orphan.id not in packs_of(repository, save(repository, 1))
