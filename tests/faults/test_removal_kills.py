"""rm, undo and sweep that are killed: at every storage operation, and at random beside others at work.

Whatever dies, every other snapshot verifies and restores, the one in question is in one place at least, repeating the
command finishes it, and a sweep then frees all that nothing needs.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import sweeping, trash
from cachekeeper.errors import Busy, DamagedStore, NotFound
from cachekeeper.repository import Repository, open_repository, pack_sizes
from cachekeeper.testing import make_cache
from cachekeeper.verbs.rm import rm
from cachekeeper.verbs.sweep import sweep
from cachekeeper.verbs.undo import undo

from . import children
from .scene import Scene, build_scene, check_store, tree

_PARTS = 2
_SECONDS = float(os.environ.get("RACE_SECONDS", "8"))
parts = pytest.mark.parametrize("part", range(_PARTS))


@pytest.fixture
def scene(place: Path) -> Scene:
    return build_scene(place, generations=3)


def _packs(repository: Repository, identifiers: Collection[str]) -> set[str]:
    return {row.id for identifier in identifiers for row in repository.manifest(identifier).tables.packs}


def _check(scene: Scene, place: Path, victim: str) -> None:
    """After a death: what nobody touched is whole and restores, and the victim is somewhere with all its packs."""
    others = [identifier for identifier in scene.older if identifier != victim]
    repository = open_repository(scene.store)
    for identifier in others:
        assert repository.has(identifier)
        target = place / "restored"
        cachekeeper.restore(identifier, cache_dir=target, store=scene.store)
        assert tree(target) == scene.older[identifier]
        shutil.rmtree(target)
    assert cachekeeper.verify(every=True, store=scene.store).ok
    manifest = (
        repository.manifest(victim)
        if repository.has(victim)
        else trash.manifest_in(repository, trash.look(repository, victim).removals[0])
    )
    assert {row.id for row in manifest.tables.packs} <= pack_sizes(repository.store).keys()


def _check_freed(scene: Scene, left: Collection[str]) -> None:
    """Two sweeps leave what is needed and no other pack and no lease; an older list may stay until the next one."""
    for _ in range(2):
        sweep(store=scene.store, apply=True, grace=0, empty_trash=True)
    repository = open_repository(scene.store)
    assert pack_sizes(repository.store).keys() == _packs(repository, left)
    assert not list(repository.store.list("leases/"))
    assert len(list(repository.store.list("gc/"))) <= 2


def _at_every_step(
    part: int,
    scene: Scene,
    place: Path,
    work: Callable[[Path], object],
    check: Callable[[Scene], None],
) -> int:
    for steps, step in enumerate(itertools.count(1 + part, _PARTS)):
        copy = scene.copy(place / "work")
        if not children.dies_at(step, lambda store=copy.store: work(store)):
            shutil.rmtree(place / "work")
            return steps
        check(copy)
        shutil.rmtree(place / "work")
    raise AssertionError


@parts
def test_rm(place: Path, scene: Scene, part: int) -> None:
    victim = list(scene.older)[-1]

    def check(copy: Scene) -> None:
        _check(copy, place, victim)
        rm(victim, store=copy.store)
        repository = open_repository(copy.store)
        assert not repository.has(victim) and repository.latest("drafter") == list(scene.older)[1]
        undo(victim, store=copy.store)
        check_store(copy, place, which=[victim])
        assert repository.latest("drafter") == victim
        rm(victim, store=copy.store)
        _check_freed(copy, list(scene.older)[:-1])

    assert _at_every_step(part, scene, place, lambda store: rm(victim, store=store), check) >= 4


@parts
def test_undo(place: Path, scene: Scene, part: int) -> None:
    victim = list(scene.older)[-1]
    rm(victim, store=scene.store)

    def check(copy: Scene) -> None:
        _check(copy, place, victim)
        undo(victim, store=copy.store)
        check_store(copy, place, which=[victim])
        assert open_repository(copy.store).latest("drafter") == victim
        _check_freed(copy, scene.older)

    assert _at_every_step(part, scene, place, lambda store: undo(victim, store=store), check) >= 4


@parts
def test_sweep(place: Path, scene: Scene, part: int) -> None:
    """It drops a snapshot, condemns its packs and deletes them, all in one."""
    gone, *left = scene.older
    rm(gone, store=scene.store, grace=0)
    rest = Scene(scene.store, scene.cache, {key: scene.older[key] for key in left}, scene.now)

    def work(store: Path) -> object:
        return sweep(store=store, apply=True, grace=0)

    def check(copy: Scene) -> None:
        check_store(copy, place, which=left[:1])
        repository = open_repository(copy.store)
        found = trash.look(repository, gone)
        assert found.removals or found.gone
        if found.removals:
            undo(gone, store=copy.store)
            check_store(Scene(copy.store, copy.cache, scene.older, scene.now), place, which=[gone])
            rm(gone, store=copy.store, grace=0)
        work(copy.store)
        assert trash.look(repository, gone).gone
        _check_freed(copy, left)
        check_store(copy, place, which=left)

    assert _at_every_step(part, rest, place, work, check) >= 7


@parts
def test_a_snapshot_after_a_sweep_that_was_killed(place: Path, scene: Scene, part: int) -> None:
    """The cache is that of the snapshot whose packs are being deleted, and is remembered: none of them is used."""
    gone = list(scene.older)[-1]
    left = list(scene.older)[:-1]
    cache = place / "cache"
    cachekeeper.restore(gone, cache_dir=cache, store=scene.store, exact=True)
    rm(gone, store=scene.store, grace=0)
    rest = Scene(scene.store, cache, {key: scene.older[key] for key in left}, scene.now)

    def check(copy: Scene) -> None:
        saved = cachekeeper.snapshot("again", cache_dir=cache, store=copy.store, wait=0).snapshot.id
        _check_freed(copy, [*left, saved])
        copy.older[saved] = scene.older[gone]
        check_store(copy, place, which=[saved])
        del copy.older[saved]

    def work(store: Path) -> object:
        return sweep(store=store, apply=True, grace=0)

    assert _at_every_step(part, rest, place, work, check) >= 7


# At random, beside others


class _Crowd:
    """Processes over one store, each of which does one thing over and over; the truth is in the store alone."""

    def __init__(self, place: Path, store: Path, seed: int) -> None:
        self.place, self.store, self.seed = place, store, seed
        self.stop = place / "stop"
        self.caches = [make_cache(place / f"cache-{n}", seed=n // 2, kernels=1, graphs=1) for n in range(6)]
        for cache in self.caches[::2]:
            make_cache(cache, seed=7, kernels=1, graphs=1)

    def start(self, number: int, turn: Callable[[random.Random, int], object]) -> int:
        def work() -> None:
            dice = random.Random(self.seed * 100 + number)
            while not self.stop.exists():
                try:
                    turn(dice, number)
                except (Busy, NotFound):
                    pass
                except DamagedStore as error:  # removed and swept between a look and a lease
                    assert "vanished" in error.message, error

        return children.start(work)

    def write(self, dice: random.Random, number: int) -> None:
        """Caches that share entries, so that packs are used by others again."""
        cache = dice.choice(self.caches)
        saved = cachekeeper.snapshot(f"name{number}", cache_dir=cache, store=self.store, wait=0, force=True)
        (self.place / "saved").mkdir(exist_ok=True)
        (self.place / "saved" / saved.snapshot.id).touch()

    def remove(self, dice: random.Random, number: int) -> None:
        ids = sorted(path.name for path in (self.place / "saved").glob("*"))
        if len(ids) > 3:
            identifier = dice.choice(ids)
            (self.place / "removed").mkdir(exist_ok=True)
            (self.place / "removed" / identifier).touch()
            rm(identifier, store=self.store, grace=dice.choice([0, 3600]), force=True)

    def undo(self, dice: random.Random, number: int) -> None:
        undo(store=self.store)
        time.sleep(0.05)

    def sweep(self, dice: random.Random, number: int) -> None:
        sweep(store=self.store, apply=True, grace=0, empty_trash=dice.random() < 0.1)

    def check(self) -> None:
        """What was saved and never removed is there, everything is whole, and what nothing needs goes."""
        result = cachekeeper.verify(every=True, store=self.store)
        assert result.ok, (result.damaged, self.seed)
        saved, removed = ({path.name for path in (self.place / each).glob("*")} for each in ("saved", "removed"))
        there = set(result.snapshots)
        assert saved - removed <= there, f"TEST_SEED={self.seed}"
        repository = open_repository(self.store)
        assert saved - there <= trash.look(repository).away, f"TEST_SEED={self.seed}"
        for _ in range(2):
            sweeping.sweep(repository, grace=0)
        assert pack_sizes(repository.store).keys() == sweeping.needed_packs(repository)
        assert not list(repository.store.list("leases/"))
        for identifier in sorted(there)[:5]:
            cachekeeper.restore(identifier, cache_dir=self.place / "restored", store=self.store, verify=True)
            shutil.rmtree(self.place / "restored")


@pytest.mark.parametrize("killing", [False, True], ids=["race", "kills"])
def test_a_crowd_of_processes(place: Path, killing: bool) -> None:
    """Real processes over a directory, without grace times: writers, rm, undo and sweeps, which are killed at times."""
    seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 30)))
    crowd = _Crowd(place, place / "store", seed)
    cachekeeper.snapshot("first", cache_dir=crowd.caches[0], store=crowd.store, wait=0)
    turns = [crowd.write, crowd.write, crowd.remove, crowd.undo, crowd.sweep, crowd.sweep]
    pids = [crowd.start(number, turn) for number, turn in enumerate(turns)]
    dice = random.Random(seed)
    until = time.monotonic() + _SECONDS
    killed = 0
    while time.monotonic() < until:
        time.sleep(dice.uniform(0, 0.1))
        if killing:
            number = dice.randrange(len(turns))
            children.kill(pids[number])
            killed += children.finish(pids[number]) < 0
            pids[number] = crowd.start(number, turns[number])
    crowd.stop.touch()
    assert [children.finish(pid) for pid in pids] == [0] * len(pids), f"TEST_SEED={seed}"
    assert len(list((place / "saved").glob("*"))) > 3
    assert not killing or killed > 10
    crowd.check()
