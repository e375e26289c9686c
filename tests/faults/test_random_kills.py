"""SIGKILL at random moments. TEST_SEED, printed by a failure, chooses the same moments again."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.testing import make_triton_entry

from .children import Work, duration, killed_after
from .scene import (
    Scene,
    build_scene,
    check_live,
    check_nothing_lost,
    check_objects,
    check_store,
    check_tidy,
    make_worn_cache,
    tree,
)

_KILLS = 30
_SLOWEST = 1.2


@pytest.fixture(params=[0, 1])
def moments(request: pytest.FixtureRequest) -> random.Random:
    seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 30))) + request.param
    print(f"TEST_SEED={seed - request.param}")
    return random.Random(seed)


def test_snapshots(place: Path, moments: random.Random) -> None:
    scene = build_scene(place)
    longest = duration(_snapshotting(scene.copy(place / "timed"))) * _SLOWEST
    killed = 0
    for number in range(_KILLS):
        make_triton_entry(scene.cache / "triton" / "0", seed=50_000 + number)
        killed += killed_after(moments.uniform(0, longest), _snapshotting(scene))
        check_store(scene, place, which=[moments.choice(list(scene.older))])
        if number % 10 == 9:
            _snapshotting(scene)()
            cachekeeper.restore("drafter", cache_dir=place / "again", store=scene.store)
            assert tree(place / "again") == tree(scene.cache)
            shutil.rmtree(place / "again")
    check_objects(scene.store)
    assert killed > _KILLS / 4


def _snapshotting(scene: Scene) -> Work:
    return lambda: cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=scene.store, wait=0)


@pytest.mark.parametrize("exact", [False, True], ids=["merge", "exact"])
def test_restores(place: Path, moments: random.Random, exact: bool) -> None:
    scene = build_scene(place)
    right, first, target = list(scene.older.values())[-1], place / "first", place / "target"
    cachekeeper.restore("drafter", cache_dir=first, store=scene.store)
    make_worn_cache(target, first)
    longest = duration(_restoring(scene, target, exact)) * _SLOWEST
    killed = 0
    for number in range(_KILLS):
        shutil.rmtree(target)
        make_worn_cache(target, first)
        before = tree(target)
        for _ in range(1 + number % 3):
            killed += killed_after(moments.uniform(0, longest), _restoring(scene, target, exact))
            check_live(target, before, right, extras_stay=not exact)
        _restoring(scene, target, exact)()
        extras = {} if exact else {path: data for path, data in before.items() if path not in right}
        assert tree(target) == right | extras
        check_nothing_lost(target, before)
        check_tidy(target)
    check_store(scene, place, scene.older)
    assert killed > _KILLS / 4


def _restoring(scene: Scene, target: Path, exact: bool) -> Work:
    return lambda: cachekeeper.restore("drafter", cache_dir=target, store=scene.store, exact=exact)
