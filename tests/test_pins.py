"""Pins: what they say, what they lock, and that crashes and others at work leave nothing wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cachekeeper import pins
from cachekeeper.errors import Busy, DamagedStore, StoreError
from cachekeeper.manifest import FileRow, FrameRow, PackRow
from cachekeeper.pins import Pin, Removed
from cachekeeper.records import with_checksum
from cachekeeper.repository import Repository, manifest_key, pack_key
from cachekeeper.stores import KeyMissing, LocalStore, MemoryStore, Store
from tests import samples

A, B, C = ("aa" * 32, "bb" * 32, "cc" * 32)


class LockingStore(MemoryStore):
    """A store with locks, that can fail at any change and let others in before any."""

    parallel = 4

    def __init__(self) -> None:
        super().__init__()
        self.held: set[str] = set()
        self.log: list[str] = []
        self.left: int | None = None
        self.before: Callable[[str], None] = lambda step: None

    def hold(self, key: str) -> bool:
        self._step("hold", key)
        self.size(key)
        self.held.add(key)
        return True

    def release(self, key: str) -> None:
        self._step("release", key)
        self.size(key)
        self.held.discard(key)

    def create(self, key: str, *parts) -> bool:
        self._step("create", key)
        return super().create(key, *parts)

    def delete(self, key: str) -> None:
        self._step("delete", key)
        assert key not in self.held, f"{key} is held"
        super().delete(key)

    def _step(self, what: str, key: str) -> None:
        self.before(f"{what} {key}")
        if self.left is not None:
            if self.left == 0:
                raise StoreError("the machine went down")
            self.left -= 1
        self.log.append(f"{what} {key}")


class ForgettingStore(MemoryStore):
    """What is deleted here is gone while somebody looks at it."""

    def list(self, prefix: str, most: int | None = None):
        yield from super().list(prefix, most)
        if prefix == "pins/":
            for key, *_ in super().list(prefix):
                super().delete(key)


def save(store: Store, message: str, *packs: str) -> str:
    """The id of a snapshot of one file in each of some packs."""
    repository = Repository(store)
    repository.prepare()
    for pack in packs:
        store.create(pack_key(pack), b"p" * 1000)
    file = samples.tables().files[0]
    rows = [FileRow(f"{file.path}{n}", *file[1:4], n, *file[5:]) for n in range(len(packs))]
    tables = replace(
        samples.tables(),
        packs=tuple(PackRow(pack, 1000) for pack in packs),
        frames=tuple(FrameRow(n, 24, 14, 5) for n in range(len(packs))),
        files=tuple(rows),
    )
    counts = {"fxgraph": replace(samples.header().counts["fxgraph"], files=len(packs), bytes=5 * len(packs))}
    return repository.commit(samples.header(message=message, counts=counts, stored=14 * len(packs)), tables).id


def needs(identifier: str, *packs: str) -> set[str]:
    return {manifest_key(identifier), "format.json", *map(pack_key, packs)}


def pin_key(identifier: str) -> str:
    return f"pins/{identifier}"


def spoil(store: MemoryStore, key: str, data: bytes = b"garbage") -> None:
    MemoryStore.delete(store, key)
    MemoryStore.create(store, key, data)


@pytest.fixture
def store() -> LockingStore:
    return LockingStore()


@pytest.fixture
def repository(store: LockingStore) -> Repository:
    return Repository(store)


@pytest.fixture
def two(store: LockingStore) -> tuple[str, str]:
    """Snapshots with packs A, B and with B, C."""
    return save(store, "one", A, B), save(store, "two", B, C)


# What a pin says


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_without_locks(kind: str, tmp_path: Path):
    store = MemoryStore() if kind == "memory" else LocalStore(tmp_path)
    one, repository = save(store, "one", A), Repository(store)
    assert pins.pinned(repository) == {} and pins.find(repository, one) is None
    [pin], locked = pins.put(repository, [one], "best so far")
    assert not locked and not pin.locked and pin.snapshot == one and "@" in pin.who and pin.reason == "best so far"
    assert set(pin.objects) == needs(one, A)
    assert pins.pinned(repository) == {one: pin} and pins.pinned_ids(repository) == [one]
    assert pins.put(repository, [one], "other") == ([pin], False)
    assert pins.remove(repository, [one]) == Removed((pin,))
    assert pins.remove(repository, [one]) == Removed(())
    assert list(store.list("pins/")) == []


def test_the_object_is_a_line_of_json_with_a_checksum(repository: Repository, store: LockingStore, two):
    pins.put(repository, two[:1], "größe")
    data = store.read(pin_key(two[0]))
    document = json.loads(data)
    assert data.count(b"\n") == 1 and data.endswith(b"\n") and list(document) == sorted(document)
    assert list(document) == ["locked", "objects", "reason", "sha256", "snapshot", "when", "who"]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: b"[]\n",
        lambda data: b"{}\n",
        lambda data: b"[" * 100_000,
        lambda data: data[:-1],
        lambda data: data.replace(b"aaaa", b"aaab"),
        lambda data: data.replace(b'"locked": true', b'"locked": false'),
        lambda data: b"\xff" + data,
    ],
)
def test_a_damaged_pin_is_a_pin(repository: Repository, store: LockingStore, two, change):
    pins.put(repository, two[:1])
    spoil(store, pin_key(two[0]), change(store.read(pin_key(two[0]))))
    [pin] = pins.pinned(repository).values()
    assert pin == Pin(two[0], damage="the bytes of the pin do not match its checksum")
    assert pins.pinned_ids(repository) == [two[0]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"snapshot": B},
        {"when": "yesterday"},
        {"who": 1},
        {"reason": None},
        {"locked": 1},
        {"objects": 5},
        {"objects": [1]},
        {"objects": []},
        {"objects": ["names/x/00000001"]},
    ],
)
def test_a_pin_with_a_checksum_that_makes_no_sense(repository: Repository, store: LockingStore, two, wrong: dict):
    pins.put(repository, two[:1])
    document = json.loads(store.read(pin_key(two[0]))) | wrong
    del document["sha256"]
    if wrong.get("objects"):
        document["objects"] = [manifest_key(two[0]), *document["objects"]] if wrong["objects"] != 5 else 5
    spoil(store, pin_key(two[0]), with_checksum(document))
    assert pins.pinned(repository)[two[0]].damage


def test_what_a_later_version_adds_is_passed_over(repository: Repository, store: LockingStore, two):
    [pin], _ = pins.put(repository, two[:1])
    document = json.loads(store.read(pin_key(two[0])))
    del document["sha256"]
    spoil(store, pin_key(two[0]), with_checksum({**document, "until": "2027-01-01T00:00:00Z"}))
    assert pins.pinned(repository) == {two[0]: pin}


def test_other_things_below_pins_are_no_pins(repository: Repository, store: LockingStore, two):
    store.create("pins/README.txt", b"hello")
    store.create(f"pins/{A}/x", b"hello")
    assert pins.pinned(repository) == {} and pins.pinned_ids(repository) == []


def test_a_pin_that_goes_while_it_is_read():
    store = ForgettingStore()
    one = save(store, "one", A)
    pins.put(Repository(store), [one])
    assert pins.pinned(Repository(store)) == {}


def test_a_damaged_pin_is_mended_by_pinning_again(repository: Repository, store: LockingStore, two):
    pins.put(repository, two[:1], "first")
    spoil(store, pin_key(two[0]))
    [pin], _ = pins.put(repository, two[:1], "second")
    assert pins.pinned(repository) == {two[0]: pin} and pin.reason == "second"
    assert store.held == {pin_key(two[0]), *needs(two[0], A, B)}


def test_what_is_not_whole_is_not_pinned(repository: Repository, store: LockingStore, two):
    MemoryStore.delete(store, pack_key(B))
    store.log.clear()
    with pytest.raises(DamagedStore) as caught:
        pins.put(repository, two)
    assert caught.value.message == "cannot pin what is not whole: memory://memory lacks 1 object of it"
    assert caught.value.facts == (pack_key(B),) and store.log == []
    spoil(store, manifest_key(two[0]))
    with pytest.raises(DamagedStore):
        pins.put(repository, two)
    assert store.log == []


# What is locked


def test_the_order(repository: Repository, store: LockingStore, two):
    store.log.clear()
    assert pins.put(repository, two[:1])[1]
    every = {f"hold {key}" for key in needs(two[0], A, B)}
    pin = pin_key(two[0])
    assert set(store.log[:4]) == every and store.log[4:6] == [f"create {pin}", f"hold {pin}"]
    assert set(store.log[6:]) == every
    store.log.clear()
    pins.remove(repository, two[:1])
    assert store.log[0] == "hold format.json"
    assert set(store.log[1:5]) == {f"release {key}" for key in needs(two[0], A, B)}
    assert store.log[5:7] == [f"release {pin}", f"delete {pin}"]
    assert store.held == set()


def test_what_two_pins_need_is_locked_until_the_last_is_gone(repository: Repository, store: LockingStore, two):
    one, other = two
    pins.put(repository, [one])
    pins.put(repository, [other])
    assert store.held == needs(one, A, B) | needs(other, B, C) | {pin_key(one), pin_key(other)}
    removed = pins.remove(repository, [one])
    assert removed.kept == ("format.json", pack_key(B))
    assert store.held == needs(other, B, C) | {pin_key(other)}
    assert pins.remove(repository, [other]).kept == () and store.held == set()


def test_several_at_once(repository: Repository, store: LockingStore, two):
    made, locked = pins.put(repository, two)
    assert [pin.snapshot for pin in made] == list(two) and locked
    assert store.held == needs(two[0], A, B) | needs(two[1], B, C) | set(map(pin_key, two))
    assert set(pins.remove(repository, two).pins) == set(made) and store.held == set()


def test_pinning_again_locks_again(repository: Repository, store: LockingStore, two):
    pins.put(repository, two[:1])
    store.held.clear()
    pins.put(repository, two[:1])
    assert store.held == {pin_key(two[0]), *needs(two[0], A, B)}


def test_a_store_that_has_locks_only_later(repository: Repository, store: LockingStore, two, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(LockingStore, "hold", lambda self, key: False)
        [pin], locked = pins.put(repository, two[:1])
    assert not locked and pins.put(repository, two[:1]) == ([pin], True)
    assert store.held == {pin_key(two[0]), *needs(two[0], A, B)}
    assert pins.remove(repository, two[:1]).locks and store.held == set()


def test_a_pin_that_is_damaged_still_keeps_what_its_manifest_says(repository: Repository, store: LockingStore, two):
    pins.put(repository, two)
    spoil(store, pin_key(two[1]))
    pins.remove(repository, two[:1])
    assert store.held == needs(two[1], B, C) | {pin_key(two[1])}


def test_a_manifest_that_is_damaged_is_no_matter(repository: Repository, store: LockingStore, two):
    pins.put(repository, two)
    spoil(store, manifest_key(two[1]))
    pins.remove(repository, two[:1])
    assert store.held == needs(two[1], B, C) | {pin_key(two[1])}
    pins.remove(repository, two[1:])
    assert store.held == set()


def test_both_damaged(repository: Repository, store: LockingStore, two):
    one, other = two
    pins.put(repository, two)
    spoil(store, manifest_key(other))
    spoil(store, pin_key(other))
    held = set(store.held)
    with pytest.raises(DamagedStore) as caught:
        pins.remove(repository, [one])
    assert caught.value.hint == f"give it up with `cachekeeper unpin {other[:8]}`; then try again"
    assert store.held == held and set(pins.pinned_ids(repository)) == {one, other}
    assert pins.remove(repository, [other]).unknown == (other,)
    assert pins.remove(repository, [one]).unknown == ()
    assert store.held == {pack_key(C)}  # which nothing could tell


def test_what_is_gone_is_told(repository: Repository, store: LockingStore, two):
    pins.put(repository, two[:1])
    MemoryStore.delete(store, pack_key(A))
    assert pins.remove(repository, two[:1]).missing == (pack_key(A),)
    assert store.held == {pack_key(A)}  # of the version that is hidden


# Crashes


def test_a_pin_that_crashes_anywhere_is_finished_by_a_rerun():
    for steps in range(20):
        store = LockingStore()
        one = save(store, "one", A, B)
        store.left = steps
        try:
            pins.put(Repository(store), [one])
        except StoreError:
            store.left = None
            if pins.find(Repository(store), one):
                assert store.held >= needs(one, A, B)
            pins.put(Repository(store), [one])
        else:
            break
        assert store.held == {pin_key(one), *needs(one, A, B)}
        assert set(pins.pinned(Repository(store))) == {one}
    assert 9 <= steps < 19


def test_a_pin_that_crashes_anywhere_is_undone_by_an_unpin():
    for steps in range(10):
        store = LockingStore()
        one, other = save(store, "one", A, B), save(store, "two", B, C)
        pins.put(Repository(store), [other])
        store.left = steps
        with pytest.raises(StoreError):
            pins.put(Repository(store), [one])
        store.left = None
        pins.remove(Repository(store), [one])
        assert store.held == {pin_key(other), *needs(other, B, C)}
        assert pins.pinned_ids(Repository(store)) == [other]


def test_an_unpin_that_crashes_anywhere_is_finished_by_a_rerun():
    for steps in range(30):
        store = LockingStore()
        one, other = save(store, "one", A, B), save(store, "two", B, C)
        pins.put(Repository(store), [one, other])
        store.left = steps
        try:
            pins.remove(Repository(store), [one])
        except StoreError:
            store.left = None
            assert store.held >= {pin_key(other), *needs(other, B, C)}
            pins.remove(Repository(store), [one])
        else:
            break
        assert store.held == {pin_key(other), *needs(other, B, C)}
        assert pins.pinned_ids(Repository(store)) == [other]
    assert 5 <= steps < 29


# Others at the same time


def at(store: LockingStore, moment: str, work: Callable[[], object]) -> None:
    """Do something once, just before a step."""

    def before(step: str) -> None:
        if step == moment:
            store.before = lambda step: None
            work()

    store.before = before


UNPIN_STEPS = ["hold format.json", f"release {pack_key(B)}", "release pins/ONE", "delete pins/ONE"]
PIN_STEPS = [f"hold {pack_key(B)}", "create pins/TWO", "hold pins/TWO"]


@pytest.mark.parametrize("moment", UNPIN_STEPS)
def test_a_pin_in_the_middle_of_an_unpin(repository: Repository, store: LockingStore, two, moment: str):
    one, other = two
    pins.put(repository, [one])
    at(store, moment.replace("ONE", one), lambda: pins.put(repository, [other]))
    pins.remove(repository, [one])
    assert store.held == {pin_key(other), *needs(other, B, C)}


@pytest.mark.parametrize("moment", PIN_STEPS)
def test_an_unpin_in_the_middle_of_a_pin(repository: Repository, store: LockingStore, two, moment: str):
    one, other = two
    pins.put(repository, [one])
    at(store, moment.replace("TWO", other), lambda: pins.remove(repository, [one]))
    pins.put(repository, [other])
    assert store.held == {pin_key(other), *needs(other, B, C)}


@pytest.mark.parametrize("moment", UNPIN_STEPS)
def test_an_unpin_in_the_middle_of_an_unpin(repository: Repository, store: LockingStore, two, moment: str):
    one, other = two
    pins.put(repository, two)
    moment = moment.replace(pack_key(B), pack_key(A))  # the one that only this pin needs
    at(store, moment.replace("ONE", one), lambda: pins.remove(repository, [other]))
    pins.remove(repository, [one])
    assert store.held == set() and pins.pinned_ids(repository) == []


def test_a_pin_and_its_unpin_in_the_middle_of_an_unpin(repository: Repository, store: LockingStore, two):
    """The unpin has seen the pin and locks what it needs, when that is gone already."""
    one, other = two
    pins.put(repository, [one])

    def come() -> None:
        pins.put(repository, [other])
        at(store, f"hold {pack_key(B)}", lambda: pins.remove(repository, [other]))

    at(store, f"delete {pin_key(one)}", come)
    pins.remove(repository, [one])
    assert store.held == set() and pins.pinned_ids(repository) == []


def test_an_unpin_of_what_is_being_pinned(repository: Repository, store: LockingStore, two):
    at(store, f"hold {pin_key(two[0])}", lambda: pins.remove(repository, two[:1]))
    with pytest.raises(Busy, match="unpinned it at the same moment"):
        pins.put(repository, two[:1])
    assert store.held == set()


def test_many_pins_of_one_snapshot_at_once(repository: Repository, store: LockingStore, two):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: pins.put(repository, [two[n % 2]], str(n))[0][0], range(16)))
    assert set(found) == set(pins.pinned(repository).values())
    assert store.held == needs(two[0], A, B) | needs(two[1], B, C) | set(map(pin_key, two))


def test_any_pins_and_unpins_at_once_end_well(store: LockingStore, repository: Repository, two):
    third = save(store, "three", C, A)
    packs = {two[0]: (A, B), two[1]: (B, C), third: (C, A)}

    def flip(identifier: str) -> None:
        for _ in range(10):
            pins.put(repository, [identifier])
            pins.remove(repository, [identifier])
        if identifier == third:
            pins.put(repository, [identifier])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(flip, packs))
    assert store.held == needs(third, C, A) | {pin_key(third)}


def test_an_object_that_goes_between_the_listing_and_its_release(repository: Repository, store: LockingStore, two):
    pins.put(repository, two[:1])

    def lose() -> None:
        store.held.discard(pack_key(A))
        MemoryStore.delete(store, pack_key(A))

    at(store, f"release {pack_key(A)}", lose)
    assert pins.remove(repository, two[:1]).locks
    with pytest.raises(KeyMissing):
        store.size(pack_key(A))
