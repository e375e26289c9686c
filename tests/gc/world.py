"""A store on a virtual clock, actors at work in it that run the real code, and the truth about what must be there."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from cachekeeper import condemned, leases, pins, sweeping, trash, writing
from cachekeeper.errors import Busy, DamagedStore, NotFound, Pinned
from cachekeeper.manifest import decode, encode
from cachekeeper.packs import read_index
from cachekeeper.repository import Repository, locations, manifest_key, pack_key, removed, snapshots
from cachekeeper.repository import packs as stored_packs
from cachekeeper.stores import KeyMissing, MemoryStore
from cachekeeper.verbs.copy import plan as planning
from cachekeeper.verbs.copy import transfer

from . import samples
from .samples import Pack
from .turns import Actor, Killed, Turns, TurnStore

BEGIN = 1_700_000_000.0
HOUR, DAY = 3600.0, 86_400.0
GRACES = (0.0, 0.0, 0.0, HOUR, DAY)
TRASH_GRACES = (0.0, 0.0, 2 * HOUR, 14 * DAY)
JUMPS = (1.0, 60.0, 20 * 60.0, 2 * HOUR, 7 * HOUR, 2 * DAY)
# As long as an operation and the look at the clock before it may take, by the protocol.
SHORT = 60.0
BEFORE = ("write", "orphan", "orphan", "merge", "copy", "remove", "undo", "sweep", "condemn", "wait", "pin")
KINDS = ("write", "write", "merge", "copy", "remove", "remove", "undo", "sweep", "sweep", "sweep", "read", "pin")


class Theme(NamedTuple):
    """What happened before, one after the other, who is at work at once, and how the clock leaps meanwhile."""

    before: tuple[str, ...]
    kinds: tuple[str, ...]
    leaps: tuple[float, ...] = ()


REUSE = Theme(("orphan", "orphan", "orphan"), ("write", "sweep"))
LATE = Theme(("orphan", "orphan", "orphan"), ("write", "sweep"), (7 * HOUR,))
ADOPT = Theme(("orphan", "orphan", "condemn"), ("copy", "sweep"))
ADOPT_LATE = Theme(("orphan", "orphan", "condemn"), ("copy", "sweep", "sweep"), (7 * HOUR, 20 * 60.0))
READ = Theme(("orphan", "orphan", "condemn", "copy"), ("read", "remove", "sweep"))
READ_TWICE_SWEPT = Theme(("write", "write"), ("read", "remove", "sweep", "sweep"))
UNDO_ADOPTED = Theme(("orphan", "orphan", "condemn", "copy", "remove"), ("undo", "sweep", "sweep"))
UNDO = Theme(("write", "remove"), ("undo", "sweep", "sweep"))
MERGE = Theme(("orphan", "condemn", "copy", "write"), ("merge", "remove", "sweep"))
BACK_AND_FORTH = Theme(("write", "remove", "undo"), ("undo", "remove", "sweep"))
REMOVE = Theme(("write",), ("remove", "remove", "undo", "undo"))
PIN = Theme(("write",), ("pin", "remove", "sweep"))
THEMES = (
    *(REUSE, LATE, ADOPT, ADOPT_LATE, READ, READ_TWICE_SWEPT),
    *(UNDO_ADOPTED, UNDO, MERGE, BACK_AND_FORTH, REMOVE, PIN),
)


class Broken(AssertionError):
    """The protocol has been found to be broken."""


class World:
    """One history.

    Args:
        seed: decides everything.
        actors: how many at once, in each of the rounds; 0: two to four.
        theme: instead of one that dice choose.
        unlocking: somebody deletes leases by hand.

    Attributes:
        alive: full id -> packs of every snapshot that must be whole, in its place or in the trash.
        settled: ids of those that must be in their place once nobody is at work.
        pinned: ids of those whose pin was made, and that nobody unpins.
        reading: actor -> what it reads under a lease, until when.
    """

    def __init__(
        self, seed: int, actors: int = 0, rounds: int = 1, unlocking: bool = False, theme: Theme | None = None
    ) -> None:
        self.seed, self.dice = seed, Random(seed)
        self._names = Random(seed)
        self._actors, self._rounds, self._unlocking = actors, rounds, unlocking
        self.now = BEGIN
        self.turns = Turns(self.dice, lambda: self.now, self._between)
        self.store = TurnStore(lambda: self.turns, lambda: self.now, self.dice)
        self.store.deleted = self._deleted
        self.repository = Repository(self.store)
        anything = rounds > 1 or self.dice.random() < 0.2
        self._theme = theme or (Theme((), ()) if anything else self.dice.choice(THEMES))
        self.local = self.dice.random() < 0.3
        self.everybody: dict[int, Actor] = {}
        self.alive: dict[str, frozenset[str]] = {}
        self.settled: set[str] = set()
        self.pinned: set[str] = set()
        self.reading: dict[int, tuple[frozenset[str], float]] = {}
        self.broken = ""
        self.steps = 0
        self._nobody = Actor(-1, "sweep", lambda _: None)
        self._packs = self._messages = self._stamps = 0
        self._removals, self._unpins = _Overlaps(), _Overlaps()
        self._kills = self.dice.choice((0.0, 0.0, 0.0, 0.02))
        self._leaps = self.dice.choice((0.0, 0.0, 0.02))

    # A history

    def run(self) -> None:
        """From beginning to end.

        Raises:
            Broken: something that the protocol promises does not hold.
        """
        global _world
        _world = self
        try:
            self._furnish()
            for _ in range(self._rounds):
                self._round()
            self._check_end()
        except Broken:
            raise
        except Exception as error:
            raise Broken(self._told(f"{type(error).__name__}: {error}")) from error

    def _round(self) -> None:
        kinds = list(self._theme.kinds)
        if not kinds or self.dice.random() < 0.2:
            kinds += [self.dice.choice(KINDS) for _ in range(self._actors or self.dice.choice((1, 2, 3)))]
        self.dice.shuffle(kinds)
        if self._unlocking:
            kinds.append("unlock")
        self.turns = Turns(self.dice, lambda: self.now, self._between)
        actors = [Actor(len(self.everybody) + n, kind, getattr(self, f"_{kind}")) for n, kind in enumerate(kinds)]
        self.everybody.update((actor.number, actor) for actor in actors)
        self.turns.run(actors)
        self.steps += self.turns.steps
        for actor in actors:
            self._judge(actor)
        if self.broken:
            raise Broken(self._told(self.broken))
        self._wait(self._nobody)

    def _judge(self, actor: Actor) -> None:
        """What an actor may end with; nobody is ever told of damage that there is not."""
        expected = actor.error is None or isinstance(actor.error, Busy | NotFound | Pinned)
        if isinstance(actor.error, DamagedStore):
            # What they need was removed and swept between their first look and their lease; or their lease was gone.
            late = self._unlocking or actor.ended - actor.began > HOUR
            expected = actor.kind in ("merge", "copy", "pin") or (late and actor.kind in ("write", "undo", "remove"))
        if not expected and not self.broken:
            self.broken = f"{actor.kind} {actor.number} ended with {type(actor.error).__name__}: {actor.error}"

    def _told(self, what: str) -> str:
        log = [f"  {number:2} {self.everybody[number].kind:7} {what:7} {key}" for number, what, key in self.turns.log]
        return "\n".join([f"{what} (GC_SEED={self.seed})", *log[-150:]])

    def _between(self) -> None:
        """Time passes; now and then somebody dies."""
        self.now += 0.01
        if self._kills and self.dice.random() < self._kills:
            victim = self.dice.choice(self.turns.living)
            if not victim.notes.get("spared"):
                victim.dead = True
        leaps = self._leaps
        if self._theme.leaps and any(map(_is_committing, self.turns.living)):
            leaps = 0.2
        if leaps and self.dice.random() < leaps:
            self.now += self._leap()

    def _leap(self) -> float:
        leap = self.dice.choice(self._theme.leaps or JUMPS)
        for actor in self.turns.living:
            what, key = actor.pending
            if what == "delete" and key.startswith("packs/"):
                return min(leap, SHORT)
            if _is_committing(actor):
                # Whatever holds a process up for so long, it holds it up while others go on. That it is killed next, is
                # one fault too many: nobody could take its manifest back.
                actor.notes["spared"] = True
                actor.priority = -1.0
                # A virtual machine that is halted does not know that time passes.
                actor.asleep += leap * self.dice.randrange(2)
        return leap

    def violated(self, what: str) -> None:
        """End here."""
        self.broken = self.broken or what
        self.turns.stop()

    # What there is at the beginning

    def _furnish(self) -> None:
        self.repository.prepare()
        before = self._theme.before or [self.dice.choice(BEFORE) for _ in range(self.dice.randrange(2, 7))]
        for kind in before:
            with suppress(Busy, NotFound, Pinned, DamagedStore):
                getattr(self, f"_{kind}")(self._nobody)
        if self.broken:
            raise Broken(self._told(self.broken))

    def _chosen_contents(self) -> list[int]:
        return sorted(self.dice.sample(range(samples.CONTENTS), self.dice.randrange(1, 3)))

    def _new_pack(self, content: int) -> Pack:
        self._packs += 1
        return samples.pack(content, self._packs)

    def _store_pack(self, pack: Pack) -> Pack:
        self.store.create(pack_key(pack.id), pack.data)
        return pack

    # Actors

    def _write(self, actor: Actor) -> None:
        self._saved(self._chosen_contents())

    def _wait(self, actor: Actor) -> None:
        self.now += self.dice.choice((0.0, HOUR, 8 * HOUR, 2 * DAY))

    def _condemn(self, actor: Actor) -> None:
        """What is there long enough and nothing needs is condemned, and not deleted yet."""
        self.now += 2 * HOUR
        sweeping.sweep(self.repository, grace=HOUR)
        self.now += 2 * HOUR

    def _orphan(self, actor: Actor) -> None:
        """A writer that was killed before its manifest."""
        self._store_pack(self._new_pack(self.dice.randrange(samples.CONTENTS)))

    def _saved(self, contents: Iterable[int]) -> None:
        """As the verb `snapshot` does."""
        with self.repository.writing() as work:
            known = locations(self.repository.store, work.condemned)
            packs: dict[int, Pack] = {}
            for content in contents:
                place = known.get(samples.sha_of(content))
                packs[content] = samples.pack_named(place.pack) if place else self._store_pack(self._new_pack(content))
            self._commit(samples.tables(packs), work)

    def _commit(self, tables: Any, work: Any) -> None:
        self._messages += 1
        saved = self.repository.commit(samples.header(str(self._messages), tables), tables, work=work)
        self._came_to_be(saved.id, [pack.id for pack in tables.packs])

    def _came_to_be(self, identifier: str, packs: Iterable[str]) -> None:
        self.alive[identifier] = frozenset(packs)
        self.settled.add(identifier)
        self._check_whole(identifier)

    def _merge(self, actor: Actor) -> None:
        """As the verb `merge` does."""
        chosen = self.dice.sample(sorted(self.alive), min(2, len(self.alive)))
        packs: dict[int, Pack] = {}
        for identifier in chosen:
            rows = self.repository.manifest(identifier).tables.packs
            packs |= {each.content: each for each in (samples.pack_named(row.id) for row in rows)}
        if packs:
            with self.repository.writing() as work:
                work.require(pack.id for pack in packs.values())
                self._commit(samples.tables(packs), work)

    def _copy(self, actor: Actor) -> None:
        """As the verb `copy` does, from a store in which packs of the same names are; some of this one, some gone."""
        source = Repository(MemoryStore("source"))
        source.prepare()
        number = self.dice.randrange(self._packs + 1)
        packs = {content: samples.pack(content, number) for content in self._chosen_contents()}
        # Those that there are, or have been.
        for name in self.dice.sample(sorted(self._ever), min(2, len(self._ever))):
            packs[samples.pack_named(name).content] = samples.pack_named(name)
        for pack in packs.values():
            source.store.create(pack_key(pack.id), pack.data)
        self._messages += 1
        tables = samples.tables(packs)
        saved = source.commit(samples.header(str(self._messages), tables), tables)
        plan = planning.make_plan(source, self.repository, frozenset({saved.id}))
        with self.repository.writing() as work:
            work.claim(plan.packs)
            done = transfer.run(planning.looked_again(plan), work, lambda *_: None)
            if saved.id in done.copied:
                self._came_to_be(saved.id, (pack.id for pack in packs.values()))

    @property
    def _ever(self) -> set[str]:
        """Every pack that a snapshot of this history had."""
        return {pack for packs in self.alive.values() for pack in packs} | self._listed

    @property
    def _listed(self) -> set[str]:
        return {key.removeprefix("packs/") for key in self.store.keys("packs/")}

    def _remove(self, actor: Actor) -> None:
        if not self.alive:
            return
        identifier = self.dice.choice(sorted(self.alive))
        self.settled.discard(identifier)
        with self._removals.one(identifier, actor):
            trash.remove(self.repository, identifier, grace=self.dice.choice(TRASH_GRACES))

    def _undo(self, actor: Actor) -> None:
        in_trash = sorted({key.split("/")[1] for key in self.store.keys("trash/")} & self.alive.keys())
        if not in_trash:
            return
        identifier = self.dice.choice(in_trash)
        before, packs = self._removals.mark(identifier), self.alive[identifier]
        trash.bring_back(self.repository, identifier)
        if self._removals.none_since(before, identifier):
            self._came_to_be(identifier, packs)

    def _pin(self, actor: Actor) -> None:
        if self.pinned and self.dice.random() < 0.3:
            identifier = self.dice.choice(sorted(self.pinned))
            self.pinned.discard(identifier)
            with self._unpins.one(identifier, actor):
                pins.remove(self.repository, [identifier])
        elif self.alive:
            self._pin_one(self.dice.choice(sorted(self.alive)))

    def _pin_one(self, identifier: str) -> None:
        if identifier in self.pinned:
            return
        before = self._unpins.mark(identifier)
        pins.put(self.repository, [identifier])
        if self._unpins.none_since(before, identifier):
            self.pinned.add(identifier)
            if identifier not in self.alive:
                self.violated(f"snapshot {identifier[:8]} is pinned and is nowhere")

    def _sweep(self, actor: Actor) -> None:
        actor.notes["empty_trash"] = self.dice.random() < 0.2
        sweeping.sweep(self.repository, grace=self.dice.choice(GRACES), empty_trash=actor.notes["empty_trash"])

    def _read(self, actor: Actor) -> None:
        """As the verb `restore` does."""
        with leases.hold_to_read(self.store, condemned.generation(self.store)):
            began = self.now
            if not self.alive:
                return
            try:
                manifest = self.repository.manifest(self.dice.choice(sorted(self.alive)))
            except KeyMissing:
                return
            packs = frozenset(pack.id for pack in manifest.tables.packs)
            if not self._unlocking:
                self.reading[actor.number] = packs, began + leases.WORK_SECONDS
            try:
                for pack in sorted(packs):
                    self.store.read(pack_key(pack))
            except KeyMissing as error:
                if self.now < began + leases.WORK_SECONDS and not self._unlocking:
                    self.violated(f"a reader misses {error}")
            finally:
                self.reading.pop(actor.number, None)

    def _unlock(self, actor: Actor) -> None:
        """Somebody deletes leases by hand, but for those of sweeps."""
        for _ in range(3):
            for _, lease in [(lease.key, lease) for lease in leases.listed(self.store)]:
                if lease.kind is not leases.Kind.SWEEP:
                    self.store.delete(lease.key)
            self.turns.rest()

    # What must hold

    def _deleted(self, key: str) -> None:
        place, _, rest = key.partition("/")
        if place == "packs":
            self._check_unneeded(rest)
        elif place in ("snapshots", "trash"):
            self._check_kept(rest[:64], key)

    def _check_unneeded(self, pack: str) -> None:
        for identifier, packs in self.alive.items():
            if pack in packs:
                self.violated(f"pack {pack[:8]} was deleted, which snapshot {identifier[:8]} needs")
        for number, (packs, until) in self.reading.items():
            if pack in packs and self.now < until and not self.everybody[number].dead:
                self.violated(f"pack {pack[:8]} was deleted, which reader {number} needs")

    def _check_kept(self, identifier: str, key: str) -> None:
        """A snapshot is somewhere; only a sweep takes it away, when its time is over."""
        if identifier not in self.alive or self._there(identifier) or self._in_trash(identifier):
            return
        actor = self.turns.running
        # An undo that came too late takes back what it did.
        given_up = self._note(identifier) and (actor is None or actor.kind in ("sweep", "undo"))
        if not given_up or identifier in self.pinned:
            self.violated(f"snapshot {identifier[:8]} is nowhere")
        else:
            del self.alive[identifier]
            self.settled.discard(identifier)

    def _there(self, identifier: str) -> bool:
        return bool(self.store.keys(manifest_key(identifier)))

    def _note(self, identifier: str) -> bool:
        return bool(self.store.keys(f"trash/{identifier}/gone"))

    def _in_trash(self, identifier: str) -> list[str]:
        return [key for key in self.store.keys(f"trash/{identifier}/") if not key.endswith("/gone")]

    def _check_whole(self, identifier: str) -> None:
        missing = self.alive[identifier] - self._listed
        if missing:
            self.violated(f"snapshot {identifier[:8]} lacks {sorted(pack[:8] for pack in missing)}")

    def _check_end(self) -> None:
        """Nobody is at work any more: everything is whole and in its place, and what nothing needs goes."""
        for identifier in self.alive:
            self._check_whole(identifier)
            if not self._there(identifier) and (identifier in self.settled or not self._in_trash(identifier)):
                self.violated(f"snapshot {identifier[:8]} is not in its place")
            if identifier in self.pinned and not self._there(identifier) and self._removals.mark(identifier) >= 0:
                self.violated(f"snapshot {identifier[:8]} is pinned and is not in its place")
        self._check_undo()
        self._check_sweeps()
        if self.broken:
            raise Broken(self._told(self.broken))

    def _check_undo(self) -> None:
        for identifier in [each for each in self.alive if not self._there(each)]:
            self.now += 31 * 60
            trash.bring_back(self.repository, identifier)
            if not self._there(identifier):
                self.violated(f"snapshot {identifier[:8]} cannot be brought back")

    def _check_sweeps(self) -> None:
        self.now += 7 * HOUR
        sweeping.sweep(self.repository, grace=0)
        sweeping.sweep(self.repository, grace=0)
        needed = _needed_packs(self.repository)
        if left := self._listed - needed:
            self.violated(f"{sorted(pack[:8] for pack in left)} are never freed")
        if self.store.keys("leases/"):
            self.violated("leases of the dead are left")
        for identifier in self.alive:
            self._check_whole(identifier)


def _is_committing(actor: Actor) -> bool:
    what, key = actor.pending
    return what == "create" and key.startswith("snapshots/") and not actor.notes.get("spared")


class _Overlaps:
    """Who does something to a snapshot, and how often it was done: of two at once, either may have the last word."""

    def __init__(self) -> None:
        self._begun: Counter[str] = Counter()
        self._at_it: Counter[str] = Counter()

    @contextmanager
    def one(self, identifier: str, actor: Actor) -> Iterator[None]:
        self._begun[identifier] += 1
        self._at_it[identifier] += 1
        try:
            yield
        except (Busy, DamagedStore, Killed):  # who knows how far it came
            raise
        except BaseException:
            self._at_it[identifier] -= 1
            raise
        self._at_it[identifier] -= 1

    def mark(self, identifier: str) -> int:
        """How often it was begun; -1 where somebody is at it."""
        return -1 if self._at_it[identifier] else self._begun[identifier]

    def none_since(self, mark: int, identifier: str) -> bool:
        """True where nobody did it since, or was at it then."""
        return mark >= 0 and self.mark(identifier) == mark


# The real code, on the clock of the world that there is now


_world: World
_needed_packs = sweeping.needed_packs


class _Serial:
    """Does work at once that others do in threads."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> _Serial:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def map(self, work: Callable[..., Any], items: Iterable[Any]) -> list[Any]:
        return [work(item) for item in items]

    def shutdown(self, **_: object) -> None:
        pass


