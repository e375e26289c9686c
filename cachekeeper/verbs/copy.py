"""Copy snapshots from one store to another: only what the other lacks, every byte checked on the way."""

from __future__ import annotations

import hashlib
import os
import shlex
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ..errors import DamagedStore, FromLaterVersion, NotFound, UsageError
from ..manifest import Manifest, PackRow
from ..repository import Move, Repository, check_name, manifest_key, pack_key, writer
from ..stores import KeyMissing, Store, open_store
from ..units import now_utc, short_id
from ..workers import ordered

# Packs in memory at once; they are about 32 MiB each.
_AT_ONCE = 4
_PIECE = 8 << 20

Progress = Callable[[str, int, int], None]
_Place = str | os.PathLike[str] | Store


@dataclass(frozen=True)
class CopyResult:
    """What was copied, or would be.

    Attributes:
        source, destination: URLs of the stores.
        copied: ids of the snapshots copied, oldest first.
        there: ids of those that the destination had already.
        packs, bytes: number of packs written, and the length of packs and manifests together.
        names: name -> id of the snapshot that it points to now in the destination, for the names that were moved.
        kept: name -> id of what it points to in the destination, where it was moved there later than in the source.
        damaged: snapshot or name -> what is wrong with it, in which store; it was not copied.
        notes: what one of the stores does not keep of its contract, a sentence each.
    """

    source: str
    destination: str
    copied: tuple[str, ...]
    there: tuple[str, ...]
    packs: int
    bytes: int
    names: dict[str, str]
    kept: dict[str, str]
    damaged: dict[str, str]
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        """True where nothing was damaged."""
        return not self.damaged


