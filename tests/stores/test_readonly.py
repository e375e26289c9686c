"""A store that nothing of ours writes to."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import ReadOnly
from cachekeeper.stores import LocalStore, MemoryStore, open_store
from cachekeeper.stores.readonly import ReadOnlyStore
from cachekeeper.testing import make_cache
from tests.verbs.conftest import tree


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.prepare(),
        lambda store: store.create("k", b"x"),
        lambda store: store.delete("k"),
        lambda store: store.hold("k"),
        lambda store: store.release("k"),
    ],
)
def test_writes_are_refused(write):
    below = MemoryStore()
    below.create("k", b"before")
    with pytest.raises(ReadOnly) as caught:
        write(ReadOnlyStore(below))
    assert caught.value.exit_code == 6 and "--read-only" in caught.value.hint
    assert below.read("k") == b"before"


def test_reads_are_those_of_the_store(tmp_path: Path):
    below = LocalStore(tmp_path / "store")
    below.prepare()
    below.create("a/b", b"0123")
    store = ReadOnlyStore(below)
    assert (store.read("a/b", 1, 2), store.size("a/b")) == (b"12", 4)
    assert list(store.list("a/")) == list(below.list("a/"))
    assert store.directories == (tmp_path / "store",) and store.url == below.url
    assert store.creates_once() is None and store.caveats == ()


def test_everything_that_reads_works_and_a_snapshot_is_refused(tmp_path: Path):
    cache, place = make_cache(tmp_path / "cache"), tmp_path / "store"
    cachekeeper.snapshot("x", cache_dir=cache, store=place, wait=0)
    store = open_store(place, read_only=True)
    cachekeeper.restore("x", cache_dir=tmp_path / "target", store=store, verify=True)
    assert cachekeeper.verify(every=True, store=store).ok
    assert len(cachekeeper.ls(store=store).rows) == 1
    before = tree(place)
    with pytest.raises(ReadOnly):
        cachekeeper.snapshot("x", cache_dir=cache, store=store, wait=0)
    assert tree(place) == before
