"""Another user, in a forked child: what may not be read or written is said, and nothing is half done."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import ownership
from cachekeeper.disk import exchange, open_directory
from cachekeeper.errors import CachekeeperError, LocalDiskError, StoreError, UnsafePath
from cachekeeper.testing import make_cache, make_triton_entry

from . import children
from .scene import Scene, build_scene, files_in, tree

_SOMEBODY = 12345
_CLONE_NEWUSER, _PR_SET_DUMPABLE = 0x10000000, 4

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def scene(place: Path) -> Scene:
    """A scene that everybody may read."""
    scene = build_scene(place)
    _open_up(place)
    return scene


def _open_up(place: Path) -> None:
    place.chmod(0o755)
    for where, _, names in os.walk(place):
        Path(where).chmod(0o755)
        for name in names:
            Path(where, name).chmod(0o644)


def _as_somebody(work: Callable[[], object], home: str = "/nonexistent") -> None:
    """Do `work` as another user, who has no home that can be used."""

    def change_and_work() -> None:
        os.setgroups([])
        os.setgid(_SOMEBODY)
        os.setuid(_SOMEBODY)
        os.environ.update(HOME=home, XDG_CACHE_HOME=f"{home}/cache", XDG_DATA_HOME=f"{home}/data")
        work()

    assert children.run(change_and_work) == 0


def _refuses(kind: type[CachekeeperError], work: Callable[[], object], *words: str) -> Callable[[], None]:
    def check() -> None:
        with pytest.raises(kind) as caught:
            work()
        for word in words:
            assert word in str(caught.value), f"{word} is not in: {caught.value}"

    return check


def _restore(scene: Scene, target: Path, **options: bool) -> Callable[[], object]:
    return lambda: cachekeeper.restore("drafter", cache_dir=target, store=scene.store, **options)


def _snapshot(scene: Scene, cache: Path | None = None) -> Callable[[], object]:
    return lambda: cachekeeper.snapshot("drafter", cache_dir=cache or scene.cache, store=scene.store, wait=0)


def test_a_store_that_may_be_read_only(scene: Scene, place: Path) -> None:
    mine = place / "mine"
    mine.mkdir()
    os.chown(mine, _SOMEBODY, _SOMEBODY)
    _as_somebody(_restore(scene, mine / "target"))
    assert tree(mine / "target") == list(scene.older.values())[-1]
    assert {path.stat().st_uid for path in (mine / "target").rglob("*")} == {_SOMEBODY}
    _as_somebody(_refuses(StoreError, _snapshot(scene), "denied"))
    assert cachekeeper.verify(every=True, store=scene.store).ok


@pytest.mark.parametrize("where", ["", "packs", "snapshots", "names", "format.json"])
def test_a_store_that_may_not_be_read(scene: Scene, place: Path, where: str) -> None:
    (scene.store / where).chmod(0o000)
    mine = place / "mine"
    mine.mkdir()
    os.chown(mine, _SOMEBODY, _SOMEBODY)
    for work in (_restore(scene, mine / "target"), _snapshot(scene), lambda: _verify_all(scene)):
        _as_somebody(_refuses(StoreError, work, "denied"))
    assert files_in(mine) == {}


def _verify_all(scene: Scene) -> None:
    cachekeeper.verify(every=True, store=scene.store)


def test_a_manifest_that_may_not_be_read(scene: Scene, place: Path) -> None:
    """One unreadable snapshot is named; the others are listed and checked."""
    bad, good = scene.older
    (scene.store / "snapshots" / f"{bad}.json.zst").chmod(0o000)

    def check() -> None:
        listed = cachekeeper.ls(store=scene.store)
        assert [row.snapshot.id for row in listed.rows] == [good] and len(listed.unreadable) == 1
        result = cachekeeper.verify(every=True, store=scene.store)
        assert not result.ok and result.snapshots == (good,)

    _as_somebody(check)


@pytest.mark.parametrize("options", [{}, {"exact": True}, {"repair": True}, {"dry_run": True}])
def test_a_target_of_somebody_else(scene: Scene, place: Path, options: dict[str, bool]) -> None:
    target = make_cache(place / "target", seed=9, kernels=1, graphs=1)
    _open_up(place)
    before = files_in(target)
    if options == {"dry_run": True}:
        _as_somebody(_restore(scene, target, **options))
    else:
        _as_somebody(_refuses(LocalDiskError, _restore(scene, target, **options), "uid"))
    assert files_in(target) == before and not (target / ".cachekeeper").exists()


def test_a_directory_inside_a_target_of_somebody_else(scene: Scene, place: Path) -> None:
    target = make_cache(place / "target", seed=9, kernels=1, graphs=1)
    _open_up(place)
    os.chown(target, _SOMEBODY, _SOMEBODY)
    before = tree(target)
    _as_somebody(_refuses(LocalDiskError, _restore(scene, target), "denied"))
    assert before.items() <= tree(target).items()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_target_that_cannot_be_reached(scene: Scene, place: Path, dry_run: bool) -> None:
    hidden = place / "hidden"
    hidden.mkdir(mode=0o700)
    _as_somebody(_refuses(LocalDiskError, _restore(scene, hidden / "target", dry_run=dry_run), "denied"))
    _as_somebody(_refuses(CachekeeperError, _snapshot(scene, hidden / "cache")))
    _as_somebody(_refuses(CachekeeperError, lambda: cachekeeper.verify(directory=hidden / "cache")))
    _as_somebody(_refuses(CachekeeperError, lambda: cachekeeper.verify(live=hidden / "cache", store=scene.store)))
    assert list(hidden.iterdir()) == []


def test_a_home_that_cannot_be_reached(scene: Scene, place: Path) -> None:
    """As in a container that runs as another user with HOME=/root."""
    hidden = place / "hidden"
    hidden.mkdir(mode=0o700)
    empty = place / "empty"
    empty.mkdir(mode=0o755)
    work = _refuses(CachekeeperError, _snapshot(scene, empty), "nothing to save")
    _as_somebody(work, home=str(hidden / "home"))
    mine = place / "mine"
    mine.mkdir()
    os.chown(mine, _SOMEBODY, _SOMEBODY)
    _as_somebody(_restore(scene, mine / "target"), home=str(hidden / "home"))
    _as_somebody(_refuses(StoreError, lambda: cachekeeper.ls(), "denied"), home=str(hidden / "home"))


@pytest.fixture
def shared(scene: Scene, place: Path) -> Scene:
    """A store that everybody may write to."""
    for where, directories, names in os.walk(scene.store):
        for name in [".", *directories, *names]:
            os.chown(Path(where, name), _SOMEBODY, _SOMEBODY)
    return scene


def test_files_that_may_not_be_read_are_all_listed(shared: Scene, place: Path) -> None:
    cache = make_cache(place / "cache2", seed=9, kernels=2, graphs=12)
    _open_up(place)
    locked = sorted(str(path.relative_to(cache)) for path in cache.rglob("*.so"))
    locked += sorted(str(path.relative_to(cache)) for path in cache.rglob("*.cpp"))
    for path in locked:
        (cache / path).chmod(0o000)
    before = sorted(shared.store.glob("snapshots/*"))
    _as_somebody(_refuses(LocalDiskError, _snapshot(shared, cache), *locked))
    assert sorted(shared.store.glob("snapshots/*")) == before
    assert not list(shared.store.glob("packs/.tmp*"))


def test_directories_that_may_not_be_read_are_listed(shared: Scene, place: Path) -> None:
    cache = make_cache(place / "cache2", seed=9, kernels=2, graphs=2)
    _open_up(place)
    kernels = sorted((cache / "triton" / "0").iterdir())
    for path in (*kernels, cache / "aotautograd"):
        path.chmod(0o000)
    before = sorted(shared.store.glob("snapshots/*"))
    words = [*(path.name for path in kernels), "aotautograd"]
    _as_somebody(_refuses(LocalDiskError, _snapshot(shared, cache), *words))
    assert sorted(shared.store.glob("snapshots/*")) == before


def test_a_directory_that_may_be_listed_and_not_entered(shared: Scene, place: Path) -> None:
    """Mode r--: names can be seen, and nothing about them."""
    cache = make_cache(place / "cache2", seed=9, kernels=2, graphs=2)
    _open_up(place)
    (cache / "aotautograd").chmod(0o444)
    _as_somebody(_refuses(LocalDiskError, _snapshot(shared, cache), "aotautograd"))


def test_unreadable_files_in_a_target(scene: Scene, place: Path) -> None:
    """What is there and cannot be read is replaced like what is damaged; its owner's copy goes aside."""
    mine = place / "mine"
    mine.mkdir()
    os.chown(mine, _SOMEBODY, _SOMEBODY)
    _as_somebody(_restore(scene, mine / "target"))
    for path in sorted(tree(mine / "target"))[::3]:
        (mine / "target" / path).chmod(0o000)
    _as_somebody(_restore(scene, mine / "target", verify=True))
    assert tree(mine / "target") == list(scene.older.values())[-1]


