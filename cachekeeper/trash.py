"""Removed snapshots: each a manifest that was moved to `trash/<id>/<random>`, from where it can come back.

What is in the trash needs its packs as a snapshot does, until its grace time is over and a sweep drops it for good;
then `trash/<id>/gone` says that it was no accident. Each removal has an object of its own, and bringing back deletes it
only where nobody can be about to delete the manifest: whoever removes and brings back at the same time, or is killed,
the manifest is in one place at least. What is left over in the trash then, of a snapshot that is there, does no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from . import condemned, leases, pins
from .errors import CachekeeperError, DamagedStore, FromLaterVersion, NotFound, Pinned
from .leases import Held, Kind
from .manifest import Manifest, decode
from .records import writer
from .repository import GRACE_SECONDS, Removal, Repository, manifest_key, pack_key, removed
from .stores import KeyMissing
from .units import count, now_utc, short_id
from .workers import ordered
from .writing import Writing


@dataclass(frozen=True)
class Trash:
    """Removed snapshots.

    Attributes:
        removals: those that can come back, newest removal first.
        gone: id -> what is left of one that cannot.
        left: removals that came to nothing, or were undone: of snapshots that are there. Nothing is to do about them.
    """

    removals: tuple[Removal, ...] = ()
    gone: Mapping[str, Removal] = field(default_factory=dict)
    left: tuple[Removal, ...] = ()

    @property
    def away(self) -> set[str]:
        """The ids of all that were removed, and are not there."""
        return {removal.snapshot for removal in self.removals} | self.gone.keys()


# Looking


def look(repository: Repository, identifier: str = "") -> Trash:
    """What is in the trash, or what there is of one snapshot, by its full id."""
    found = list(_objects(repository, identifier))
    there = _those_there(repository, {removal.snapshot for removal in found})
    away = [removal for removal in found if removal.snapshot not in there]
    removals = tuple(removal for removal in away if not removal.gone)
    ids = {removal.snapshot for removal in removals}
    gone = {removal.snapshot: removal for removal in away if removal.snapshot not in ids}
    left = (removal for removal in found if removal.snapshot in there and not removal.gone)
    return Trash(removals, gone, tuple(left))


def every(repository: Repository) -> list[Removal]:
    """All that the trash keeps a manifest of, whether that can come back or is there."""
    return [removal for removal in _objects(repository) if not removal.gone]


def _objects(repository: Repository, identifier: str = "") -> list[Removal]:
    store = repository.store.original
    listed = removed.listed(store, identifier)
    read = ordered(lambda removal: removed.read(store, removal), listed, threads=store.parallel)
    found = [removal for removal in read if removal is not None]
    return sorted(found, key=lambda removal: (removal.modified, removal.when, removal.key), reverse=True)


def _those_there(repository: Repository, identifiers: Collection[str]) -> set[str]:
    store = repository.store.original
    if len(identifiers) > 1:
        there = {key for key, *_ in store.list("snapshots/")}
        return {identifier for identifier in identifiers if manifest_key(identifier) in there}
    return {identifier for identifier in identifiers if store.has(manifest_key(identifier))}


def manifest_in(repository: Repository, removal: Removal) -> Manifest:
    """The manifest that a removal keeps.

    Raises:
        DamagedStore: it is damaged.
        KeyMissing: it went away meanwhile.
    """
    return decode(removal.snapshot, removed.manifest_bytes(repository.store.original, removal))


# Changing


def remove(
    repository: Repository,
    identifier: str,
    *,
    reason: str = "",
    names: Mapping[str, int] | None = None,
    grace: float = GRACE_SECONDS,
) -> Removal:
    """Move a snapshot to the trash. Repeated, it finishes what was begun.

    Args:
        identifier: its full id.
        names: as `Removal.names`.
        grace: seconds for which it can come back at least.

    Raises:
        Pinned: it is pinned; nothing is removed.
        NotFound: there is no such snapshot.
        StoreError: the store cannot be written, or may not be deleted from.
    """
    store = repository.store.original
    _refuse_pinned(repository, identifier)
    with leases.hold(store, Kind.WRITE, condemned.generation(store)) as held:
        try:
            data = store.read(manifest_key(identifier))
        except KeyMissing:
            raise NotFound(f"no snapshot {short_id(identifier)} in {store.url}") from None
        removal = Removal(removed.new_key(identifier), identifier, now_utc(), writer(), reason, grace, names or {})
        store.create(removal.key, removed.encode(removal), data)
        store.delete(manifest_key(identifier))
        try:
            _refuse_pinned(repository, identifier)  # it may have been pinned in between
        except Pinned:
            _take_back(repository, removal, data, held)
            raise
    return removal


def _take_back(repository: Repository, removal: Removal, data: bytes, held: Held) -> None:
    """Put a manifest in its place again."""
    store = repository.store.original
    if not (held.fresh and held.there):  # a sweep may have dropped it from the trash, and its packs with it
        with suppress(NotFound):
            bring_back(repository, removal.snapshot)
    elif store.create(manifest_key(removal.snapshot), data):
        store.delete(removal.key)


def _refuse_pinned(repository: Repository, identifier: str) -> None:
    if pin := pins.find(Repository(repository.store.original), identifier):
        short = short_id(identifier)
        raise Pinned(
            f"snapshot {short} is pinned" + (f": {pin.reason}" if pin.reason else ""),
            facts=[f"pinned {pin.when} by {pin.who}" if not pin.damage else f"by nobody knows whom: {pin.damage}"],
            hint=f"nothing takes it away until `cachekeeper unpin {short}`",
        )


def bring_back(repository: Repository, identifier: str) -> Removal:
    """Bring a snapshot back from the trash, or what a delete in a bucket that keeps versions hid of it.

    Repeated, it finishes what was begun.

    Returns:
        How it had been removed last; without `key` where it was not by us.

    Raises:
        NotFound: it is not in the trash.
        DamagedStore: nothing whole is left of it there; it stays.
        Busy: a sweep is deleting what it needs.
    """
    whole = Repository(repository.store.original)
    with whole.writing() as work:
        # Looked at within: a sweep drops a removal before it condemns what only that needs.
        found = look(whole, identifier)
        removals = found.removals or found.left
        if not removals:
            return _unhidden(whole, identifier, work)
        removal, manifest = _first_whole(whole, removals)
        packs = {pack.id for pack in manifest.tables.packs}
        work.require(packs)
        created = whole.create_manifest(identifier, removed.manifest_bytes(whole.store, removal), packs, work)
        # Where it was there still, or was removed more than once, somebody may be about to delete the manifest.
        if created and len(removals) == 1:
            whole.store.delete(removal.key)
    return removal


def _first_whole(repository: Repository, removals: Iterable[Removal]) -> tuple[Removal, Manifest]:
    trouble: CachekeeperError = NotFound("somebody else brought it back, or dropped it for good, at the same moment")
    for removal in removals:
        try:
            return removal, manifest_in(repository, removal)
        except (DamagedStore, FromLaterVersion) as error:
            trouble = error
        except KeyMissing:
            continue
    raise trouble


def _unhidden(repository: Repository, identifier: str, work: Writing) -> Removal:
    """Bring back what somebody's delete hid, in a bucket that keeps versions."""
    store = repository.store
    found = not store.has(manifest_key(identifier)) and store.revive(manifest_key(identifier))
    revived = [manifest_key(identifier)] if found else []
    if repository.has(identifier):
        needed = {pack_key(pack.id) for pack in repository.manifest(identifier).tables.packs}
        work.claim(key.removeprefix("packs/") for key in needed)
        missing = needed - {key for key, *_ in store.list("packs/")}
        revived += [key for key in (*sorted(missing), f"pins/{identifier}") if store.revive(key)]
    if not revived:
        raise _not_in_trash(repository, identifier)
    return Removal("", identifier, reason=f"a delete in the bucket had hidden {count(len(revived), 'object')} of it")


def _not_in_trash(repository: Repository, identifier: str) -> NotFound:
    short = short_id(identifier)
    gone = look(repository, identifier).gone.get(identifier)
    if gone:
        return NotFound(f"snapshot {short} is gone: removed {gone.when} by {gone.who}, and its grace time is over")
    if repository.has(identifier):
        return NotFound(f"snapshot {short} is not in the trash: it is there", hint="see it with `cachekeeper ls`")
    return NotFound(f"snapshot {short} is not in the trash", hint="see what is with `cachekeeper ls --trash`")


def drop(repository: Repository, removals: Iterable[Removal]) -> None:
    """Give removed snapshots up for good, and leave a note of each; its packs are not needed any more then.

    Those that were brought back, or pinned, since they were looked at stay as they are.
    """
    whole = Repository(repository.store.original)
    for removal in removals:
        if not whole.has(removal.snapshot) and not pins.find(whole, removal.snapshot):
            whole.store.create(removed.gone_key(removal.snapshot), removed.encode(removal))
            whole.store.delete(removal.key)
