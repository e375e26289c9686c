"""A store in this process: for tests, and as the plainest reading of the contract."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from .base import Buffer, KeyMissing, ObjectInfo, Store, check_key


class MemoryStore(Store):
    """Objects in a dict.

    Args:
        clock: what time it is, in seconds since the epoch.
    """

    def __init__(self, name: str = "memory", clock: Callable[[], float] = time.time) -> None:
        self.url = f"memory://{name}"
        self._clock = clock
        self._objects: dict[str, tuple[bytes, float]] = {}
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Nothing to make."""

    def create(self, key: str, *parts: Buffer) -> bool:
        check_key(key)
        with self._lock:
            if key in self._objects:
                return False
            self._objects[key] = b"".join(parts), self._clock()
            return True

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        data = self._object(key)[0]
        return data[start:] if length is None else data[start : start + length]

    def size(self, key: str) -> int:
        return len(self._object(key)[0])

    def list(self, prefix: str, most: int | None = None) -> Iterator[ObjectInfo]:
        with self._lock:
            found = sorted(item for item in self._objects.items() if item[0].startswith(prefix))
        return iter([ObjectInfo(key, len(data), written) for key, (data, written) in found[:most]])

    def delete(self, key: str) -> None:
        with self._lock:
            self._objects.pop(check_key(key), None)

    def _object(self, key: str) -> tuple[bytes, float]:
        with self._lock:
            try:
                return self._objects[check_key(key)]
            except KeyError:
                raise KeyMissing(f"nothing at {key} in {self.url}") from None
