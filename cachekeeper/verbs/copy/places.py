"""Source and destination: two stores, the first of which is there."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import NotFound, UsageError
from ...repository import Repository
from ...stores import Store, open_store


def open_copied(place: str | os.PathLike[str], s3_endpoint: str | None = None) -> Store:
    """A source or destination: the store itself, not with what this machine keeps of it.

    Raises:
        UsageError: no store of this kind.
    """
    if not os.fspath(place):
        raise UsageError("the source or the destination is empty", hint="`cachekeeper copy SRC DST`")
    return open_store(place, local_cache="", s3_endpoint=s3_endpoint)


def check(ours: Repository, theirs: Repository) -> None:
    """Refuse what cannot be meant.

    Raises:
        UsageError: they are the same store, or one is inside the other.
        NotFound: the source is no store.
    """
    if ours.store.url.rstrip("/") == theirs.store.url.rstrip("/"):
        raise UsageError(f"source and destination are the same store: {ours.store.url}")
    urls = sorted((ours.store.url.rstrip("/") + "/", theirs.store.url.rstrip("/") + "/"), key=len)
    if urls[1].startswith(urls[0]):
        raise UsageError("one store is inside the other", facts=urls, hint="name a prefix beside it")
    for one in ours.store.directories:
        for other in theirs.store.directories:
            _refuse_overlap(one.resolve(), other.resolve())
    if not ours.exists():
        raise _no_source(ours, theirs)


def _refuse_overlap(one: Path, other: Path) -> None:
    if one == other or (one.exists() and other.exists() and one.samefile(other)):
        raise UsageError(f"source and destination are the same directory: {one}")
    if one in other.parents or other in one.parents:
        facts = [str(one), str(other)]
        raise UsageError("one store is inside the other", facts=facts, hint="name a directory beside it")


def _no_source(ours: Repository, theirs: Repository) -> NotFound:
    hint = "give a store that holds snapshots first: `cachekeeper copy SRC DST`"
    if theirs.exists():
        hint = f"the source comes first, and it is {theirs.store.url} that holds snapshots"
    return NotFound(ours.nothing, hint=hint)
