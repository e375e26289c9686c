"""Finding out whether a place creates a key only once."""

from __future__ import annotations

import threading
import time

from cachekeeper.stores import MemoryStore
from cachekeeper.stores.racing import one_wins


def test_a_place_that_keeps_to_it():
    store = MemoryStore()
    assert one_wins(store.create, store.read, racers=8, rounds=10)


class Liar:
    """Keeps objects, and tells writers what it likes."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def read(self, key: str) -> bytes:
        return self.objects[key]

    def overwrites(self, key: str, data: bytes) -> bool:
        self.objects[key] = data
        return True

    def looks_first(self, key: str, data: bytes) -> bool:
        """Right for one after the other, wrong for two at once."""
        if key in self.objects:
            return False
        time.sleep(0.01)
        self.objects[key] = data
        return True

    def keeps_the_last(self, key: str, data: bytes) -> bool:
        """Tells only the first that it won, and keeps what the others wrote."""
        with self.lock:
            won = key not in self.objects
            self.objects[key] = data
            return won

    def refuses(self, key: str, data: bytes) -> bool:
        return False


def test_every_kind_of_liar_is_found_out():
    for lie in ("overwrites", "looks_first", "keeps_the_last", "refuses"):
        liar = Liar()
        assert not one_wins(getattr(liar, lie), liar.read, racers=4, rounds=1), lie
