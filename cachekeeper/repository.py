"""Snapshots in a store: manifests, names with their history, and what is already there."""

from __future__ import annotations

import difflib
import getpass
import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from .config import store_url
from .errors import DamagedStore, NotFound, StoreError, UsageError
from .manifest import FORMAT, HEADER_GUESS, Header, Manifest, Snapshot, Tables, check, decode, decode_header, encode
from .packs import Frame, PackIndex, frame_runs, read_index
from .stores import KeyMissing, LocalStore, Store, open_store
from .units import now_utc, short_id

_FORMAT_MARK = json.dumps({"format": FORMAT}).encode() + b"\n"
_ID = re.compile(r"[0-9a-f]{4,64}")
_FULL_ID = re.compile(r"[0-9a-f]{64}")
_NAME_PART_BYTES = 240
_HISTORY_DIGITS = 8
# What a name's history is numbered with, as far as it ever gets: no part of a name.
_HISTORY_NUMBER = re.compile(r"0[0-9]{7}")
_READERS = 8


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
        or _ID.fullmatch(name) is not None
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
            data = self.store.read("format.json")
        except KeyMissing:
            return False
        if data == _FORMAT_MARK:
            return True
        try:
            version = json.loads(data)["format"]
        except (ValueError, KeyError, TypeError, RecursionError):
            version = None
        if not isinstance(version, int) or version == FORMAT:
            raise DamagedStore(f"format.json of {self.store.url} is damaged", facts=[f"it holds {data[:80]!r}"])
        raise StoreError(
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
                f"no snapshots in {self.store.url}",
                hint="save one with `cachekeeper snapshot NAME`, or name another store with --store",
            )

    def prepare(self) -> None:
        """Make the store ready for writing.

        Raises:
            UsageError: the place holds something that is not a store.
        """
        self.store.prepare()
        if self.exists():
            return
        if next(self.store.list(""), None) is not None and not self.exists():
            raise UsageError(
                f"{self.store.url} holds files and is not a cachekeeper store",
                hint="name an empty or new directory with --store",
            )
        self.store.create("format.json", _FORMAT_MARK)

    def refuse_inside(self, *directories: Path) -> None:
        """Refuse to work on a directory that holds the store, or lies in it.

        Raises:
            UsageError: whatever happens to the one would happen to the other.
        """
        root = self.store.root if isinstance(self.store, LocalStore) else None
        for directory in directories:
            if root is not None and (directory in (root, *root.parents) or root in directory.parents):
                raise UsageError(
                    f"the store {root} is inside a directory that is saved, or the other way round",
                    facts=[f"directory  {directory}"],
                    hint="what wipes a cache would take the snapshots with it: choose another place with --store",
                )

    # Snapshots

    def snapshots(self) -> Listing:
        """Every snapshot, newest first."""
        written = self._written()
        with ThreadPoolExecutor(_READERS) as readers:
            results = list(readers.map(self._try_header, written))
        found = [result for result in results if isinstance(result, Snapshot)]
        # `created` has whole seconds; the time of the object tells two of the same second apart.
        found.sort(key=lambda snapshot: (snapshot.header.created, written[snapshot.id], snapshot.id), reverse=True)
        return Listing(found, [result for result in results if isinstance(result, str)])

    def _written(self) -> dict[str, float]:
        """Full id of every snapshot -> when its manifest was written."""
        found = ((key.removeprefix("snapshots/"), modified) for key, _, modified in self.store.list("snapshots/"))
        return {key[:64]: when for key, when in found if _FULL_ID.fullmatch(key[:64]) and key[64:] == ".json.zst"}

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
        key, length = _manifest_key(identifier), HEADER_GUESS
        while True:
            data = self.store.read(key, 0, length)
            try:
                return decode_header(identifier, data)[0]
            except EOFError:
                if len(data) < length:
                    raise DamagedStore(f"the manifest of {short_id(identifier)} is cut") from None
                length *= 8

    def manifest(self, identifier: str) -> Manifest:
        """A whole manifest by its full id.

        Raises:
            DamagedStore: its bytes are not what the id says.
        """
        return decode(identifier, self.store.read(_manifest_key(identifier)))

    def commit(self, header: Header, tables: Tables) -> Snapshot:
        """Write a manifest: from here on, the snapshot exists.

        Raises:
            DamagedStore: no reader would take it, so it is not written.
        """
        check(header, tables)
        snapshot, data = encode(header, tables)
        self.store.create(_manifest_key(snapshot.id), data)
        return snapshot

    def resolve(self, reference: str) -> str:
        """The full id behind an id, its beginning, a name, or `name@{1}` for where the name was before.

        Raises:
            NotFound: nothing of that name; with what was perhaps meant.
        """
        name, back = _split_reference(reference)
        history = self.history(name) if _could_be_name(name) else []
        if history:
            if back >= len(history):
                raise NotFound(
                    f"{name} has only {len(history)} entries in its history", hint=f"see `cachekeeper ls {name}`"
                )
            return self._undamaged(name, history[-1 - back])
        if _ID.fullmatch(reference):
            found = [key for key, *_ in self.store.list("snapshots/") if key.startswith(f"snapshots/{reference}")]
            if len(found) == 1:
                return found[0].removeprefix("snapshots/").partition(".")[0]
            if found:
                ids = [key.removeprefix("snapshots/")[:12] for key in found]
                raise UsageError(
                    f"{reference} is the beginning of {len(found)} ids", facts=ids, hint="give more digits"
                )
        raise self._not_found(name)

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
        return {_name_of(key): self._move(key).snapshot for key in newest.values()}

    def history(self, name: str) -> list[Move]:
        """Where a name has pointed, oldest first; empty for an unknown name."""
        prefix = f"names/{quote(name, safe='/')}/"
        keys = [key for key, *_ in self.store.list(prefix) if key.removeprefix(prefix).isdecimal()]
        return [self._move(key) for key in keys]

    def _move(self, key: str) -> Move:
        number = int(key.rpartition("/")[2])
        data = self.store.read(key)
        try:
            document = json.loads(data)
            move = Move(number, document["snapshot"], document["when"], document["who"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return Move(number, "", "", "")
        return (
            move if data == _encode_move(*move[1:]) and _FULL_ID.fullmatch(move.snapshot) else Move(number, "", "", "")
        )

    def move_name(self, name: str, identifier: str) -> Move:
        """Point a name to a snapshot. Concurrent moves all become part of the history, one after the other."""
        prefix = f"names/{quote(check_name(name), safe='/')}/"
        when, who = now_utc(), writer()
        data = _encode_move(identifier, when, who)
        taken = [key.removeprefix(prefix) for key, *_ in self.store.list(prefix)]
        number = max((int(number) for number in taken if number.isdecimal()), default=0) + 1
        while not self.store.create(f"{prefix}{number:0{_HISTORY_DIGITS}d}", data):
            number += 1
        return Move(number, identifier, when, who)

    # Contents

    def pack_indexes(self) -> Iterator[tuple[str, PackIndex]]:
        """Every pack and what it holds. Packs whose index is damaged are left out, so that nothing builds on them."""
        packs = [(key, size) for key, size, _ in self.store.list("packs/")]
        with ThreadPoolExecutor(_READERS) as readers:
            indexes = readers.map(lambda pack: self._try_index(*pack), packs)
            for (key, _), index in zip(packs, indexes, strict=True):
                if index is not None:
                    yield key.removeprefix("packs/"), index

    def _try_index(self, key: str, size: int) -> PackIndex | None:
        try:
            return read_index(lambda start, length: self.store.read(key, start, length), size)
        except (DamagedStore, KeyMissing):
            return None

    def contents(self) -> dict[str, Location]:
        """SHA-256 of every content in the store -> where it lies."""
        found: dict[str, Location] = {}
        for pack, index in self.pack_indexes():
            for content, number in frame_runs(index):
                frames = tuple(index.frames[content.frame : content.frame + number])
                found.setdefault(content.sha256, Location(pack, frames, content.offset))
        return found

    def pack_sizes(self) -> dict[str, int]:
        """Every pack -> its length in bytes."""
        return {key.removeprefix("packs/"): size for key, size, _ in self.store.list("packs/")}


def open_repository(store: str | os.PathLike[str] | Store | None = None) -> Repository:
    """The repository in a store, given as a URL, a directory or a Store; by default the configured one."""
    return Repository(store if isinstance(store, Store) else open_store(store_url(store)))


def pack_key(pack: str) -> str:
    """The key of a pack."""
    return f"packs/{pack}"


def writer() -> str:
    """Who writes: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _encode_move(snapshot: str, when: str, who: str) -> bytes:
    """A name's object, with a checksum: no other object says what its bytes must be."""
    document = {"snapshot": snapshot, "when": when, "who": who}
    check = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return json.dumps({**document, "sha256": check}, sort_keys=True).encode() + b"\n"


def _manifest_key(identifier: str) -> str:
    return f"snapshots/{identifier}.json.zst"


def _name_of(key: str) -> str:
    return unquote(key.removeprefix("names/").rpartition("/")[0])


def _could_be_name(name: str) -> bool:
    try:
        check_name(name)
    except UsageError:
        return False
    return True


def _split_reference(reference: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.+)@\{(\d{1,6})\}", reference)
    return (match[1], int(match[2])) if match else (reference, 0)
