"""The verb: each state made for real, the snapshot that it is compared with, and nothing written."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import NotFound, StoreError
from cachekeeper.testing import make_cache, make_triton_entry
from cachekeeper.verbs.status import StatusResult, status
from tests import samples

from .conftest import Machine, kernels, settle

HOUR = 3600


@pytest.fixture
def saved(machine: Machine, cache: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CACHEKEEPER_STORE", str(store))
    return cachekeeper.snapshot("drafter", cache_dir=cache, wait=0).snapshot.id


@pytest.fixture
def restored(saved: str, tmp_path: Path) -> Path:
    """A cache restored from it, an hour ago as its times and its marker say."""
    target = tmp_path / "restored"
    cachekeeper.restore(saved, cache_dir=target)
    for path in [*target.rglob("*"), target]:
        os.utime(path, (time.time() - HOUR,) * 2)
    marker = target / ".cachekeeper" / "restored.json"
    document = json.loads(marker.read_text())
    document["when"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - HOUR))
    marker.write_text(json.dumps(document))
    return target


def stand(result: StatusResult) -> tuple[str, int]:
    return result.state, result.exit_code


def one(cache: Path, pattern: str) -> Path:
    return sorted(cache.glob(pattern))[0]


def everything(directory: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns, path.lstat().st_size)
        for path in [directory, *directory.rglob("*")]
    }


def test_a_cache_of_another_environment_is_told(restored: Path, saved: str, machine: Machine):
    """C48: torch was upgraded under the cache. That it fits as far as bytes go is all that the exit code says."""
    machine.fingerprint = samples.fingerprint("2.12.0")
    result = status(restored)
    assert stand(result) == ("intact", 0)
    assert result.notes == (f"{saved[:8]} was made on another environment: torch 2.11.0 -> 2.12.0",)


# States


@pytest.mark.parametrize("quick", [False, True])
def test_intact_and_nothing_written(restored: Path, saved: str, store: Path, quick: bool):
    before = everything(restored), everything(store)
    result = status(restored, quick=quick)
    assert (everything(restored), everything(store)) == before
    assert stand(result) == ("intact", 0)
    assert (result.snapshot, result.name, result.against) == (saved, "drafter", "restored")
    assert result.files == result.same == 40 and result.entries == 19
    assert (result.gone, result.damaged, result.changed, result.grown, result.newer) == ((), {}, {}, (), "")


@pytest.mark.parametrize("quick", [False, True])
def test_grown(restored: Path, quick: bool):
    make_triton_entry(restored / "triton" / "0", seed=77)
    result = status(restored, quick=quick)
    assert stand(result) == ("grown", 0)
    assert len(result.grown) == 1 and result.grown[0].startswith("triton/0/")


@pytest.mark.parametrize("quick", [False, True])
def test_gone_and_when_at_the_latest(restored: Path, quick: bool):
    lost = kernels(restored)[0]
    graph = one(restored, "fxgraph/*/f*")
    shutil.rmtree(lost)
    next(graph.iterdir()).unlink()
    half_an_hour = time.time() - HOUR / 2
    os.utime(lost.parent, (half_an_hour,) * 2)
    os.utime(graph, (half_an_hour - 60,) * 2)
    os.utime(graph.parent, (half_an_hour - 60,) * 2)
    result = status(restored, quick=quick)
    assert stand(result) == ("gone", 3)
    assert result.gone == tuple(sorted((f"triton/0/{lost.name}", graph.relative_to(restored).as_posix())))
    assert result.gone_by == pytest.approx(half_an_hour, abs=1)
    assert result.gone_after == pytest.approx(time.time() - HOUR, abs=30)


@pytest.mark.parametrize("quick", [False, True])
def test_a_part_of_a_kernel_gone_is_damage(restored: Path, quick: bool):
    """As a cleaner leaves it that deletes each file on its own."""
    one(restored, "triton/0/*/*.cubin").unlink()
    result = status(restored, quick=quick)
    assert stand(result) == ("damaged", 3)
    assert list(result.damaged.values()) == ["1 of 7 files gone"]


@pytest.mark.parametrize("pattern", ["triton/0/*/*.cubin", "fxgraph/*/*/*", "??/*.main.so", "??/*.py"])
def test_other_bytes_where_none_are_ever_written_anew(restored: Path, pattern: str):
    path = one(restored, pattern)
    data = bytearray(path.read_bytes())
    data[-1 if pattern.endswith("py") else len(data) // 2] ^= 1
    path.write_bytes(data)
    result = status(restored)
    assert stand(result) == ("damaged", 3) and len(result.damaged) == 1
    assert stand(status(restored, quick=True)) == ("intact", 0)  # of the same size


def test_a_library_without_its_module(restored: Path):
    """They are entries of their own, with one path."""
    path = one(restored, "??/*.py")
    path.unlink()
    result = status(restored)
    assert stand(result) == ("gone", 3)
    assert result.gone == (f"{path.parent.name}/{path.stem} (module)",)


@pytest.mark.parametrize("quick", [False, True])
def test_a_cut_library(restored: Path, quick: bool):
    path = one(restored, "??/*.main.so")
    path.write_bytes(path.read_bytes()[:100])
    assert stand(status(restored, quick=quick)) == ("damaged", 3)


def test_what_torch_writes_anew_is_changed(restored: Path):
    path = one(restored, "aotautograd/*/*")
    path.write_bytes(b"\x80\x05 another.")
    result = status(restored)
    assert stand(result) == ("changed", 0)
    assert list(result.changed) == [path.parent.relative_to(restored).as_posix()]


def test_the_same_without_having_been_written_since_is_damage(restored: Path):
    """A disk that forgets changes no time."""
    path = one(restored, "aotautograd/*/*")
    info = path.stat()
    path.write_bytes(b"\x80\x05" + bytes(info.st_size - 2))
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert stand(status(restored)) == ("damaged", 3)


def test_a_kernel_that_points_elsewhere(restored: Path, cache: Path):
    path = one(restored, "triton/0/*/__grp__*")
    path.write_text(path.read_text().replace(str(restored), str(cache)))
    result = status(restored)
    assert stand(result) == ("damaged", 3)
    assert "another directory" in next(iter(result.damaged.values()))


def test_a_damaged_entry_that_is_new(restored: Path):
    new = make_triton_entry(restored / "triton" / "0", seed=88)
    (new / "triton_poi_fused_add_0.cubin").unlink()
    assert stand(status(restored)) == ("grown", 0)  # it may be in the making


@pytest.mark.parametrize("marker", [True, False])
def test_empty(restored: Path, saved: str, monkeypatch: pytest.MonkeyPatch, marker: bool):
    for path in restored.iterdir():
        if path.name != ".cachekeeper" or not marker:
            shutil.rmtree(path)
    (restored / "locks").mkdir()
    result = status(restored)
    assert stand(result) == ("empty", 5)
    assert len(result.gone) == (19 if marker else 0)
    monkeypatch.setenv("CACHEKEEPER_NAME", "drafter")
    result = status(restored)
    assert (*stand(result), len(result.gone)) == ("empty", 5, 19)


def test_absent(tmp_path: Path):
    assert stand(status(tmp_path / "absent")) == ("absent", 5)


# Which snapshot


def test_the_snapshot_that_was_taken_of_it(restored: Path, saved: str):
    """Not the older one that it was restored from: entries of the newer one are gone."""
    new = make_triton_entry(restored / "triton" / "0", seed=99)
    newer = cachekeeper.snapshot("drafter", cache_dir=restored, wait=0).snapshot.id
    result = status(restored)
    assert (*stand(result), result.snapshot, result.against) == ("intact", 0, newer, "saved")
    shutil.rmtree(new)
    result = status(restored)
    assert (*stand(result), result.gone) == ("gone", 3, (f"triton/0/{new.name}",))


def test_a_much_smaller_snapshot_is_not_what_it_should_be(restored: Path, saved: str):
    shutil.rmtree(restored / "triton")
    shutil.rmtree(restored / "fxgraph")
    shutil.rmtree(restored / "aotautograd")
    result = cachekeeper.snapshot("drafter", cache_dir=restored, wait=0)
    assert not result.name_moved and any("do not compare" in note for note in result.notes)
    assert status(restored).snapshot == saved and status(restored).exit_code == 3


@pytest.mark.parametrize("name", [None, "other"])
def test_nor_is_one_without_a_name_or_under_a_new_one_until_force(restored: Path, saved: str, name: str | None):
    """Entries were lost, and what is left was saved: status still says so."""
    shutil.rmtree(restored / "fxgraph")
    result = cachekeeper.snapshot(name, cache_dir=restored, wait=0)
    [note] = [note for note in result.notes if "do not compare" in note]
    assert f"{saved[:8]} has" in note and "--force" in note
    assert (*stand(status(restored)), status(restored).snapshot) == ("gone", 3, saved)
    forced = cachekeeper.snapshot(name, cache_dir=restored, wait=0, force=True).snapshot.id
    assert (*stand(status(restored)), status(restored).snapshot) == ("intact", 0, forced)


def test_of_some_kinds_restored_alone_a_snapshot_is_not_smaller(restored: Path, saved: str, tmp_path: Path):
    target = tmp_path / "some"
    cachekeeper.restore(saved, cache_dir=target, only=("triton",))
    kept = cachekeeper.snapshot(cache_dir=settle(target), wait=0).snapshot.id
    assert status(target).snapshot == kept


def test_a_name_that_never_pointed_to_it_is_not_its_name(restored: Path, saved: str, tmp_path: Path):
    shutil.rmtree(restored / "fxgraph")
    refused = cachekeeper.snapshot("drafter", cache_dir=restored, wait=0).snapshot.id
    cachekeeper.restore(refused, cache_dir=tmp_path / "half")
    result = status(tmp_path / "half")
    assert (result.snapshot, result.name, result.newer) == (refused, "", "")
    assert result.notes == ("it was saved for drafter, which has never pointed to it",)
    assert cachekeeper.restore(cache_dir=tmp_path / "latest").snapshot.id == saved


def test_directories_saved_beside_are_not_expected_in_it(saved: str, cache: Path, tmp_path: Path):
    make_triton_entry(tmp_path / "beside")
    cachekeeper.snapshot("wide", cache_dir=cache, also=[settle(tmp_path / "beside")], wait=0)
    assert stand(status(cache)) == ("intact", 0) and status(cache).against == "saved"


def test_the_reason_why_there_is_nothing_to_compare_with(restored: Path, saved: str, monkeypatch: pytest.MonkeyPatch):
    cachekeeper.rm(saved, force=True)
    [note] = status(restored).notes
    assert note.startswith(f"snapshot {saved[:8]} was removed") and "undo" in note
    (restored / ".cachekeeper" / "restored.json").write_text("{")
    assert status(restored).notes == ("its restored.json makes no sense",)
    monkeypatch.setenv("CACHEKEEPER_NAME", "nosuch")
    result = status(restored)
    assert "there is no snapshot 'nosuch'" in result.notes[0] and stand(result) == ("unknown", 5)


def test_a_link_in_the_place_of_a_library_is_damage(restored: Path, tmp_path: Path):
    library = one(restored, "??/*.main.so")
    library.rename(tmp_path / "elsewhere.so")
    library.symlink_to(tmp_path / "elsewhere.so")
    result = status(restored)
    assert stand(result) == ("damaged", 3)
    assert list(result.damaged.values()) == ["a symbolic link is in the place of a file"]


def test_never_restored_and_nothing_named(saved: str, cache: Path):
    (cache / ".cachekeeper" / "restored.json").unlink()
    result = status(cache)
    assert stand(result) == ("unknown", 5) and result.snapshot == ""
    assert "never restored" in result.notes[0]


def test_never_restored_against_the_name(saved: str, cache: Path, monkeypatch: pytest.MonkeyPatch):
    (cache / ".cachekeeper" / "restored.json").unlink()
    monkeypatch.setenv("CACHEKEEPER_NAME", "drafter")
    result = status(cache)
    assert (*stand(result), result.snapshot, result.against) == ("intact", 0, saved, "name")
    one(cache, f"fxgraph/*/f{'?' * 51}/*").write_bytes(b"\x80\x05 another run's.")
    assert stand(status(cache)) == ("changed", 0)
    shutil.rmtree(kernels(cache)[0])
    result = status(cache)
    assert stand(result) == ("gone", 3) and result.gone_after is None
    monkeypatch.setenv("CACHEKEEPER_NAME", "nobody")
    assert stand(status(cache)) == ("unknown", 5)


def test_against_another(restored: Path, saved: str, cache: Path):
    make_triton_entry(cache / "triton" / "0", seed=55)
    settle(cache)
    newer = cachekeeper.snapshot("drafter", cache_dir=cache, wait=0).snapshot.id
    result = status(restored)
    assert (*stand(result), result.newer) == ("intact", 0, newer)
    result = status(restored, against="drafter")
    assert (*stand(result), result.snapshot, result.against) == ("gone", 3, newer, "given")
    assert stand(status(restored, against=saved[:8])) == ("intact", 0)
    with pytest.raises(NotFound):
        status(restored, against="nobody")


def test_the_store_of_the_marker_is_found(restored: Path, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_STORE", str(tmp_path / "another"))
    assert (*stand(status(restored)), status(restored).snapshot) == ("intact", 0, saved)
    assert not (tmp_path / "another").exists()


def test_a_copy_of_the_store_will_do(restored: Path, saved: str, store: Path, tmp_path: Path):
    store.rename(tmp_path / "moved")
    with pytest.raises(StoreError, match="is not there"):
        status(restored)
    assert stand(status(restored, store=tmp_path / "moved")) == ("intact", 0)


def test_ranks_kernels_in_one_directory_are_expected_where_they_were_restored(
    machine: Machine, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
):
    cache = settle(make_cache(tmp_path / "ranks", devices=2))
    monkeypatch.setenv("CACHEKEEPER_STORE", str(store))
    cachekeeper.snapshot("ranks", cache_dir=cache, wait=0)
    monkeypatch.setenv("CACHEKEEPER_NAME", "ranks")
    assert stand(status(cache)) == ("intact", 0)
    target = tmp_path / "restored"
    cachekeeper.restore("ranks", cache_dir=target)
    assert stand(status(target)) == ("intact", 0)
    shutil.rmtree(target / "triton" / "1")
    assert len(status(target).gone) == 8  # in the directory that TRITON_CACHE_DIR names


def test_a_directory_beside_is_not_expected_in_one_that_was_never_restored(
    machine: Machine, cache: Path, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
):
    make_triton_entry(tmp_path / "kernels")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setenv("CACHEKEEPER_STORE", str(store))
    monkeypatch.setenv("CACHEKEEPER_NAME", "drafter")
    cachekeeper.snapshot(cache_dir=cache, wait=0)
    assert stand(status(cache)) == ("intact", 0)
    cachekeeper.restore(cache_dir=tmp_path / "target")
    assert stand(status(tmp_path / "target")) == ("intact", 0)
    shutil.rmtree(tmp_path / "target" / "also")
    assert stand(status(tmp_path / "target")) == ("gone", 3)


# What was restored of the snapshot


@pytest.mark.parametrize("quick", [False, True])
def test_a_restore_of_some_kinds_is_intact(saved: str, tmp_path: Path, quick: bool):
    target = tmp_path / "some"
    cachekeeper.restore(saved, cache_dir=target, only=["triton"])
    result = status(target, quick=quick)
    assert stand(result) == ("intact", 0) and result.snapshot == saved
    assert result.entries == len(kernels(target)) and result.files == result.same == 7 * result.entries
    one(target, "triton/0/*/*.cubin").unlink()
    assert stand(status(target, quick=quick)) == ("damaged", 3)


def test_what_others_wrote_of_the_other_kinds_is_judged_by_itself(
    saved: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    target = tmp_path / "some"
    cachekeeper.restore(saved, cache_dir=target, only=["triton"])
    library = one(cache, "??/*.so").relative_to(cache)
    (target / library).parent.mkdir()
    (target / library).write_bytes(one(cache, "??/*.so").read_bytes()[:-1] + b"x")
    assert stand(status(target)) == ("intact", 0)
    (target / library).write_bytes(b"")
    assert stand(status(target)) == ("intact", 0)  # somebody may be writing it
    monkeypatch.setattr("cachekeeper.verbs.status.judging._SETTLED_SECONDS", 0.0)
    result = status(target)
    assert stand(result) == ("damaged", 3) and "empty" in result.damaged[str(library).partition(".")[0]]


def test_one_restore_of_some_kinds_after_another(saved: str, tmp_path: Path):
    target = tmp_path / "some"
    for kind in ("triton", "native"):
        cachekeeper.restore(saved, cache_dir=target, only=[kind])
    assert stand(status(target)) == ("intact", 0)
    shutil.rmtree(target / "triton")
    assert stand(status(target)) == ("gone", 3)
    cachekeeper.restore(saved, cache_dir=target)
    assert status(target).files == 40
    cachekeeper.restore(saved, cache_dir=target, only=["triton"])
    assert status(target).files == 40 and stand(status(target)) == ("intact", 0)
    shutil.rmtree(target / "fxgraph")
    assert stand(status(target)) == ("gone", 3)  # all of it was restored here, whatever came then


def test_what_a_damaged_store_left_out_is_not_missed(saved: str, cache: Path, store: Path, tmp_path: Path):
    for seed in (60, 3000):  # frames of their own, so that one of them is damaged and the others are not
        make_cache(cache, seed=seed, kernels=1, graphs=1)
        newest = cachekeeper.snapshot("drafter", cache_dir=cache, wait=0).snapshot.id
    contents = {pack: pack.read_bytes() for pack in store.glob("packs/*")}
    damaged = min(contents)
    damaged.chmod(0o644)
    damaged.write_bytes(bytes(len(contents[damaged])))
    target = tmp_path / "some"
    result = cachekeeper.restore(newest, cache_dir=target, allow_damaged=True)
    assert result.left_out and stand(status(target)) == ("intact", 0)
    damaged.write_bytes(contents[damaged])
    assert stand(status(target)) == ("intact", 0)
    cachekeeper.restore(newest, cache_dir=target)
    shutil.rmtree(target / result.left_out[0], ignore_errors=True)
    for path in target.glob(f"{result.left_out[0]}*"):
        path.unlink()
    assert stand(status(target))[1] == 3