def _read_all(read: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    return [read(item) for item in items]


def _ordered(work: Callable[[Any], Any], items: Iterable[Any], **_: object) -> Iterator[Any]:
    return iter([work(item) for item in items])


def _own_clock() -> float:
    running = _world.turns.running
    return _world.now - (running.asleep if running else 0)


def _process() -> tuple[str, ...]:
    running = _world.turns.running
    return "a boot", "a namespace", str(running.number if running else -1), "1"


def _is_gone(process: tuple[str, ...]) -> bool:
    actor = _world.everybody.get(int(process[2])) if len(process) == 4 else None
    return _world.local and actor is not None and (actor.dead or actor.done)


def _stamp() -> str:
    _world._stamps += 1
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGIN + _world._stamps))


def _sleep(seconds: float) -> None:
    _world.now += seconds
    _world.turns.rest()


def _token_hex(length: int) -> str:
    return _world._names.randbytes(length).hex()


def _index_once(read: Callable[[int, int], bytes], size: int) -> Any:
    return _index(read(0, size))


@lru_cache(10_000)
def _index(data: bytes) -> Any:
    return read_index(lambda start, length: data[start:][:length], len(data))


_decoded = lru_cache(10_000)(decode)
_encoded: dict[tuple[str, str], Any] = {}


