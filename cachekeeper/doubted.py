"""What this machine found damaged in a store, so that no new snapshot builds on it.

A private memory of this machine and user: it may be lost, and then the next restore or `verify` finds the damage again.
A pack that `verify` finds whole leaves it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from .config import cache_home, keep_in_cache
from .manifest import Tables
from .records import checked, with_checksum
from .stores import Store


def packs(store: Store) -> Mapping[str, frozenset[str]]:
    """Id of each pack in which damage was met -> SHA-256 of the contents that are known to be damaged in it."""
    try:
        found = checked(_memory(store).read_bytes())["packs"]
        return {str(pack): frozenset(map(str, contents)) for pack, contents in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def damaged_of(store: Store, tables: Tables) -> frozenset[str]:
    """The packs from which files of a snapshot come that are known to be damaged there."""
    known = packs(store)
    if not known:
        return frozenset()
    places = ((tables.packs[tables.frames[file.frame].pack].id, file.sha256) for file in tables.files if file.size)
    return frozenset(pack for pack, sha256 in places if sha256 in known.get(pack, ()))


def remember(store: Store, damaged: Iterable[tuple[str, str]]) -> None:
    """Note damage, as pairs of a pack's id and the SHA-256 of a content in it, "" for none; a failure is no matter."""
    known = {pack: set(contents) for pack, contents in packs(store).items()}
    for pack, sha256 in damaged:
        known.setdefault(pack, set()).update(filter(None, [sha256]))
    _keep(store, known)


def forget(store: Store, whole: Collection[str]) -> None:
    """Packs that are whole after all."""
    known = packs(store)
    if not known.keys().isdisjoint(whole):
        _keep(store, {pack: contents for pack, contents in known.items() if pack not in whole})


def _keep(store: Store, known: Mapping[str, Collection[str]]) -> None:
    data = with_checksum({"packs": {pack: sorted(contents) for pack, contents in known.items()}})
    keep_in_cache(_memory(store), data)


def _memory(store: Store) -> Path:
    url = store.original.url.rstrip("/")
    return cache_home() / "doubted" / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"
