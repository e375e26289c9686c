"""A store in which a test says who comes in between, and at which operation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cachekeeper.repository import Repository, locations, pack_key
from cachekeeper.stores import MemoryStore
from cachekeeper.stores.base import ObjectInfo

from . import samples
from .samples import Pack

BEGIN = 1_700_000_000.0
_nonces = itertools.count(1_000)


class ScriptedStore(MemoryStore):
    """A store in memory with a clock that stands still.

    Attributes:
        now: what time it is there.
    """

    def __init__(self) -> None:
        self.now = BEGIN
        super().__init__(clock=lambda: self.now)
        self._script: list[tuple[str, str, Callable[[], object]]] = []

    def before(self, what: str, key: str, action: Callable[[], object]) -> None:
        """Do something just before the next operation of a kind, on a key that begins so; once."""
        self._script.append((what, key, action))

    @property
    def played(self) -> bool:
        """True once all that was to be done was done."""
        return not self._script

    def _play(self, what: str, key: str) -> None:
        for line in list(self._script):
            if line in self._script and what == line[0] and key.startswith(line[1]):
                self._script.remove(line)
                line[2]()

    def create(self, key: str, *parts: Any) -> bool:
        self._play("create", key)
        return super().create(key, *parts)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._play("read", key)
        return super().read(key, start, length)

    def size(self, key: str) -> int:
        self._play("size", key)
        return super().size(key)

    def list(self, prefix: str, most: int | None = None) -> Iterator[ObjectInfo]:
        self._play("list", prefix)
        return super().list(prefix, most)

    def delete(self, key: str) -> None:
        self._play("delete", key)
        super().delete(key)

    def keys(self, prefix: str) -> list[str]:
        """What there is."""
        return [info.key for info in super().list(prefix)]

    @property
    def packs(self) -> set[str]:
        """The packs that there are."""
        return {key.removeprefix("packs/") for key in self.keys("packs/")}


def put(store: MemoryStore, content: int, number: int = 0) -> Pack:
    """Store a pack that nothing needs yet."""
    pack = samples.pack(content, number)
    store.create(pack_key(pack.id), pack.data)
    return pack


def save(repository: Repository, *contents: int, message: str = "") -> str:
    """Save a snapshot of some contents as the verb does, from packs that there are or new ones; its id."""
    with repository.writing() as work:
        known = locations(repository.store, work.condemned)
        packs = {}
        for content in contents:
            place = known.get(samples.sha_of(content))
            stored = samples.pack_named(place.pack) if place else put(repository.store, content, next(_nonces))
            packs[content] = stored
        tables = samples.tables(packs)
        return repository.commit(samples.header(message, tables), tables, work=work).id


def packs_of(repository: Repository, identifier: str) -> set[str]:
    """What a snapshot needs."""
    return {row.id for row in repository.manifest(identifier).tables.packs}


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


@pytest.fixture
def repository(store: ScriptedStore) -> Repository:
    repository = Repository(store)
    repository.prepare()
    return repository
