"""`verify --repair` killed, unable to write, or led by planted links: nothing is lost, and the next one finishes."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import CachekeeperError, LocalDiskError
from cachekeeper.testing import make_cache, make_triton_entry
from cachekeeper.verbs.verify import judging

from .children import dies_at
from .scene import (
    WORKSHOP,
    Scene,
    Tree,
    check_live,
    check_nothing_lost,
    copy_cache,
    files_in,
    make_worn_cache,
    simple_scene,
    tree,
)

_PARTS = 3
_MOST_STEPS = 2_000


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is old, and the second of quiet after a death would only take time."""
    monkeypatch.setattr(judging, "_WAIT_SECONDS", 0)


def _worn(target: Path, right: Path) -> Path:
    """A cache with every damage, damaged strays among them, that nobody has written into for a while."""
    make_worn_cache(target, right)
    stray = make_triton_entry(target / "triton" / "0", seed=88_888)
    next(stray.glob("*.cubin")).write_bytes(b"")
    (target / "zz" / "x.best_config").write_bytes(b"{")
    for path in [target, *target.rglob("*")]:
        os.utime(path, (time.time() - 100,) * 2, follow_symlinks=False)
    return target


def _repair(scene: Scene, target: Path, alone: bool = False) -> None:
    where = {"directory": target} if alone else {"live": target}
    cachekeeper.verify(None if alone else "drafter", store=scene.store, repair=True, **where)


def _dropped(before: Tree) -> set[str]:
    return {path for path in before if path == "zz/x.best_config" or "/".join(path.split("/")[:3]) == _stray(before)}


def _stray(before: Tree) -> str:
    [empty] = [path for path, data in before.items() if path.endswith(".cubin") and not data]
    return empty.rpartition("/")[0]


@pytest.fixture
def scene(place: Path) -> Scene:
    """One with the kernels and the libraries that `make_worn_cache` wants."""
    store, cache = place / "store", make_cache(place / "cache", seed=1, kernels=4, graphs=3)
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    return Scene(store, cache, {saved.snapshot.id: tree(cache)}, tree(cache))


@pytest.mark.parametrize("part", range(_PARTS))
def test_killed_at_every_step(scene: Scene, place: Path, part: int) -> None:
    target, steps = place / "target", 0
    for step in itertools.count(1 + part, _PARTS):
        before = tree(_worn(target, scene.cache))
        if not dies_at(step, lambda: _repair(scene, target)):
            break
        steps += 1
        gone = _dropped(before)
        check_live(target, before, scene.now, extras_stay=False)
        assert before.keys() - scene.now.keys() - gone <= tree(target).keys()
        _check_evidence_first(target)
        _repair(scene, target)
        extras = {path: data for path, data in before.items() if path not in scene.now and path not in gone}
        assert tree(target) == scene.now | extras
        check_nothing_lost(target, before)
        assert {path.name for path in (target / WORKSHOP).iterdir()} <= {"quarantine"}
        shutil.rmtree(target)
    assert 20 <= steps < _MOST_STEPS


def _check_evidence_first(target: Path) -> None:
    """Whatever is in quarantine already, what it is there for is written down."""
    for mark in (target / WORKSHOP / "quarantine").glob("*"):
        if files_in(mark).keys() - {"evidence.json"}:
            assert json.loads((mark / "evidence.json").read_text())["files"]


def test_torn_kernels_only_ever_gain_files(scene: Scene, place: Path) -> None:
    """Killed at every step: what was there stays there, and no group lists a file that is not there yet."""
    target = place / "target"
    for step in itertools.count(1):
        lost = _torn(target, scene.cache)
        before = {path: path.stat().st_ino for path in target.rglob("*") if path.is_file()}
        died = dies_at(step, lambda: _repair(scene, target))
        assert {path: path.stat().st_ino for path in before} == before
        assert tree(target).items() <= scene.now.items()
        for kernel in {path.parent for path in lost if path.name.startswith("__grp__")}:
            names = {path.name for path in lost if path.parent == kernel}
            back = names & {path.name for path in kernel.iterdir()}
            assert back == names or not any(name.startswith("__grp__") for name in back)
        if not died:
            break
        _repair(scene, target)
        assert tree(target) == scene.now
        shutil.rmtree(target)
    assert tree(target) == scene.now and step > 10 and not (target / WORKSHOP).exists()


