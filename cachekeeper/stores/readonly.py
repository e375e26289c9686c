"""A store that nothing of ours writes to, whatever its credentials allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from ..errors import ReadOnly
from .base import Buffer, ObjectInfo, Store


class ReadOnlyStore(Store):
    """Another store, without what changes it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url, self.far, self.parallel, self.directories = store.url, store.far, store.parallel, store.directories

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._store.read(key, start, length)

    def size(self, key: str) -> int:
        return self._store.size(key)

    def list(self, prefix: str, most: int | None = None) -> Iterator[ObjectInfo]:
        return self._store.list(prefix, most)

    def fetch(self, key: str) -> None:
        self._store.fetch(key)

    def distrust(self, key: str) -> None:
        self._store.distrust(key)

    @property
    def original(self) -> Store:
        return ReadOnlyStore(self._store.original)

    @property
    def caveats(self) -> tuple[str, ...]:
        return self._store.caveats

    def prepare(self) -> None:
        self._refuse("")

    def create(self, key: str, *parts: Buffer) -> bool:
        self._refuse(key)

    def delete(self, key: str) -> None:
        self._refuse(key)

    def hold(self, key: str) -> bool:
        self._refuse(key)

    def release(self, key: str) -> None:
        self._refuse(key)

    def revive(self, key: str) -> bool:
        self._refuse(key)

    def _refuse(self, key: str) -> NoReturn:
        raise ReadOnly(
            f"refused to write to {self.url}/{key}".rstrip("/") + ": it was opened read-only",
            hint="it is --read-only, CACHEKEEPER_READ_ONLY or `read_only` of the settings that says so",
        )
