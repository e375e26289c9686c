"""Where snapshots live: bytes at a key.

base     the contract that every store keeps (published tests: cachekeeper.testing.StoreContract)
local    a directory
memory   this process, for tests
"""

from .base import KeyMissing, ObjectInfo, Store
from .local import LocalStore
from .memory import MemoryStore
from .opening import open_store

__all__ = ["KeyMissing", "LocalStore", "MemoryStore", "ObjectInfo", "Store", "open_store"]
