"""The protocol with one part of it broken, each as somebody could have written it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

from cachekeeper import condemned, leases, sweeping, trash
from cachekeeper.condemned import Condemned
from cachekeeper.leases import Kind, Lease
from cachekeeper.repository import Removal, Repository, manifest_key, removed, snapshots
from cachekeeper.stores import Store
from cachekeeper.writing import Writing

from . import world
from .world import Theme

Change = tuple[Any, str, Any]


def _no_second_look(repository: Repository, *dropped: Any) -> set[str]:
    return _needed_packs(repository, *dropped) if dropped else set()


_needed_packs = sweeping.needed_packs


@contextmanager
def _list_before_lease(store: Store, patience: float = 60.0) -> Iterator[Writing]:
    store = store.original
    with ExitStack() as stack:
        seen = condemned.read(store)
        held = stack.enter_context(leases.hold(store, Kind.WRITE, condemned.generation(store)))
        yield Writing(store, held, seen, stack, patience)


@contextmanager
def _generation_after_lease(store: Store, patience: float = 60.0) -> Iterator[Writing]:
    """The lease names the list that is read later, as if it could."""
    store = store.original
    with ExitStack() as stack:
        seen = condemned.read(store)
        held = stack.enter_context(leases.hold(store, Kind.WRITE, seen.generation + 1))
        yield Writing(store, held, seen, stack, patience)


def _drop_after_marking(repository: Repository, *, grace: float, empty_trash: bool = False) -> None:
    """The real thing, but that the trash is dropped where packs are deleted."""
    with leases.hold(repository.store, Kind.SWEEP, condemned.generation(repository.store)) as held:
        others, now = held.others()
        sweeping._refuse_two(repository, others)
        held.bury()
        over, _ = sweeping._over(repository, now, empty_trash)
        state = condemned.read(repository.store)
        look = sweeping._look(repository, state, now, grace, over)
        if not condemned.write(repository.store, Condemned(state.generation + 1, look.doomed)):
            return
        others, now = held.others()
        free, _ = look.due(now, grace, others)
        free -= sweeping.needed_packs(repository, over)
        for pack in free:
            repository.store.delete(f"packs/{pack}")
        trash.drop(repository, over)


def _bring_back(which: Callable[[Repository, str, tuple[Removal, ...]], Collection[str]]) -> Any:
    """Bring back, and delete of the trash what `which` says."""

    def bring_back(repository: Repository, identifier: str) -> Removal:
        whole = Repository(repository.store.original)
        with whole.writing() as work:
            found = trash.look(whole, identifier)
            removals = found.removals or found.left
            if not removals:
                raise trash._not_in_trash(whole, identifier)
            removal, manifest = trash._first_whole(whole, removals)
            packs = {pack.id for pack in manifest.tables.packs}
            work.require(packs)
            whole.create_manifest(identifier, removed.manifest_bytes(whole.store, removal), packs, work)
            for key in which(whole, identifier, removals):
                whole.store.delete(key)
        return removal

    return bring_back


def _by_id(repository: Repository, identifier: str, seen: tuple[Removal, ...]) -> Collection[str]:
    return [key for key, *_ in repository.store.list(f"trash/{identifier}/")]


def _all_seen(repository: Repository, identifier: str, seen: tuple[Removal, ...]) -> Collection[str]:
    return [removal.key for removal in seen]


def _remove_and_then_keep(repository: Repository, identifier: str, **options: Any) -> Any:
    """The manifest is deleted before it is in the trash."""
    store = repository.store
    trash._refuse_pinned(repository, identifier)
    data = store.read(manifest_key(identifier))
    store.delete(manifest_key(identifier))
    removal = Removal(removed.new_key(identifier), identifier, grace=options["grace"])
    store.create(removal.key, removed.encode(removal), data)
    return removal


def _refuse_pinned_once() -> Callable[[Repository, str], None]:
    seen: set[int] = set()

    def refuse(repository: Repository, identifier: str) -> None:
        caller = id(repository), identifier
        if repository.store.has(manifest_key(identifier)) and caller not in seen:
            _refuse_pinned(repository, identifier)

    return refuse


_refuse_pinned = trash._refuse_pinned


def _confirm_by_what_is_there(work: Writing, packs: Any) -> None:
    """Only the own clock says whether it is late, and then a look at what is there is enough."""
    if not work._held.fresh:
        work.require(packs)


def _claim_nothing(work: Writing, packs: Any) -> bool:
    return False


def _claim_without_waiting(work: Writing, packs: Any) -> bool:
    return bool(work.condemned.among(packs))


def _bury_at_last(repository: Repository, dropped: Any, now: float) -> None:
    for lease in leases.listed(repository.store):
        if not lease.is_live(now):
            repository.store.delete(lease.key)


def _no_lease_of(kind: Kind) -> Change:
    return Lease, "blocks", lambda lease, generation: lease.kind is not kind and _blocks(lease, generation)


_blocks = Lease.blocks


class Broken(NamedTuple):
    """What is changed, and among what it shows."""

    theme: Theme
    changes: tuple[Change, ...]


BROKEN: Mapping[str, Broken] = {
    "no second look before deleting": Broken(world.UNDO, ((sweeping, "needed_packs", _no_second_look),)),
    "leases are ignored": Broken(world.REUSE, ((Lease, "blocks", lambda lease, generation: False),)),
    "leases of writers are ignored": Broken(world.REUSE, (_no_lease_of(Kind.WRITE),)),
    "leases of readers are ignored": Broken(world.READ, (_no_lease_of(Kind.READ),)),
    "leases of those who adopt are ignored": Broken(world.ADOPT, (_no_lease_of(Kind.EXCLUSIVE),)),
    "leases keep one generation less": Broken(
        world.REUSE, ((Lease, "blocks", lambda lease, generation: _blocks(lease, generation - 1)),)
    ),
    "the list is read before the lease is written": Broken(world.REUSE, ((snapshots, "at_work", _list_before_lease),)),
    "the lease names a later list than was read": Broken(
        world.REUSE, ((snapshots, "at_work", _generation_after_lease),)
    ),
    "condemned packs are used as if they were not": Broken(world.ADOPT, ((Writing, "claim", _claim_nothing),)),
    "condemned packs are adopted without waiting for sweeps": Broken(
        world.ADOPT, ((Writing, "claim", _claim_without_waiting),)
    ),
    "writers do not look whether they came too late": Broken(
        world.LATE, ((Writing, "confirm", lambda work, packs: None),)
    ),
    "a late writer looks only at what is there": Broken(world.LATE, ((Writing, "confirm", _confirm_by_what_is_there),)),
    "leases of the dead are taken away at last": Broken(
        world.LATE, ((leases.Held, "bury", lambda held: None), (sweeping, "_tidy", _bury_at_last))
    ),
    "the trash is dropped after marking": Broken(world.UNDO, ((sweeping, "sweep", _drop_after_marking),)),
    "what is dropped keeps its old doom": Broken(world.READ, ((sweeping, "_reprieve", lambda repository, over: None),)),
    "undo deletes what is in the trash by id": Broken(world.REMOVE, ((trash, "bring_back", _bring_back(_by_id)),)),
    "undo deletes all that it saw in the trash": Broken(world.REMOVE, ((trash, "bring_back", _bring_back(_all_seen)),)),
    "rm deletes before it keeps": Broken(world.REMOVE, ((trash, "remove", _remove_and_then_keep),)),
    "rm does not look for a pin again": Broken(world.PIN, ((trash, "_refuse_pinned", _refuse_pinned_once()),)),
}


@contextmanager
def changed(*changes: Change) -> Iterator[None]:
    """The protocol with parts of it replaced."""
    with ExitStack() as stack:
        for where, name, what in changes:
            stack.enter_context(patch.object(where, name, what))
        yield
