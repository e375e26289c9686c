"""Several at once: snapshots, restores, readers, and a job that goes on writing."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import cachekeeper
from cachekeeper import reading
from cachekeeper.disk import LiveFile, exchange
from cachekeeper.disk import open_directory as open_root
from cachekeeper.livecache import LiveCache
from cachekeeper.repository import open_repository
from cachekeeper.testing import make_cache, make_triton_entry

from . import children
from .scene import (
    Scene,
    Tree,
    build_scene,
    check_nothing_lost,
    check_objects,
    check_tidy,
    copy_cache,
    entry_of,
    kernels,
    make_worn_cache,
    simple_scene,
    tree,
)


def _all_at_once(works: list[Callable[[], object]]) -> None:
    for pid in [children.start(work) for work in works]:
        assert children.finish(pid) == 0


@contextmanager
def _meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Do `work` over and over in a child, until the block ends."""

    def forever() -> None:
        while True:
            work()

    pid = children.start(forever)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        assert children.finish(pid) == -signal.SIGKILL, "the other process failed"


def _snapshot(scene: Scene) -> Callable[[], object]:
    return lambda: cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=scene.store, wait=0)


@pytest.mark.parametrize("number", [2, 8])
@pytest.mark.parametrize("new_store", [True, False])
def test_snapshots_of_one_directory_at_once(place: Path, number: int, new_store: bool) -> None:
    scene = build_scene(place, generations=0 if new_store else 2)
    _all_at_once([_snapshot(scene)] * number)
    result = cachekeeper.verify(every=True, store=scene.store)
    assert result.ok, result.damaged
    check_objects(scene.store)
    history = open_repository(scene.store).history("drafter")
    assert [move.number for move in history] == list(range(1, len(scene.older) + number + 1))
    assert {move.snapshot for move in history} == set(result.snapshots)
    for move in history[len(scene.older) :]:
        cachekeeper.restore(move.snapshot, cache_dir=place / "target", store=scene.store, exact=True)
        assert tree(place / "target") == scene.now
        shutil.rmtree(place / "target")


def test_moves_of_a_name_at_once(place: Path) -> None:
    store = place / "store"
    open_repository(store).prepare()

    def move_often() -> None:
        for number in range(25):
            open_repository(store).move_name("drafter", f"{number:064x}")

    _all_at_once([move_often] * 4)
    history = open_repository(store).history("drafter")
    assert [move.number for move in history] == list(range(1, 101))
    assert sorted(move.snapshot for move in history) == sorted(f"{number:064x}" for number in range(25) for _ in "four")


def test_snapshots_of_two_directories_under_one_name(place: Path) -> None:
    caches = [make_cache(place / f"cache-{seed}", seed=seed, kernels=2, graphs=2) for seed in range(4)]
    store = place / "store"

    def saving(cache: Path) -> Callable[[], object]:
        return lambda: cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)

    _all_at_once([saving(cache) for cache in caches])
    repository = open_repository(store)
    history = repository.history("drafter")
    assert len({move.snapshot for move in history}) == 4
    for move in history:
        cache = Path(repository.header(move.snapshot).header.cache_dir)
        cachekeeper.restore(move.snapshot, cache_dir=place / "target", store=store, exact=True)
        assert tree(place / "target") == tree(cache)


