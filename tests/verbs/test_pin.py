"""Pin snapshots by whatever they can be called."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import DamagedStore, NotFound, ReadOnly, UsageError
from cachekeeper.pins import Pin
from cachekeeper.repository import open_repository, pack_key
from cachekeeper.stores import open_store
from tests.test_pins import LockingStore

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def two(cache: Path, store: Path) -> list[str]:
    """Ids of two snapshots that were drafter; they share their packs."""
    return [
        cachekeeper.snapshot("drafter", cache_dir=cache, store=store, message=message).snapshot.id
        for message in ("first", "second")
    ]


def test_what_is_pinned_is_the_snapshot(store: Path, two: list[str], cache: Path):
    found = cachekeeper.pin("drafter", reason="good", store=store)
    assert found.store == store.as_uri() and found.already == () and not found.locked
    assert [(pin.snapshot, pin.reason) for pin in found.pins] == [(two[1], "good")]
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, message="third")
    assert [row.pinned for row in cachekeeper.ls(store=store).rows] == [False, True, False]
    assert cachekeeper.show("drafter", store=store).pin is None
    assert cachekeeper.show("drafter@{1}", store=store).pin == found.pins[0]


def test_several_references_to_one_snapshot(store: Path, two: list[str]):
    found = cachekeeper.pin(["drafter", two[0][:8], two[1], "drafter@{1}"], store=store)
    assert [pin.snapshot for pin in found.pins] == [two[1], two[0]]


def test_pinned_already(store: Path, two: list[str]):
    [first] = cachekeeper.pin("drafter", reason="good", store=store).pins
    found = cachekeeper.pin(["drafter", two[0]], reason="other", store=store)
    assert found.already == (two[1],) and found.pins[0] == first and found.pins[1].reason == "other"


def test_all_or_nothing(store: Path, two: list[str]):
    with pytest.raises(NotFound) as caught:
        cachekeeper.pin(["drafter", "draftr"], store=store)
    assert caught.value.hint == "did you mean `drafter`?"
    assert not (store / "pins").exists()


def test_nothing_to_pin(store: Path, two: list[str]):
    with pytest.raises(UsageError):
        cachekeeper.pin([], store=store)


def test_no_store(store: Path):
    with pytest.raises(NotFound):
        cachekeeper.pin("drafter", store=store)
    assert not store.exists()


def test_a_damaged_snapshot(store: Path, two: list[str]):
    [pack] = (store / "packs").iterdir()
    pack.unlink()
    with pytest.raises(DamagedStore, match="lacks 1 object of it") as caught:
        cachekeeper.pin("drafter", store=store)
    assert caught.value.facts == (pack_key(pack.name),) and not (store / "pins").exists()


def test_a_read_only_store(store: Path, two: list[str]):
    with pytest.raises(ReadOnly):
        cachekeeper.pin("drafter", store=open_store(store, read_only=True))
    assert not (store / "pins").exists()


def test_a_store_with_locks(cache: Path):
    store = LockingStore()
    identifier = cachekeeper.snapshot("drafter", cache_dir=cache, store=store).snapshot.id
    found = cachekeeper.pin("drafter", store=store)
    assert found.locked and found.pins[0].locked
    assert store.held == {f"pins/{identifier}", *found.pins[0].objects}
    assert {key for key, *_ in store.list("packs/")} < store.held
    assert cachekeeper.pin("drafter", store=store).already == (identifier,)


def test_pinned_snapshots_restore_and_are_saved_anew(store: Path, two: list[str], cache: Path, tmp_path: Path):
    cachekeeper.pin(two, store=store)
    cachekeeper.restore("drafter", cache_dir=tmp_path / "back", store=store)
    assert cachekeeper.verify(every=True, store=store).ok
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, message="third")
    open_repository(store).prepare()


def test_a_damaged_pin_is_shown_and_listed(store: Path, two: list[str]):
    cachekeeper.pin("drafter", store=store)
    path = store / "pins" / two[1]
    path.chmod(0o644)
    path.write_text("garbage")
    assert [row.pinned for row in cachekeeper.ls(store=store).rows] == [True, False]
    damage = "the bytes of the pin do not match its checksum"
    assert cachekeeper.show("drafter", store=store).pin == Pin(two[1], damage=damage)


def test_a_pinned_snapshot_that_is_gone_is_told(store: Path, two: list[str]):
    cachekeeper.pin("drafter", store=store)
    manifest = store / "snapshots" / f"{two[1]}.json.zst"
    manifest.unlink()
    [line] = cachekeeper.ls(store=store).unreadable
    assert line.startswith(f"{two[1][:8]}: pinned, but its manifest is not in the store")
    manifest.write_bytes(b"garbage")
    [line] = cachekeeper.ls(store=store).unreadable
    assert "pinned" not in line
