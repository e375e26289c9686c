"""A store with older snapshots and a live cache, and what both must look like after a fault."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import cachekeeper
from cachekeeper.inductor import classify
from cachekeeper.repository import open_repository
from cachekeeper.testing import make_cache, make_triton_entry

Tree = dict[str, bytes]
WORKSHOP = ".cachekeeper"
DOCUMENTED = {"aside", "restored.json"}
# What the killed leave behind until a sweep: objects that stand for nothing.
LEFT_BY_THE_KILLED = ("leases/", "probes/")
OBJECT_PLACES = {"format.json", "packs", "snapshots", "names", "leases"}


def tree(directory: Path) -> Tree:
    """Path -> bytes of every file that a snapshot keeps, with `@` for the directory itself."""
    here = str(directory).encode()
    files = files_in(directory, skip=(WORKSHOP,))
    return {path: data.replace(here, b"@") for path, data in files.items() if classify(path) is not None}


def files_in(directory: Path, skip: Iterable[str] = ()) -> Tree:
    """Path -> bytes of every regular file, whatever it is; `skip` names directories that are not looked into."""
    found: Tree = {}
    for where, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if name not in skip]
        for name in names:
            path = Path(where, name)
            if path.is_file() and not path.is_symlink():
                found[str(path.relative_to(directory))] = path.read_bytes()
    return found


def objects_in(store: Path) -> Tree:
    """Key -> bytes of the objects in a store, without what the killed left behind."""
    objects = files_in(store).items()
    return {key: data for key, data in objects if ".tmp-" not in key and not key.startswith(LEFT_BY_THE_KILLED)}


def entry_of(path: str) -> str:
    """The entry that a file of a cache belongs to."""
    place = classify(path)
    assert place is not None
    return place.entry


def is_kernel(path: str) -> bool:
    """True for a file of a Triton entry, which moves as a whole."""
    place = classify(path)
    return place is not None and place.kind == "triton"


@dataclass(frozen=True)
class Scene:
    """A store, a live cache, and the truth.

    Attributes:
        older: snapshot id -> what it restores to, oldest first.
        now: what a snapshot of the cache would hold.
    """

    store: Path
    cache: Path
    older: dict[str, Tree]
    now: Tree

    def copy(self, base: Path) -> Scene:
        """The same scene with a store of its own; the live cache stays."""
        shutil.copytree(self.store, base / "store")
        return replace(self, store=base / "store")


def build_scene(base: Path, generations: int = 2) -> Scene:
    """A store with `generations` snapshots named drafter, and a cache that has grown since the last one."""
    store, cache = base / "store", base / "cache"
    older: dict[str, Tree] = {}
    for seed in range(generations):
        make_cache(cache, seed=seed, kernels=2, graphs=2)
        saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
        older[saved.snapshot.id] = tree(cache)
    make_cache(cache, seed=generations, kernels=2, graphs=2)
    return Scene(store, cache, older, tree(cache))


def simple_scene(base: Path, seed: int = 1) -> tuple[Scene, str]:
    """A store with one snapshot of a small cache, and its id."""
    store, cache = base / "store", make_cache(base / "cache", seed=seed, kernels=2, graphs=2)
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    return Scene(store, cache, {saved.snapshot.id: tree(cache)}, tree(cache)), saved.snapshot.id


def make_worn_cache(target: Path, right: Path) -> Path:
    """A live cache as a job may leave it: a copy of `right` with entries damaged, missing and extra."""
    copy_cache(right, target)
    kernels = sorted(path for path in (target / "triton" / "0").iterdir())
    for suffix in ("cubin", "llir", "ttir"):
        next(kernels[0].glob(f"*.{suffix}")).write_bytes(b"damaged " + suffix.encode())
    next(kernels[1].glob("*.ptx")).unlink()
    next(kernels[1].glob("*.ttgir")).write_bytes(b"")
    shutil.rmtree(kernels[2])
    graphs = sorted(path for path in (target / "fxgraph").glob("*/f*/*") if not path.name.startswith("."))
    graphs[0].unlink()
    graphs[1].write_bytes(b"half")
    libraries = sorted(target.glob("??/*.so"))
    libraries[0].write_bytes(libraries[0].read_bytes()[:50])
    shutil.rmtree(libraries[1].parent)
    make_triton_entry(target / "triton" / "0", seed=77_777)
    (target / "zz").mkdir()
    (target / "zz" / "cextra.py").write_bytes(b"# mine\n")
    return target


def copy_cache(source: Path, target: Path) -> None:
    """A copy that is as valid as the original: Triton's group files name the new directory."""
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(WORKSHOP))
    for group in target.rglob("__grp__*.json"):
        group.write_bytes(group.read_bytes().replace(str(source).encode(), str(target).encode()))


