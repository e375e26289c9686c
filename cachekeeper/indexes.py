"""Pack indexes that this machine has read before, so that a snapshot to a far store need not ask for each again.

A private cache of this user: it may be lost. A pack never changes, and its end tells by a checksum whether it is whole;
whether the pack is still in the store is asked of the store every time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from .config import cache_home, keep_in_cache
from .errors import DamagedStore
from .packs import PackIndex, read_index

Read = Callable[[int, int], bytes]


def read_index_once(pack: str, size: int, read: Read) -> PackIndex:
    """The index of a pack, from what is kept here or else by `read`, as `packs.read_index` does.

    Raises:
        DamagedStore: it is no whole pack.
    """
    path = cache_home() / "indexes" / pack
    with contextlib.suppress(OSError, DamagedStore):
        return read_index(_from_end(path.read_bytes(), size), size)
    end = _End(read)
    index = read_index(end.read, size)
    keep_in_cache(path, end.data)
    return index


def _from_end(data: bytes, size: int) -> Read:
    return lambda start, length: data[max(0, start - (size - len(data))) :][:length]


class _End:
    """Remembers the last read, which reaches from the index to the end of the pack."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.data = b""

    def read(self, start: int, length: int) -> bytes:
        self.data = self._read(start, length)
        return self.data
