"""Actors that take turns: each runs real code up to its next storage operation, and dice choose who goes on from there.

Every actor has a thread, of which one runs at a time. Who goes on is chosen in one of two ways: at random, some being
slower than others for a while; or by priorities that change a few times, which finds what needs one long delay at the
right moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from cachekeeper.stores import MemoryStore
from cachekeeper.stores.base import ObjectInfo

_CHANGES_WITHIN = 30
_MOST_STEPS = 20_000


class Killed(BaseException):
    """The actor's process has ended: nothing of what it does from here on happens."""


class Actor:
    """Somebody at work.

    Attributes:
        kind: what it does.
        pending: the storage operation that it is about to do: ("delete", "packs/...").
        dead: killed; done: at its end, whether killed or not.
        error: what it ended with.
        began, ended: when.
        asleep: seconds that passed without its clock.
        notes: what the work notes down for those who judge it.
    """

    def __init__(self, number: int, kind: str, work: Callable[[Actor], None]) -> None:
        self.number, self.kind, self.work = number, kind, work
        self.pending = ("begin", "")
        self.dead = self.done = False
        self.error: Exception | None = None
        self.priority = self.began = self.ended = self.asleep = 0.0
        self.notes: dict[str, Any] = {}


class _Worker(threading.Thread):
    """A thread that is used for one actor after the other."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.baton = threading.Lock()
        self.baton.acquire()
        self.job: Callable[[], None] = lambda: None
        self.start()

    def run(self) -> None:
        while True:
            self.baton.acquire()
            self.job()


_workers: list[_Worker] = []


class Turns:
    """One history: some actors, from beginning to end.

    Args:
        dice: choose everything.
        between: called before every choice.

    Attributes:
        running: whose turn it is; None outside of `run`.
        living: those who have not ended.
        steps: operations so far.
        log: (number of the actor, operation, key) of each, for people.
    """

    def __init__(self, dice: Random, clock: Callable[[], float], between: Callable[[], None] = lambda: None) -> None:
        self._dice, self._clock, self._between = dice, clock, between
        self.running: Actor | None = None
        self.living: list[Actor] = []
        self.steps = 0
        self.log: list[tuple[int, str, str]] = []
        self._main = threading.Lock()
        self._main.acquire()
        self._by_priority = dice.random() < 0.6
        self._changes: set[int] = set()

    def run(self, actors: Sequence[Actor]) -> None:
        """Let actors take turns until all have ended."""
        while len(_workers) < len(actors):
            _workers.append(_Worker())
        self.living = list(actors)
        self._batons = {}
        for actor, worker in zip(actors, _workers, strict=False):
            actor.priority = self._dice.random() ** 3
            worker.job = self._job(actor)
            self._batons[actor.number] = worker.baton
        most = _CHANGES_WITHIN * len(actors)
        self._changes = {self._dice.randrange(most) for _ in range(self._dice.randrange(1, 4))}
        self._hand_over(self._choose())
        self._main.acquire()
        self.running = None

    def _job(self, actor: Actor) -> Callable[[], None]:
        def job() -> None:
            try:
                if not actor.dead:
                    actor.began = self._clock()
                    actor.work(actor)
            except Killed:
                pass
            except Exception as error:
                actor.error = error
            actor.done = True
            actor.ended = self._clock()
            self.living.remove(actor)
            if self.living:
                self._hand_over(self._choose())
            else:
                self._main.release()

        return job

    def _hand_over(self, actor: Actor) -> None:
        self.running = actor
        self._batons[actor.number].release()

    def step(self, what: str, key: str) -> None:
        """Called by whoever runs before each operation; returns when it is their turn again."""
        actor = self.running
        if actor is None:
            return
        if actor.dead:
            raise Killed
        actor.pending = what, key
        self.steps += 1
        if self.steps > _MOST_STEPS:
            self.stop()
        self._between()
        chosen = self._choose()
        if chosen is not actor:
            self._hand_over(chosen)
            self._batons[actor.number].acquire()
        if actor.dead:
            raise Killed
        self.log.append((actor.number, what, key))

    def rest(self) -> None:
        """Let everybody else go first."""
        if self.running:
            self.running.priority = min(actor.priority for actor in self.living) - 1
            self.step("rest", "")

    def stop(self) -> None:
        """Let this be the end."""
        for actor in self.living:
            actor.dead = True

    def _choose(self) -> Actor:
        if self._by_priority:
            if self.steps in self._changes and self.running in self.living:
                self.running.priority = min(actor.priority for actor in self.living) - 1
            return max(self.living, key=lambda actor: actor.priority)
        if self._dice.random() < 0.05:
            self._dice.choice(self.living).priority = self._dice.random() ** 3
        weights = [max(actor.priority, 0.001) for actor in self.living]
        return self._dice.choices(self.living, weights)[0]


class TurnStore(MemoryStore):
    """A store in memory, before every operation of which somebody else may be chosen to go on.

    A listing shows what was there all the time; what comes or goes meanwhile, it may show or not, as in a directory.
    """

    parallel = 1

    def __init__(self, turns: Callable[[], Turns], clock: Callable[[], float], dice: Random) -> None:
        super().__init__(clock=clock)
        self._turns, self._dice = turns, dice
        self.deleted: Callable[[str], None] = lambda key: None

    def create(self, key: str, *parts: Any) -> bool:
        self._turns().step("create", key)
        return super().create(key, *parts)

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._turns().step("read", key)
        return super().read(key, start, length)

    def size(self, key: str) -> int:
        self._turns().step("size", key)
        return super().size(key)

    def list(self, prefix: str, most: int | None = None) -> Iterator[ObjectInfo]:
        self._turns().step("list", prefix)
        before = {info.key: info for info in super().list(prefix)}
        if self._dice.random() < 0.7:
            return iter(before.values())
        self._turns().step("listed", prefix)
        after = {info.key: info for info in super().list(prefix)}
        changed = sorted(before.keys() ^ after.keys())
        shown = (before.keys() & after.keys()) | {key for key in changed if self._dice.random() < 0.5}
        return iter([info for key, info in sorted((before | after).items()) if key in shown])

    def delete(self, key: str) -> None:
        self._turns().step("delete", key)
        super().delete(key)
        self.deleted(key)

    # For those who judge: no turns are taken

    def keys(self, prefix: str) -> list[str]:
        """What there is."""
        return sorted(key for key in self._objects if key.startswith(prefix))

    def written(self, key: str) -> float:
        """When an object was written."""
        return self._objects[key][1]
