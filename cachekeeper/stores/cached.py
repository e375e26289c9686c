"""A store on this machine in front of one that is far away.

What is named by its content (packs, manifests) is read here once it has been read there. Names and listings come from
there, since they move; only where that does not answer, what was seen last is used, and `caveats` says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ..errors import LocalDiskError, StoreError, Unreachable
from ..workers import ordered
from .base import Buffer, KeyMissing, ObjectInfo, Store
from .local import LocalStore

Answer = TypeVar("Answer")

_PIECE_BYTES = 8 << 20
# Larger ones are read in ranges and not kept: they would have to be in memory as a whole.
_LARGEST_KEPT = 512 << 20


class CachedStore(Store):
    """`far`, with what was read of it kept in `near`, which lies in the directory `around` beside others."""

    def __init__(self, far: Store, near: LocalStore, around: Path | None = None) -> None:
        self._far, self._near = far, near
        self.url, self.far, self.parallel, self.writers = far.url, far.far, far.parallel, far.writers
        self.directories = (*far.directories, around or near.root)
        self._away: Unreachable | None = None
        self._trouble = ""

    def prepare(self) -> None:
        self._far.prepare()

    def create(self, key: str, *parts: Buffer) -> bool:
        created = self._far.create(key, *parts)
        if created:
            self._keep(key, *parts)
        return created

    def delete(self, key: str) -> None:
        self._far.delete(key)
        self.distrust(key)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        def read_far() -> bytes:
            data = self._far.read(key, start, length)
            if start == 0 and length is None:
                self._keep(key, data)
            return data

        if _is_content(key):
            with contextlib.suppress(KeyMissing, StoreError):
                return self._near.read(key, start, length)
        try:
            return self._far_or_near(read_far, lambda: self._near.read(key, start, length))
        except KeyMissing:
            # That it is not here does not say that it is not there.
            raise self._away or KeyMissing(f"cannot read {key}: it is not in {self.url}") from None

    def size(self, key: str) -> int:
        if _is_content(key):
            with contextlib.suppress(KeyMissing, StoreError):
                return self._near.size(key)
        return self._far_or_near(lambda: self._far.size(key), lambda: self._near.size(key))

    def list(self, prefix: str, most: int | None = None) -> Iterator[ObjectInfo]:
        def listed(store: Store) -> Callable[[], Sequence[ObjectInfo]]:
            return lambda: tuple(store.list(prefix, most))

        return iter(self._far_or_near(listed(self._far), listed(self._near)))

    def fetch(self, key: str) -> None:
        """Keep an object here as a whole; of several processes one downloads it."""
        if self._away or self._trouble or self._is_here(key):
            return
        with self._alone(key):
            if not self._is_here(key) and (size := self._far.size(key)) <= _LARGEST_KEPT:
                starts = range(0, size, _PIECE_BYTES)
                pieces = ordered(lambda start: self._far.read(key, start, _PIECE_BYTES), starts, threads=self.parallel)
                self._keep(key, *pieces)

    def distrust(self, key: str) -> None:
        with contextlib.suppress(StoreError, LocalDiskError):
            self._near.delete(key)
        self._far.distrust(key)

    def creates_once(self) -> bool | None:
        return self._far.creates_once()

    def hold(self, key: str) -> bool:
        return self._far.hold(key)

    def release(self, key: str) -> None:
        self._far.release(key)

    def revive(self, key: str) -> bool:
        return self._far.revive(key)

    @property
    def original(self) -> Store:
        return self._far

    @property
    def caveats(self) -> tuple[str, ...]:
        found = self._far.caveats
        if self._away:
            found += (f"{self.url} cannot be reached: this is what this machine saw of it last",)
        if self._trouble:
            found += (f"nothing more is kept in {self._near.root}: {self._trouble}",)
        return found

    def _is_here(self, key: str) -> bool:
        try:
            self._near.size(key)
        except (KeyMissing, StoreError):
            return False
        return True

    def _keep(self, key: str, *parts: Buffer) -> None:
        """Write an object here too. A full disk here is no reason to fail: the store itself is as it should be."""
        if self._trouble:
            return
        try:
            self._near.create(key, *parts)
        except (StoreError, LocalDiskError) as error:
            self._trouble = " ".join("; ".join((error.message, *error.facts[-1:])).split())

    def _far_or_near(self, far: Callable[[], Answer], near: Callable[[], Answer]) -> Answer:
        if not self._away:
            try:
                return far()
            except Unreachable as error:
                try:
                    found = near()
                except (KeyMissing, StoreError):
                    found = None
                if not found:  # nothing was ever seen of it
                    raise
                self._away = error
                return found
        return near()

    @contextlib.contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        """Hold others off who would download the same. Where that does not work, two download it."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError, StoreError, LocalDiskError):
                self._near.prepare()
                name = f".fetching-{hashlib.sha256(key.encode()).hexdigest()[:2]}"
                lock = stack.enter_context(open(self._near.root / name, "w"))
                os.set_inheritable(lock.fileno(), False)
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _is_content(key: str) -> bool:
    """True for what a key can mean only one thing of."""
    return key.startswith(("packs/", "snapshots/")) or key == "format.json"
