"""Unpin snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import NotFound, ReadOnly, UsageError
from cachekeeper.stores import open_store
from cachekeeper.verbs.unpin import UnpinResult
from tests.test_pins import LockingStore

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def two(cache: Path, store: Path) -> list[str]:
    """Ids of two snapshots that were drafter; both are pinned."""
    found = [
        cachekeeper.snapshot("drafter", cache_dir=cache, store=store, message=message).snapshot.id
        for message in ("first", "second")
    ]
    cachekeeper.pin(found, store=store)
    return found


def pinned(store: Path) -> list[str]:
    return sorted(row.snapshot.id for row in cachekeeper.ls(store=store).rows if row.pinned)


def test_one_of_two(store: Path, two: list[str]):
    assert cachekeeper.unpin("drafter", store=store) == UnpinResult(store.as_uri(), (two[1],), (), False, (), (), ())
    assert pinned(store) == [two[0]]


def test_one_that_is_not_pinned(store: Path, two: list[str]):
    cachekeeper.unpin("drafter", store=store)
    found = cachekeeper.unpin(["drafter", two[0][:8], "drafter@{1}"], store=store)
    assert (found.unpinned, found.already) == ((two[0],), (two[1],))
    assert pinned(store) == []


def test_all_or_nothing(store: Path, two: list[str]):
    for wrong in ("draftr", "abcd", "*"):
        with pytest.raises(NotFound):
            cachekeeper.unpin(["drafter", wrong], store=store)
    assert pinned(store) == sorted(two)


def test_nothing_to_unpin(store: Path, two: list[str]):
    with pytest.raises(UsageError):
        cachekeeper.unpin([], store=store)


def test_no_store(store: Path):
    with pytest.raises(NotFound):
        cachekeeper.unpin("drafter", store=store)


def test_a_read_only_store(store: Path, two: list[str]):
    with pytest.raises(ReadOnly):
        cachekeeper.unpin("drafter", store=open_store(store, read_only=True))
    assert pinned(store) == sorted(two)


def test_a_damaged_pin(store: Path, two: list[str]):
    path = store / "pins" / two[1]
    path.chmod(0o644)
    path.write_text("garbage")
    assert cachekeeper.unpin("drafter", store=store).unpinned == (two[1],)


@pytest.mark.parametrize("digits", [8, 64])
def test_a_snapshot_that_is_gone(store: Path, two: list[str], digits: int):
    (store / "snapshots" / f"{two[0]}.json.zst").unlink()
    with pytest.raises(NotFound):
        cachekeeper.unpin("", store=store)
    assert cachekeeper.unpin(two[0][:digits], store=store).unpinned == (two[0],)
    with pytest.raises(NotFound):
        cachekeeper.unpin(two[0][:digits], store=store)


def test_a_store_with_locks(cache: Path):
    store = LockingStore()
    for name in ("one", "two"):
        cachekeeper.snapshot(name, cache_dir=cache, store=store, message=name)
    cachekeeper.pin(["one", "two"], store=store)
    packs = [key for key, *_ in store.list("packs/")]
    found = cachekeeper.unpin("one", store=store)
    assert found.locks and found.kept == ("format.json", *packs) and store.held >= set(packs)
    found = cachekeeper.unpin("two", store=store)
    assert found.kept == () and store.held == set()
