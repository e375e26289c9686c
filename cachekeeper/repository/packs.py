"""The packs of a store, and where each content lies in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from .. import doubted
from ..condemned import Condemned
from ..errors import DamagedStore
from ..indexes import read_index_once
from ..packs import Frame, PackIndex, frame_runs, read_index
from ..stores import KeyMissing, Store
from ..units import FULL_ID
from ..workers import read_all

PLACE = "packs/"


class Location(NamedTuple):
    """Where a content lies in a store: pack, its frames there, and the offset in the first."""

    pack: str
    frames: tuple[Frame, ...]
    offset: int


def pack_key(pack: str) -> str:
    """The key of a pack."""
    return f"{PLACE}{pack}"


def pack_sizes(store: Store) -> dict[str, int]:
    """Every pack -> its length in bytes."""
    found = ((key.removeprefix(PLACE), size) for key, size, _ in store.list(PLACE))
    return {pack: size for pack, size in found if FULL_ID.fullmatch(pack)}


def sizes_of(store: Store, packs: Iterable[str], known: Mapping[str, int]) -> dict[str, int]:
    """The lengths of packs, without those that are not there.

    Args:
        known: packs just written, with their lengths: a listing may not show them yet.
    """
    sizes = {**pack_sizes(store), **known}
    for pack in set(packs) - sizes.keys():
        with contextlib.suppress(KeyMissing):
            # A copy on this machine says nothing of what the store has.
            sizes[pack] = store.original.size(pack_key(pack))
    return sizes


def pack_indexes(store: Store, condemned: Condemned | None = None) -> Iterator[tuple[str, PackIndex]]:
    """Packs and what they hold. Those that are known to be damaged are left out, so that nothing builds on them."""
    sizes = pack_sizes(store)
    passed_over = {*doubted.packs(store), *(condemned.among(sizes) if condemned else ())}
    packs = [(pack, size) for pack, size in sizes.items() if pack not in passed_over]
    for (pack, _), index in zip(packs, read_all(lambda each: _try_index(store, *each), packs), strict=True):
        if index is not None:
            yield pack, index


def _try_index(store: Store, pack: str, size: int) -> PackIndex | None:
    def read(key: str) -> PackIndex:
        look = partial(store.read, key)
        return read_index_once(pack, size, look) if store.far else read_index(look, size)

    try:
        return store.twice(read, pack_key(pack))
    except (DamagedStore, KeyMissing):
        return None


def locations(store: Store, condemned: Condemned | None = None) -> dict[str, Location]:
    """SHA-256 of every content in the store, but for condemned and damaged packs -> where it lies."""
    found: dict[str, Location] = {}
    for pack, index in pack_indexes(store, condemned):
        for content, number in frame_runs(index):
            frames = tuple(index.frames[content.frame : content.frame + number])
            found.setdefault(content.sha256, Location(pack, frames, content.offset))
    return found
