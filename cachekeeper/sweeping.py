"""Free what no snapshot needs: removed snapshots whose grace time is over, then packs, in two looks.

    lease ── drop what is over in the trash ── mark ── condemn ──(grace time)── mark again ── delete ── lease ends

A pack is deleted only where it was condemned long enough ago, nothing that there is needs it, and nobody at work may
come to need it (see `leases`). Whatever cannot be read stops a sweep: nothing is condemned or deleted then. One that is
killed at any moment has deleted nothing that is needed, and the next one goes on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from . import condemned, leases, pins, signatures, trash
from .condemned import Condemned, Doom
from .errors import Busy, DamagedStore, FromLaterVersion
from .leases import Held, Kind, Lease
from .manifest import PackRow
from .progress import Progress
from .repository import Removal, Repository, pack_key
from .stores import PROBES, KeyMissing
from .units import short_id
from .workers import ordered

GRACE_SECONDS = 24 * 3600.0
# In a bucket a restore holds no lease: this keeps what it needs.
LEAST_GRACE_FAR = 3600.0
_MOST_LOOKS = 5
_DAY = 24 * 3600.0
_MANIFEST = re.compile(r"snapshots/([0-9a-f]{64})\.json\.zst")


class Waiting(NamedTuple):
    """A condemned pack that stays for now: its length in bytes, and from when on it may be deleted."""

    size: int
    until: float


@dataclass(frozen=True)
class Sweep:
    """What a sweep did, or would do.

    Attributes:
        dropped: removed snapshots that are gone for good.
        kept: removed snapshots that can still come back.
        condemned: packs that nothing needs, found so for the first time -> their length in bytes.
        waiting: packs condemned, now or before, that stay for now.
        deleted: packs deleted -> their length in bytes.
        young: packs that nothing needs, yet or any more, and that are not old enough to be condemned -> their length.
        needed: number of packs that something needs, and needed_bytes their length.
        at_work: who was at work, and so kept packs from being deleted.
        unfinished: True where its time was over before everything was deleted: sweep again.
        now: by the store's clock, in seconds since the epoch.
    """

    dropped: tuple[Removal, ...] = ()
    kept: tuple[Removal, ...] = ()
    condemned: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)
    young: Mapping[str, int] = field(default_factory=dict)
    needed: int = 0
    needed_bytes: int = 0
    at_work: tuple[Lease, ...] = ()
    unfinished: bool = False
    now: float = 0.0

    @property
    def freed(self) -> int:
        """Bytes that are freed now."""
        return sum(self.deleted.values())

    @property
    def freed_later(self) -> int:
        """Bytes that later sweeps free, if nothing comes to need them."""
        return sum(wait.size for wait in self.waiting.values()) + sum(self.young.values())


class _Look(NamedTuple):
    """What one look found: the length of every pack, those needed, and the doom of the others, `new` or not.

    What is `young` is neither needed nor doomed.
    """

    sizes: Mapping[str, int]
    needed: Collection[str]
    doomed: Mapping[str, Doom]
    new: Collection[str]
    young: Collection[str] = ()

    def due(self, now: float, grace: float, working: Iterable[Lease]) -> tuple[set[str], tuple[Lease, ...]]:
        """The packs whose time has come, and who at work keeps others of these from being deleted."""
        over = {pack: doom for pack, doom in self.doomed.items() if now - doom.since >= grace}
        blocking = tuple(lease for lease in working if any(lease.blocks(doom.generation) for doom in over.values()))
        free = {pack for pack, doom in over.items() if not any(lease.blocks(doom.generation) for lease in blocking)}
        return free, blocking

    def result(self, now: float, grace: float, deleted: Collection[str], at_work: tuple[Lease, ...]) -> Sweep:
        needed = [self.sizes[pack] for pack in self.needed if pack in self.sizes]
        left = {pack: doom for pack, doom in self.doomed.items() if pack not in deleted}
        return Sweep(
            condemned={pack: self.sizes[pack] for pack in self.new},
            waiting={pack: Waiting(self.sizes[pack], doom.since + grace) for pack, doom in left.items()},
            deleted={pack: self.sizes[pack] for pack in deleted},
            young={pack: self.sizes[pack] for pack in self.young},
            needed=len(needed),
            needed_bytes=sum(needed),
            at_work=at_work,
            now=now,
        )


def plan(repository: Repository, *, grace: float = GRACE_SECONDS, empty_trash: bool = False) -> Sweep:
    """What `sweep` would do now, from reading alone; `deleted` is what would be.

    Raises:
        DamagedStore: what snapshots need cannot be found out.
    """
    repository = Repository(repository.store.original)
    now = time.time()
    over, kept = _over(repository, now, empty_trash)
    look = _look(repository, condemned.read(repository.store), now, grace, over)
    working = [lease for lease in leases.listed(repository.store) if lease.is_live(now)]
    free, blocking = look.due(now, grace, working)
    return replace(look.result(now, grace, free, blocking), dropped=tuple(over), kept=tuple(kept))


def sweep(
    repository: Repository,
    *,
    grace: float = GRACE_SECONDS,
    empty_trash: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> Sweep:
    """Drop, condemn and delete.

    Args:
        grace: seconds between the look that first finds a pack unneeded and the one that deletes it.
        empty_trash: drop removed snapshots also where their grace time is not over.
        progress: called with ("Deleting", bytes done, bytes in all).

    Raises:
        Busy: another sweep is at work.
        DamagedStore: what snapshots need cannot be found out; no pack is condemned or deleted.
    """
    repository = Repository(repository.store.original)
    with leases.hold(repository.store, Kind.SWEEP, condemned.generation(repository.store)) as held:
        others, now = held.others()
        _refuse_two(repository, others)
        # First of all: a writer whose lease is gone looks again whether its manifest came in time.
        held.bury()
        over, kept = _over(repository, now, empty_trash)
        _reprieve(repository, over)
        trash.drop(repository, over)
        look, generation = _condemn(repository, now, grace)
        deleted, blocking, unfinished = _delete(repository, held, look, grace, progress)
        if deleted:
            left = {pack: doom for pack, doom in look.doomed.items() if pack not in deleted}
            condemned.write(repository.store, Condemned(generation + 1, left))
        _tidy(repository, over, now)
    found = look.result(now, grace, deleted, blocking)
    return replace(found, dropped=tuple(over), kept=tuple(kept), unfinished=unfinished)


def _two(repository: Repository) -> Busy:
    return Busy(f"another sweep is at work on {repository.store.url}", hint="wait for it to end")


def _refuse_two(repository: Repository, others: Iterable[Lease]) -> None:
    for other in others:
        if other.kind is Kind.SWEEP:
            raise Busy(
                f"another sweep is at work on {repository.store.url}",
                facts=[f"since {other.when} by {other.who}"],
                hint="wait for it to end; that of a machine that died counts for half an hour",
            )


# Marking


def _over(repository: Repository, now: float, empty_trash: bool) -> tuple[list[Removal], list[Removal]]:
    """The removals that are over, and those that are not."""
    pinned = set(pins.pinned_ids(repository))
    removals = trash.look(repository).removals
    over = [each for each in removals if (empty_trash or each.until <= now) and each.snapshot not in pinned]
    return over, [each for each in removals if each not in over]


def _reprieve(repository: Repository, dropped: Iterable[Removal]) -> None:
    """Take what is needed until now, by what is about to be dropped, off the list of condemned packs.

    Readers of it may know that list, and yet be at work.
    """
    state = condemned.read(repository.store)
    packs: set[str] = set()
    for removal in dropped:
        with suppress(DamagedStore, FromLaterVersion, KeyMissing):  # of which nobody can read anything
            packs.update(pack.id for pack in trash.manifest_in(repository, removal).tables.packs)
    left = {pack: doom for pack, doom in state.packs.items() if pack not in packs}
    if len(left) < len(state.packs) and not condemned.write(repository.store, Condemned(state.generation + 1, left)):
        raise _two(repository)


def needed_packs(repository: Repository, dropped: Collection[Removal] = ()) -> set[str]:
    """The packs that anything in the store needs: snapshots, what is in the trash, and pins.

    Args:
        dropped: removals to pass over.

    Raises:
        DamagedStore: something cannot be read.
        Busy: snapshots come and go so fast that no look finds them all in their places.
    """
    for _ in range(_MOST_LOOKS):
        try:
            return _mark(repository, {removal.key for removal in dropped})
        except KeyMissing:  # it went to the trash, or came back, in between
            continue
    raise Busy("snapshots come and go while a sweep looks at them", hint="sweep again when less is going on")


def _mark(repository: Repository, passed_over: Collection[str]) -> set[str]:
    """One look. Removing writes to the trash first, so that the trash is looked at last."""

    def of_snapshot(identifier: str) -> Iterable[PackRow]:
        return _readable(identifier, lambda: repository.manifest(identifier).tables.packs)

    def of_removal(removal: Removal) -> Iterable[PackRow]:
        return _readable(removal.snapshot, lambda: trash.manifest_in(repository, removal).tables.packs)

    store = repository.store
    ids = [match[1] for key, *_ in store.list("snapshots/") if (match := _MANIFEST.fullmatch(key))]
    removals = [each for each in trash.every(repository) if each.key not in passed_over]
    pinned = pins.needed(repository, pins.pinned(repository).values())
    found = {key.removeprefix("packs/") for key in pinned if key.startswith("packs/")}
    for packs in (*ordered(of_snapshot, ids, threads=store.parallel), *ordered(of_removal, removals)):
        found.update(pack.id for pack in packs)
    return found


def _readable(identifier: str, read: Callable[[], Iterable[PackRow]]) -> Iterable[PackRow]:
    try:
        return read()
    except (DamagedStore, FromLaterVersion) as error:
        short = short_id(identifier)
        raise DamagedStore(
            f"cannot tell what snapshot {short} needs, so nothing is swept",
            facts=[error.message],
            hint=f"see `cachekeeper verify --all`; a snapshot that is beyond help: `cachekeeper rm {short}`, and then "
            "`cachekeeper sweep --empty-trash`",
        ) from None


def _look(
    repository: Repository, state: Condemned, now: float, grace: float, dropped: Collection[Removal] = ()
) -> _Look:
    """Packs that nothing needs keep their doom, or get one once they are older than the grace time."""
    needed = needed_packs(repository, dropped)
    packs = {info.key.removeprefix("packs/"): info for info in repository.store.list("packs/")}
    packs = {pack: info for pack, info in packs.items() if len(pack) == 64}
    doomed = {pack: doom for pack, doom in state.packs.items() if pack in packs and pack not in needed}
    unknown = packs.keys() - doomed.keys() - needed
    new = {pack: Doom(state.generation + 1, now) for pack in unknown if now - packs[pack].modified >= grace}
    sizes = {pack: info.size for pack, info in packs.items()}
    return _Look(sizes, needed, {**doomed, **new}, new, unknown - new.keys())


# Condemning and deleting


def _condemn(repository: Repository, now: float, grace: float) -> tuple[_Look, int]:
    """Look, and write what was found; the look, and the number of the list that counts now."""
    state = condemned.read(repository.store)
    look = _look(repository, state, now, grace)
    if state.known and look.doomed == state.packs:
        return look, state.generation
    if not condemned.write(repository.store, Condemned(state.generation + 1, look.doomed)):
        raise _two(repository)
    return look, state.generation + 1


def _delete(
    repository: Repository, held: Held, look: _Look, grace: float, progress: Progress
) -> tuple[list[str], tuple[Lease, ...], bool]:
    """Delete what is due: the packs, who kept others from being deleted, and whether there was no time for all."""
    # Whoever is not at work now saw the list of condemned packs, or has written its manifest: both are looked at.
    others, now = held.others()
    _refuse_two(repository, others)
    free, blocking = look.due(now, grace, others)
    if free:
        free -= needed_packs(repository)
    total, done = sum(look.sizes[pack] for pack in free), 0
    deleted: list[str] = []
    for pack in sorted(free):
        if not held.fresh:
            break
        repository.store.delete(pack_key(pack))
        deleted.append(pack)
        done += look.sizes[pack]
        progress("Deleting", done, total)
    return deleted, blocking, len(deleted) < len(free)


def _tidy(repository: Repository, dropped: Iterable[Removal], now: float) -> None:
    """Take away what is of no use any more: signatures of what is gone, old races."""
    store = repository.store
    keys = [key for key, _, modified in store.list(PROBES) if now - modified > _DAY]
    for identifier in {removal.snapshot for removal in dropped}:
        if not repository.has(identifier):
            keys += signatures.keys_of(repository, identifier)
    for key in keys:
        store.delete(key)
