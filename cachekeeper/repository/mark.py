"""The object by which a store is known, and which says what format it has."""

from __future__ import annotations

import json

from ..errors import DamagedStore, FromLaterVersion
from ..manifest import FORMAT
from ..stores import Store

FORMAT_KEY = "format.json"
_MARK = json.dumps({"format": FORMAT}).encode() + b"\n"
_MEND = f"write it anew: {_MARK.decode().strip()}, in a line; then look at the rest with `cachekeeper verify --all`"


def lost(store: Store) -> DamagedStore:
    """The error for a place that holds snapshots and no mark."""
    return DamagedStore(f"format.json of {store.url} is gone, and its snapshots are there", hint=_MEND)


def write(store: Store) -> None:
    """Make an empty place a store."""
    store.create(FORMAT_KEY, _MARK)


def check(store: Store) -> None:
    """Refuse a store of a format that this version does not read.

    Raises:
        KeyMissing: it is no store.
        DamagedStore: nobody can tell which format it has.
        FromLaterVersion: a later version of cachekeeper made it.
    """
    store.twice(lambda key: _check(store, store.read(key)), FORMAT_KEY)


def _check(store: Store, data: bytes) -> None:
    if data == _MARK:
        return
    try:
        version = json.loads(data)["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        version = None
    if not isinstance(version, int) or version == FORMAT:
        raise DamagedStore(
            f"format.json of {store.url} is damaged",
            facts=[f"it holds {data[:80]!r}"],
            hint=_MEND,
        )
    raise FromLaterVersion(
        f"{store.url} has format {version}; this cachekeeper reads format {FORMAT}",
        hint="upgrade cachekeeper: `pip install -U cachekeeper`",
    )
