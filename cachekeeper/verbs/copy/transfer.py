"""Packs and manifests, carried from store to store: a manifest once all packs of its snapshot are there."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ...errors import DamagedStore
from ...manifest import PackRow
from ...progress import Progress
from ...repository import pack_key
from ...stores import KeyMissing, Store
from ...writing import Writing
from .damage import damaged_pack, missing_pack, wrong_length
from .plan import Item, Plan, read_manifest

# Packs in memory at once; they are about 32 MiB each.
_AT_ONCE = 4
# Read at a time: what a broken connection makes a store read again.
_PIECE = 8 << 20


@dataclass
class Done:
    """What was copied, or would be; see `CopyResult`. `damaged` has full ids."""

    copied: list[str]
    there: list[str]
    packs: int
    bytes: int
    damaged: dict[str, str]


def expected(plan: Plan) -> Done:
    """What a transfer would do where nothing more turns out to be damaged."""
    new = [item.id for item in plan.items if not item.there]
    there = plan.there + [item.id for item in plan.items if item.there]
    return Done(new, there, len(plan.lacking), plan.bytes, plan.damaged)


def run(plan: Plan, work: Writing, progress: Progress) -> Done:
    """Copy what is planned. What turns out to be damaged is left out.

    Args:
        work: that in the destination in which the plan was made.
    """
    return _Transfer(plan, work, progress).run()


class _Transfer:
    def __init__(self, plan: Plan, work: Writing, progress: Progress) -> None:
        self._plan, self._work, self._progress = plan, work, progress
        self._done = Done([], list(plan.there), 0, 0, dict(plan.damaged))
        self._total, self._passed = plan.bytes, 0
        self._lock = threading.Lock()

    def run(self) -> Done:
        self._advance(0)
        pool = ThreadPoolExecutor(_AT_ONCE)
        try:
            packs = {row.id: pool.submit(self._carry, row) for row in self._plan.lacking.values()}
            for item in self._plan.items:
                results = [packs[row.id].result() for row in item.packs if row.id in packs]
                self._finish(item, "; ".join(filter(None, results)))
        finally:
            pool.shutdown(cancel_futures=True)
        return self._done

    def _advance(self, size: int) -> None:
        with self._lock:
            self._passed += size
            if self._total:
                self._progress("Copying", self._passed, self._total)

    def _carry(self, row: PackRow) -> str:
        """Copy a pack, called from several threads; what is wrong with it, or ""."""
        ours, theirs, key = self._plan.ours, self._plan.theirs, pack_key(row.id)
        try:
            pieces = ours.store.twice(lambda key: _fetch(ours.store, key, row), key)
            if self._create(key, *pieces):
                return ""
        except DamagedStore as error:
            return damaged_pack(ours, row, error.message)
        except KeyMissing:
            return missing_pack(ours, row)
        finally:
            self._advance(row.size)
        size = theirs.store.size(key)  # somebody else was quicker
        return "" if size == row.size else damaged_pack(theirs, row, wrong_length(size, row.size))

    def _create(self, key: str, *parts: bytes) -> bool:
        created = self._plan.theirs.store.create(key, *parts)
        if created:
            with self._lock:
                self._done.packs += 1
                self._done.bytes += sum(map(len, parts))
        return created

    def _finish(self, item: Item, damage: str) -> None:
        if damage:
            self._done.damaged[item.id] = damage
        elif item.there:
            self._done.there.append(item.id)
        else:
            self._commit(item)
        self._advance(0 if item.there else item.size)

    def _commit(self, item: Item) -> None:
        # Read again rather than kept: of a thousand snapshots, one manifest is in memory.
        try:
            _, data = read_manifest(self._plan.ours, item.id)
            packs = {row.id for row in item.packs}
            created = self._plan.theirs.create_manifest(item.id, data, packs, self._work)
        except DamagedStore as error:
            self._done.damaged[item.id] = error.message
            return
        self._done.bytes += len(data) if created else 0
        (self._done.copied if created else self._done.there).append(item.id)


def _fetch(store: Store, key: str, row: PackRow) -> list[bytes]:
    """The bytes of a pack in pieces.

    Raises:
        DamagedStore: they are not those that its name says.
        KeyMissing: no such pack.
    """
    digest = hashlib.sha256()
    pieces: list[bytes] = []
    for start in range(0, row.size, _PIECE):
        length = min(_PIECE, row.size - start)
        pieces.append(store.read(key, start, length))
        if len(pieces[-1]) != length:
            raise DamagedStore(wrong_length(start + len(pieces[-1]), row.size))
        digest.update(pieces[-1])
    if digest.hexdigest() != row.id:
        raise DamagedStore("its bytes do not match its name")
    return pieces
