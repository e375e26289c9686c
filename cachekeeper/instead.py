"""Another snapshot, where the one to restore turns out to be damaged in the store."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from typing import TypeVar

from .errors import DamagedStore, EmptyCache, NotFound, StoreError, Unproven, Untrusted
from .histories import history
from .repository import Repository, is_name, split_reference
from .trust import Chosen
from .units import short_id

Done = TypeVar("Done")


def use_whole(
    repository: Repository,
    reference: str,
    chosen: Chosen,
    choose: Callable[[Collection[str]], Chosen],
    use: Callable[[Chosen], Done],
) -> tuple[Done, tuple[str, ...]]:
    """Use the snapshot behind a reference; of "latest" the newest that is not damaged in the store.

    Args:
        chosen: that snapshot.
        choose: from the full ids that will not do, the next.
        use: what is done with one; it raises DamagedStore before it changes anything.

    Returns:
        What came of it, and the full ids of those that were damaged, newest first.

    Raises:
        DamagedStore: it is, or of "latest" all are, and this is the first one's; the hint of a name's tells of the one
            before.
    """
    if reference == "latest":
        return _newest_whole(chosen, choose, use)
    try:
        return use(chosen), ()
    except DamagedStore as error:
        raise _with_earlier_move(error, repository, reference, chosen.snapshot.id) from None


def in_words(damaged: Collection[str], identifier: str) -> str:
    """What was restored, and why not the newest."""
    newest, *others = map(short_id, damaged)
    also = f" (and {', '.join(others)})" if others else ""
    return f"{newest} is the newest that fits, but damaged in the store{also}: {short_id(identifier)} is taken instead"


def _newest_whole(
    chosen: Chosen, choose: Callable[[Collection[str]], Chosen], use: Callable[[Chosen], Done]
) -> tuple[Done, tuple[str, ...]]:
    damaged: list[str] = []
    first: DamagedStore | None = None
    while True:
        try:
            return use(chosen), tuple(damaged)
        except DamagedStore as error:
            first = first or error
            damaged.append(chosen.snapshot.id)
        except EmptyCache:
            if first is None:
                raise
            damaged.append(chosen.snapshot.id)
        try:
            chosen = choose(damaged)
        except (NotFound, Unproven, Untrusted):
            raise first from None


def _with_earlier_move(error: DamagedStore, repository: Repository, reference: str, identifier: str) -> DamagedStore:
    """The error of a damaged snapshot; where a name led to it, its hint tells of the one that the name had before."""
    name, back = split_reference(reference)
    try:
        pasts = history(repository, name) if is_name(name) else []
    except StoreError:  # the damage is what is told
        pasts = []
    earlier = [past for past in pasts[: len(pasts) - 1 - back] if past.snapshot and past.snapshot.id != identifier]
    if earlier:
        command = shlex.join(["cachekeeper", "verify", earlier[-1].reference])
        error.hint = f"is the one before whole? `{command}` says so. {error.hint}"
    return error