def test_modes_survive_and_are_never_more_than_they_were(scene: Scene, place: Path) -> None:
    cache = make_cache(place / "cache2", seed=9, kernels=1, graphs=1)
    kernel = make_triton_entry(cache / "triton" / "0", seed=5)
    modes = {"ttir": 0o4755, "ptx": 0o666, "llir": 0o600, "cubin": 0o777}
    for suffix, mode in modes.items():
        next(kernel.glob(f"*.{suffix}")).chmod(mode)
    cachekeeper.snapshot("modes", cache_dir=cache, store=scene.store, wait=0)
    cachekeeper.restore("modes", cache_dir=place / "target", store=scene.store)
    found = {path.suffix[1:]: path.stat().st_mode & 0o7777 for path in (place / "target").rglob(f"{kernel.name}/*")}
    assert found["ttir"] == 0o755 and found["llir"] == 0o600
    assert not any(mode & 0o7002 for mode in found.values())


# Who could change what torch runs


@pytest.fixture
def mine(place: Path) -> Path:
    """A directory of somebody, in one of root's."""
    (place / "mine").mkdir()
    os.chown(place / "mine", _SOMEBODY, _SOMEBODY)
    return place / "mine"


def test_root_restores_into_nothing_of_another_user(scene: Scene, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsafePath, match="another user's"):
        cachekeeper.restore("drafter", cache_dir=mine / "target", store=scene.store)
    assert list(mine.iterdir()) == []
    monkeypatch.setenv("CACHEKEEPER_TRUSTED_OWNERS", str(_SOMEBODY))
    cachekeeper.restore("drafter", cache_dir=mine / "target", store=scene.store)
    assert tree(mine / "target") == list(scene.older.values())[-1]