# What must hold


def check_store(scene: Scene, restored_into: Path, which: Iterable[str] = ()) -> None:
    """Every older snapshot verifies and is listed; those in `which` restore byte for byte."""
    result = cachekeeper.verify(every=True, store=scene.store)
    assert result.ok, result.damaged
    assert set(scene.older) <= set(result.snapshots)
    listed = cachekeeper.ls(store=scene.store)
    assert set(scene.older) <= {row.snapshot.id for row in listed.rows} and not listed.unreadable
    for number, identifier in enumerate(which):
        target = restored_into / f"older-{number}"
        cachekeeper.restore(identifier, cache_dir=target, store=scene.store)
        assert tree(target) == scene.older[identifier]
        shutil.rmtree(target)


def check_objects(store: Path) -> None:
    """A listing of the store holds objects only, no temporary file, and every pack is what its name says."""
    repository = open_repository(store)
    for key, size, _ in repository.store.list(""):
        assert key.partition("/")[0] in OBJECT_PLACES and ".tmp" not in key
        assert size > 0
        if key.startswith("packs/"):
            assert hashlib.sha256(repository.store.read(key)).hexdigest() == key.removeprefix("packs/")


def check_live(target: Path, before: Tree, right: Tree, extras_stay: bool = True) -> None:
    """Every file is as before, right, or absent; every kernel whole; and nothing that was there before is lost.

    Args:
        before: `tree` of the directory before.
        right: `tree` of what is being restored.
        extras_stay: what only `before` has must be in place, not just aside.
    """
    now = tree(target)
    for path, data in now.items():
        assert data in (before.get(path), right.get(path)), f"{path} is neither as before nor right"
    for path in right:
        # With RENAME_EXCHANGE nothing that was there is away for a moment.
        assert path in now or path not in before or is_kernel(path), f"{path} vanished"
    _check_kernels(now, before, right)
    if extras_stay:
        assert not {path for path in before.keys() - right.keys() if not _in_replaced_kernel(path, right)} - now.keys()
    check_nothing_lost(target, before)


def _in_replaced_kernel(path: str, right: Tree) -> bool:
    return is_kernel(path) and entry_of(path) in {entry_of(other) for other in right}


def _check_kernels(now: Tree, before: Tree, right: Tree) -> None:
    for entry, files in kernels(now).items():
        assert files in (kernels(before).get(entry), kernels(right).get(entry)), f"{entry} is mixed"
    for entry in kernels(before).keys() & kernels(right).keys():
        assert entry in kernels(now), f"{entry} vanished"


def kernels(files: Tree) -> dict[str, Tree]:
    """Triton entry -> its files."""
    found: dict[str, Tree] = defaultdict(dict)
    for path, data in files.items():
        if is_kernel(path):
            found[entry_of(path)][path] = data
    return dict(found)


def check_nothing_lost(target: Path, before: Tree) -> None:
    """Every content that was in the directory is in it still, in place or under .cachekeeper."""
    here = str(target).encode()
    contents = {data.replace(here, b"@") for data in files_in(target).values()}
    lost = [path for path, data in before.items() if data not in contents]
    assert not lost, f"lost: {lost}"


def check_tidy(target: Path) -> None:
    """Nothing but what is documented is left over in .cachekeeper."""
    assert {path.name for path in (target / WORKSHOP).iterdir()} <= DOCUMENTED
