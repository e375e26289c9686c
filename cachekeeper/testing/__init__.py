"""For the tests of others: the contract of a store, and caches that look like Inductor's.

StoreContract   subclass it and say how to make your store: every test of the contract runs on it (needs pytest)
make_cache      a small cache directory with every kind of entry, without compiling anything
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .caches import make_cache, make_triton_entry

if TYPE_CHECKING:
    from .contract import StoreContract

__all__ = ["StoreContract", "make_cache", "make_triton_entry"]


def __getattr__(name: str) -> Any:
    if name == "StoreContract":
        from ..system import require_linux

        require_linux()
        from .contract import StoreContract

        return StoreContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
