"""What the destination lacks, from the listings of both stores and the manifests that they do not share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...errors import DamagedStore, FromLaterVersion
from ...manifest import Manifest, PackRow
from ...repository import Repository, manifest_key, pack_sizes
from ...stores import KeyMissing, Store
from ...stores.base import ObjectInfo
from ...workers import ordered
from .damage import damaged_pack, missing_pack, wrong_length


class Item(NamedTuple):
    """A snapshot to copy, or whose packs are to be looked after; `there` where the destination has its manifest."""

    id: str
    parent: str
    created: str
    modified: float
    size: int
    packs: tuple[PackRow, ...]
    there: bool


@dataclass(frozen=True)
class Plan:
    """What to do.

    Attributes:
        items: snapshots for which something is to do, or may be; oldest first.
        there: ids of those that both stores have, and for which nothing is to do.
        found: ids of all that the destination has, or will have when nothing more turns out to be damaged.
        lacking: packs that the destination does not have, and the source has.
        damaged: id -> why that snapshot cannot be copied.
    """

    ours: Repository
    theirs: Repository
    items: list[Item]
    there: list[str]
    found: set[str]
    lacking: dict[str, PackRow]
    damaged: dict[str, str]

    @property
    def packs(self) -> set[str]:
        """Every pack that the destination needs for what is planned."""
        return {row.id for item in self.items for row in item.packs}

    @property
    def bytes(self) -> int:
        """The length of all that is to be written."""
        packs = sum(row.size for row in self.lacking.values())
        return packs + sum(item.size for item in self.items if not item.there)


def make_plan(ours: Repository, theirs: Repository, ids: frozenset[str] | None) -> Plan:
    """Find out what to do; `ids` None: for every snapshot of the source.

    For every snapshot, manifests that both stores have are read only where there may be a hole in the destination: it
    lacks a pack that the new snapshots do not account for.
    """
    planner = _Planner(ours, theirs)
    if ids is None:
        planner.look_at_all()
    else:
        planner.look_at(sorted(ids))
    return planner.plan()


def looked_again(plan: Plan) -> Plan:
    """The plan with the packs that the destination lacks by now."""
    there = pack_sizes(plan.theirs.store)
    return replace(plan, lacking={row.id: row for item in plan.items for row in item.packs if row.id not in there})


class _Planner:
    def __init__(self, ours: Repository, theirs: Repository) -> None:
        self._ours, self._theirs = ours, theirs
        self._manifests, self._packs = _manifests(ours.store), pack_sizes(ours.store)
        self._manifests_there, self._packs_there = _manifests(theirs.store), pack_sizes(theirs.store)
        self._items: list[Item] = []
        self._there: list[str] = []
        self._damaged: dict[str, str] = {}

    def plan(self) -> Plan:
        for item in self._items:
            if reasons := list(filter(None, map(self._pack_damage, item.packs))):
                self._damaged[item.id] = "; ".join(reasons)
        items = _oldest_first(item for item in self._items if item.id not in self._damaged)
        found = (self._manifests_there.keys() | {item.id for item in items}) - self._damaged.keys()
        lacking = {row.id: row for item in items for row in item.packs if row.id not in self._packs_there}
        return Plan(self._ours, self._theirs, items, self._there, found, lacking, self._damaged)

    def look_at_all(self) -> None:
        both = {key: info for key, info in self._manifests.items() if self._size_there(key) == info.size}
        self.look_at([key for key in self._manifests if key not in both])
        differing = {pack for pack, size in self._packs.items() if self._packs_there.get(pack) != size}
        if differing - {row.id for item in self._items for row in item.packs}:
            self.look_at(both)
        else:
            self._there += both

    def look_at(self, identifiers: Iterable[str]) -> None:
        looked_at = ordered(lambda key: (key, self._look(key)), identifiers, threads=self._ours.store.parallel)
        for identifier, found in looked_at:
            if isinstance(found, str):
                self._damaged[identifier] = found
            else:
                self._items.append(found)

    def _look(self, identifier: str) -> Item | str:
        try:
            manifest, data = read_manifest(self._ours, identifier)
        except DamagedStore as error:
            return error.message
        size_there = self._size_there(identifier)
        if size_there not in (None, len(data)):
            length = wrong_length(size_there or 0, len(data))
            return f"its manifest in {self._theirs.store.url} is damaged: {length}"
        listed = self._manifests.get(identifier)
        modified = listed.modified if listed else 0.0
        header, packs = manifest.header, manifest.tables.packs
        return Item(identifier, header.parent, header.created, modified, len(data), packs, size_there is not None)

    def _size_there(self, identifier: str) -> int | None:
        there = self._manifests_there.get(identifier)
        return there.size if there else None

    def _pack_damage(self, row: PackRow) -> str:
        """What the lengths in the listings say. Packs never change, so one of another length can only be told."""
        size, there = self._packs.get(row.id), self._packs_there.get(row.id)
        if there is not None:
            right = there == row.size
            return "" if right else damaged_pack(self._theirs, row, wrong_length(there, row.size))
        if size is None:
            return missing_pack(self._ours, row)
        return "" if size == row.size else damaged_pack(self._ours, row, wrong_length(size, row.size))


def _oldest_first(items: Iterable[Item]) -> list[Item]:
    """By time, which may be in whole seconds or of another machine: a parent is older all the same."""
    by_time = sorted(items, key=lambda item: (item.created, item.modified, item.id))
    known = {item.id: item for item in by_time}
    placed: dict[str, Item] = {}
    for item in by_time:
        line: list[Item] = []
        older: Item | None = item
        while older and older.id not in placed:
            line.append(older)
            older = known.get(older.parent)
        placed.update((each.id, each) for each in reversed(line))
    return list(placed.values())


def _manifests(store: Store) -> dict[str, ObjectInfo]:
    """Full id of every snapshot -> its manifest in the listing."""
    found = {info.key.removeprefix("snapshots/").partition(".")[0]: info for info in store.list("snapshots/")}
    return {key: info for key, info in found.items() if info.key == manifest_key(key) and len(key) == 64}


def read_manifest(repository: Repository, identifier: str) -> tuple[Manifest, bytes]:
    """A manifest and its very bytes, checked against its id.

    Raises:
        DamagedStore: it is missing, damaged, or of a later version.
    """
    try:
        return repository.manifest_with_bytes(identifier)
    except KeyMissing as error:
        missing = f"its manifest is missing from {repository.store.url}"
        raise DamagedStore(error.message if error.hint else missing) from None  # it was removed
    except FromLaterVersion as error:
        raise DamagedStore(error.message) from None