@pytest.mark.parametrize("worn", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_restores_into_one_directory_at_once(place: Path, worn: bool, exact: bool) -> None:
    scene, _ = simple_scene(place)
    target, before = place / "target", {}
    if worn:
        cachekeeper.restore("drafter", cache_dir=place / "first", store=scene.store)
        before = tree(_worn(place / "first", target))

    def restore() -> None:
        cachekeeper.restore("drafter", cache_dir=target, store=scene.store, verify=True, exact=exact)

    _all_at_once([restore] * 8)
    assert scene.now.items() <= tree(target).items()
    check_nothing_lost(target, before)
    check_tidy(target)


def _worn(first: Path, target: Path) -> Path:
    copy_cache(first, target)
    next((target / "triton/0").glob("*/*.cubin")).write_bytes(b"")
    next(target.glob("??/*.so")).unlink()
    make_triton_entry(target / "triton/0", seed=77_777)
    return target


def test_snapshots_during_restores(place: Path) -> None:
    """Whatever a snapshot sees while a restore replaces entries, it holds whole entries only, old or right."""
    scene = build_scene(place)
    right, first, target = list(scene.older.values())[-1], place / "first", place / "target"
    cachekeeper.restore("drafter", cache_dir=first, store=scene.store)
    saved = []
    for _ in range(20):
        shutil.rmtree(target, ignore_errors=True)
        make_worn_cache(target, first)
        before = tree(target)
        pid = children.start(lambda: cachekeeper.restore("drafter", cache_dir=target, store=scene.store))
        saved.append(
            cachekeeper.snapshot("other", cache_dir=target, store=scene.store, wait=0, allow_damaged=True, force=True)
        )
        assert children.finish(pid) == 0
        _check_saved(scene, saved[-1].snapshot.id, place / "check", before, right)
    assert cachekeeper.verify(every=True, store=scene.store).ok


def _check_saved(scene: Scene, identifier: str, target: Path, before: Tree, right: Tree) -> None:
    cachekeeper.restore(identifier, cache_dir=target, store=scene.store, exact=True)
    for path, data in tree(target).items():
        assert data in (before.get(path), right.get(path)), path
    for entry, files in kernels(tree(target)).items():
        assert files in (kernels(before).get(entry), kernels(right).get(entry)), f"{entry} is mixed"
    shutil.rmtree(target)


@pytest.mark.parametrize("moment", range(1, 8))
def test_a_kernel_that_is_replaced_between_two_reads(place: Path, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Half of the files are read from the old directory and half from the new: such an entry is never saved."""
    scene, _ = simple_scene(place)
    kernel = sorted((scene.cache / "triton" / "0").iterdir())[0]
    other = place / "other"
    shutil.copytree(kernel, other)
    for suffix in ("ttir", "ttgir", "llir", "ptx"):
        next(other.glob(f"*.{suffix}")).write_bytes(b"another version")
    before, calls, real = tree(scene.cache), [], reading.read_into

    def read_and_swap(root: int, live: LiveFile, *args: Any) -> int:
        size = real(root, live, *args)
        calls.extend([live.path] if kernel.name in live.path else [])
        if len(calls) == moment and not (place / "swapped").exists():
            (place / "swapped").touch()
            with open_root(place) as top:
                assert exchange("other", str(kernel.relative_to(place)), top, top)
        return size

    with monkeypatch.context() as patch:
        patch.setattr(reading, "read_into", read_and_swap)
        saved = cachekeeper.snapshot("swapped", cache_dir=scene.cache, store=scene.store, wait=0, full=True)
    assert (place / "swapped").exists() and saved.snapshot.header.live
    cachekeeper.restore(saved.snapshot.id, cache_dir=place / "target", store=scene.store)
    entry = str(kernel.relative_to(scene.cache))
    found = kernels(tree(place / "target")).get(entry)
    assert found in (None, kernels(before)[entry], kernels(tree(scene.cache))[entry]), "a mixed kernel was saved"


class _Job:
    """Writes into a cache as torch and Triton do: temporary files renamed, kernels file by file, groups last."""

    def __init__(self, cache: Path, templates: Path) -> None:
        self._cache = cache
        self._kernels = sorted((templates / "triton" / "0").iterdir())
        self._random = random.Random(5)
        self._number = 0

    def step(self) -> None:
        for action in (self._graph, self._kernel, self._replace, self._forget, self._temporary):
            action()

    def _put(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f".{os.getpid()}.{self._number}.tmp"
        temporary.write_bytes(data)
        temporary.replace(path)

    def _graph(self) -> None:
        self._number += 1
        number = self._number % 40
        self._put(self._cache / "fxgraph" / "zz" / f"fjob{number}" / f"job{number}", b"\x80\x05graph %d." % number)

    def _kernel(self) -> None:
        """Triton's own order: each file into tmp.pid_* and from there to its place; the group last."""
        source = self._kernels[self._number % len(self._kernels)]
        target = self._cache / "triton" / "0" / source.name
        shutil.rmtree(target, ignore_errors=True) if self._number % 3 == 0 else None
        for file in sorted(source.iterdir(), key=lambda path: path.name.startswith("__grp__")):
            place = target / f"tmp.pid_{os.getpid()}_{self._number}"
            place.mkdir(parents=True, exist_ok=True)
            data = file.read_bytes().replace(str(source).encode(), str(target).encode())
            (place / file.name).write_bytes(data)
            (place / file.name).replace(target / file.name)
            place.rmdir()

    def _replace(self) -> None:
        self._put(self._cache / "zz" / f"{self._number % 7:064d}.best_config", b'{"num_warps": %d}' % self._number)

    def _forget(self) -> None:
        shutil.rmtree(self._cache / "fxgraph" / "zz" / f"fjob{self._random.randrange(40)}", ignore_errors=True)

    def _temporary(self) -> None:
        (self._cache / f".{self._number}.tmp").write_bytes(b"half")
        (self._cache / f".{self._number - 3}.tmp").unlink(missing_ok=True)


@pytest.fixture
def job(place: Path) -> _Job:
    templates = make_cache(place / "templates", seed=8, kernels=6, graphs=0)
    cache = make_cache(place / "cache", seed=1, kernels=2, graphs=2)
    return _Job(cache, templates)


def test_snapshots_while_a_job_writes(place: Path, job: _Job) -> None:
    """Each succeeds, verifies and restores, and holds only whole entries."""
    store, cache = place / "store", place / "cache"
    still = tree(cache)
    job.step()
    saved = []
    with _meanwhile(job.step):
        until = time.monotonic() + 5
        while time.monotonic() < until and len(saved) < 60:
            saved.append(cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0))
    assert any(item.snapshot.header.live for item in saved)  # the job may stand still during some
    result = cachekeeper.verify(every=True, store=store)
    assert result.ok and set(result.snapshots) == {item.snapshot.id for item in saved}
    for item in saved[:: max(1, len(saved) // 15)]:
        target = place / "target"
        cachekeeper.restore(item.snapshot.id, cache_dir=target, store=store)
        _check_only_whole(place, target, still)
        shutil.rmtree(target)


def _check_only_whole(place: Path, target: Path, still: Tree) -> None:
    found = tree(target)
    assert still.items() <= found.items(), "what nobody touched is missing"
    assert not cachekeeper.verify(directory=target).damaged
    templates = kernels(tree(place / "templates"))
    for entry, files in kernels(found).items():
        if entry not in {entry_of(path) for path in still}:
            assert files == templates[entry], f"{entry} is not whole"
    assert not [path for path in found if ".tmp" in path or "tmp.pid" in path]


def test_a_look_at_a_directory_in_which_a_job_writes_never_fails(place: Path, job: _Job) -> None:
    with _meanwhile(job.step), LiveCache(place / "cache") as live:
        for _ in range(100):
            assert len(live.scan().files) >= 20
            live.moved_since(live.scan())


def test_verify_and_fingerprints_while_a_job_writes(place: Path, job: _Job) -> None:
    cachekeeper.snapshot("drafter", cache_dir=place / "cache", store=place / "store", wait=0)
    with _meanwhile(job.step):
        for _ in range(20):
            cachekeeper.verify(directory=place / "cache")
            cachekeeper.verify("drafter", live=place / "cache", store=place / "store")


def test_restores_while_a_job_writes_the_same_entries(place: Path, job: _Job) -> None:
    """The job wins or the restore wins, entry by entry; the restore never fails."""
    store, cache = place / "store", place / "cache"
    job.step()
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    right = tree(cache)
    with _meanwhile(job.step):
        for number in range(40):
            if number % 4 == 0:
                shutil.rmtree(cache / "aotautograd", ignore_errors=True)
                next(cache.glob("??/*.so")).write_bytes(b"")
            cachekeeper.restore("drafter", cache_dir=cache, store=store)
    cachekeeper.restore("drafter", cache_dir=cache, store=store)
    assert right.items() <= tree(cache).items()
    check_tidy(cache)


def test_readers_never_see_a_mixed_kernel(place: Path) -> None:
    """200 replacements of a kernel under readers that open its files as Triton does."""
    scene, _ = simple_scene(place)
    target = place / "target"
    copy_cache(scene.cache, target)
    kernel = sorted((target / "triton" / "0").iterdir())[0]
    wrong = place / "wrong"
    shutil.copytree(kernel, wrong)
    for file in wrong.iterdir():
        if not file.name.startswith("__grp__"):
            file.write_bytes(b"wrong")
    right = {file.name: file.read_bytes() for file in kernel.iterdir()}
    readers = [children.start(lambda: _read_over_and_over(kernel, right, place / "stop")) for _ in range(2)]
    for _ in range(200):
        _swap_in(wrong, kernel, target)
        assert cachekeeper.restore("drafter", cache_dir=target, store=scene.store).replaced
    (place / "stop").touch()
    for pid in readers:
        assert children.finish(pid) == 0


def _swap_in(wrong: Path, kernel: Path, target: Path) -> None:
    """Damage a kernel in one step, so that what readers see is old or new and our doing is never in between."""
    copy = target / "spare"
    shutil.copytree(wrong, copy)
    with open_root(target) as root:
        assert exchange("spare", str(kernel.relative_to(target)), root, root)
    shutil.rmtree(copy)


def _read_over_and_over(kernel: Path, right: dict[str, bytes], stop: Path) -> None:
    reads = 0
    while not stop.exists() or not reads:
        descriptor = os.open(kernel, os.O_RDONLY | os.O_DIRECTORY)  # missing for a moment: FileNotFoundError
        try:
            found = {name: _read_at(descriptor, name) for name in right}
        except FileNotFoundError:
            # What we had open was replaced, and then taken away by this test; the path itself was never missing.
            assert os.fstat(descriptor).st_ino != kernel.stat().st_ino, "a file is missing"
            continue
        finally:
            os.close(descriptor)
        good = found == right
        bad = all(data == b"wrong" for name, data in found.items() if not name.startswith("__grp__"))
        assert good or bad, "a mixed kernel"
        reads += 1


def _read_at(directory: int, name: str) -> bytes:
    with open(os.open(name, os.O_RDONLY, dir_fd=directory), "rb") as file:
        return file.read()
