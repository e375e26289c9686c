"""Bytes of snapshots, a live cache against a snapshot, and the structure of a directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import doubted, runs
from cachekeeper.errors import DamagedStore, EmptyCache, NotFound
from cachekeeper.repository import open_repository
from cachekeeper.telemetry import Log, Process, encode
from cachekeeper.testing import make_cache, make_triton_entry
from tests import samples
from tests.inventory.caches import gpu_cache, write_files

from .conftest import Machine, kernels, settle, tree, unplaced

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def saved(cache: Path, store: Path) -> str:
    """The id of a snapshot of the cache, which is "drafter" too."""
    return cachekeeper.snapshot("drafter", cache_dir=cache, store=store).snapshot.id


def flip(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(data)


def pack_of(store: Path) -> Path:
    [pack] = store.glob("packs/*")
    return pack


# Snapshots


def test_a_sound_snapshot(cache: Path, store: Path, saved: str):
    result = cachekeeper.verify("drafter", store=store)
    assert result.ok and result.what == "store"
    assert result.snapshots == (saved,)
    assert result.checked == len(tree(cache))
    assert result.damaged == {} and result.missing == result.extra == ()


def test_telemetry_is_checked_too(cache: Path, store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(tmp_path / "runs"))
    run = runs.begin(("python", "train.py"))
    run.directory.joinpath("a.jsonl").write_bytes(encode(Log(Process(1, "host", 1.0))))
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, run=run).snapshot
    assert saved.header.telemetry is not None and cachekeeper.verify(saved.id, store=store).ok
    flip(store / "snapshots" / f"{saved.id}.json.zst", at=0.9999)
    for result in (cachekeeper.verify(saved.id, store=store), cachekeeper.verify(every=True, store=store)):
        assert not result.ok and result.checked == len(tree(cache))
        [(what, reason)] = result.damaged.items()
        assert what == f"telemetry of {saved.id[:8]}" and reason.endswith("; a restore does without")
    assert cachekeeper.restore(saved.id, cache_dir=tmp_path / "new", store=store, verify=True).new == len(tree(cache))


@pytest.mark.parametrize("reference", [None, "latest"])
def test_the_newest_is_the_default(cache: Path, store: Path, saved: str, reference: str | None):
    newer = cachekeeper.snapshot("other", cache_dir=cache, store=store, message="newer").snapshot.id
    assert cachekeeper.verify(reference, store=store).snapshots == (newer,)


def test_the_newest_may_be_of_another_machine_and_latest_may_not(
    cache: Path, store: Path, saved: str, machine: Machine
):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    newer = cachekeeper.snapshot("other", cache_dir=cache, store=store).snapshot.id
    machine.fingerprint = samples.fingerprint()
    assert cachekeeper.verify(store=store).snapshots == (newer,)
    assert cachekeeper.verify("latest", store=store).snapshots == (saved,)


def test_a_damaged_pack_names_every_snapshot_that_needs_it(cache: Path, store: Path, saved: str):
    pack = pack_of(store)
    second = cachekeeper.snapshot("second", cache_dir=cache, store=store, message="second").snapshot.id
    other = cachekeeper.snapshot(
        "other", cache_dir=settle(make_cache(cache.parent / "b", seed=8)), store=store
    ).snapshot.id
    flip(pack)
    result = cachekeeper.verify(every=True, store=store)
    assert not result.ok
    assert result.damaged[f"pack {pack.name[:8]}"] == "its bytes do not match its name"
    affected = {key.partition(":")[0] for key in result.damaged if ":" in key}
    assert affected == {saved[:8], second[:8]}
    assert set(result.snapshots) == {saved, second, other}
    # It has files in that pack too, but not where the damage is.
    assert list(cachekeeper.verify("other", store=store).damaged) == [f"pack {pack.name[:8]}"]


def test_a_snapshot_does_not_build_on_a_pack_that_is_known_to_be_damaged(cache: Path, store: Path, saved: str):
    pack = pack_of(store)
    flip(pack)
    assert not cachekeeper.verify("drafter", store=store).ok
    healed = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    assert healed.new_files == len(unplaced(cache))
    assert cachekeeper.verify("drafter", store=store).ok
    flip(pack)  # it is as it was
    assert cachekeeper.verify(saved, store=store).ok
    new = cachekeeper.snapshot("again", cache_dir=cache, store=store, wait=0)
    assert new.new_files == 0 and cachekeeper.verify("again", store=store).ok
    assert doubted.packs(open_repository(store).store) == {}


def test_a_merge_does_not_build_on_damage_that_is_known(cache: Path, store: Path, saved: str):
    cachekeeper.snapshot("other", cache_dir=settle(make_cache(cache.parent / "b", seed=8)), store=store, wait=0)
    flip(next(path for path in store.glob("packs/*") if path.stat().st_size == max(sizes(store))))
    assert not cachekeeper.verify(every=True, store=store).ok
    with pytest.raises(DamagedStore) as caught:
        cachekeeper.merge(["drafter", "other"], store=store)
    assert "damaged, as this machine has seen" in caught.value.facts[0]


def sizes(store: Path) -> list[int]:
    return [path.stat().st_size for path in store.glob("packs/*")]


def test_a_pack_that_no_file_suffers_from_is_told_all_the_same(store: Path, saved: str):
    flip(pack_of(store), at=0.999)
    result = cachekeeper.verify("drafter", store=store)
    assert list(result.damaged) == [f"pack {pack_of(store).name[:8]}"] and not result.ok


def test_a_pack_that_no_snapshot_needs_is_checked_with_all(store: Path, saved: str):
    (store / "packs" / ("ab" * 32)).write_bytes(b"x")
    assert cachekeeper.verify("drafter", store=store).ok
    assert cachekeeper.verify(every=True, store=store).damaged == {"pack abababab": "its bytes do not match its name"}


@pytest.mark.parametrize("change", ["gone", "cut"])
def test_a_lost_pack(cache: Path, store: Path, saved: str, change: str):
    pack = pack_of(store)
    size = pack.stat().st_size
    pack.chmod(0o644)
    if change == "gone":
        pack.unlink()
    else:
        pack.write_bytes(pack.read_bytes()[:100])
    result = cachekeeper.verify("drafter", store=store)
    said = "missing from the store" if change == "gone" else f"100 bytes instead of {size:,}"
    assert result.damaged[f"pack {pack.name[:8]}"] == said
    entries = {file.path for file in open_repository(store).manifest(saved).tables.entries}
    assert {key for key in result.damaged if ":" in key} == {f"{saved[:8]}:{path}" for path in entries}


def test_a_damaged_manifest(store: Path, saved: str):
    flip(store / "snapshots" / f"{saved}.json.zst")
    with pytest.raises(DamagedStore):
        cachekeeper.verify("drafter", store=store)
    result = cachekeeper.verify(every=True, store=store)
    assert set(result.damaged) == {f"snapshot {saved[:8]}", "name drafter"} and not result.ok


@pytest.mark.parametrize("lost", ["snapshot", "move"])
def test_the_past_of_a_name_is_damage_only_where_bytes_changed(lost: str, cache: Path, store: Path, saved: str):
    if lost == "snapshot":
        (store / "snapshots" / f"{saved}.json.zst").unlink()
        what = f"points to {saved[:8]}, which cannot be read"
    else:
        flip(store / "names/drafter/00000001")
        what = "its bytes do not match its checksum"
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0, message="anew", full=True)
    result = cachekeeper.verify(every=True, store=store)
    if lost == "snapshot":
        assert result.ok
        assert result.notes == (f"name drafter@{{1}}: {what}; drafter itself is whole, and nothing mends its past",)
    else:
        assert result.damaged == {"name drafter@{1}": what} and not result.ok and result.notes == ()


def test_a_damaged_name(store: Path, saved: str):
    flip(store / "names/drafter/00000001")
    assert cachekeeper.verify(every=True, store=store).damaged == {
        "name drafter": "its bytes do not match its checksum"
    }


def test_nothing_to_verify(store: Path, saved: str, tmp_path: Path):
    with pytest.raises(NotFound):
        cachekeeper.verify("nothing", store=store)
    with pytest.raises(NotFound):
        cachekeeper.verify(store=tmp_path / "none")
    (store / "snapshots" / f"{saved}.json.zst").unlink()
    with pytest.raises(NotFound, match="no readable snapshot"):
        cachekeeper.verify(store=store)


def test_progress_is_told_and_ends(cache: Path, store: Path, saved: str):
    shutil.rmtree(cache / "fxgraph")
    for stage, options in {
        "Verifying": {"reference": "drafter"},
        "Comparing": {"reference": "drafter", "live": cache},
        "Checking": {"directory": cache},
    }.items():
        told: list[tuple[str, int, int]] = []
        cachekeeper.verify(store=store, progress=lambda *step, told=told: told.append(step), **options)
        assert {word for word, *_ in told} == {stage}
        assert told[-1][1] == told[-1][2] > 0
        assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


# A live cache


def test_a_live_cache_that_is_right(cache: Path, store: Path, saved: str):
    result = cachekeeper.verify("drafter", live=cache, store=store)
    assert result.ok and result.what == "live" and result.checked == len(tree(cache))


def test_what_is_wrong_missing_and_extra_in_a_live_cache(cache: Path, store: Path, saved: str):
    """C19, C56."""
    module, config = next(cache.glob("??/*.py")), next(cache.glob("??/*.best_config"))
    module.write_bytes(module.read_bytes() + b"import os\n")
    config.unlink()
    extra = make_triton_entry(cache / "triton" / "0", seed=99)
    result = cachekeeper.verify("drafter", live=cache, store=store)
    assert not result.ok
    size = len(module.read_bytes())
    assert result.damaged == {name(module, cache): f"{size} bytes instead of {size - 10}"}
    assert result.missing == (name(config, cache),)
    assert len(result.extra) == 7 and all(extra.name in path for path in result.extra)


def name(path: Path, cache: Path) -> str:
    return path.relative_to(cache).as_posix()


def test_extra_files_are_no_damage(cache: Path, store: Path, saved: str):
    make_triton_entry(cache / "triton" / "0", seed=99)
    assert cachekeeper.verify("drafter", live=cache, store=store).ok


def test_a_byte_of_the_same_size_is_noticed(cache: Path, store: Path, saved: str):
    library = next(cache.glob("??/*.so"))
    flip(library)
    result = cachekeeper.verify("drafter", live=cache, store=store)
    assert result.damaged == {name(library, cache): "its bytes are different"}


def test_a_copied_cache_points_to_the_old_directory(cache: Path, store: Path, saved: str, tmp_path: Path):
    """It would quietly read there."""
    shutil.copytree(cache, tmp_path / "copy")
    result = cachekeeper.verify("drafter", live=tmp_path / "copy", store=store)
    assert len(result.damaged) == 3
    assert all(
        reason == f"points to another directory: {cache}/{path.rpartition('/')[0]}"
        for path, reason in result.damaged.items()
    )


@pytest.mark.parametrize("how", ["live", "directory"])
def test_a_directory_that_is_not_there(store: Path, saved: str, tmp_path: Path, how: str):
    with pytest.raises(NotFound, match="no directory"):
        cachekeeper.verify(store=store, **{how: tmp_path / "none"})


# A directory alone


def structure(cache: Path) -> dict[str, str]:
    result = cachekeeper.verify(directory=cache)
    assert result.what == "structure" and result.ok == (not result.damaged)
    return result.damaged


def test_a_sound_directory_needs_no_store(cache: Path, tmp_path: Path):
    assert structure(cache) == {}
    assert not (tmp_path / "store").exists()


def test_an_empty_directory_is_no_sound_one(tmp_path: Path):
    """C17."""
    with pytest.raises(EmptyCache):
        cachekeeper.verify(directory=tmp_path)


def test_c1_two_results_glued(cache: Path):
    config = next(cache.glob("??/*.best_config"))
    config.write_bytes(b'{"num_warps": 4}{"num_warps": 8}')
    [(path, reason)] = structure(cache).items()
    assert path == name(config, cache) and "Extra data" in reason


@pytest.mark.parametrize("data", [b"", b'{"num_'])
def test_c2_an_empty_or_half_result(cache: Path, data: bytes):
    config = next(cache.glob("??/*.best_config"))
    config.write_bytes(data)
    assert list(structure(cache)) == [name(config, cache)]


def test_c3_one_cut_kernel_among_many(tmp_path: Path):
    cache = make_cache(tmp_path, kernels=100, graphs=0)
    metadata = next(kernels(cache)[50].glob("triton*.json"))
    metadata.write_bytes(metadata.read_bytes()[:40])
    assert list(structure(cache)) == [name(metadata, cache)]


def test_c4_a_group_that_does_not_parse(cache: Path):
    group = next(kernels(cache)[0].glob("__grp__*"))
    group.write_bytes(b'{"child_pa')
    assert list(structure(cache)) == [name(group, cache)]


def test_c6_a_group_without_its_kernel(cache: Path):
    next(kernels(cache)[0].glob("*.cubin")).unlink()
    [(path, reason)] = structure(cache).items()
    assert path.endswith("__grp__triton_poi_fused_add_0.json")
    assert reason == "incomplete group: triton_poi_fused_add_0.cubin missing or empty"


def test_c7_a_kernel_of_no_bytes(cache: Path):
    cubin = next(kernels(cache)[0].glob("*.cubin"))
    cubin.write_bytes(b"")
    assert structure(cache)[name(cubin, cache)] == "empty file"


def test_c19_graphs_whose_kernels_are_gone(tmp_path: Path):
    """That is no damage, and told; on a CPU there never was a kernel."""
    cache = write_files(tmp_path / "gpu", gpu_cache())
    assert cachekeeper.verify(directory=cache).notes == ()
    shutil.rmtree(cache / "triton")
    for repair in (False, True):
        result = cachekeeper.verify(directory=cache, repair=repair)
        [note] = result.notes
        assert result.ok and note.startswith("graphs launch kernels of Triton's, and none is here")
    for module in cache.glob("??/*.py"):  # the modules of the kernels alone say it, too
        if module.read_text().startswith("# AOT ID"):
            module.unlink()
    assert cachekeeper.verify(directory=cache).notes == result.notes
    on_cpu = make_cache(tmp_path / "cpu", kernels=0)
    assert cachekeeper.verify(directory=on_cpu).notes == ()


def test_a_cut_library(cache: Path):
    library = next(cache.glob("??/*.so"))
    library.write_bytes(library.read_bytes()[:-1])
    assert "cut" in structure(cache)[name(library, cache)]


def test_a_group_that_points_elsewhere(cache: Path, tmp_path: Path):
    shutil.copytree(cache, tmp_path / "copy")
    found = structure(tmp_path / "copy")
    assert len(found) == 3 and all("points to another directory" in reason for reason in found.values())


def test_scratch_is_not_judged(cache: Path):
    (cache / "triton" / "0" / "tmp.pid_1_2").mkdir()
    (cache / "triton" / "0" / "tmp.pid_1_2" / "k.cubin").write_bytes(b"")
    assert structure(cache) == {}


def test_a_link_in_the_place_of_a_file_is_damage_and_no_missing_file(cache: Path, store: Path, machine: Machine):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    cubin = next(cache.glob("triton/0/*/*.cubin"))
    cubin.unlink()
    cubin.symlink_to("/etc/hostname")
    path = cubin.relative_to(cache).as_posix()
    result = cachekeeper.verify("drafter", live=cache, store=store)
    assert result.damaged == {path: "a symbolic link is in the place of a file"} and result.missing == ()
    mended = cachekeeper.verify("drafter", live=cache, store=store, repair=True)
    assert list(mended.mended.values()) == ["a symbolic link is in the place of a file"] and mended.put_back == ()
