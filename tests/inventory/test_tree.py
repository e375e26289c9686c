"""The files of a cache, in a store or live."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import LocalDiskError
from cachekeeper.inventory.tree import LiveTree, SnapshotTree, Tree, TreeFile, alike
from cachekeeper.repository import Repository, open_repository
from cachekeeper.testing import make_cache

from .caches import FIRST, MemoryTree, best_config, compiled, gpu_cache, write_files


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make_cache(tmp_path / "cache", kernels=2, graphs=1)


@pytest.fixture
def repository(tmp_path: Path, cache: Path) -> Repository:
    cachekeeper.snapshot("drafter", cache_dir=cache, store=tmp_path / "store", wait=0)
    return open_repository(tmp_path / "store")


def snapshot_tree(repository: Repository) -> SnapshotTree:
    return SnapshotTree(repository, repository.manifest(repository.resolve("drafter")))


def everything(tree: Tree) -> dict[str, bytes]:
    return dict(tree.read(file.path for file in tree.files))


def test_a_snapshot_and_the_directory_that_it_was_made_of_are_read_alike(repository: Repository, cache: Path):
    saved, live = snapshot_tree(repository), LiveTree(cache)
    assert [file[:3] for file in saved.files] == [file[:3] for file in live.files]
    assert everything(saved) == everything(live)
    assert len(saved.files) == 2 * 7 + 6 + 1
    assert saved.notes == live.notes == ()


def test_a_snapshot_knows_what_its_files_are_without_reading(repository: Repository):
    tree = snapshot_tree(repository)
    assert tree.label == repository.resolve("drafter")[:8]
    assert all(len(file.identity) == 64 for file in tree.files)
    assert {file.kind for file in tree.files} == {"fxgraph", "aotautograd", "triton", "module", "native", "autotune"}


def test_damaged_bytes_are_left_out_and_told(repository: Repository, tmp_path: Path):
    tree = snapshot_tree(repository)
    for pack in (tmp_path / "store" / "packs").iterdir():
        pack.chmod(0o600)
        data = bytearray(pack.read_bytes())
        data[24:2000] = bytes(1976)
        pack.write_bytes(data)
    found = everything(tree)
    lost = {file.path for file in tree.files} - found.keys()
    assert lost
    assert len(tree.notes) == 1
    assert tree.notes[0].startswith(f"{len(lost)} not read (")


def test_links_are_not_followed(cache: Path, tmp_path: Path):
    (tmp_path / "secret").write_bytes(b"secret")
    (cache / "ab").mkdir(exist_ok=True)
    (cache / "ab" / "cplanted.py").symlink_to(tmp_path / "secret")
    tree = LiveTree(cache)
    assert b"secret" not in everything(tree).values()
    assert tree.notes == ("1 not read (a symbolic link): ab/cplanted.py",)


def test_what_vanishes_is_left_out_and_told(cache: Path):
    tree = LiveTree(cache)
    gone = next(file.path for file in tree.files if file.kind == "module")
    (cache / gone).unlink()
    assert gone not in everything(tree)
    assert tree.notes == (f"1 not read (changed or vanished while being read): {gone}",)


def test_unknown_paths_are_passed_over(cache: Path, repository: Repository):
    assert LiveTree(cache).read(["../../etc/passwd", "no/such"]) == {}
    assert snapshot_tree(repository).read(["no/such"]) == {}


def test_progress_tells_bytes(repository: Repository, cache: Path):
    for tree in (snapshot_tree(repository), LiveTree(cache)):
        done: list[int] = []
        tree.read((file.path for file in tree.files), done.append)
        assert done == sorted(done)
        assert done[-1] == sum(file.size for file in tree.files)


def test_a_directory_that_is_not_there(tmp_path: Path):
    with pytest.raises(LocalDiskError):
        LiveTree(tmp_path / "none")


# What both sides have alike


def differing(**changed: bytes) -> tuple[MemoryTree, MemoryTree]:
    return MemoryTree(gpu_cache()), MemoryTree({**gpu_cache(), **changed})


def test_what_is_the_same_is_alike():
    a, b = differing()
    assert alike(a, b) == {file.path for file in a.files}


def test_files_without_identity_are_never_alike(cache: Path):
    assert alike(LiveTree(cache), LiveTree(cache)) == frozenset()


def test_one_more_directory_of_a_kernel_takes_all_of_its_name_out():
    a, b = differing(**compiled("D" * 52, "softcap", "c" * 52))
    left_out = {file.path for file in a.files} - alike(a, b)
    assert {path.rpartition("/")[2] for path in left_out} == {f"softcap.{s}" for s in ("json", "ttir", "ptx", "cubin")}
    assert alike(a, b) == alike(b, a)


def test_another_result_of_autotuning_takes_the_modules_beside_it_out():
    a, b = differing(**best_config("ho", XBLOCK=1, num_warps=1, triton_cache_hash=FIRST))
    left_out = {file.path for file in a.files} - alike(a, b)
    assert all(path.startswith("ho/") for path in left_out)
    assert len(left_out) == 2


def test_a_tree_file_says_where_it_belongs(tmp_path: Path):
    files = {"also/TRITON_CACHE_DIR/" + FIRST + "/k.json": b"{}", "ab/cx.py": b"x = 1\n"}
    assert LiveTree(write_files(tmp_path / "cache", files)).files == (
        TreeFile("ab/cx.py", "module", "ab/cx", 6),
        TreeFile(f"also/TRITON_CACHE_DIR/{FIRST}/k.json", "triton", f"also/TRITON_CACHE_DIR/{FIRST}", 2),
    )


def test_a_directory_that_changed_stays_out_alone():
    path = f"triton/0/{FIRST}/triton_poi_fused_add_view_2.ptx"
    a, b = differing(**{path: b"other"})
    left_out = {file.path for file in a.files} - alike(a, b)
    assert len(left_out) == 4
    assert all(path.startswith(f"triton/0/{FIRST}/") for path in left_out)
