"""The contract of a store: six methods over immutable objects."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from ..errors import DamagedStore, NotFound, StoreError

Buffer = bytes | bytearray | memoryview
Parsed = TypeVar("Parsed")

_KEY = re.compile(r"[A-Za-z0-9%_~-][A-Za-z0-9%._~-]*(?:/[A-Za-z0-9%_~-][A-Za-z0-9%._~-]*)*")


class KeyMissing(NotFound):
    """No object at a key."""

    code = "key-missing"


class ObjectInfo(NamedTuple):
    """An object in a listing: its key, its length in bytes, and when it was written (seconds since the epoch)."""

    key: str
    size: int
    modified: float


class Store(ABC):
    """Bytes at a key. A key is '/'-separated parts of letters, digits and `%._~-`, none of which begins with a dot.

    What callers rely on, and `cachekeeper.testing.StoreContract` checks:

    - An object is there whole or not at all, at every moment and after a crash; once `create` has returned, it stays.
    - Objects never change. Of any number of concurrent `create` calls for one key, exactly one returns True.
    - A listing holds every object whose `create` returned before the listing began.
    - Methods may be called from several threads at once.
    - Errors are `KeyMissing` for a key that is not there, and `StoreError` for everything else; both are final, since
      what may be tried again was tried inside.

    Attributes:
        url: what opens the store again.
        far: True where every call waits for a network.
        parallel: how many reads at once are worth it: more where a read waits for a network.
        writers: likewise for writes, each of which holds a whole pack in memory.
        directories: those that the store takes up on this machine's disk.
    """

    url: str
    far: bool = False
    parallel: int = 2
    writers: int = 1
    directories: tuple[Path, ...] = ()

    @abstractmethod
    def create(self, key: str, *parts: Buffer) -> bool:
        """Write an object that does not exist yet, made of `parts` one after the other.

        Returns:
            False, and nothing is changed, where the key is taken.
        """

    @abstractmethod
    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of an object, or `length` of them from `start`; fewer only where the object ends before.

        Raises:
            KeyMissing: no such object.
        """

    @abstractmethod
    def size(self, key: str) -> int:
        """The length of an object in bytes.

        Raises:
            KeyMissing: no such object.
        """

    def has(self, key: str) -> bool:
        """Is there an object at a key?"""
        try:
            self.size(key)
        except KeyMissing:
            return False
        return True

    @abstractmethod
    def list(self, prefix: str, most: int | None = None) -> Iterator[ObjectInfo]:
        """Every object whose key starts with `prefix`, which is "" or ends in '/', in the order of their keys.

        Args:
            most: be content with so many of them, whichever they are.
        """

    @abstractmethod
    def delete(self, key: str) -> None:
        """Take an object away; nothing happens where there is none."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the place where objects go, where that is not there yet."""

    @property
    def original(self) -> Store:
        """The store itself, without what this machine keeps of it."""
        return self

    @property
    def caveats(self) -> tuple[str, ...]:
        """What this place does not keep of the contract, a sentence each; known once something was written."""
        return ()

    def fetch(self, key: str) -> None:  # noqa: B027
        """Bring an object near, of which much is about to be read, where that is of use."""

    def distrust(self, key: str) -> None:  # noqa: B027
        """Hear that an object did not read back right: read it from elsewhere next time, where there is a choice."""

    def twice(self, read: Callable[[str], Parsed], key: str) -> Parsed:
        """What `read` makes of an object, and once more where that is damaged: it may have happened on the way."""
        try:
            return read(key)
        except DamagedStore:
            self.distrust(key)
            return read(key)

    def creates_once(self) -> bool | None:
        """Write a few objects to find out whether of several writers of one key exactly one wins.

        Returns:
            None where that needs no proof, or may not be tried.
        """
        return None

    def hold(self, key: str) -> bool:
        """Let nobody take an object away, by whatever means, until it is released.

        Returns:
            False where the place has no such lock.
        """
        return False

    def release(self, key: str) -> None:  # noqa: B027
        """Undo `hold`."""

    def revive(self, key: str) -> bool:
        """Bring back an object that a delete hid, in a place that keeps what was deleted.

        Returns:
            False where nothing is kept of it.
        """
        return False


def is_key(key: str) -> bool:
    """True for what can be the key of an object."""
    return _KEY.fullmatch(key) is not None


def check_key(key: str) -> str:
    """The key itself.

    Raises:
        StoreError: it could leave the store, or no store could hold it.
    """
    if not is_key(key):
        raise StoreError(f"not a key that a store can hold: {key!r}")
    return key