def copy(
    source: _Place,
    destination: _Place,
    references: Sequence[str] = (),
    *,
    dry_run: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> CopyResult:
    """Copy snapshots from one store to another, oldest first: packs, then the manifest, then names.

    Every pack is checked against its name and every manifest against its id before it is written. What is damaged is
    left out and told in the result; everything else is copied. Ids stay what they are.

    Without references, the history of every name is copied too, each move with its own time and writer. A history only
    grows at its end, so a name never goes back in time: what is appended are the moves after the last one that both
    have, as far as they are no older than the last move in the destination. Where the name was moved later there, it
    stays.

    Args:
        source: URL, directory or Store.
        destination: the same; made where it is not there yet.
        references: names, ids, beginnings of ids, or `name@{1}`; none: everything. A plain name is moved in the
            destination too, now and by this user, whatever it points to there.
        dry_run: find out what would be copied from listings and manifests, and write nothing.
        progress: called with ("Copying", bytes done, bytes in all).

    Raises:
        UsageError: both are the same store, or the destination is no store and not empty.
        NotFound: nothing in the source, or no such snapshot.
        DamagedStore: a name that was asked for points to nobody knows what.
        StoreError: a store cannot be used; what was copied until then stays, and the next copy goes on from there.
    """
    ours, theirs = (
        Repository(place if isinstance(place, Store) else open_copied(place)) for place in (source, destination)
    )
    _refuse_same(ours.store, theirs.store)
    _require(ours, theirs)
    # Names before manifests before packs, against the order of writing: what is found has all that it needs.
    wanted = _everything(ours) if not references else _chosen(ours, references)
    theirs.refuse_foreign()
    plan = _Plan(ours, theirs)
    plan.make(wanted)
    if not (plan.items or plan.there):
        if not plan.damaged:
            raise NotFound(f"no snapshot in {ours.store.url}", hint="save one with `cachekeeper snapshot NAME`")
    elif not dry_run:
        theirs.prepare()
    done = _planned(plan) if dry_run else _transferred(plan, progress)
    available = {*plan.listed_there, *done.copied, *done.there} - done.bad
    moved, kept = _move_names(theirs, wanted, available, dry_run)
    return CopyResult(
        ours.store.url,
        theirs.store.url,
        tuple(done.copied),
        tuple(done.there),
        done.packs,
        done.bytes,
        moved,
        kept,
        plan.damaged | _name_damage(wanted, available | {item.id for item in plan.items} | plan.bad),
        tuple(dict.fromkeys(ours.store.caveats + theirs.store.caveats)),
        dry_run,
    )


def open_copied(place: str | os.PathLike[str], s3_endpoint: str | None = None) -> Store:
    """A source or destination: the store itself, not with what this machine keeps of it.

    Raises:
        UsageError: no store of this kind.
    """
    if not os.fspath(place):
        raise UsageError("the source or the destination is empty", hint="`cachekeeper copy SRC DST`")
    return open_store(place, local_cache="", s3_endpoint=s3_endpoint)


def _refuse_same(ours: Store, theirs: Store) -> None:
    if ours is theirs or ours.url.rstrip("/") == theirs.url.rstrip("/"):
        raise UsageError(f"source and destination are the same store: {ours.url}")
    for one in ours.directories:
        for other in theirs.directories:
            _refuse_overlap(one.resolve(), other.resolve())


def _refuse_overlap(one: Path, other: Path) -> None:
    if one == other or (one.exists() and other.exists() and one.samefile(other)):
        raise UsageError(f"source and destination are the same directory: {one}")
    if one in other.parents or other in one.parents:
        facts = [str(one), str(other)]
        raise UsageError("one store is inside the other", facts=facts, hint="name a directory beside it")


def _require(ours: Repository, theirs: Repository) -> None:
    if ours.exists():
        return
    hint = "give a store that holds snapshots first: `cachekeeper copy SRC DST`"
    if theirs.exists():
        hint = f"the source comes first, and it is {theirs.store.url} that holds snapshots"
    raise NotFound(f"no snapshots in {ours.store.url}", hint=hint)


# What is wanted


class _Wanted(NamedTuple):
    """What to copy.

    Attributes:
        ids: full ids, or None for every snapshot.
        pointers: plain names that were asked for -> what they point to.
        histories: name -> its whole history, where everything is wanted.
    """

    ids: frozenset[str] | None
    pointers: Mapping[str, str]
    histories: Mapping[str, list[Move]]


def _everything(ours: Repository) -> _Wanted:
    names = sorted(ours.names())
    return _Wanted(None, {}, dict(zip(names, map(ours.history, names), strict=True)))


def _chosen(ours: Repository, references: Sequence[str]) -> _Wanted:
    chosen = [references] if isinstance(references, str) else references
    found = {reference: ours.resolve(reference) for reference in chosen}
    for reference, identifier in found.items():
        if reference == identifier and not ours.has(identifier):
            hint = f"see what there is with `cachekeeper ls --store {shlex.quote(ours.store.url)}`"
            raise NotFound(f"no snapshot {short_id(identifier)} in {ours.store.url}", hint=hint)
    names = ours.names()
    pointers = {reference: identifier for reference, identifier in found.items() if reference in names}
    return _Wanted(frozenset(found.values()), pointers, {})


# What is missing


class _Item(NamedTuple):
    """A snapshot to copy, or whose packs are to be looked after; `there` where the destination has its manifest."""

    id: str
    order: tuple[str, float]
    size: int
    packs: tuple[PackRow, ...]
    there: bool


class _Plan:
    """What the destination lacks.

    Attributes:
        items: what there is to do, oldest first.
        there: ids of the snapshots for which nothing is to do.
        bad: ids of those that cannot be copied; `damaged` says why.
        lacking: packs that the destination does not have, and the source has.
        listed_there: ids of the manifests in the destination.
    """

    def __init__(self, ours: Repository, theirs: Repository) -> None:
        self.ours, self.theirs = ours, theirs
        self._manifests, self._manifests_there = _manifests(ours.store), _manifests(theirs.store)
        self._packs, self._packs_there = ours.pack_sizes(), theirs.pack_sizes()
        self.listed_there = frozenset(self._manifests_there)
        self.items: list[_Item] = []
        self.there: list[str] = []
        self.bad: set[str] = set()
        self.damaged: dict[str, str] = {}
        self.lacking: dict[str, PackRow] = {}

    def make(self, wanted: _Wanted) -> None:
        """Find out what to do.

        Where everything is wanted, manifests that both have are read only if there may be a hole in the destination:
        it lacks a pack that the new snapshots do not account for.
        """
        if wanted.ids is not None:
            self._look_at(sorted(wanted.ids))
        else:
            both = {key: info for key, info in self._manifests.items() if self._same_size(key, info)}
            self._look_at([key for key in self._manifests if key not in both])
            differing = {pack for pack, size in self._packs.items() if self._packs_there.get(pack) != size}
            if differing - {row.id for item in self.items for row in item.packs}:
                self._look_at(both)
            else:
                self.there += both
        self.items.sort(key=lambda item: (item.order, item.id))
        for item in self.items:
            self._check_packs(item)
        self.items = [item for item in self.items if item.id not in self.bad]
        self.lacking = {row.id: row for item in self.items for row in item.packs if row.id not in self._packs_there}

    def mark(self, identifier: str, reason: str) -> None:
        """Note that a snapshot cannot be copied."""
        self.bad.add(identifier)
        self.damaged[f"snapshot {short_id(identifier)}"] = reason

    def _same_size(self, identifier: str, info: _Info) -> bool:
        there = self._manifests_there.get(identifier)
        return there is not None and there.size == info.size

    def _look_at(self, identifiers: Iterable[str]) -> None:
        looked_at = ordered(lambda key: (key, self._look(key)), identifiers, threads=self.ours.store.parallel)
        for identifier, found in looked_at:
            if isinstance(found, str):
                self.mark(identifier, found)
            else:
                self.items.append(found)

    def _look(self, identifier: str) -> _Item | str:
        try:
            manifest, data = _read_manifest(self.ours, identifier)
        except DamagedStore as error:
            return error.message
        there = self._manifests_there.get(identifier)
        if there is not None and there.size != len(data):
            return f"its manifest in {self.theirs.store.url} is damaged: {_lengths(there.size, len(data))}"
        info = self._manifests.get(identifier, _Info(0, 0.0))
        order = manifest.header.created, info.modified
        return _Item(identifier, order, len(data), manifest.tables.packs, there is not None)

    def _check_packs(self, item: _Item) -> None:
        """What the lengths in the listings say. Packs never change, so one of another length can only be told."""
        reasons = []
        for row in item.packs:
            size, there = self._packs.get(row.id), self._packs_there.get(row.id)
            if there is not None and there != row.size:
                reasons.append(_damaged_there(self.theirs, row, there))
            elif there is None and size is None:
                reasons.append(f"pack {short_id(row.id)} is missing from {self.ours.store.url}")
            elif there is None and size is not None and size != row.size:
                reasons.append(_damaged_here(self.ours, row, _lengths(size, row.size)))
        if reasons:
            self.mark(item.id, "; ".join(reasons))


class _Info(NamedTuple):
    size: int
    modified: float


def _manifests(store: Store) -> dict[str, _Info]:
    """Full id of every snapshot -> length of its manifest, and when that was written."""
    found = {}
    for key, size, modified in store.list("snapshots/"):
        identifier = key.removeprefix("snapshots/").partition(".")[0]
        if key == manifest_key(identifier) and len(identifier) == 64:
            found[identifier] = _Info(size, modified)
    return found


def _read_manifest(repository: Repository, identifier: str) -> tuple[Manifest, bytes]:
    """A manifest and its very bytes, checked against its id.

    Raises:
        DamagedStore: it is missing, damaged, or of a later version.
    """
    try:
        return repository.manifest_with_bytes(identifier)
    except KeyMissing:
        raise DamagedStore(f"its manifest is missing from {repository.store.url}") from None
    except FromLaterVersion as error:
        raise DamagedStore(error.message, hint=error.hint) from None


def _damaged_here(ours: Repository, row: PackRow, reason: str) -> str:
    return f"pack {short_id(row.id)} is damaged in {ours.store.url}: {reason}"


def _damaged_there(theirs: Repository, row: PackRow, size: int) -> str:
    return f"pack {short_id(row.id)} is damaged in {theirs.store.url}: {_lengths(size, row.size)}"


def _lengths(size: int, right: int) -> str:
    return f"{size:,} bytes instead of {right:,}"


# Copying


@dataclass
class _Done:
    """What was copied, or would be."""

    copied: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    packs: int = 0
    bytes: int = 0
    bad: set[str] = field(default_factory=set)


def _planned(plan: _Plan) -> _Done:
    new = [item for item in plan.items if not item.there]
    there = plan.there + [item.id for item in plan.items if item.there]
    size = sum(row.size for row in plan.lacking.values()) + sum(item.size for item in new)
    return _Done([item.id for item in new], there, len(plan.lacking), size, plan.bad)


def _transferred(plan: _Plan, progress: Progress) -> _Done:
    """Copy: a manifest is written once all packs of its snapshot are there."""
    done = _Done(there=list(plan.there), bad=plan.bad)
    couriers = _Couriers(plan, progress)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            packs: dict[str, Future[str]] = {
                pack: pool.submit(couriers.carry, row) for pack, row in plan.lacking.items()
            }
            for item in plan.items:
                if reasons := [reason for row in item.packs if row.id in packs and (reason := packs[row.id].result())]:
                    plan.mark(item.id, "; ".join(reasons))
                elif item.there:
                    done.there.append(item.id)
                else:
                    _commit(plan, item, done)
                couriers.advance(0 if item.there else item.size)
        finally:
            pool.shutdown(cancel_futures=True)
    done.packs += couriers.packs
    done.bytes += couriers.bytes
    return done


def _commit(plan: _Plan, item: _Item, done: _Done) -> None:
    # Read again rather than kept: of a thousand snapshots, one manifest is in memory.
    try:
        _, data = _read_manifest(plan.ours, item.id)
    except DamagedStore as error:
        plan.mark(item.id, error.message)
        return
    if plan.theirs.store.create(manifest_key(item.id), data):
        done.copied.append(item.id)
        done.bytes += len(data)
    else:  # somebody else copies it too
        done.there.append(item.id)


class _Couriers:
    """Carries packs from store to store, called from several threads."""

    def __init__(self, plan: _Plan, progress: Progress) -> None:
        self._ours, self._theirs = plan.ours, plan.theirs
        self._progress = progress
        self._total = _planned(plan).bytes
        self._passed = 0
        self._lock = threading.Lock()
        self.packs = 0
        self.bytes = 0
        self.advance(0)

    def advance(self, size: int) -> None:
        """Tell that so many bytes more are dealt with."""
        with self._lock:
            self._passed += size
            if self._total:
                self._progress("Copying", self._passed, self._total)

    def carry(self, row: PackRow) -> str:
        """Copy a pack; what is wrong with it, or ""."""
        try:
            pieces = self._ours.twice(lambda key: _fetch(self._ours.store, key, row), pack_key(row.id))
            written = self._theirs.store.create(pack_key(row.id), *pieces)
        except DamagedStore as error:
            return _damaged_here(self._ours, row, error.message)
        except KeyMissing:
            return f"pack {short_id(row.id)} is missing from {self._ours.store.url}"
        finally:
            self.advance(row.size)
        if written:
            with self._lock:
                self.packs += 1
                self.bytes += row.size
        elif (size := self._theirs.store.size(pack_key(row.id))) != row.size:
            return _damaged_there(self._theirs, row, size)
        return ""


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
            raise DamagedStore(_lengths(start + len(pieces[-1]), row.size))
        digest.update(pieces[-1])
    if digest.hexdigest() != row.id:
        raise DamagedStore("its bytes do not match its name")
    return pieces


# Names


def _move_names(
    theirs: Repository, wanted: _Wanted, available: set[str], dry_run: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """(names that were moved, names that were moved later there and stay)."""
    moved: dict[str, str] = {}
    kept: dict[str, str] = {}
    for name, identifier in wanted.pointers.items():
        if identifier in available and _extend(theirs, name, partial(_pointing_to, identifier), dry_run)[0]:
            moved[name] = identifier
    for name, moves in wanted.histories.items():
        good = [move for move in moves if move.snapshot in available]
        if not good or not _is_name(name):
            continue
        made, current = _extend(theirs, name, partial(_missing, good), dry_run)
        if made:
            moved[name] = current
        if current != good[-1].snapshot:
            kept[name] = current
    return moved, kept


def _pointing_to(identifier: str, theirs: list[Move]) -> list[Move]:
    return [] if theirs and theirs[-1].snapshot == identifier else [Move(0, identifier, now_utc(), writer())]


def _missing(ours: list[Move], theirs: list[Move]) -> list[Move]:
    """Our moves after the last that they have too, as far as they are no older than their last; see `copy`."""
    there = Counter(move[1:] for move in theirs)
    first = 0
    for number, move in enumerate(ours, start=1):
        if there[move[1:]]:
            there[move[1:]] -= 1
            first = number
    latest = max((move.when for move in theirs if move.snapshot), default="")
    return [move for move in ours[first:] if move.when >= latest]


def _extend(
    repository: Repository, name: str, missing: Callable[[list[Move]], list[Move]], dry_run: bool
) -> tuple[bool, str]:
    """Append what is missing in a history, decided anew whenever somebody else was quicker.

    Returns:
        (was anything appended, what the name points to then).
    """
    made, number = False, 0
    while True:
        history = repository.history(name)
        number = max(number, history[-1].number if history else 0)
        moves = missing(history)
        for move in moves:
            number += 1
            if not dry_run and not repository.append_move(name, move._replace(number=number)):
                break
            made = True
        else:
            return made, [*history, *moves][-1].snapshot


def _is_name(name: str) -> bool:
    try:
        return bool(check_name(name))
    except UsageError:
        return False


def _name_damage(wanted: _Wanted, known: set[str]) -> dict[str, str]:
    """Moves whose object is damaged, and names that point to a snapshot that is nowhere."""
    found = {}
    for name, moves in wanted.histories.items():
        for move in moves:
            if not move.snapshot:
                found[f"name {name} ({move.number})"] = "its bytes do not match its checksum"
        if not _is_name(name):
            found[f"name {name[:80]}"] = "no snapshot can have this name"
        elif moves and moves[-1].snapshot and moves[-1].snapshot not in known:
            found[f"name {name} ({moves[-1].number})"] = f"points to {short_id(moves[-1].snapshot)}, which is not there"
    return found
