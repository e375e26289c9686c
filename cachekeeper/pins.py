"""Pins: snapshots that must not go away, each an object `pins/<id>`.

Whatever removes something asks `pinned` or `pinned_ids` first. Where the store can lock objects, all that a pinned
snapshot needs is locked too. What several pins need is locked until the last of them is gone, whatever happens at the
same time: a pin locks, writes itself and locks again; an unpin releases, deletes the pin and looks again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from .errors import Busy, DamagedStore
from .records import checked, with_checksum, writer
from .repository import FORMAT_KEY, Repository, manifest_key, pack_key
from .stores import KeyMissing, Store
from .units import FULL_ID, count, is_timestamp, now_utc, short_id
from .workers import ordered

_NEEDED = re.compile(r"packs/[0-9a-f]{64}|snapshots/[0-9a-f]{64}\.json\.zst|format\.json")


class Pin(NamedTuple):
    """What keeps a snapshot.

    Attributes:
        snapshot: its id.
        when, who, reason: of the first pin; a later one changes nothing.
        locked: True where the store was told to lock the objects.
        objects: keys of all that the snapshot needs: its packs, its manifest, the format mark.
        damage: what is wrong with the pin, of which nothing else but `snapshot` is known then.
    """

    snapshot: str
    when: str = ""
    who: str = ""
    reason: str = ""
    locked: bool = False
    objects: tuple[str, ...] = ()
    damage: str = ""


class Removed(NamedTuple):
    """What removing pins came to.

    Attributes:
        pins: those that there were.
        locks: True where the store has locks.
        kept: keys that stay locked, because other pins need them.
        missing: keys that are not in the store, so that a lock of theirs could not be taken off.
        unknown: ids of snapshots that nothing readable says the packs of; those may stay locked.
    """

    pins: tuple[Pin, ...]
    locks: bool = False
    kept: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


# Looking


def pinned(repository: Repository) -> dict[str, Pin]:
    """Full id -> its pin, for every pinned snapshot; a damaged pin is one too, with what is wrong."""
    pins = _ordered(repository.store, lambda identifier: find(repository, identifier), pinned_ids(repository))
    return {pin.snapshot: pin for pin in pins if pin}


def pinned_ids(repository: Repository) -> list[str]:
    """The full id of every pinned snapshot, from one listing."""
    names = (key.removeprefix("pins/") for key, *_ in repository.store.list("pins/"))
    return [name for name in names if FULL_ID.fullmatch(name)]


def find(repository: Repository, identifier: str) -> Pin | None:
    """The pin of a snapshot."""
    try:
        return repository.store.twice(lambda key: _decode(identifier, repository.store.read(key)), _key(identifier))
    except KeyMissing:
        return None
    except DamagedStore as error:
        return Pin(identifier, damage=error.message)


# Changing


def put(repository: Repository, identifiers: Collection[str], reason: str = "") -> tuple[list[Pin], bool]:
    """Pin snapshots, and lock what they need; one that is pinned stays as it is, and is locked again.

    Returns:
        The pins made or found, in the order of `identifiers`, and whether the store has locks.

    Raises:
        DamagedStore: a snapshot's manifest is damaged, or something it needs is not there. Nothing is pinned.
        Busy: somebody unpinned one of them at the same moment.
    """
    needed = {identifier: _read_objects(repository, identifier) for identifier in identifiers}
    every = sorted({key for keys in needed.values() for key in keys})
    _refuse_missing(repository.store, every)
    locked = _hold(repository.store, every)
    who, when = writer(), now_utc()
    pins = [_create(repository, Pin(each, when, who, reason, locked, keys)) for each, keys in needed.items()]
    _refuse_removed(repository, pins, who, when)
    if locked:
        try:
            _hold(repository.store, map(_key, identifiers))
        except KeyMissing:
            raise Busy("somebody unpinned it at the same moment", hint="pin it again") from None
        # Somebody else's unpin that did not see these pins yet may have released what they share with its own.
        _hold(repository.store, every)
    return pins, locked


def _refuse_removed(repository: Repository, pins: Iterable[Pin], who: str, when: str) -> None:
    """Whoever removes a snapshot looks for a pin once more afterwards; whoever pins it looks whether it is there."""
    for pin in pins:
        if not repository.store.original.has(manifest_key(pin.snapshot)):
            if (pin.who, pin.when) == (who, when):
                _release(repository.store, [_key(pin.snapshot)])
                _delete(repository.store, [pin])
            short = short_id(pin.snapshot)
            raise Busy(
                f"somebody removed snapshot {short} at the same moment",
                hint=f"bring it back with `cachekeeper undo {short}`, then pin it again",
            )


def remove(repository: Repository, identifiers: Collection[str]) -> Removed:
    """Unpin snapshots: release what no other pin needs, then delete the pins. Repeated, it finishes what was left.

    Raises:
        DamagedStore: what another pinned snapshot needs cannot be found out. Nothing is changed.
    """
    store = repository.store
    pins = [find(repository, identifier) or Pin(identifier) for identifier in identifiers]
    there = set(pinned_ids(repository))
    found = tuple(pin for pin in pins if pin.snapshot in there)
    # There is no other way to ask; it is released below.
    if not store.hold(FORMAT_KEY):
        _delete(store, found)
        return Removed(found)
    known = {pin.snapshot: objects_of(repository, pin) for pin in pins}
    keys = {key for identifier, objects in known.items() for key in objects or (FORMAT_KEY, manifest_key(identifier))}
    others = [pin for identifier, pin in pinned(repository).items() if identifier not in known]
    free = keys - needed(repository, others)
    here = keys & _present(store)
    _release(store, free & here)
    _release(store, (_key(pin.snapshot) for pin in found))
    _delete(store, found)
    kept = _settle(repository, here, free & here)
    unknown = tuple(identifier for identifier, objects in known.items() if objects is None)
    return Removed(found, True, tuple(sorted(kept)), tuple(sorted(free - here)), unknown)


def objects_of(repository: Repository, pin: Pin) -> tuple[str, ...] | None:
    """The keys of all that a pinned snapshot needs; None where nothing readable says so."""
    if pin.objects:
        return pin.objects
    try:
        return _read_objects(repository, pin.snapshot)
    except (DamagedStore, KeyMissing):
        return None


def _read_objects(repository: Repository, identifier: str) -> tuple[str, ...]:
    packs = repository.manifest(identifier).tables.packs
    return (FORMAT_KEY, *sorted(pack_key(pack.id) for pack in packs), manifest_key(identifier))


def needed(repository: Repository, pins: Iterable[Pin]) -> set[str]:
    """The keys of all that some pins need.

    Raises:
        DamagedStore: nothing readable says what one of them needs.
    """
    found: set[str] = set()
    for pin in pins:
        objects = objects_of(repository, pin)
        if objects is None:
            short = short_id(pin.snapshot)
            raise DamagedStore(
                f"cannot tell what the pinned snapshot {short} needs: its pin and its manifest are damaged",
                hint=f"give it up with `cachekeeper unpin {short}`; then try again",
            )
        found.update(objects)
    return found


def _create(repository: Repository, pin: Pin) -> Pin:
    """Write a pin; where there is one that can be read, that one."""
    while True:
        found = find(repository, pin.snapshot)
        if found and not found.damage:
            return found
        if found:
            _release(repository.store, [_key(pin.snapshot)])
            _delete(repository.store, [found])
        if repository.store.create(_key(pin.snapshot), _encode(pin)):
            return pin


def _delete(store: Store, pins: Iterable[Pin]) -> None:
    for pin in pins:
        store.delete(_key(pin.snapshot))


# Locks


def _settle(repository: Repository, keys: set[str], released: set[str]) -> set[str]:
    """Bring the locks of `keys` in line with the pins that there are now, until no pin comes or goes meanwhile.

    Args:
        released: those just released. Another unpin that saw our pin, or one that saw theirs, may have locked them.

    Returns:
        The keys that stay locked.
    """
    held, doubtful = keys - released, released
    while True:
        wanted = keys & needed(repository, pinned(repository).values())
        _hold(repository.store, wanted - held)
        _release(repository.store, (held | doubtful) - wanted)
        if wanted == held and not doubtful:
            return wanted
        held, doubtful = wanted, set()


def _hold(store: Store, keys: Iterable[str]) -> bool:
    """Lock objects; False where the store cannot."""
    return all(_ordered(store, store.hold, keys))


def _release(store: Store, keys: Iterable[str]) -> None:
    def release(key: str) -> None:
        try:
            store.release(key)
        except KeyMissing:  # taken away since it was seen
            return

    _ordered(store, release, keys)


def _ordered(store: Store, function: Callable[[str], Any], keys: Iterable[str]) -> list[Any]:
    return list(ordered(function, keys, threads=store.parallel))


def _present(store: Store) -> set[str]:
    """What a listing shows: a bucket may lock the mark of a deletion as willingly as an object."""
    return {FORMAT_KEY, *(key for place in ("packs/", "snapshots/") for key, *_ in store.list(place))}


def _refuse_missing(store: Store, keys: Iterable[str]) -> None:
    missing = set(keys) - _present(store)
    if missing:
        raise DamagedStore(
            f"cannot pin what is not whole: {store.url} lacks {count(len(missing), 'object')} of it",
            facts=sorted(missing)[:10],
            hint="see what is left with `cachekeeper verify --all`",
        )


# The object


def _key(identifier: str) -> str:
    return f"pins/{identifier}"


def _encode(pin: Pin) -> bytes:
    document = {**pin._asdict(), "objects": list(pin.objects)}
    del document["damage"]
    return with_checksum(document)


def _decode(identifier: str, data: bytes) -> Pin:
    """A pin from its bytes; keys that a later version adds are passed over."""
    try:
        document = checked(data)
        pin = Pin(*(document[field] for field in Pin._fields[:-1]))
        objects = tuple(pin.objects)
        right = pin.snapshot == identifier and is_timestamp(pin.when) and isinstance(pin.locked, bool)
        right = right and isinstance(pin.who, str) and isinstance(pin.reason, str)
        right = right and all(map(_NEEDED.fullmatch, objects)) and manifest_key(identifier) in objects
    except (ValueError, KeyError, TypeError, AttributeError):
        right = False
    if not right:
        raise DamagedStore("the bytes of the pin do not match its checksum")
    return pin._replace(objects=objects)
