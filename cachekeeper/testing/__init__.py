"""For the tests of others: the contract of a store, and caches that look like Inductor's.

StoreContract   subclass it and say how to make your store: every test of the contract runs on it
make_cache      a small cache directory with every kind of entry, without compiling anything
"""

from .caches import make_cache, make_triton_entry
from .contract import StoreContract

__all__ = ["StoreContract", "make_cache", "make_triton_entry"]
