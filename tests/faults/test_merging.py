"""Restores over directories in odd states: what is in the way goes aside, what is right stays, nothing is mixed."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import LocalDiskError
from cachekeeper.staging import Stage
from cachekeeper.testing import make_cache

from .scene import Scene, check_nothing_lost, check_tidy, copy_cache, files_in, simple_scene, tree


@pytest.fixture
def scene(place: Path) -> Scene:
    return simple_scene(place)[0]


@pytest.fixture
def target(scene: Scene, place: Path) -> Path:
    """A good copy of the cache, to be spoiled."""
    copy_cache(scene.cache, place / "target")
    return place / "target"


def _restore(scene: Scene, target: Path, **options: bool) -> cachekeeper.verbs.restore.RestoreResult:
    before = tree(target)
    result = cachekeeper.restore("drafter", cache_dir=target, store=scene.store, verify=True, **options)
    check_nothing_lost(target, before)
    check_tidy(target)
    return result


def _kernel(target: Path) -> Path:
    return sorted((target / "triton" / "0").iterdir())[0]


def _graph(target: Path) -> Path:
    return sorted(path for path in (target / "fxgraph").glob("*/f*/*") if not path.name.startswith("."))[0]


@pytest.mark.parametrize("exact", [False, True])
def test_an_extra_file_in_a_damaged_kernel(scene: Scene, target: Path, exact: bool) -> None:
    (_kernel(target) / "extra.json").write_bytes(b"{}")
    next(_kernel(target).glob("*.cubin")).write_bytes(b"")
    _restore(scene, target, exact=exact)
    assert tree(target) == scene.now


@pytest.mark.parametrize("exact", [False, True])
def test_an_extra_file_in_a_good_kernel(scene: Scene, target: Path, exact: bool) -> None:
    """Triton may add files to a kernel's directory: they stay with it."""
    (_kernel(target) / "extra.json").write_bytes(b"{}")
    _restore(scene, target, exact=exact)
    assert tree(target) == scene.now | {str((_kernel(target) / "extra.json").relative_to(target)): b"{}"}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("where", ["triton", "triton/0", "fxgraph", "aotautograd"])
def test_a_file_where_a_directory_belongs(scene: Scene, target: Path, where: str, exact: bool) -> None:
    shutil.rmtree(target / where)
    (target / where).write_bytes(b"in the way")
    _restore(scene, target, exact=exact)
    assert tree(target) == scene.now


@pytest.mark.parametrize("exact", [False, True])
def test_a_directory_where_a_file_belongs(scene: Scene, target: Path, exact: bool) -> None:
    graph = _graph(target)
    graph.unlink()
    graph.mkdir()
    (graph / "inside").write_bytes(b"in the way")
    _restore(scene, target, exact=exact)
    assert tree(target) == scene.now


@pytest.mark.parametrize("exact", [False, True])
def test_an_empty_directory_where_a_file_belongs(scene: Scene, target: Path, exact: bool) -> None:
    graph = _graph(target)
    graph.unlink()
    graph.mkdir()
    _restore(scene, target, exact=exact)
    assert tree(target) == scene.now


def test_a_file_where_a_kernel_belongs(scene: Scene, target: Path) -> None:
    kernel = _kernel(target)
    shutil.rmtree(kernel)
    kernel.write_bytes(b"in the way")
    _restore(scene, target)
    assert tree(target) == scene.now


def test_exact_moves_an_extra_kernel_as_a_whole(scene: Scene, target: Path) -> None:
    make_cache(target, seed=9, kernels=1, graphs=0)
    (extra,) = {path.name for path in (target / "triton/0").iterdir()} - {
        path.name for path in (scene.cache / "triton/0").iterdir()
    }
    result = _restore(scene, target, exact=True)
    assert result.aside is not None
    assert (result.aside / "triton/0" / extra).is_dir()
    assert not (target / "triton/0" / extra).exists(), "an empty directory is left where the kernel was"


@pytest.mark.parametrize("exact", [False, True])
def test_repair_leaves_what_was_just_mended(scene: Scene, target: Path, exact: bool) -> None:
    next(_kernel(target).glob("*.cubin")).write_bytes(b"")
    sorted(target.glob("??/*.best_config"))[0].write_bytes(b"{")
    _restore(scene, target, repair=True, exact=exact)
    assert tree(target) == scene.now


@pytest.mark.parametrize("exact", [False, True])
def test_repair_moves_a_damaged_extra_kernel_as_a_whole(scene: Scene, target: Path, exact: bool) -> None:
    make_cache(target, seed=9, kernels=1, graphs=0)
    (extra,) = {path.name for path in (target / "triton/0").iterdir()} - {
        path.name for path in (scene.cache / "triton/0").iterdir()
    }
    next((target / "triton/0" / extra).glob("*.cubin")).write_bytes(b"")
    (target / "cache" / "mine").write_bytes(b"{")
    _restore(scene, target, repair=True, exact=exact)
    assert not (target / "triton/0" / extra).exists()
    assert not (target / "cache" / "mine").exists()
    assert scene.now.items() <= tree(target).items()


def test_entries_inside_a_kernels_directory(place: Path) -> None:
    """A directory below a kernel's is an entry of its own: replacing the outer one must not take it away."""
    cache = make_cache(place / "cache", seed=3, kernels=3, graphs=1)
    inner = _kernel(cache) / "inner"
    inner.mkdir()
    (inner / "more.txt").write_bytes(b"more")
    cachekeeper.snapshot("drafter", cache_dir=cache, store=place / "store", wait=0)
    right = tree(cache)
    copy_cache(cache, place / "target")
    next(_kernel(place / "target").glob("*.cubin")).write_bytes(b"")
    cachekeeper.restore("drafter", cache_dir=place / "target", store=place / "store")
    assert right.items() <= tree(place / "target").items()


def test_restoring_twice_in_the_same_second(scene: Scene, target: Path) -> None:
    for number in range(5):
        before = tree(target)
        next(_kernel(target).glob("*.cubin")).write_bytes(b"wrong %d" % number)
        cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
        check_nothing_lost(target, before)
    found = [data for data in files_in(target).values() if data.startswith(b"wrong")]
    assert len(found) == 5


def test_what_was_replaced_survives_a_failure(scene: Scene, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails between the exchange of an entry and putting the old one aside."""
    next(_kernel(target).glob("*.cubin")).write_bytes(b"the only copy")
    before = tree(target)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "_put_aside", fail)
        with pytest.raises(LocalDiskError):
            cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
    check_nothing_lost(target, before)
    _restore(scene, target)
    assert tree(target) == scene.now


def test_kernels_of_two_devices(place: Path) -> None:
    cache = make_cache(place / "cache", seed=3, kernels=2, graphs=1, devices=2)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=place / "store", wait=0)
    cachekeeper.restore("drafter", cache_dir=place / "target", store=place / "store", verify=True)
    found = tree(place / "target")
    assert tree(cache).items() <= found.items()
    shutil.rmtree(place / "target" / "triton" / "1")
    cachekeeper.restore("drafter", cache_dir=place / "target", store=place / "store", verify=True, exact=True)
    assert tree(place / "target") == found


def test_a_second_exact_restore_changes_nothing(place: Path) -> None:
    cache = make_cache(place / "cache", seed=3, kernels=2, graphs=1, devices=2)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=place / "store", wait=0)
    for _ in range(2):
        result = cachekeeper.restore("drafter", cache_dir=place / "target", store=place / "store", exact=True)
    assert (result.new, result.replaced, result.moved_aside) == (0, 0, 0)
