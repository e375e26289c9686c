"""The snapshots of a store: manifests, and the names that point to them."""

from __future__ import annotations

import contextlib
import difflib
import io
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..condemned import generation
from ..errors import DamagedStore, NotFound, StoreError, UsageError
from ..leases import hold_to_read
from ..manifest import (
    HEADER_GUESS,
    Header,
    Manifest,
    Snapshot,
    Tables,
    check,
    decode,
    decode_header,
    decode_telemetry,
    encode,
)
from ..records import writer
from ..stores import PROBES, KeyMissing, Store, open_store
from ..units import FULL_ID, ID, now_utc, short_id
from ..workers import read_all
from ..writing import Writing, at_work
from . import mark, names, removed
from .names import Move

if TYPE_CHECKING:
    from ..telemetry import Log

_PLACE = "snapshots/"
_ENDING = ".json.zst"
_SOME = 100

Parsed = TypeVar("Parsed")


class Listing(NamedTuple):
    """Snapshots that can be read, newest first, and "key: reason" of those that cannot."""

    snapshots: list[Snapshot]
    unreadable: list[str]


def manifest_key(identifier: str) -> str:
    """The key of a manifest."""
    return f"{_PLACE}{identifier}{_ENDING}"


class Repository:
    """The snapshots of one store.

    Everything is written in an order that leaves no half snapshot: packs, then the manifest, then the name.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def exists(self) -> bool:
        """True where the store holds the format mark; a later format is refused.

        Raises:
            StoreError: it is of a later format, or a directory of something else.
        """
        try:
            mark.check(self.store)
        except KeyMissing:
            return False
        return True

    def require(self) -> None:
        """Refuse where there is no store.

        Raises:
            NotFound: nothing has been saved there.
            DamagedStore: snapshots are there, and nothing says of which format.
        """
        if not self.exists():
            if self._written():
                raise mark.lost(self.store)
            raise NotFound(
                self.nothing,
                hint="save one with `cachekeeper snapshot NAME`, or name another store with --store",
            )

    @property
    def nothing(self) -> str:
        """What to say of a place that is no store: nothing was saved there, or the directory itself is not there."""
        places = () if self.store.far else self.store.directories
        missing = [place for place in places if not os.path.isdir(place)]
        what = ", which is no directory" if any(map(os.path.lexists, missing)) else ", which is not there"
        return f"no snapshots in {self.store.url}" + (what if missing else "")

    def prepare(self) -> None:
        """Make the store ready for writing.

        Raises:
            UsageError: the place holds something that is not a store.
        """
        self.store.prepare()
        if not self.refuse_foreign():
            mark.write(self.store)

    def refuse_foreign(self) -> bool:
        """Refuse a place that holds something else; True where it is a store already, False where it is empty.

        Raises:
            UsageError: the place holds something that is not a store.
        """
        if self.exists():
            return True
        found = (key for key, *_ in self.store.list("", most=_SOME))
        if all(key.startswith(PROBES) for key in found) or self.exists():
            return self.exists()
        raise UsageError(
            f"{self.store.url} holds files and is not a cachekeeper store",
            hint="name an empty or new directory, or a new prefix of the bucket",
        )

    def refuse_inside(self, *directories: Path) -> None:
        """Refuse to work on a directory that holds the store, or lies in it.

        Raises:
            UsageError: whatever happens to the one would happen to the other.
        """
        for root in self.store.directories:
            for directory in directories:
                if directory in (root, *root.parents) or root in directory.parents:
                    raise UsageError(
                        f"the store {root} is inside a directory that is saved, or the other way round",
                        facts=[f"directory  {directory}"],
                        hint="what wipes the one would take the other with it: choose another place with --store (or "
                        "--local-cache)",
                    )

    # Snapshots

    def snapshots(self) -> Listing:
        """Every snapshot, newest first."""
        written = self._written()
        results = read_all(self._try_header, written)
        found = [result for result in results if isinstance(result, Snapshot)]
        ancestors = _ancestors(found)
        # `created` has whole seconds, and so has the time of an object in a bucket; a parent is always older.
        found.sort(key=lambda item: (item.header.created, written[item.id], ancestors[item.id], item.id), reverse=True)
        return Listing(found, [result for result in results if isinstance(result, str)])

    def _written(self) -> dict[str, float]:
        """Full id of every snapshot -> when its manifest was written."""
        found = ((key.removeprefix(_PLACE), modified) for key, _, modified in self.store.list(_PLACE))
        return {key[:64]: when for key, when in found if FULL_ID.fullmatch(key[:64]) and key[64:] == _ENDING}

    def _try_header(self, identifier: str) -> Snapshot | str:
        try:
            return self.header(identifier)
        except (DamagedStore, StoreError, KeyMissing) as error:
            return f"{short_id(identifier)}: {error.message}"

    def header(self, identifier: str) -> Snapshot:
        """A snapshot by its full id, from the beginning of its manifest.

        Raises:
            DamagedStore: its bytes are not what the id says.
        """

        def read(key: str) -> Snapshot:
            length = HEADER_GUESS
            while True:
                data = self.store.read(key, 0, length)
                try:
                    return decode_header(identifier, data)[0]
                except EOFError:
                    if len(data) < length:
                        raise DamagedStore(f"the manifest of {short_id(identifier)} is cut") from None
                    length *= 8

        return self._of_manifest(identifier, read)

    def manifest(self, identifier: str) -> Manifest:
        """A manifest by its full id; its telemetry is not looked at.

        Raises:
            DamagedStore: its bytes are not what the id says.
        """
        return self._of_manifest(identifier, lambda key: decode(identifier, self.store.read(key)))

    def manifest_with_bytes(self, identifier: str) -> tuple[Manifest, bytes]:
        """A whole manifest, its telemetry too, and the object that it was read from.

        Raises:
            DamagedStore: its bytes are not what the id says.
        """

        def read(key: str) -> tuple[Manifest, bytes]:
            data = self.store.read(key)
            manifest = decode(identifier, data)
            if manifest.header.telemetry is not None:
                decode_telemetry(identifier, data)
            return manifest, data

        return self._of_manifest(identifier, read)

    def telemetry(self, snapshot: Snapshot | str) -> Log | None:
        """What jobs told of the graphs in a snapshot, or that of a full id; None where nothing of that is kept with it.

        Raises:
            DamagedStore: its bytes are not what the header says, or no telemetry.
        """
        if isinstance(snapshot, str):
            snapshot = self.header(snapshot)
        identifier = snapshot.id
        if snapshot.header.telemetry is None:
            return None
        from ..telemetry import decode as decode_log

        def read(key: str) -> bytes:
            return decode_telemetry(identifier, self.store.read(key))

        lines = self._of_manifest(identifier, read)
        try:
            return decode_log(io.BytesIO(lines))
        except ValueError:
            raise DamagedStore(f"the telemetry of {short_id(identifier)} is none") from None

    def _of_manifest(self, identifier: str, read: Callable[[str], Parsed]) -> Parsed:
        """What is read from a manifest.

        Raises:
            DamagedStore: it is damaged: which object that is, and what to do.
            KeyMissing: it is not there; where it was removed, it says so.
        """
        key = manifest_key(identifier)
        try:
            return self.store.twice(read, key)
        except KeyMissing:
            removed.refuse(self.store.original, identifier)
            raise
        except DamagedStore as error:
            known = short_id(identifier)
            message = error.message if known in error.message else f"{error.message} ({known})"
            raise DamagedStore(
                message,
                facts=[*error.facts, f"object  {key}", f"store   {self.store.url}"],
                hint="`cachekeeper verify --all` says what is damaged; restore another snapshot (`cachekeeper ls`),"
                f" or delete the object and bring it back with `cachekeeper copy OTHER_STORE {self.store.url} {known}`",
            ) from None

    def writing(self) -> AbstractContextManager[Writing]:
        """Be at work: sweeps keep off what is looked at and written within. The store is one already (`prepare`)."""
        return at_work(self.store)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Be at work reading, where the store is a directory that this process may write; elsewhere nothing is done.

        A bucket is often read with credentials that may not write, by many machines at once: there, the grace time of a
        sweep keeps what a restore needs.
        """
        with ExitStack() as stack:
            if not self.store.far and self.exists():
                store = self.store.original
                stack.enter_context(hold_to_read(store, generation(store)))
            yield

    def has(self, identifier: str) -> bool:
        """Is there a snapshot of this full id?"""
        return self.store.has(manifest_key(identifier))

    def commit(
        self, header: Header, tables: Tables, telemetry: bytes = b"", *, work: Writing | None = None
    ) -> Snapshot:
        """Write a manifest: from here on, the snapshot exists.

        Args:
            work: that in which its packs were found or written.

        Raises:
            DamagedStore: no reader would take it, so it is not written; or its packs are not there any more.
            Busy: a sweep is deleting what it needs.
        """
        if work is None:
            with self.writing() as work:
                return self.commit(header, tables, telemetry, work=work)
        snapshot, data = encode(header, tables, telemetry)
        check(snapshot.header, tables)
        self.create_manifest(snapshot.id, data, {pack.id for pack in tables.packs}, work)
        return snapshot

    def create_manifest(self, identifier: str, data: bytes, packs: Collection[str], work: Writing) -> bool:
        """Write the bytes of a manifest whose packs are in the store; False where it is there already.

        Raises:
            DamagedStore: packs are not there any more; the manifest is not there then.
            Busy: a sweep is deleting what it needs.
        """
        if work.claim(packs):
            work.require(packs)
        created = self.store.create(manifest_key(identifier), data)
        try:
            work.confirm(packs)
        except DamagedStore:
            if created:
                self.store.delete(manifest_key(identifier))
            raise
        return created

    def resolve(self, reference: str) -> str:
        """The full id behind an id, its beginning, a name, or `name@{1}` for where the name was before.

        Raises:
            NotFound: nothing of that name, with what was perhaps meant; or an id that was removed.
        """
        if identifier := names.snapshot_of(self.store, reference):
            return identifier
        if FULL_ID.fullmatch(reference) and self.has(reference):
            return reference
        if ID.fullmatch(reference):
            found = [key for key, *_ in self.store.list(_PLACE) if key.startswith(f"{_PLACE}{reference}")]
            if len(found) == 1:
                return found[0].removeprefix(_PLACE).partition(".")[0]
            if found:
                ids = [key.removeprefix(_PLACE)[:12] for key in found]
                raise UsageError(
                    f"{reference} is the beginning of {len(found)} ids", facts=ids, hint="give more digits"
                )
            for identifier in self._removed_ids(reference):
                removed.refuse(self.store.original, identifier)
        raise self._not_found(names.split_reference(reference)[0])

    def _removed_ids(self, beginning: str) -> list[str]:
        """Full ids in the trash that begin so; none where nobody can tell."""
        ids: set[str] = set()
        with contextlib.suppress(StoreError):
            ids = removed.ids(self.store.original)
        return sorted(identifier for identifier in ids if identifier.startswith(beginning))

    def _not_found(self, reference: str) -> NotFound:
        close = difflib.get_close_matches(reference, sorted(self.names()), n=3, cutoff=0.5)
        hint = "see what there is with `cachekeeper ls`"
        if close:
            hint = "did you mean " + " or ".join(f"`{name}`" for name in close) + "?"
        return NotFound(f"no snapshot {reference!r} in {self.store.url}", hint=hint)

    # Names

    def names(self) -> dict[str, str]:
        """Name -> full id of the snapshot that it points to, or "" where that is damaged."""
        last = names.last_moves(self.store)
        moves = read_all(self._move, last.values())
        return {name: move.snapshot for name, move in zip(last, moves, strict=True)}

    def latest(self, name: str) -> str:
        """Where a name points, as far as that is undamaged; "" for an unknown name."""
        moves = map(self._move, reversed(names.moves(self.store, name)))
        return next((move.snapshot for move in moves if move.snapshot), "")

    def history(self, name: str) -> list[Move]:
        """Where a name has pointed, oldest first; empty for an unknown name."""
        return read_all(self._move, names.moves(self.store, name))

    def ever_pointed(self, name: str, identifier: str) -> bool | None:
        """Has a name ever pointed to a snapshot? None where nobody can tell: it is unknown, or a move is damaged."""
        moves = [move.snapshot for move in self.history(name)] if names.is_name(name) else []
        if identifier in moves:
            return True
        return False if moves and all(moves) else None

    def _move(self, key: str) -> Move:
        return names.read_move(self.store, key)

    def move_name(self, name: str, identifier: str) -> Move:
        """Point a name to a snapshot. Concurrent moves all become part of the history, one after the other."""
        moves = names.moves(self.store, names.check_name(name))
        number = names.number_of(moves[-1]) + 1 if moves else 1
        move = Move(number, identifier, now_utc(), writer())
        while not self.append_move(name, move):
            move = move._replace(number=move.number + 1)
        return move

    def append_move(self, name: str, move: Move) -> bool:
        """Record a move of a name under its number; False where that number is taken."""
        return names.create_move(self.store, name, move)


def open_repository(store: str | os.PathLike[str] | Store | None = None) -> Repository:
    """The repository in a store, given as a URL, a directory or a Store; by default the configured one."""
    return Repository(store if isinstance(store, Store) else open_store(store))


def _ancestors(snapshots: list[Snapshot]) -> dict[str, int]:
    """Full id -> number of its ancestors of the same second."""
    known = {snapshot.id: snapshot.header for snapshot in snapshots}
    numbers: dict[str, int] = {}
    for identifier, header in known.items():
        parent, number = header.parent, 0
        while number < len(known) and parent in known and known[parent].created == header.created:
            parent, number = known[parent].parent, number + 1
        numbers[identifier] = number
    return numbers
