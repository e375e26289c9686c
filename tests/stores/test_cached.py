"""A store on this machine in front of another one."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import StoreError, Unreachable
from cachekeeper.stores import KeyMissing, LocalStore, MemoryStore, local
from cachekeeper.stores.base import Buffer, ObjectInfo
from cachekeeper.stores.cached import CachedStore
from cachekeeper.testing import StoreContract, make_cache
from tests.verbs.conftest import tree


class Far(MemoryStore):
    """Counts what is asked of it, and can go away."""

    far = True

    def __init__(self) -> None:
        super().__init__("far")
        self.asked: list[str] = []
        self.away = False

    def _note(self, what: str) -> None:
        if self.away:
            raise Unreachable("the server cannot be reached")
        self.asked.append(what)

    def create(self, key: str, *parts: Buffer) -> bool:
        self._note(f"create {key}")
        return super().create(key, *parts)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._note(f"read {key}")
        return super().read(key, start, length)

    def size(self, key: str) -> int:
        self._note(f"size {key}")
        return super().size(key)

    def list(self, prefix: str, most: int | None = None) -> Iterator[ObjectInfo]:
        self._note(f"list {prefix}")
        return super().list(prefix, most)


@pytest.fixture
def far() -> Far:
    return Far()


@pytest.fixture
def store(far: Far, tmp_path: Path) -> CachedStore:
    return CachedStore(far, LocalStore(tmp_path / "near"))


class TestContract(StoreContract):
    @pytest.fixture
    def store(self, far: Far, tmp_path: Path) -> CachedStore:
        return CachedStore(far, LocalStore(tmp_path / "near"))


def again(store: CachedStore, tmp_path: Path, far: Far) -> CachedStore:
    """As another process would see it."""
    far.asked.clear()
    return CachedStore(far, LocalStore(tmp_path / "near"))


def test_a_fetched_pack_is_read_here(store: CachedStore, far: Far, tmp_path: Path):
    far.create("packs/a", bytes(range(256)) * 100_000)
    store.fetch("packs/a")
    other = again(store, tmp_path, far)
    other.fetch("packs/a")
    assert other.read("packs/a", 256, 3) == b"\0\1\2" and other.size("packs/a") == 25_600_000
    assert far.asked == []


def test_a_part_that_is_read_without_fetching_is_not_kept(store: CachedStore, far: Far, tmp_path: Path):
    far.create("packs/a", b"0123456789")
    assert store.read("packs/a", 2, 3) == b"234"
    assert tree(tmp_path / "near") == {} if (tmp_path / "near").exists() else True


def test_names_and_listings_are_always_asked_for(store: CachedStore, far: Far, tmp_path: Path):
    far.create("names/a/1", b"one")
    assert store.read("names/a/1") == b"one"
    other = again(store, tmp_path, far)
    assert other.read("names/a/1") == b"one"
    assert [item.key for item in other.list("names/")] == ["names/a/1"]
    assert far.asked == ["read names/a/1", "list names/"]


def test_what_is_created_is_kept_too(store: CachedStore, far: Far, tmp_path: Path):
    assert store.create("packs/a", b"one", b"two") and store.create("snapshots/b", b"three")
    assert not store.create("packs/a", b"other")
    other = again(store, tmp_path, far)
    assert (other.read("packs/a"), other.read("snapshots/b")) == (b"onetwo", b"three")
    assert far.asked == []


def test_a_damaged_copy_is_read_from_afar_again(store: CachedStore, far: Far, tmp_path: Path):
    far.create("packs/a", b"right")
    store.fetch("packs/a")
    path = tmp_path / "near/packs/a"
    path.chmod(0o644)
    path.write_bytes(b"wrong")
    assert store.read("packs/a") == b"wrong"
    store.distrust("packs/a")
    assert store.read("packs/a") == b"right"


def test_a_pack_is_downloaded_once_by_many(store: CachedStore, far: Far, tmp_path: Path):
    far.create("packs/a", b"x" * 1_000_000)
    stores = [CachedStore(far, LocalStore(tmp_path / "near")) for _ in range(8)]
    threads = [threading.Thread(target=one.fetch, args=("packs/a",)) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert far.asked.count("read packs/a") == 1


def test_where_afar_does_not_answer_what_was_seen_last_is_used(store: CachedStore, far: Far, tmp_path: Path):
    far.create("names/a/1", b"one")
    store.read("names/a/1")
    far.away = True
    other = again(store, tmp_path, far)
    assert [item.key for item in other.list("names/")] == ["names/a/1"]
    assert other.read("names/a/1") == b"one"
    assert other.caveats == ("memory://far cannot be reached: this is what this machine saw of it last",)
    with pytest.raises(Unreachable):
        other.read("names/a/2")
    with pytest.raises(KeyMissing):
        other.size("names/a/2")


def test_where_nothing_was_ever_seen_it_is_unreachable(store: CachedStore, far: Far):
    far.away = True
    for ask in (lambda: store.read("format.json"), lambda: store.list("names/"), lambda: store.size("packs/a")):
        with pytest.raises(Unreachable):
            ask()


def test_nothing_is_written_while_it_is_away(store: CachedStore, far: Far, tmp_path: Path):
    far.away = True
    with pytest.raises(Unreachable):
        store.create("packs/a", b"x")
    assert not (tmp_path / "near/packs").exists()


def test_a_full_disk_here_stops_the_keeping_and_nothing_else(
    store: CachedStore, far: Far, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(local, "write_all", full)
    assert store.create("packs/a", b"0123")
    assert store.read("packs/a", 1, 2) == b"12"
    store.fetch("packs/a")
    assert "No space left" in store.caveats[0]


@pytest.fixture
def saved(far: Far, store: CachedStore, tmp_path: Path) -> tuple[str, dict[str, bytes]]:
    cache = make_cache(tmp_path / "cache")
    made = cachekeeper.snapshot("drafter", cache_dir=cache, store=far, wait=0)
    right = tree(cachekeeper.restore("drafter", cache_dir=tmp_path / "right", store=far).cache_dir)
    return made.snapshot.id, {path: data for path, data in right.items() if ".cachekeeper" not in path}


def restored(reference: str, store: CachedStore, target: Path) -> dict[str, bytes]:
    cachekeeper.restore(reference, cache_dir=target, store=store, verify=True)
    found = {path: data for path, data in tree(target).items() if ".cachekeeper" not in path}
    return {
        path: data.replace(os.fsencode(target), os.fsencode(target.parent / "right")) for path, data in found.items()
    }


def test_a_second_restore_by_id_asks_for_nothing(
    saved: tuple[str, dict[str, bytes]], store: CachedStore, far: Far, tmp_path: Path
):
    identifier, right = saved
    assert restored(identifier, store, tmp_path / "one") == right
    other = again(store, tmp_path, far)
    assert restored(identifier, other, tmp_path / "two") == right
    assert far.asked == []


def test_a_second_restore_by_name_asks_only_where_the_name_points(
    saved: tuple[str, dict[str, bytes]], store: CachedStore, far: Far, tmp_path: Path
):
    _, right = saved
    restored("drafter", store, tmp_path / "one")
    other = again(store, tmp_path, far)
    assert restored("drafter", other, tmp_path / "two") == right
    assert far.asked == ["list names/drafter/", "size names/drafter/00000002", "read names/drafter/00000001"]


def test_a_restore_works_while_the_far_store_is_away(
    saved: tuple[str, dict[str, bytes]], store: CachedStore, far: Far, tmp_path: Path
):
    _, right = saved
    restored("drafter", store, tmp_path / "one")
    far.away = True
    other = again(store, tmp_path, far)
    result = cachekeeper.restore("drafter", cache_dir=tmp_path / "two", store=other)
    assert result.new == len(right) and any("cannot be reached" in note for note in result.notes)


def test_what_is_not_here_while_the_far_store_is_away_is_not_called_missing(
    saved: tuple[str, dict[str, bytes]], store: CachedStore, far: Far, tmp_path: Path
):
    """Neither a pack that is damaged here, nor an earlier move of a name that was never asked for."""
    cachekeeper.snapshot("drafter", cache_dir=tmp_path / "cache", store=far, wait=0)
    restored("drafter", store, tmp_path / "one")
    [path] = (tmp_path / "near/packs").iterdir()
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:100])
    far.away = True
    for reference in ("drafter", "drafter@{1}"):
        with pytest.raises(Unreachable):
            cachekeeper.restore(reference, cache_dir=tmp_path / "two", store=again(store, tmp_path, far))


def test_a_flipped_bit_in_the_local_copy_is_mended_from_afar(
    saved: tuple[str, dict[str, bytes]], store: CachedStore, far: Far, tmp_path: Path
):
    _, right = saved
    restored("drafter", store, tmp_path / "one")
    for kind in ("packs", "snapshots"):
        [path] = (tmp_path / "near" / kind).iterdir()
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.chmod(0o644)
        path.write_bytes(data)
    assert restored("drafter", again(store, tmp_path, far), tmp_path / "two") == right


def test_errors_that_are_no_silence_are_not_hidden(store: CachedStore, far: Far, monkeypatch: pytest.MonkeyPatch):
    def refuse(prefix: str, most: int | None = None) -> Iterator[ObjectInfo]:
        raise StoreError("refused")

    store.create("names/a/1", b"one")
    monkeypatch.setattr(far, "list", refuse)
    with pytest.raises(StoreError, match="refused"):
        store.list("names/")
