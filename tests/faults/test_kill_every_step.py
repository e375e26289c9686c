"""The process ends at its n-th storage operation, for every n: nothing that was there before is lost.

An operation is every call that changes a filesystem. Before each one the process is gone, and each write is gone half
done. The steps of one work are spread over a few tests, which run beside each other.
"""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

import cachekeeper

from .children import Work, dies_at
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

_PARTS = 3
_MOST_STEPS = 2_000
parts = pytest.mark.parametrize("part", range(_PARTS))


def _steps(part: int) -> itertools.count[int]:
    return itertools.count(1 + part, _PARTS)


@parts
def test_snapshot_into_a_store_with_older_snapshots(place: Path, part: int) -> None:
    scene = build_scene(place)
    ids = list(scene.older)
    steps = 0
    for step in _steps(part):
        copy = scene.copy(place / "work")
        if not dies_at(step, lambda store=copy.store: _snapshot(scene, store)):
            break
        steps += 1
        check_store(copy, place, which=[ids[step % len(ids)]])
        assert tree(scene.cache) == scene.now
        _check_snapshot_again(copy, place / "again")
        shutil.rmtree(place / "work")
    assert 6 <= steps < _MOST_STEPS


def _snapshot(scene: Scene, store: Path) -> str:
    return cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=store, wait=0).snapshot.id


def _check_snapshot_again(scene: Scene, target: Path) -> None:
    _snapshot(scene, scene.store)
    check_store(scene, target.parent)
    check_objects(scene.store)
    cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
    assert tree(target) == scene.now
    shutil.rmtree(target)


def test_first_snapshot_of_a_new_store(place: Path) -> None:
    scene = build_scene(place, generations=0)
    steps = 0
    for step in itertools.count(1):
        store = place / "new" / "store"
        if not dies_at(step, lambda store=store: _snapshot(scene, store)):
            break
        steps += 1
        _check_snapshot_again(Scene(store, scene.cache, {}, scene.now), place / "again")
        shutil.rmtree(store.parent)
    assert 15 <= steps < _MOST_STEPS


@parts
def test_restore_into_an_empty_directory(place: Path, part: int) -> None:
    scene = build_scene(place)
    target = place / "target"
    steps = 0
    for step in _steps(part):
        if not dies_at(step, lambda: _restore(scene, target)):
            break
        steps += 1
        check_live(target, {}, _newest(scene)) if target.exists() else None
        _restore(scene, target)
        assert tree(target) == _newest(scene)
        check_tidy(target)
        shutil.rmtree(target)
    check_store(scene, place, scene.older)
    assert 20 <= steps < _MOST_STEPS


def _restore(scene: Scene, target: Path, exact: bool = False) -> None:
    cachekeeper.restore("drafter", cache_dir=target, store=scene.store, exact=exact)


def _newest(scene: Scene) -> dict[str, bytes]:
    return list(scene.older.values())[-1]


@parts
@pytest.mark.parametrize("exact", [False, True], ids=["merge", "exact"])
def test_restore_over_a_worn_cache(place: Path, part: int, exact: bool) -> None:
    scene = build_scene(place)
    right, target = _newest(scene), place / "target"
    first = place / "first"
    cachekeeper.restore("drafter", cache_dir=first, store=scene.store)
    steps = 0
    for step in _steps(part):
        make_worn_cache(target, first)
        before = tree(target)
        if not dies_at(step, _restoring(scene, target, exact)):
            break
        steps += 1
        check_live(target, before, right, extras_stay=not exact)
        _restore(scene, target, exact)
        extras = {} if exact else {path: data for path, data in before.items() if path not in right}
        assert tree(target) == right | extras
        check_nothing_lost(target, before)
        check_tidy(target)
        shutil.rmtree(target)
    assert 20 <= steps < _MOST_STEPS


def _restoring(scene: Scene, target: Path, exact: bool) -> Work:
    return lambda: _restore(scene, target, exact)
