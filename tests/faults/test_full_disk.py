"""Disks that are full, out of inodes, read-only or noexec, on small filesystems mounted for the test."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import preflight
from cachekeeper.errors import CachekeeperError, LocalDiskError, StoreError

from .scene import (
    Scene,
    build_scene,
    check_live,
    check_nothing_lost,
    check_objects,
    check_store,
    check_tidy,
    copy_cache,
    files_in,
    make_worn_cache,
    tree,
)

Mount = Callable[[str], Path]
Remount = Callable[[Path, str], None]


def _fill(directory: Path, leave: int = 0) -> Path:
    """Take all space of a filesystem but `leave` bytes."""
    ballast = directory / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        file.truncate(max(0, file.tell() - leave))
    return ballast


def _big_entry(cache: Path, size: int = 600_000, seed: int = 0) -> None:
    (cache / "zz").mkdir(exist_ok=True)
    (cache / "zz" / "cbig.bin").write_bytes(random.Random(seed).randbytes(size))


@pytest.mark.parametrize("leave", [0, 4096, 8192, 65536, 300_000, 605_000])
def test_a_snapshot_into_a_full_store(place: Path, mount: Mount, leave: int) -> None:
    scene = build_scene(place).copy(mount("size=2m,mode=755"))
    _big_entry(scene.cache)
    ballast = _fill(scene.store.parent, leave)
    with pytest.raises(LocalDiskError) as caught:
        cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=scene.store, wait=0)
    assert caught.value.exit_code == 8
    check_store(scene, place, scene.older)
    check_objects(scene.store)
    assert not list(scene.store.rglob(".tmp-*")), "a temporary file is left on a full disk"
    ballast.unlink()
    cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=scene.store, wait=0)
    cachekeeper.restore("drafter", cache_dir=place / "again", store=scene.store)
    assert tree(place / "again") == tree(scene.cache)


def test_a_store_without_inodes(place: Path, mount: Mount) -> None:
    scene = build_scene(place).copy(mount("size=2m,nr_inodes=20"))
    for number in range(40):
        try:
            (scene.store.parent / f"file-{number}").touch()
        except OSError:
            break
    with pytest.raises(LocalDiskError):
        cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=scene.store, wait=0)
    check_store(scene, place, scene.older)


def test_a_new_store_on_a_full_disk(place: Path, mount: Mount) -> None:
    scene = build_scene(place, generations=0)
    root = mount("size=200k")
    ballast = _fill(root)
    with pytest.raises(LocalDiskError):
        cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=root / "store", wait=0)
    ballast.unlink()
    cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=root / "store", wait=0)
    assert cachekeeper.verify(every=True, store=root / "store").ok


@pytest.mark.parametrize("options", ["size=1500k", "size=8m,nr_inodes=25"], ids=["bytes", "inodes"])
def test_a_restore_that_does_not_fit_is_refused_before_the_first_byte(place: Path, mount: Mount, options: str) -> None:
    scene = build_scene(place)
    target = mount(options) / "target"
    (target / "fxgraph").mkdir(parents=True)
    (target / "fxgraph" / "mine").write_bytes(b"mine")
    if "nr_inodes" not in options:
        _fill(target.parent, leave=1 << 20)
    before = files_in(target.parent)
    with pytest.raises(LocalDiskError, match="not enough") as caught:
        cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
    assert caught.value.exit_code == 8
    assert files_in(target.parent) == before
    assert not (target / ".cachekeeper").exists()


_LEAVE = [0, 4096, 12_288, 40_960, 61_440, 81_920, 102_400, 122_880]


@pytest.mark.parametrize("exact", [False, True], ids=["merge", "exact"])
@pytest.mark.parametrize("leave", _LEAVE)
def test_a_disk_that_fills_up_midway(
    place: Path, mount: Mount, monkeypatch: pytest.MonkeyPatch, leave: int, exact: bool
) -> None:
    """Another process takes the space between the look at it and the writing."""
    scene = build_scene(place)
    root = mount("size=4m,mode=755")
    first, target = place / "first", root / "target"
    cachekeeper.restore("drafter", cache_dir=first, store=scene.store)
    make_worn_cache(target, first)
    before, right = tree(target), list(scene.older.values())[-1]
    _fail_midway(scene, target, monkeypatch, leave, exact)
    check_live(target, before, right, extras_stay=not exact)
    (root / "ballast").unlink()
    cachekeeper.restore("drafter", cache_dir=target, store=scene.store, exact=exact)
    extras = {} if exact else {path: data for path, data in before.items() if path not in right}
    assert tree(target) == right | extras
    check_nothing_lost(target, before)
    check_tidy(target)


def _fail_midway(scene: Scene, target: Path, monkeypatch: pytest.MonkeyPatch, leave: int, exact: bool) -> None:
    real = preflight.check

    def check_and_fill(*args: object, **kwargs: object) -> None:
        real(*args, **kwargs)  # type: ignore[arg-type]
        _fill(target.parent, leave)

    with monkeypatch.context() as patch:
        patch.setattr(preflight, "check", check_and_fill)
        try:
            cachekeeper.restore("drafter", cache_dir=target, store=scene.store, exact=exact)
        except LocalDiskError as error:
            assert "No space left" in str(error)
        else:
            assert leave >= _LEAVE[-2], "the disk did not fill up"


def test_inodes_that_run_out_at_every_step(place: Path, mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = build_scene(place)
    root = mount("size=8m,nr_inodes=400,mode=755")
    first = place / "first"
    cachekeeper.restore("drafter", cache_dir=first, store=scene.store)
    for free in range(100):
        if _restored_with_inodes(scene, first, root / f"target-{free}", monkeypatch, free):
            break
    assert free > 20


def _restored_with_inodes(scene: Scene, first: Path, target: Path, monkeypatch: pytest.MonkeyPatch, free: int) -> bool:
    """Restore with so many inodes left; False where they ran out. Whatever happened, nothing is lost or mixed."""
    make_worn_cache(target, first)
    before, right = tree(target), list(scene.older.values())[-1]
    with monkeypatch.context() as patch:
        patch.setattr(preflight, "check", lambda *_, **__: _take_inodes(target.parent, free))
        try:
            cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
            done = True
        except LocalDiskError as error:
            assert "No space left" in str(error)
            done = False
    check_live(target, before, right)
    for ballast in target.parent.glob("ballast-*"):
        ballast.unlink()
    cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
    assert right.items() <= tree(target).items()
    check_nothing_lost(target, before)
    check_tidy(target)
    shutil.rmtree(target)
    return done


def _take_inodes(root: Path, leave: int) -> None:
    for number in range(os.statvfs(root).f_favail - leave):
        (root / f"ballast-{number}").touch()


def test_a_noexec_target_is_refused(place: Path, mount: Mount) -> None:
    scene = build_scene(place)
    root = mount("size=8m,noexec")
    with pytest.raises(LocalDiskError, match="noexec"):
        cachekeeper.restore("drafter", cache_dir=root / "target", store=scene.store)
    assert files_in(root) == {}
    cachekeeper.restore("drafter", cache_dir=root / "kernels", store=scene.store, only=["triton", "fxgraph"])


def test_a_store_mounted_read_only(place: Path, mount: Mount, remount: Remount) -> None:
    root = mount("size=8m,mode=755")
    scene = build_scene(place).copy(root)
    remount(root, "ro")
    check_store(scene, place, scene.older)
    with pytest.raises(StoreError) as caught:
        cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=scene.store, wait=0)
    assert caught.value.exit_code == 6 and "ead-only" in str(caught.value)
    with pytest.raises(CachekeeperError):
        cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=root / "new", wait=0)


def test_a_target_mounted_read_only(place: Path, mount: Mount, remount: Remount) -> None:
    scene = build_scene(place)
    root = mount("size=8m,mode=755")
    copy_cache(scene.cache, root / "target")
    remount(root, "ro")
    for target in (root / "target", root / "new"):
        with pytest.raises(LocalDiskError) as caught:
            cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
        assert "ead-only" in str(caught.value)
    cachekeeper.snapshot("other", cache_dir=root / "target", store=scene.store, wait=0)
    assert cachekeeper.verify(every=True, store=scene.store).ok