def _torn(target: Path, right: Path) -> list[Path]:
    """A cache of which a cleaner took a few files of each kernel; these files."""
    copy_cache(right, target)
    kernels = sorted((target / "triton" / "0").iterdir())
    wanted = [("*.cubin",), ("__grp__*",), ("__grp__*", "*.ptx", "*.ttir")]
    lost = [next(kernel.glob(name)) for kernel, names in zip(kernels, wanted, strict=False) for name in names]
    for path in lost:
        path.unlink()
    for path in [target, *target.rglob("*")]:
        os.utime(path, (time.time() - 100,) * 2, follow_symlinks=False)
    return lost


def test_killed_at_every_step_without_a_snapshot(scene: Scene, place: Path) -> None:
    target, steps = place / "target", 0
    for step in itertools.count(1):
        before = tree(_worn(target, scene.cache))
        if not dies_at(step, lambda: _repair(scene, target, alone=True)):
            break
        steps += 1
        assert tree(target).items() <= before.items()
        check_nothing_lost(target, before)
        _check_evidence_first(target)
        _repair(scene, target, alone=True)
        assert cachekeeper.verify(directory=target).ok
        check_nothing_lost(target, before)
        shutil.rmtree(target)
    assert 10 <= steps < _MOST_STEPS


@pytest.mark.parametrize("alone", [False, True], ids=["snapshot", "alone"])
def test_a_directory_that_cannot_be_written(
    scene: Scene, mount: Callable[[str], Path], remount: Callable[[Path, str], None], alone: bool
) -> None:
    target = mount("size=8m,mode=755") / "target"
    before = tree(_worn(target, scene.cache))
    remount(target.parent, "ro")
    assert not cachekeeper.verify("drafter", live=target, store=scene.store).ok
    with pytest.raises(LocalDiskError, match="mounted read-only") as caught:
        _repair(scene, target, alone)
    assert caught.value.exit_code == 8 and tree(target) == before


def test_a_read_only_directory_that_is_right_needs_no_writing(
    scene: Scene, mount: Callable[[str], Path], remount: Callable[[Path, str], None]
) -> None:
    target = mount("size=8m,mode=755") / "target"
    copy_cache(scene.cache, target)
    remount(target.parent, "ro")
    assert cachekeeper.verify("drafter", live=target, store=scene.store, repair=True).ok


@pytest.mark.parametrize(
    "where", ["fxgraph", "triton", "triton/0", "aotautograd", "cache", ".cachekeeper", ".cachekeeper/quarantine"]
)
def test_planted_links_are_not_followed(place: Path, where: str) -> None:
    scene, _ = simple_scene(place)
    target, elsewhere = place / "target", place / "elsewhere"
    copy_cache(scene.cache, target)
    (elsewhere / "inside").mkdir(parents=True)
    (elsewhere / "precious.so").write_bytes(b"")
    next(target.glob("??/*.so")).write_bytes(b"the only copy")
    shutil.rmtree(target / where, ignore_errors=True)
    (target / where).parent.mkdir(exist_ok=True)
    (target / where).symlink_to(elsewhere)
    before = {(str(path), path.lstat().st_mtime_ns) for path in [elsewhere, *elsewhere.rglob("*")]}
    try:
        _repair(scene, target)
    except CachekeeperError:
        assert where.startswith(".cachekeeper")
    else:
        assert tree(target) == scene.now
    assert {(str(path), path.lstat().st_mtime_ns) for path in [elsewhere, *elsewhere.rglob("*")]} == before
    assert b"the only copy" in files_in(target).values()
