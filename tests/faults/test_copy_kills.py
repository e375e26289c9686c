"""Copies that are killed at every step, or run beside each other: nothing is half there, and the next goes on."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.repository import open_repository
from cachekeeper.testing import make_triton_entry

from . import children
from .children import Work, dies_at, duration, killed_after
from .scene import Scene, build_scene, check_objects, objects_in, tree

_PARTS = 3
_MOST_STEPS = 2_000
_KILLS = 40
_SLOWEST = 1.2


def _copying(scene: Scene, target: Path, *references: str) -> Work:
    return lambda: cachekeeper.copy(scene.store, target, references)


def _check_part(scene: Scene, target: Path) -> None:
    """What is in a half copied store is whole, and its names point to what is there."""
    if not (target / "format.json").exists():
        return
    check_objects(target)
    repository = open_repository(target)
    there = {snapshot.id for snapshot in repository.snapshots().snapshots}
    assert there <= set(scene.older)
    if there:
        result = cachekeeper.verify(every=True, store=target)
        assert result.ok, result.damaged
    assert set(repository.names().values()) <= there
    moves, all_moves = repository.history("drafter"), open_repository(scene.store).history("drafter")
    assert moves == all_moves[: len(moves)]


def _check_whole(scene: Scene, target: Path, place: Path) -> None:
    assert objects_in(target) == objects_in(scene.store)
    for identifier, right in scene.older.items():
        cachekeeper.restore(identifier, cache_dir=place / "back", store=target)
        assert tree(place / "back") == right
        shutil.rmtree(place / "back")


@pytest.mark.parametrize("part", range(_PARTS))
def test_killed_at_every_step(place: Path, part: int) -> None:
    scene = build_scene(place, generations=3)
    steps = 0
    for step in itertools.count(1 + part, _PARTS):
        target = place / "new" / "target"
        if not dies_at(step, _copying(scene, target)):
            break
        steps += 1
        _check_part(scene, target)
        before = objects_in(target) if target.exists() else {}
        written = cachekeeper.copy(scene.store, target)
        assert written.packs == 3 - sum(path.startswith("packs/") for path in before)
        assert len(written.copied) == 3 - sum(path.startswith("snapshots/") for path in before)
        _check_whole(scene, target, place)
        assert cachekeeper.copy(scene.store, target).bytes == 0
        shutil.rmtree(target.parent)
    _check_whole(scene, target, place)
    assert 10 <= steps < _MOST_STEPS


def test_killed_at_every_step_of_an_increment(place: Path) -> None:
    scene = build_scene(place, generations=3)
    first, second, _ = scene.older
    base = place / "base"
    cachekeeper.copy(scene.store, base, [first, second])
    kept = objects_in(base)
    steps = 0
    for step in itertools.count(1):
        target = place / "target"
        shutil.copytree(base, target)
        died = dies_at(step, _copying(scene, target))
        assert kept.items() <= objects_in(target).items()
        _check_part(scene, target)
        if died:
            cachekeeper.copy(scene.store, target)
        _check_whole(scene, target, place)
        shutil.rmtree(target)
        if not died:
            break
        steps += 1
    assert 10 <= steps < _MOST_STEPS


def test_killed_at_random_moments(place: Path) -> None:
    scene = build_scene(place, generations=3)
    longest = duration(_copying(scene, place / "timed")) * _SLOWEST
    moments = random.Random(1)
    killed = 0
    for number in range(_KILLS):
        target = place / f"target-{number}"
        for _ in range(1 + number % 3):
            killed += killed_after(moments.uniform(0, longest), _copying(scene, target))
            _check_part(scene, target)
        cachekeeper.copy(scene.store, target)
        assert objects_in(target) == objects_in(scene.store)
        shutil.rmtree(target)
    assert killed > _KILLS / 4


@pytest.mark.parametrize("number", [2, 6])
def test_copies_of_one_store_at_once(place: Path, number: int) -> None:
    """Every object once, and every move of the name once, in order."""
    scene = build_scene(place, generations=6)
    for _ in range(3):
        target = place / "target"
        for pid in [children.start(_copying(scene, target)) for _ in range(number)]:
            assert children.finish(pid) == 0
        _check_whole(scene, target, place)
        shutil.rmtree(target)


def test_a_name_is_moved_once_by_two_who_ask_for_it(place: Path) -> None:
    scene = build_scene(place, generations=2)
    for pid in [children.start(_copying(scene, place / "target", "drafter")) for _ in range(6)]:
        assert children.finish(pid) == 0
    [move] = open_repository(place / "target").history("drafter")
    assert move.snapshot == list(scene.older)[-1]


def test_copies_of_two_stores_into_one(place: Path) -> None:
    """Each move of both is there once at the most, and the name points to the last of one of them."""
    scenes = [build_scene(place / name, generations=3) for name in ("one", "two")]
    target = place / "target"
    for pid in [children.start(_copying(scene, target)) for scene in scenes for _ in range(2)]:
        assert children.finish(pid) == 0
    result = cachekeeper.verify(every=True, store=target)
    assert result.ok and set(result.snapshots) == {*scenes[0].older, *scenes[1].older}
    moves = [move.snapshot for move in open_repository(target).history("drafter")]
    assert len(moves) == len(set(moves))
    assert moves[-1] in {list(scene.older)[-1] for scene in scenes}
    before = objects_in(target)
    for scene in scenes:
        cachekeeper.copy(scene.store, target)
    after = open_repository(target).history("drafter")
    assert [move.when for move in after] == sorted(move.when for move in after)
    assert before.keys() - {"names"} <= objects_in(target).keys()


def test_a_copy_while_snapshots_are_saved(place: Path) -> None:
    """What is seen of a store that grows is whole: no name or manifest without what it needs."""
    scene = build_scene(place, generations=1)

    def save_more() -> None:
        for seed in range(12):
            make_triton_entry(scene.cache / "triton" / "0", seed=60_000 + seed)
            cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=scene.store, wait=0)

    pid = children.start(save_more)
    target = place / "target"
    copies = [cachekeeper.copy(scene.store, target) for _ in range(10)]
    assert children.finish(pid) == 0
    copies.append(cachekeeper.copy(scene.store, target))
    assert all(result.ok for result in copies), [result.damaged for result in copies]
    assert objects_in(target) == objects_in(scene.store)