def _encode(header: Any, tables: Any, telemetry: bytes) -> Any:
    key = header.message, hashlib.sha256(repr(tables).encode()).hexdigest()
    if key not in _encoded:
        _encoded[key] = encode(header, tables, telemetry)
    return _encoded[key]


@contextmanager
def on_the_virtual_clock() -> Iterator[None]:
    """The real code takes its time, its names and its processes from a world; threads of its own it has none."""
    named = SimpleNamespace(token_hex=_token_hex)
    changes: Collection[tuple[Any, dict[str, Any]]] = (
        (leases, {"_seconds_of_this_boot": _own_clock, "_this_process": _process, "_is_gone": _is_gone}),
        (leases, {"secrets": named, "writer": lambda: "me@here", "now_utc": _stamp}),
        (condemned, {"writer": lambda: "me@here", "now_utc": _stamp}),
        (removed, {"secrets": named}),
        (trash, {"writer": lambda: "me@here", "now_utc": _stamp, "decode": _decoded}),
        (trash, {"ordered": _ordered}),
        (pins, {"ordered": _ordered, "writer": lambda: "me@here", "now_utc": _stamp}),
        (writing, {"time": SimpleNamespace(monotonic=lambda: _world.now, sleep=_sleep), "_LOOK_AGAIN": 15.0}),
        (snapshots, {"read_all": _read_all, "decode": _decoded}),
        (snapshots, {"encode": _encode, "check": lambda header, tables: None}),
        (stored_packs, {"read_all": _read_all, "read_index": _index_once}),
        (planning, {"ordered": _ordered}),
        (transfer, {"ThreadPoolExecutor": _Serial}),
        (sweeping, {"ordered": _ordered}),
    )
    with ExitStack() as stack:
        for module, attributes in changes:
            stack.enter_context(patch.multiple(module, **attributes))
        yield


def run(seeds: Iterable[int], **options: Any) -> int:
    """Run a history for each seed.

    Returns:
        The number of steps in all.

    Raises:
        Broken: one of them shows a broken promise.
    """
    steps = 0
    with on_the_virtual_clock():
        for seed in seeds:
            world = World(seed, **options)
            world.run()
            steps += world.steps
    return steps
