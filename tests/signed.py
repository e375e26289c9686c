"""Snapshots that are saved and signed, for the tests of signatures."""

from __future__ import annotations

from cachekeeper.repository import Repository
from cachekeeper.signatures import sign_saved
from cachekeeper.signing import PrivateKey
from cachekeeper.stores import MemoryStore
from cachekeeper.trust import Trust, choose
from tests import samples

HERE = samples.fingerprint()


def save(repository: Repository, name: str = "drafter", **changes: object) -> str:
    """The id of a snapshot that a name points to now."""
    saved = repository.commit(samples.header(name=name, **changes), samples.tables()).id
    if name:
        repository.move_name(name, saved)
    return saved


def save_signed(repository: Repository, key: PrivateKey, name: str = "drafter", **changes: object) -> str:
    saved = save(repository, name, **changes)
    sign_saved(repository, key, saved, name)
    return saved


def put(store: MemoryStore, key: str, data: bytes) -> None:
    store.delete(key)
    assert store.create(key, data)


def chosen(repository: Repository, reference: str, trusted: Trust | None) -> str:
    return choose(repository, reference, HERE, trusted=trusted).snapshot.id
