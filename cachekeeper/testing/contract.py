"""The contract of a store, as tests. Needs pytest."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ..errors import StoreError
from ..stores import KeyMissing, Store


class StoreContract:
    """Subclass it in a test module and override `store`."""

    @pytest.fixture
    def store(self) -> Store:
        """An empty store, prepared."""
        raise NotImplementedError

    def test_an_object_reads_back(self, store: Store) -> None:
        data = random.Random(1).randbytes(300_000)
        assert store.create("packs/abc", data) is True
        assert store.read("packs/abc") == data
        assert store.size("packs/abc") == len(data)

    def test_any_buffer_can_be_written(self, store: Store) -> None:
        assert store.create("a", bytearray(b"one"))
        assert store.create("b", memoryview(b"two"))
        assert (store.read("a"), store.read("b")) == (b"one", b"two")

    def test_an_empty_object(self, store: Store) -> None:
        assert store.create("empty", b"")
        assert store.read("empty") == b"" and store.size("empty") == 0

    def test_ranges(self, store: Store) -> None:
        store.create("k", b"0123456789")
        assert store.read("k", 3, 4) == b"3456"
        assert store.read("k", 7) == b"789"
        assert store.read("k", 8, 100) == b"89"
        assert store.read("k", 0, 0) == b""

    def test_create_never_overwrites(self, store: Store) -> None:
        assert store.create("k", b"first") is True
        assert store.create("k", b"second") is False
        assert store.read("k") == b"first"

    def test_missing_keys(self, store: Store) -> None:
        with pytest.raises(KeyMissing):
            store.read("nothing")
        with pytest.raises(KeyMissing):
            store.size("nothing/here")
        store.delete("nothing")

    def test_a_deleted_object_is_gone_and_can_come_again(self, store: Store) -> None:
        store.create("k/x", b"first")
        store.delete("k/x")
        with pytest.raises(KeyMissing):
            store.read("k/x")
        assert store.create("k/x", b"second") is True
        assert store.read("k/x") == b"second"

    def test_listing(self, store: Store) -> None:
        for key in ("names/b/2", "names/b/1", "names/a", "namesake", "packs/x"):
            store.create(key, key.encode())
        assert [key for key, *_ in store.list("names/")] == ["names/a", "names/b/1", "names/b/2"]
        assert [size for _, size, _ in store.list("names/b/")] == [9, 9]
        assert [key for key, *_ in store.list("")] == ["names/a", "names/b/1", "names/b/2", "namesake", "packs/x"]
        assert list(store.list("nothing/")) == []

    def test_an_object_has_a_time(self, store: Store) -> None:
        store.create("first", b"")
        store.create("second", b"")
        times = {key: modified for key, _, modified in store.list("")}
        assert 0 < times["first"] <= times["second"] + 1

    @pytest.mark.parametrize(
        "key", ["", "/", "../x", "a/../b", "/etc/passwd", "a//b", "a/", ".", ".a", "a/.b", "a\x00b", "a b", "ä"]
    )
    def test_keys_that_no_store_holds(self, store: Store, key: str) -> None:
        with pytest.raises(StoreError):
            store.create(key, b"")
        with pytest.raises(StoreError):
            store.read(key)

    def test_long_keys(self, store: Store) -> None:
        key = f"names/{'n' * 240}/00000001"
        assert store.create(key, b"x") and store.read(key) == b"x"

    def test_of_many_creators_one_wins(self, store: Store) -> None:
        for number in range(4):
            barrier = threading.Barrier(8)

            def race(writer: int, key: str = f"race/{number}", barrier: threading.Barrier = barrier) -> bool:
                barrier.wait()
                return store.create(key, bytes([writer]) * 1000)

            with ThreadPoolExecutor(8) as pool:
                won = list(pool.map(race, range(8)))
            assert won.count(True) == 1
            assert store.read(f"race/{number}") == bytes([won.index(True)]) * 1000

    def test_readers_never_see_half_an_object(self, store: Store) -> None:
        stop = threading.Event()
        wrong: list[int] = []

        def read() -> None:
            while not stop.is_set():
                for key, size, _ in store.list("big/"):
                    if size != 1_000_000 or len(store.read(key)) != 1_000_000:
                        wrong.append(size)

        with ThreadPoolExecutor(2) as pool:
            reader = pool.submit(read)
            for number in range(20):
                store.create(f"big/{number}", b"x" * 1_000_000)
            stop.set()
            reader.result()
        assert not wrong
