"""Links that somebody planted in a cache directory: a restore writes nothing where they point to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import CachekeeperError

from .scene import Scene, copy_cache, files_in, simple_scene, tree


@pytest.fixture
def scene(place: Path) -> Scene:
    return simple_scene(place)[0]


@pytest.fixture
def elsewhere(place: Path) -> Path:
    """A directory that nothing may be written to."""
    directory = place / "elsewhere"
    (directory / "inside").mkdir(parents=True)
    (directory / "precious").write_bytes(b"precious")
    return directory


def _everything(directory: Path) -> set[tuple[str, float]]:
    found = [Path(where, name) for where, *names in os.walk(directory) for name in (*names[0], *names[1], ".")]
    return {(str(path), path.lstat().st_mtime_ns) for path in found}


@pytest.mark.parametrize("options", [{}, {"exact": True}, {"repair": True}], ids=["merge", "exact", "repair"])
@pytest.mark.parametrize(
    "where",
    ["fxgraph", "triton", "triton/0", "aotautograd", "cache", "kernel", "graph", ".cachekeeper/aside", "also", "locks"],
)
def test_a_directory_that_is_a_link(
    scene: Scene, place: Path, elsewhere: Path, where: str, options: dict[str, bool]
) -> None:
    target = place / "target"
    copy_cache(scene.cache, target)
    shutil.rmtree(next(target.glob("??/*.so")).parent)
    path = {"kernel": next((target / "triton/0").iterdir()), "graph": next((target / "fxgraph").iterdir())}.get(
        where, target / where
    )
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(elsewhere)
    next((target / "triton/0").glob("*/*.cubin")).write_bytes(b"") if where in ("also", "locks") else None
    before = _everything(elsewhere)
    try:
        cachekeeper.restore("drafter", cache_dir=target, store=scene.store, **options)
    except CachekeeperError:
        assert where.startswith(".cachekeeper")
    else:
        assert tree(target) == scene.now
    assert _everything(elsewhere) == before
    assert not os.access(elsewhere / "aside", os.F_OK)


def test_aside_is_a_link_and_something_must_go_there(scene: Scene, place: Path, elsewhere: Path) -> None:
    target = place / "target"
    copy_cache(scene.cache, target)
    (target / ".cachekeeper").mkdir()
    (target / ".cachekeeper" / "aside").symlink_to(elsewhere)
    cubin = next((target / "triton/0").glob("*/*.cubin"))
    cubin.write_bytes(b"the only copy")
    before = _everything(elsewhere)
    with pytest.raises(CachekeeperError):
        cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
    assert _everything(elsewhere) == before
    assert b"the only copy" in files_in(target).values()


@pytest.mark.parametrize("name", [".cachekeeper", ".cachekeeper/stage-1", ".cachekeeper/publishing-1"])
def test_the_workshop_is_a_link(scene: Scene, place: Path, elsewhere: Path, name: str) -> None:
    target = place / "target"
    (target / name).parent.mkdir(parents=True)
    (target / name).symlink_to(elsewhere)
    before = _everything(elsewhere)
    try:
        cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
    except CachekeeperError:
        assert name == ".cachekeeper"
        assert tree(target) == {}
    else:
        assert tree(target) == scene.now
    assert _everything(elsewhere) == before
    assert (elsewhere / "precious").read_bytes() == b"precious"


def test_the_workshop_is_a_file(scene: Scene, place: Path) -> None:
    target = place / "target"
    target.mkdir()
    (target / ".cachekeeper").write_bytes(b"mine")
    with pytest.raises(CachekeeperError):
        cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
    assert files_in(target) == {".cachekeeper": b"mine"}


@pytest.mark.parametrize("kind", ["link", "directory"])
def test_the_marker_is_in_the_way(scene: Scene, place: Path, elsewhere: Path, kind: str) -> None:
    target = place / "target"
    (target / ".cachekeeper").mkdir(parents=True)
    marker = target / ".cachekeeper" / "restored.json"
    marker.symlink_to(elsewhere / "precious") if kind == "link" else marker.mkdir()
    before = _everything(elsewhere)
    try:
        cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
    except CachekeeperError:
        assert kind == "directory"
    assert tree(target) == scene.now
    assert _everything(elsewhere) == before


def test_a_file_that_is_a_link_is_replaced_and_not_written_through(scene: Scene, place: Path, elsewhere: Path) -> None:
    target = place / "target"
    copy_cache(scene.cache, target)
    for path in scene.now:
        (target / path).unlink()
        (target / path).symlink_to(elsewhere / "precious")
    before = _everything(elsewhere)
    cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
    assert tree(target) == scene.now
    assert _everything(elsewhere) == before


def test_hard_links_keep_their_other_name(scene: Scene, place: Path, elsewhere: Path) -> None:
    target = place / "target"
    copy_cache(scene.cache, target)
    for path in scene.now:
        (target / path).unlink()
        os.link(elsewhere / "precious", target / path)
    cachekeeper.restore("drafter", cache_dir=target, store=scene.store)
    assert tree(target) == scene.now
    assert (elsewhere / "precious").read_bytes() == b"precious"


@pytest.mark.parametrize("where", ["packs", "snapshots", "names", "names/drafter"])
def test_links_inside_a_store(scene: Scene, place: Path, elsewhere: Path, where: str) -> None:
    """A store whose directories were moved elsewhere and linked goes on working: it is the owner's own place."""
    shutil.move(scene.store / where, place / "moved")
    (scene.store / where).symlink_to(place / "moved")
    cachekeeper.restore("drafter", cache_dir=place / "target", store=scene.store)
    assert tree(place / "target") == scene.now
    assert cachekeeper.verify(every=True, store=scene.store).ok