def test_a_target_that_all_may_write_into(scene: Scene, mine: Path) -> None:
    (mine / "target").mkdir()
    (mine / "target").chmod(0o777)
    os.chown(mine / "target", _SOMEBODY, _SOMEBODY)
    _as_somebody(_refuses(UnsafePath, _restore(scene, mine / "target"), "every user may write into it"))
    assert list((mine / "target").iterdir()) == []


def test_a_parent_in_which_all_may_put_another_target(scene: Scene, place: Path) -> None:
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    _as_somebody(_refuses(UnsafePath, _restore(scene, place / "open/target"), f"chmod +t {place}/open"))
    assert list((place / "open").iterdir()) == []
    (place / "open").chmod(0o1777)
    _as_somebody(_restore(scene, place / "open/target"))
    assert tree(place / "open/target") == list(scene.older.values())[-1]


def test_a_cache_of_another_user_is_not_saved(shared: Scene, mine: Path) -> None:
    cache = make_cache(mine / "theirs", seed=9, kernels=1, graphs=1)
    os.chown(cache, _SOMEBODY + 1, -1)
    _as_somebody(_refuses(UnsafePath, _snapshot(shared, cache), f"uid {_SOMEBODY + 1}"))


def test_files_of_another_user_are_not_saved(shared: Scene, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As what is left of a directory that all could write into: it would be restored as code everywhere."""
    cache = make_cache(mine / "cache", seed=9, kernels=2, graphs=2)
    planted = [next(cache.glob("??/*.so")), next(cache.glob("triton/0/*/*.cubin"))]
    for path in (cache, *cache.rglob("*")):
        os.chown(path, _SOMEBODY + 1 if path in planted else _SOMEBODY, -1)
    before = sorted(shared.store.glob("snapshots/*"))
    facts = [f"{path.relative_to(cache)}  belongs to uid {_SOMEBODY + 1}" for path in planted]
    _as_somebody(_refuses(UnsafePath, _snapshot(shared, cache), "2 files of the cache", *facts))
    assert sorted(shared.store.glob("snapshots/*")) == before
    monkeypatch.setenv("CACHEKEEPER_TRUSTED_OWNERS", str(_SOMEBODY + 1))
    _as_somebody(_snapshot(shared, cache))
    assert len(sorted(shared.store.glob("snapshots/*"))) == len(before) + 1


def test_whom_one_trusts_no_more_is_looked_at_again(
    shared: Scene, mine: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of a cache says nothing of files that were taken while their owner was trusted."""
    cache = make_cache(mine / "cache", seed=9, kernels=1, graphs=1)
    for path in (cache, *cache.rglob("*")):
        os.chown(path, _SOMEBODY, -1)
    os.chown(next(cache.glob("??/*.so")), _SOMEBODY + 1, -1)
    monkeypatch.setattr("cachekeeper.seen._FRESH_NS", -(10**18))
    home = str(mine)
    monkeypatch.setenv("CACHEKEEPER_TRUSTED_OWNERS", str(_SOMEBODY + 1))
    _as_somebody(_snapshot(shared, cache), home=home)
    assert list((mine / "cache/cachekeeper/seen").iterdir())
    monkeypatch.delenv("CACHEKEEPER_TRUSTED_OWNERS")
    _as_somebody(_refuses(UnsafePath, _snapshot(shared, cache), f"uid {_SOMEBODY + 1}"), home=home)


def test_a_store_of_all_is_saved_to_and_the_note_says_what_that_means(shared: Scene, mine: Path) -> None:
    cache = make_cache(mine / "cache", seed=9, kernels=1, graphs=1)
    for path in (cache, *cache.rglob("*")):
        os.chown(path, _SOMEBODY, -1)
    (shared.store / "names").chmod(0o777)

    def check() -> None:
        result = cachekeeper.snapshot("drafter", cache_dir=cache, store=shared.store, wait=0)
        assert any("names is not safe" in note and "refused" in note for note in result.notes), result.notes

    _as_somebody(check)


def test_in_a_rootless_container(scene: Scene, mine: Path) -> None:
    """There `/` and all above the target belong to nobody whom the user namespace knows."""

    def check() -> None:
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_DUMPABLE, 1)  # who was root once may write to no file of its own below /proc
        if libc.unshare(_CLONE_NEWUSER) != 0:
            return  # this machine lets nobody make one
        Path("/proc/self/uid_map").write_text(f"0 {_SOMEBODY} 1")
        assert os.geteuid() == 0 and os.stat("/").st_uid == mine.parent.stat().st_uid != 0
        ownership.make(mine / "target", ownership.CACHE)
        with pytest.raises(UnsafePath):
            ownership.check(scene.cache, ownership.CACHE)

    _as_somebody(check)


def test_a_link_that_another_user_swaps_meanwhile(scene: Scene, place: Path) -> None:
    """Nothing is ever made where the link points to, nor in a directory of theirs that takes turns with it."""
    for name in ("victim", "common"):
        (place / name).mkdir()
    common, stop = place / "common", place / "stop"
    common.chmod(0o1777)  # as /tmp

    def swap() -> None:
        (common / "other").mkdir()
        (common / "way").symlink_to(place / "victim")
        with open_directory(common) as root:
            while not stop.exists():
                assert exchange("other", "way", root, root)

    swapping = children.start(lambda: _as_somebody(swap))
    try:
        while not (common / "way").is_symlink():
            time.sleep(0.001)
        for _ in range(500):
            with pytest.raises(LocalDiskError):
                ownership.make(common / "way/target", ownership.CACHE)
        with pytest.raises(LocalDiskError):
            cachekeeper.restore("drafter", cache_dir=common / "way/target", store=scene.store)
    finally:
        stop.touch()
        assert children.finish(swapping) == 0
    assert {path.name: list(path.iterdir()) for path in (place / "victim", *common.iterdir())} == {
        "victim": [],
        "way": [],
        "other": [],
    }
