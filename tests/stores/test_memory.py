"""A store in this process."""

from __future__ import annotations

import pytest

from cachekeeper.stores import MemoryStore
from cachekeeper.testing import StoreContract


class TestContract(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


def test_it_keeps_a_copy():
    data = bytearray(b"first")
    store = MemoryStore()
    store.create("k", data)
    data[:] = b"other"
    assert store.read("k") == b"first"
