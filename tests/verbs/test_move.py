"""The verb: the cache whole in its new place, the old one in the trash, and nothing lost where it is refused."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.clearing.trash import Trash
from cachekeeper.disk import locked
from cachekeeper.errors import Busy, CachekeeperError, CheckFailed, EmptyCache, LocalDiskError, NotFound, UsageError
from cachekeeper.inductor.layout import is_scratch_file
from cachekeeper.testing import make_cache, make_triton_entry
from cachekeeper.verbs import move as module
from cachekeeper.verbs.clear import bring_back
from cachekeeper.verbs.move import move
from cachekeeper.verbs.status import status

from .conftest import Machine, tree, unplaced
from .test_clear import holding


@pytest.fixture(autouse=True)
def configured_store(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHEKEEPER_STORE", str(store))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "inductor"


def refused(cache: Path, target: Path, error: type[CachekeeperError], match: str | None = None) -> CachekeeperError:
    before, there = tree(cache), tree(target) if target.is_dir() else None
    with pytest.raises(error, match=match) as caught:
        move(cache, target)
    assert tree(cache) == before
    assert (tree(target) if target.is_dir() else None) == there
    assert Trash(cache).items() == []
    return caught.value


@pytest.mark.parametrize("dry_run", [True, False])
def test_files_of_others_that_name_the_old_place_are_told(cache: Path, target: Path, dry_run: bool):
    """C36."""
    assert move(cache, target, dry_run=True).notes == ()
    (cache / "helion").mkdir()
    (cache / "helion" / "index.json").write_text(f'{{"graph": "{cache}/ab/x"}}')
    assert move(cache, target, dry_run=dry_run).notes == (
        f"1 file of other programs names {cache} (helion/index.json): paths in them are not rewritten",
    )


def test_moved_with_its_paths_rewritten(cache: Path, target: Path):
    (cache / "precompiled_headers").mkdir()
    (cache / "precompiled_headers" / "c.h.gch").write_bytes(bytes(100))
    before, was = unplaced(cache), tree(cache)
    result = move(cache, target)
    assert unplaced(target) == before
    assert not any(str(cache).encode() in data for data in tree(target).values())
    assert (result.files, result.new, result.skipped) == (len(before), len(before), ())
    assert tree(result.trash) == was and os.listdir(cache) == []
    assert result.environment == {
        "TORCHINDUCTOR_CACHE_DIR": str(target),
        "TRITON_CACHE_DIR": f"{target}/triton/0",
    }
    assert target.stat().st_mode & 0o777 == 0o700
    assert os.listdir(target.parent) == ["inductor"]
    assert not (target / ".cachekeeper").exists()
    assert cachekeeper.verify(directory=target).ok
    bring_back(cache)
    assert tree(cache) == was


def test_what_is_left_behind_is_told(cache: Path, target: Path, tmp_path: Path):
    (cache / "fxgraph" / "link").symlink_to(tmp_path)
    result = move(cache, target)
    assert [item.path for item in result.skipped] == ["fxgraph/link"]
    assert result.scratch > 0
    assert (result.trash / "fxgraph" / "link").is_symlink()
    assert not any(is_scratch_file(path.name) for path in target.rglob("*"))


def test_the_marker_goes_along(machine: Machine, cache: Path, tmp_path: Path, target: Path):
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, wait=0).snapshot.id
    restored = tmp_path / "restored"
    cachekeeper.restore("drafter", cache_dir=restored)
    marker = (restored / ".cachekeeper" / "restored.json").read_bytes()
    move(restored, target)
    assert (target / ".cachekeeper" / "restored.json").read_bytes() == marker
    assert os.listdir(target / ".cachekeeper") == ["restored.json"]
    result = status(target)
    assert (result.state, result.snapshot) == ("intact", saved)


def test_times_go_along(cache: Path, target: Path):
    """They tell what was written since a restore, and how old a file is."""
    before = {str(path.relative_to(cache)): path.stat().st_mtime_ns for path in cache.rglob("*.*") if path.is_file()}
    move(cache, target)
    after = {str(path.relative_to(target)): path.stat().st_mtime_ns for path in target.rglob("*.*") if path.is_file()}
    assert after and after.items() <= before.items()


def test_over_a_cache_that_is_there(cache: Path, target: Path, tmp_path: Path):
    make_cache(target, seed=8, kernels=1, graphs=1)
    theirs, before = tree(target), unplaced(cache)
    shutil.copytree(cache / "triton", target / "triton", dirs_exist_ok=True)
    for group in target.glob("triton/0/*/__grp__*"):  # as after a move that was killed
        group.write_text(group.read_text().replace(str(cache), str(target)))
    broken = next(iter((cache / "triton" / "0").iterdir())).name
    cubin = next((target / "triton" / "0" / broken).glob("*.cubin"))
    cubin.write_bytes(b"other")
    result = move(cache, target)
    assert result.files - result.new == 14  # two kernels are as they must be
    found = unplaced(target)
    assert before.items() <= found.items()
    assert theirs.items() <= tree(target).items()
    assert [path.read_bytes() for path in (target / ".cachekeeper" / "aside").rglob("*.cubin")] == [b"other"]


def test_what_was_there_and_what_goes_aside_is_told(cache: Path, target: Path):
    make_cache(target, seed=8, kernels=1, graphs=1)
    theirs = len(unplaced(target))
    path = next((cache / "fxgraph").rglob("*/*/*"))
    there = target / path.relative_to(cache)
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(b"other")
    before = tree(target)
    planned = move(cache, target, dry_run=True)
    assert tree(target) == before and Trash(cache).items() == []
    assert (planned.dry_run, planned.trash, planned.item, planned.aside) == (True, None, "", None)
    result = move(cache, target)
    assert (result.replaced, result.others) == (planned.replaced, planned.others) == (1, theirs)
    assert (result.new, result.files) == (planned.new, planned.files)
    assert result.aside and (result.aside / path.relative_to(cache)).read_bytes() == b"other"


def test_a_dry_run_refuses_what_the_real_one_refuses(cache: Path, target: Path):
    (cache / "mine.txt").write_bytes(b"")
    with pytest.raises(UsageError, match="not only a compile cache"):
        move(cache, target, dry_run=True)
    (cache / "mine.txt").unlink()
    before = tree(cache)
    assert move(cache, target, dry_run=True).new == len(unplaced(cache))
    assert tree(cache) == before and not target.parent.exists()


def test_kernels_of_every_rank_are_in_the_directory_that_is_exported(tmp_path: Path, target: Path):
    cache = make_cache(tmp_path / "ranks", devices=2, kernels=3)
    one, other = ({path.name for path in (cache / "triton" / device).iterdir()} for device in "01")
    result = move(cache, target)
    assert result.environment["TRITON_CACHE_DIR"] == f"{target}/triton/1"
    assert {path.name for path in (target / "triton" / "1").iterdir()} == one | other
    assert {path.name for path in (target / "triton" / "0").iterdir()} == one
    assert result.new == result.files
    assert cachekeeper.verify(directory=target).ok


def test_one_that_is_opened_meanwhile_stays(cache: Path, target: Path, monkeypatch: pytest.MonkeyPatch):
    real = module._Copying._verify
    with contextlib.ExitStack() as stack:

        def open_something(self: module._Copying, root: int) -> None:
            real(self, root)
            stack.enter_context(holding("file = open(sys.argv[1])", next(cache.rglob("*.so"))))

        monkeypatch.setattr(module._Copying, "_verify", open_something)
        with pytest.raises(Busy, match="is in use"):
            move(cache, target)
    assert Trash(cache).items() == []


def test_default_is_a_directory_in_the_home(cache: Path, own_environment: Path):
    assert move(cache).target == own_environment / "cache" / "torchinductor"


def test_tritons_directory_outside_stays_where_it_is(
    cache: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    assert move(cache, target).environment["TRITON_CACHE_DIR"] == str(tmp_path / "kernels")


def test_directories_that_were_restored_beside(machine: Machine, cache: Path, tmp_path: Path, target: Path):
    make_triton_entry(tmp_path / "extra")
    cachekeeper.snapshot("drafter", cache_dir=cache, also=[tmp_path / "extra"], wait=0)
    cachekeeper.restore("drafter", cache_dir=tmp_path / "restored")
    move(tmp_path / "restored", target)
    assert status(target).state == "intact"


# Refused


def test_places_that_make_no_sense(cache: Path, target: Path, tmp_path: Path, store: Path):
    for place in (cache, cache / "inner", cache.parent):
        refused(cache, place, UsageError)
    (tmp_path / "link").symlink_to(cache)
    refused(cache, tmp_path / "link", UsageError)
    refused(cache, store / "inner", UsageError, "the store")
    target.mkdir(parents=True)
    (target / "thesis.tex").write_text("x")
    refused(cache, target, UsageError, "not only a compile cache")
    with pytest.raises(UsageError, match="is empty"):
        move(cache, "")


def test_what_is_no_cache(tmp_path: Path, target: Path):
    with pytest.raises(NotFound):
        move(tmp_path / "absent", target)
    (tmp_path / "empty").mkdir()
    with pytest.raises(EmptyCache):
        move(tmp_path / "empty", target)
    assert not target.exists()


def test_one_that_is_in_use(cache: Path, target: Path):
    with holding("file = open(sys.argv[1])", next(cache.rglob("*.so"))):
        refused(cache, target, Busy, "is in use")
    with locked(cache):
        refused(cache, target, Busy, "another cachekeeper")


def test_one_that_grows_meanwhile_stays(cache: Path, target: Path, monkeypatch: pytest.MonkeyPatch):
    real = module._Copying._verify

    def compile_something(self: module._Copying, root: int) -> None:
        make_triton_entry(cache / "triton" / "0", seed=50)
        real(self, root)

    with monkeypatch.context() as patch:
        patch.setattr(module._Copying, "_verify", compile_something)
        with pytest.raises(Busy, match="changed while it was copied"):
            move(cache, target)
    assert Trash(cache).items() == [] and len(list((cache / "triton" / "0").iterdir())) == 4
    assert move(cache, target).new == 7


def test_what_does_not_read_back_is_not_cleared(cache: Path, target: Path, monkeypatch: pytest.MonkeyPatch):
    real = module.Stage.publish

    def lose_a_bit(self: module.Stage) -> None:
        real(self)
        next(target.rglob("*.so")).write_bytes(b"lost")

    monkeypatch.setattr(module.Stage, "publish", lose_a_bit)
    before = tree(cache)
    with pytest.raises(CheckFailed, match="does not read back"):
        move(cache, target)
    assert tree(cache) == before and Trash(cache).items() == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "small"
    point.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", point], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"may not mount here: {done.stderr.strip()}")
    yield point
    subprocess.run(["umount", point], check=True)


def test_without_room_nothing_is_written(cache: Path, small: Path):
    before = tree(cache)
    with pytest.raises(LocalDiskError, match="not enough space"):
        move(cache, small / "inductor")
    assert tree(cache) == before and tree(small) == {}


def test_to_another_filesystem(cache: Path, small: Path):
    subprocess.run(["mount", "-o", "remount,size=8m", small], check=True)
    before = unplaced(cache)
    move(cache, small / "inductor")
    assert unplaced(small / "inductor") == before
