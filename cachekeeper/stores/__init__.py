"""Where snapshots live: bytes at a key.

base       the contract that every store keeps (published tests: cachekeeper.testing.StoreContract)
local      a directory
s3         a bucket (s3_requests, s3_errors: what is asked, what went wrong; racing, remembered: does the server create
           a key once?)
memory     this process, for tests
cached     a directory in front of a bucket
readonly   any of them, without what changes it
opening    a store from its URL
"""

from .base import KeyMissing, ObjectInfo, Store
from .local import LocalStore
from .memory import MemoryStore
from .opening import open_store
from .racing import PREFIX as PROBES
from .s3 import NOT_EXCLUSIVE

__all__ = ["NOT_EXCLUSIVE", "PROBES", "KeyMissing", "LocalStore", "MemoryStore", "ObjectInfo", "Store", "open_store"]
