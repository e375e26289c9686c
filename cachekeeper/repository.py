"""Snapshots in a store: manifests, names with their history, and what is already there."""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote, unquote

from .condemned import Condemned, generation
from .errors import DamagedStore, FromLaterVersion, NotFound, StoreError, UsageError
from .indexes import read_index_once
from .leases import hold_to_read
from .manifest import (
    FORMAT,
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
from .packs import Frame, PackIndex, frame_runs, read_index
from .records import checked, with_checksum, writer
from .stores import PROBES, KeyMissing, ObjectInfo, Store, open_store
from .telemetry import Log
from .telemetry import decode as decode_log
from .units import FULL_ID, ID, count, now_utc, short_id
from .writing import Writing, at_work

FORMAT_KEY = "format.json"
_FORMAT_MARK = json.dumps({"format": FORMAT}).encode() + b"\n"
_NAME_PART_BYTES = 240
_HISTORY_DIGITS = 8
# What a name's history is numbered with, as far as it ever gets: no part of a name.
_HISTORY_NUMBER = re.compile(r"0[0-9]{7}")
_READERS = 8
_SOME = 100
_TRASH = "trash/"
_MOST_OF_A_RECORD = 64 << 10

Parsed = TypeVar("Parsed")


class Move(NamedTuple):
    """One step in the history of a name; `snapshot` is "" where the object that says it is damaged."""

    number: int
    snapshot: str
    when: str
    who: str


class Location(NamedTuple):
    """Where a content lies in a store: pack, its frames there, and the offset in the first."""

    pack: str
    frames: tuple[Frame, ...]
    offset: int


class Listing(NamedTuple):
    """Snapshots that can be read, newest first, and "key: reason" of those that cannot."""

    snapshots: list[Snapshot]
    unreadable: list[str]


def check_name(name: str) -> str:
    """The name itself.

    Raises:
        UsageError: it is not one that a snapshot can have.
    """
    parts = name.split("/")
    wrong = (
        not name.isprintable()
        or any(not part or part != part.strip() or part.startswith((".", "-")) for part in parts)
        or any(_HISTORY_NUMBER.fullmatch(part) for part in parts)
        or any(len(quote(part, safe="")) > _NAME_PART_BYTES for part in parts)
        or parts[-1].isdecimal()
        or ID.fullmatch(name) is not None
        or any(character in name for character in "@{}\\:")
        or name == "latest"
    )
    if wrong:
        raise UsageError(
            f"not a name for a snapshot: {name[:80]!r}",
            facts=[f"each part between '/' has 1 to {_NAME_PART_BYTES} characters, none of @ {{ }} \\ :"],
            hint="choose a name such as `drafter` or `team/llama8b`; hexadecimal words are ids, `latest` is taken",
        )
    return name


class _Removed(KeyMissing):
    """No manifest, since the snapshot was removed; to whoever asked for that, it is not found."""

    code = NotFound.code


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
            self.twice(self._check_format, FORMAT_KEY)
        except KeyMissing:
            return False
        return True

    def _check_format(self, key: str) -> None:
        data = self.store.read(key)
        if data == _FORMAT_MARK:
            return
        try:
            version = json.loads(data)["format"]
        except (ValueError, KeyError, TypeError, RecursionError):
            version = None
        if not isinstance(version, int) or version == FORMAT:
            raise DamagedStore(f"format.json of {self.store.url} is damaged", facts=[f"it holds {data[:80]!r}"])
        raise FromLaterVersion(
            f"{self.store.url} has format {version}; this cachekeeper reads format {FORMAT}",
            hint="upgrade cachekeeper: `pip install -U cachekeeper`",
        )

    def require(self) -> None:
        """Refuse where there is no store.

        Raises:
            NotFound: nothing has been saved there.
        """
        if not self.exists():
            raise NotFound(
                self.nothing,
                hint="save one with `cachekeeper snapshot NAME`, or name another store with --store",
            )

    @property
    def nothing(self) -> str:
        """What to say of a place that is no store: nothing was saved there, or the directory itself is not there."""
        gone = not self.store.far and any(not os.path.isdir(directory) for directory in self.store.directories)
        return f"no snapshots in {self.store.url}" + (", which is not there" if gone else "")

    def prepare(self) -> None:
        """Make the store ready for writing.

        Raises:
            UsageError: the place holds something that is not a store.
        """
        self.store.prepare()
        if not self.refuse_foreign():
            self.store.create(FORMAT_KEY, _FORMAT_MARK)

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
        with ThreadPoolExecutor(_READERS) as readers:
            results = list(readers.map(self._try_header, written))
        found = [result for result in results if isinstance(result, Snapshot)]
        ancestors = _ancestors(found)
        # `created` has whole seconds, and so has the time of an object in a bucket; a parent is always older.
        found.sort(key=lambda item: (item.header.created, written[item.id], ancestors[item.id], item.id), reverse=True)
        return Listing(found, [result for result in results if isinstance(result, str)])

    def _written(self) -> dict[str, float]:
        """Full id of every snapshot -> when its manifest was written."""
        found = ((key.removeprefix("snapshots/"), modified) for key, _, modified in self.store.list("snapshots/"))
        return {key[:64]: when for key, when in found if FULL_ID.fullmatch(key[:64]) and key[64:] == ".json.zst"}

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
            return self.twice(read, key)
        except KeyMissing:
            self._refuse_removed(identifier)
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

    def _refuse_removed(self, identifier: str) -> None:
        """Say of a snapshot that it was removed; nothing happens where it was not, or nobody can tell."""
        records: list[ObjectInfo] = []
        record: dict[str, str] = {}
        with contextlib.suppress(StoreError, KeyMissing):
            records = sorted(self.store.original.list(f"{_TRASH}{identifier}/"), key=lambda info: info.modified)
            # Where there is more than the note that it is gone for good, it can come back.
            records = [info for info in records if not info.key.endswith("/gone")] or records
            record = self._removal(records[-1].key) if records else {}
        if not records:
            return
        short = short_id(identifier)
        told = f" {record['when']} by {record['who']}" if record else ""
        told += f": {record['reason']}" if record.get("reason") else ""
        if records[-1].key.endswith("/gone"):
            raise _Removed(
                f"snapshot {short} was removed{told}",
                facts=["its grace time is over: nothing is left of it"],
                hint="see what there is with `cachekeeper ls`",
            )
        raise _Removed(f"snapshot {short} was removed{told}", hint=f"bring it back with `cachekeeper undo {short}`")

    def _removal(self, key: str) -> dict[str, str]:
        """When, by whom and why a snapshot was removed, as the object at a key says; empty where that is damaged."""
        line, newline, _ = self.store.original.read(key, 0, _MOST_OF_A_RECORD).partition(b"\n")
        try:
            document = checked(line + newline)
            return {field: str(document[field]) for field in ("when", "who", "reason")}
        except (ValueError, KeyError):
            return {}

    def twice(self, read: Callable[[str], Parsed], key: str) -> Parsed:
        """Read an object, and once more where it is damaged: that may have happened on the way."""
        try:
            return read(key)
        except DamagedStore:
            self.store.distrust(key)
            return read(key)

    def writing(self) -> AbstractContextManager[Writing]:
        """Be at work: sweeps keep off what is looked at and written within. The store is one already (`prepare`)."""
        return at_work(self.store)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Be at work reading, where the store is a directory that this process may write; see `hold_to_read`."""
        if self.store.far or not self.exists():
            yield
            return
        store = self.store.original
        with hold_to_read(store, generation(store)):
            yield

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
        name, back = split_reference(reference)
        moves = self._moves(name) if is_name(name) else []
        if moves:
            try:
                return self._undamaged(name, self._move(_step_back(name, moves, back)))
            except KeyMissing:
                number = count(len(moves), "entry")
                raise NotFound(
                    f"{name} has only {number} in its history", hint=f"see `cachekeeper ls {name}`"
                ) from None
        if FULL_ID.fullmatch(reference) and self.has(reference):
            return reference
        if ID.fullmatch(reference):
            found = [key for key, *_ in self.store.list("snapshots/") if key.startswith(f"snapshots/{reference}")]
            if len(found) == 1:
                return found[0].removeprefix("snapshots/").partition(".")[0]
            if found:
                ids = [key.removeprefix("snapshots/")[:12] for key in found]
                raise UsageError(
                    f"{reference} is the beginning of {len(found)} ids", facts=ids, hint="give more digits"
                )
            for identifier in self._removed_ids(reference):
                self._refuse_removed(identifier)
        raise self._not_found(name)

    def _removed_ids(self, beginning: str) -> list[str]:
        """Full ids in the trash that begin so; none where nobody can tell."""
        ids: set[str] = set()
        with contextlib.suppress(StoreError):
            ids = {key.removeprefix(_TRASH).partition("/")[0] for key, *_ in self.store.original.list(_TRASH)}
        return sorted(identifier for identifier in ids if identifier.startswith(beginning))

    def _undamaged(self, name: str, move: Move) -> str:
        if move.snapshot:
            return move.snapshot
        raise DamagedStore(
            f"what {name} points to is damaged in {self.store.url}",
            facts=[f"names/{name}/{move.number:0{_HISTORY_DIGITS}d}"],
            hint=f"see the snapshots with `cachekeeper ls`; restore one by its id, or `{name}@{{1}}`",
        )

    def _not_found(self, reference: str) -> NotFound:
        names = sorted(self.names())
        close = difflib.get_close_matches(reference, names, n=3, cutoff=0.5)
        hint = "see what there is with `cachekeeper ls`"
        if close:
            hint = "did you mean " + " or ".join(f"`{name}`" for name in close) + "?"
        return NotFound(f"no snapshot {reference!r} in {self.store.url}", hint=hint)

    # Names

    def names(self) -> dict[str, str]:
        """Name -> full id of the snapshot that it points to, or "" where that is damaged."""
        newest: dict[str, str] = {}
        for key, *_ in self.store.list("names/"):
            name, _, number = key.rpartition("/")
            if number.isdecimal():
                newest[name] = key
        with ThreadPoolExecutor(_READERS) as readers:
            moves = readers.map(self._move, newest.values())
            return {_name_of(key): move.snapshot for key, move in zip(newest.values(), moves, strict=True)}

    def latest(self, name: str) -> str:
        """Where a name points, as far as that is undamaged; "" for an unknown name."""
        moves = map(self._move, reversed(self._moves(name)))
        return next((move.snapshot for move in moves if move.snapshot), "")

    def history(self, name: str) -> list[Move]:
        """Where a name has pointed, oldest first; empty for an unknown name."""
        with ThreadPoolExecutor(_READERS) as readers:
            return list(readers.map(self._move, self._moves(name)))

    def _moves(self, name: str) -> list[str]:
        """The keys of a name's moves, oldest first; those too that a listing does not show yet."""
        prefix = _name_prefix(name)
        listed = [key.removeprefix(prefix) for key, *_ in self.store.list(prefix)]
        numbers = {int(number) for number in listed if number.isdecimal()}
        between = range(min(numbers, default=0), max(numbers, default=0))
        numbers |= {number for number in between if number not in numbers and self.store.has(_move_key(name, number))}
        while self.store.has(_move_key(name, max(numbers, default=0) + 1)):
            numbers.add(max(numbers, default=0) + 1)
        return [_move_key(name, number) for number in sorted(numbers)]

    def has(self, identifier: str) -> bool:
        """Is there a snapshot of this full id?"""
        return self.store.has(manifest_key(identifier))

    def _move(self, key: str) -> Move:
        number = int(key.rpartition("/")[2])
        try:
            return self.twice(lambda key: _decode_move(number, self.store.read(key)), key)
        except DamagedStore:
            return Move(number, "", "", "")

    def move_name(self, name: str, identifier: str) -> Move:
        """Point a name to a snapshot. Concurrent moves all become part of the history, one after the other."""
        moves = self._moves(check_name(name))
        number = int(moves[-1].rpartition("/")[2]) + 1 if moves else 1
        move = Move(number, identifier, now_utc(), writer())
        while not self.append_move(name, move):
            move = move._replace(number=move.number + 1)
        return move

    def append_move(self, name: str, move: Move) -> bool:
        """Record a move of a name under its number; False where that number is taken."""
        return self.store.create(_move_key(check_name(name), move.number), _encode_move(*move[1:]))

    # Contents

    def pack_indexes(self, condemned: Condemned | None = None) -> Iterator[tuple[str, PackIndex]]:
        """Packs and what they hold. Those whose index is damaged are left out, so that nothing builds on them."""
        sizes = self.pack_sizes()
        passed_over = condemned.among(sizes) if condemned else set()
        packs = [(pack_key(pack), size) for pack, size in sizes.items() if pack not in passed_over]
        with ThreadPoolExecutor(_READERS) as readers:
            indexes = readers.map(lambda pack: self._try_index(*pack), packs)
            for (key, _), index in zip(packs, indexes, strict=True):
                if index is not None:
                    yield key.removeprefix("packs/"), index

    def _try_index(self, key: str, size: int) -> PackIndex | None:
        def read(key: str) -> PackIndex:
            look = partial(self.store.read, key)
            return read_index_once(key.removeprefix("packs/"), size, look) if self.store.far else read_index(look, size)

        try:
            return self.twice(read, key)
        except (DamagedStore, KeyMissing):
            return None

    def contents(self, condemned: Condemned | None = None) -> dict[str, Location]:
        """SHA-256 of every content in the store, but for condemned packs -> where it lies."""
        found: dict[str, Location] = {}
        for pack, index in self.pack_indexes(condemned):
            for content, number in frame_runs(index):
                frames = tuple(index.frames[content.frame : content.frame + number])
                found.setdefault(content.sha256, Location(pack, frames, content.offset))
        return found

    def sizes_of(self, packs: Iterable[str], known: Mapping[str, int]) -> dict[str, int]:
        """The lengths of packs, without those that are not there.

        Args:
            known: packs just written, with their lengths: a listing may not show them yet.
        """
        sizes = {**self.pack_sizes(), **known}
        for pack in set(packs) - sizes.keys():
            with contextlib.suppress(KeyMissing):
                # A copy on this machine says nothing of what the store has.
                sizes[pack] = self.store.original.size(pack_key(pack))
        return sizes

    def pack_sizes(self) -> dict[str, int]:
        """Every pack -> its length in bytes."""
        found = ((key.removeprefix("packs/"), size) for key, size, _ in self.store.list("packs/"))
        return {pack: size for pack, size in found if FULL_ID.fullmatch(pack)}


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


def pack_key(pack: str) -> str:
    """The key of a pack."""
    return f"packs/{pack}"


def _encode_move(snapshot: str, when: str, who: str) -> bytes:
    """A name's object, with a checksum: no other object says what its bytes must be."""
    return with_checksum({"snapshot": snapshot, "when": when, "who": who})


def _decode_move(number: int, data: bytes) -> Move:
    try:
        document = checked(data)
        move = Move(number, document["snapshot"], document["when"], document["who"])
        right = FULL_ID.fullmatch(move.snapshot)
    except (ValueError, KeyError, TypeError):
        right = None
    if not right:
        raise DamagedStore(f"move {number} of a name is damaged")
    return move


def _name_prefix(name: str) -> str:
    return f"names/{quote(name, safe='/')}/"


def _move_key(name: str, number: int) -> str:
    return f"{_name_prefix(name)}{number:0{_HISTORY_DIGITS}d}"


def _step_back(name: str, moves: Sequence[str], back: int) -> str:
    """The key of the move `back` steps before the last; beyond those known, where it would be."""
    if back < len(moves):
        return moves[-1 - back]
    return _move_key(name, max(0, int(moves[-1].rpartition("/")[2]) - back))


def manifest_key(identifier: str) -> str:
    """The key of a manifest."""
    return f"snapshots/{identifier}.json.zst"


def _name_of(key: str) -> str:
    return unquote(key.removeprefix("names/").rpartition("/")[0])


def is_name(name: str) -> bool:
    """True for what a snapshot can be named; see `check_name`."""
    try:
        check_name(name)
    except UsageError:
        return False
    return True


def split_reference(reference: str) -> tuple[str, int]:
    """`drafter@{2}` -> "drafter", 2: a name, and how many moves back; 0 without any."""
    match = re.fullmatch(r"(.+)@\{(\d{1,6})\}", reference)
    return (match[1], int(match[2])) if match else (reference, 0)
