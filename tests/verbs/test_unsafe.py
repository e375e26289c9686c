"""Whatever changes a cache refuses one that others could change, and a store that they could put things into."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import UnsafePath
from cachekeeper.testing import make_cache
from cachekeeper.verbs.clear import bring_back, empty_trash

from .conftest import Machine, kernels, settle

OTHER = 12345
Work = Callable[[Path, Path], object]


CHANGES: dict[str, Work] = {
    "restore": lambda cache, store: cachekeeper.restore("drafter", cache_dir=cache, store=store),
    "watch": lambda cache, store: cachekeeper.watch("drafter", cache_dir=cache, store=store, once=True),
    "verify-live": lambda cache, store: cachekeeper.verify("drafter", live=cache, store=store, repair=True),
    "verify-dir": lambda cache, store: cachekeeper.verify(directory=cache, repair=True),
    "clear": lambda cache, store: cachekeeper.clear(cache),
    "clear-undo": lambda cache, store: bring_back(cache),
    "empty-trash": lambda cache, store: empty_trash(cache),
    "move": lambda cache, store: cachekeeper.move(cache, cache.parent / "elsewhere"),
    "move-to": lambda cache, store: cachekeeper.move(cache.parent / "another", cache),
}
FROM_STORE = ("restore", "watch", "verify-live")


@pytest.fixture
def scene(machine: Machine, monkeypatch: pytest.MonkeyPatch, cache: Path, store: Path) -> Path:
    """A cache that was saved, has lost something, has something in quarantine and in its trash, and another one."""
    monkeypatch.setattr("cachekeeper.verbs.watch.fingerprint", lambda **_: machine.fingerprint)
    monkeypatch.setattr("cachekeeper.verbs.verify.fingerprint", lambda **_: machine.fingerprint)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    cachekeeper.clear(cache)
    cachekeeper.restore("drafter", cache_dir=cache, store=store)
    next(kernels(cache)[0].glob("*.cubin")).write_bytes(b"")
    settle(cache)
    cachekeeper.verify("drafter", live=cache, store=store, repair=True)
    next(kernels(cache)[0].glob("*.cubin")).write_bytes(b"")
    shutil.rmtree(kernels(cache)[1])
    make_cache(cache.parent / "another", seed=7, kernels=1, graphs=1)
    settle(cache)
    return cache


def everything(directory: Path) -> dict[str, tuple[int, int]]:
    """What is there, but for the lease that a restore takes of a store while it works."""
    paths = [path for path in [directory, *directory.rglob("*")] if path.name != "leases"]
    return {str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in paths}


def refused(work: Work, cache: Path, store: Path, why: str) -> None:
    before = everything(cache.parent)
    with pytest.raises(UnsafePath, match=why) as caught:
        work(cache, store)
    assert caught.value.exit_code == 8 and everything(cache.parent) == before


@pytest.mark.parametrize("change", CHANGES)
def test_a_cache_that_every_user_may_write_into(scene: Path, store: Path, change: str):
    scene.chmod(0o777)
    refused(CHANGES[change], scene, store, "every user may write into it")
    scene.chmod(0o700)
    CHANGES[change](scene, store)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_cache_of_another_user(scene: Path, store: Path, change: str):
    os.chown(scene, OTHER, -1)
    refused(CHANGES[change], scene, store, "another user")


@pytest.mark.parametrize("change", FROM_STORE)
def test_a_store_that_every_user_may_write_into(scene: Path, store: Path, change: str):
    (store / "packs").chmod(0o777)
    refused(CHANGES[change], scene, store, "the store .* is not safe: every user may write into it")
    (store / "packs").chmod(0o700)
    CHANGES[change](scene, store)


@pytest.mark.parametrize("change", FROM_STORE)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_store_of_another_user(scene: Path, store: Path, change: str):
    os.chown(store / "snapshots", OTHER, -1)
    refused(CHANGES[change], scene, store, "the store .* is not safe: it is another user's")


def test_looking_is_not_refused(scene: Path, store: Path):
    scene.chmod(0o777)
    (store / "packs").chmod(0o777)
    assert not cachekeeper.verify("drafter", live=scene, store=store).ok
    assert not cachekeeper.verify(directory=scene).ok
    assert cachekeeper.status(scene, store=store).state == "damaged"
