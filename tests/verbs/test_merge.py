"""Unions of snapshots: every entry whole from one of them, conflicts told, nothing read or stored again."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cachekeeper
from cachekeeper import manifest as manifests
from cachekeeper.errors import CheckFailed, DamagedStore, EnvironmentMismatch, NotFound, ReadOnly, UsageError
from cachekeeper.inductor import classify
from cachekeeper.manifest import Count, EntryRow, FileRow, FrameRow, Manifest, PackRow, Tables, check, encode
from cachekeeper.models import Fact, Graph, ModelHash, Proof
from cachekeeper.repository import open_repository
from cachekeeper.stores import MemoryStore, open_store
from cachekeeper.telemetry import Compiled, Log, Process
from cachekeeper.testing import make_cache, make_triton_entry
from cachekeeper.testing.caches import elf, write
from cachekeeper.verbs import merge as merging
from cachekeeper.verbs.merge import MergeResult, tables, union
from tests import samples

from .conftest import Machine, settle, tree, unplaced

pytestmark = pytest.mark.usefixtures("machine")

KERNEL = "triton_poi_fused_add_0"


def save(name: str, cache: Path, store: Any, **options: Any) -> str:
    """The id of a snapshot of a cache."""
    return cachekeeper.snapshot(name, cache_dir=settle(cache), store=store, wait=0, **options).snapshot.id


def merge(*references: str, store: Any, **options: Any) -> MergeResult:
    return cachekeeper.merge(references, store=store, **options)


def restore(reference: str, place: Path, store: Any) -> Path:
    cachekeeper.restore(reference, cache_dir=place, store=store, verify=True)
    return place


def objects(store: Path) -> set[str]:
    return {path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file()}


def distinct_frames(store: Path, *names: str) -> set[tuple[str, int, int]]:
    """(pack, offset, stored) of every frame that snapshots need."""
    repository = open_repository(store)
    found = [repository.manifest(repository.resolve(name)).tables for name in names]
    return {(table.packs[frame.pack].id, frame.offset, frame.stored) for table in found for frame in table.frames}


@pytest.fixture
def ranks(tmp_path: Path, store: Path) -> tuple[Path, Path]:
    """Two caches without a common entry, saved as `a` and `b`."""
    one, other = make_cache(tmp_path / "a", seed=1), make_cache(tmp_path / "b", seed=2)
    save("a", one, store)
    save("b", other, store)
    return one, other


# The union


def test_a_merged_snapshot_restores_to_both_caches_together(ranks: tuple[Path, Path], store: Path, tmp_path: Path):
    before = objects(store)
    result = merge("a", "b", store=store, name="both", message="why not")
    new = objects(store) - before
    assert {key.partition("/")[0] for key in new} == {"snapshots", "names"}, "no pack is written"
    place = restore("both", tmp_path / "new", store)
    assert unplaced(place) == unplaced(ranks[0]) | unplaced(ranks[1])
    assert result.ok and result.name_moved and not result.conflicts and result.snapshot
    assert result.shares["triton"].only == (4, 4) and result.shares["triton"].shared == 0
    assert cachekeeper.verify("both", store=store).ok


def test_the_header(ranks: tuple[Path, Path], store: Path):
    first = save("both", ranks[0], store, metrics={"tok_s": 1.0}, message="not this")
    result = merge("a", "b", store=store, name="both", message="why not")
    assert result.snapshot
    header = result.snapshot.header
    one, other = (cachekeeper.show(name, store=store).snapshot for name in "ab")
    assert header.origin == f"merge of {one.id[:8]}, {other.id[:8]}"
    assert (header.name, header.parent, header.message, dict(header.metrics)) == ("both", first, "why not", {})
    assert (header.cache_dir, header.proof, header.live, header.damaged) == ("", None, (), ())
    assert header.fingerprint == one.header.fingerprint
    assert header.counts["fxgraph"] == Count(8, 8, 8 * 3003)
    assert header.entries == one.header.entries + other.header.entries
    assert header.stored == sum(stored for *_, stored in distinct_frames(store, "a", "b"))
    assert header.targets == ("cuda:90",) and dict(header.triton_dirs) == {"triton/0": 8}


def test_what_is_known_of_the_graphs_of_each_is_kept(store: Path, tmp_path: Path):
    known = [Graph("fx", "miss", f"f{number}", components=("[a] gm: g",)) for number in range(2)]
    for number, graph in enumerate(known):
        log = Log(Process(number, "host", 5.0), (Compiled(6.0, "main", graph),))
        save(f"rank{number}", make_cache(tmp_path / str(number), seed=number), store, told=[log])
    merged = merge("rank0", "rank1", store=store).snapshot
    assert merged is not None
    log = open_repository(store).telemetry(merged.id)
    assert log is not None and [event.graph for event in log.compiled] == known


def test_what_is_the_same_in_both_is_there_once(store: Path, tmp_path: Path):
    """Nodes that began with one snapshot and each compiled a part."""
    base = make_cache(tmp_path / "base", seed=1)
    nodes = [Path(shutil.copytree(base, tmp_path / name)) for name in "ab"]
    for node in nodes:  # what was saved of the copies must not point to the base
        for group in node.rglob("__grp__*"):
            group.write_text(group.read_text().replace(str(base), str(node)))
    for seed, node in enumerate(nodes, 50):
        make_triton_entry(node / "triton" / "0", seed=seed)
        make_cache(node, seed=seed, kernels=0, graphs=1)
        save(node.name, node, store)
    result = merge("a", "b", store=store, name="both")
    assert result.shares["fxgraph"] == union.Share((1, 1), shared=4)
    assert result.shares["triton"] == union.Share((1, 1), shared=4)
    assert unplaced(restore("both", tmp_path / "new", store)) == unplaced(nodes[0]) | unplaced(nodes[1])


def test_ranks_that_filled_a_directory_each(store: Path, tmp_path: Path):
    for device, name in enumerate("ab"):
        cache = tmp_path / name
        make_triton_entry(cache / "triton" / str(device), seed=1)  # the same kernel
        make_triton_entry(cache / "triton" / str(device), seed=10 + device)
        save(name, cache, store)
    result = merge("a", "b", store=store, name="both")
    assert result.snapshot and dict(result.snapshot.header.triton_dirs) == {"triton/0": 2, "triton/1": 2}
    assert result.shares["triton"] == union.Share((1, 1), shared=2)
    place = restore("both", tmp_path / "new", store)
    used = {path.name for path in (place / "triton" / "1").iterdir()}  # the one that TRITON_CACHE_DIR names
    assert used == {path.name for cache in "ab" for path in (tmp_path / cache / "triton").glob("*/*")}


def test_three_snapshots_in_any_order(store: Path, tmp_path: Path):
    for number, name in enumerate("abc"):
        save(name, make_cache(tmp_path / name, seed=number // 2), store)  # a and b are the same but for their place
    found = []
    for number, order in enumerate(permutations("abc")):
        if number == 0:
            with pytest.raises(UsageError):  # one id: the same files
                merge(*order, "a", store=store)
        merge(*order, store=store, name=f"all-{number}")
        found.append(unplaced(restore(f"all-{number}", tmp_path / f"new-{number}", store)))
    assert found[0] and all(item == found[0] for item in found)


def test_references_of_every_kind(store: Path, tmp_path: Path):
    old = save("x", make_cache(tmp_path / "a", seed=1), store)
    new = save("x", make_cache(tmp_path / "b", seed=2), store)
    assert [item.id for item in merge("x@{1}", new[:10], store=store).sources] == [old, new]
    with pytest.raises(NotFound):
        merge("x", "y", store=store)


@pytest.mark.parametrize("references", [[], ["a"], ["a", "a"], ["a", "a@{0}"], ["a", "b", "a"]])
def test_two_different_snapshots_at_least(ranks: object, store: Path, references: list[str]):
    before = objects(store)
    with pytest.raises(UsageError):
        merge(*references, store=store, name="both")
    assert objects(store) == before


def test_nothing_in_an_empty_store(store: Path):
    with pytest.raises(NotFound):
        merge("a", "b", store=store)
    assert not store.exists()


# Conflicts


def kernel_with(cache: Path, device: int, cubin: bytes, shared: int) -> Path:
    """The kernel of PR 92664: one name, and in each rank other code and another size of shared memory."""
    entry = make_triton_entry(cache / "triton" / str(device), seed=1)
    (entry / f"{KERNEL}.cubin").write_bytes(elf(cubin))
    metadata = json.loads((entry / f"{KERNEL}.json").read_bytes()) | {"shared": shared}
    (entry / f"{KERNEL}.json").write_text(json.dumps(metadata))
    return entry


@pytest.mark.parametrize("devices", [(0, 0), (0, 1)], ids=["one directory", "a directory for each device"])
def test_a_kernel_is_never_of_two_ranks(store: Path, tmp_path: Path, devices: tuple[int, int]):
    """pytorch PR 92664: the binary of rank A with the shared-memory size of rank B."""
    made = []
    for name, device, shared in zip("ab", devices, (544, 2560), strict=True):
        made.append(kernel_with(tmp_path / name, device, name.encode() * 900, shared))
        save(name, tmp_path / name, store)
    before = objects(store)
    with pytest.raises(CheckFailed) as caught:
        merge("a", "b", store=store, name="both")
    assert objects(store) == before
    assert type(caught.value) is CheckFailed and caught.value.exit_code == 3
    [kind, fact] = caught.value.facts
    assert kind == "1 triton" and f"{KERNEL}.cubin, {KERNEL}.json" in fact and f"triton/{devices[0]}/" in fact
    assert "`cachekeeper merge a b --name both --prefer first`" in caught.value.hint
    for prefer, taken in (("first", 0), ("b", 1), ("newest", 1)):
        result = merge("a", "b", store=store, name="both", prefer=prefer)
        assert [item.taken for item in result.conflicts] == [result.sources[taken].id]
        place = restore("both", tmp_path / f"new-{prefer}", store)
        kernels = [path for path in place.glob("triton/*/*") if path.is_dir()]
        assert kernels
        for kernel in kernels:
            for file in ("cubin", "json", "ptx"):
                assert (kernel / f"{KERNEL}.{file}").read_bytes() == (made[taken] / f"{KERNEL}.{file}").read_bytes()


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("native", "ab/cabc.main.so"),
        ("module", "ab/cabc.py"),
        ("autotune", f"ab/{'ab' * 32}.best_config"),
        ("autotune", "cache/abc"),
        ("fxgraph", "fxgraph/ab/fabc/graph"),
        ("aotautograd", "aotautograd/aabc/entry"),
        ("precompile", "dynamo/abc/entry"),
        ("other", "memoizer_cache.json"),
    ],
)
@pytest.mark.parametrize("variants", [False, True])
def test_conflicts_of_every_kind(store: Path, tmp_path: Path, kind: str, path: str, variants: bool):
    contents = {name: elf(name.encode()) if path.endswith(".so") else b'{"x": "%s"}\n' % name.encode() for name in "ab"}
    for seed, (name, data) in enumerate(contents.items()):
        write(make_cache(tmp_path / name, seed=seed) / path, data)
        save(name, tmp_path / name, store)
    with pytest.raises(CheckFailed, match="1 entry has several versions") as caught:
        merge("a", "b", store=store, variants=variants)
    given = " --variants" if variants else ""
    assert f"`cachekeeper merge a b{given} --prefer first`" in caught.value.hint
    assert ("add --variants" in caught.value.hint) == (kind in ("fxgraph", "aotautograd") and not variants)
    result = merge("a", "b", store=store, name="both", prefer="b", variants=variants)
    [conflict] = result.conflicts
    assert (conflict.kind, result.shares[kind].conflicts) == (kind, 1)
    assert [version.files for version in conflict.versions] == [(path,), (path,)]
    assert (restore("both", tmp_path / "new", store) / path).read_bytes() == contents["b"]


def test_a_module_and_its_library_come_from_one_snapshot(store: Path, tmp_path: Path):
    """They share a stem. One has the module only, the other also a library: that is another version."""
    for name in "ab":
        write(tmp_path / name / "ab" / "cabc.py", b"x = 1\n")
    write(tmp_path / "b" / "ab" / "cabc.so", elf(b"b"))
    for name in "ab":
        save(name, tmp_path / name, store)
    with pytest.raises(CheckFailed):
        merge("a", "b", store=store)
    merge("a", "b", store=store, name="both", prefer="a")
    assert tree(restore("both", tmp_path / "new", store)).keys() == {"ab/cabc.py"}
    merge("a", "b", store=store, name="both", prefer="b")
    assert tree(restore("both", tmp_path / "new2", store)).keys() == {"ab/cabc.py", "ab/cabc.so"}


def test_a_file_of_one_where_the_other_has_a_directory(store: Path, tmp_path: Path):
    for name, path in (("a", "cache/x"), ("b", "cache/x/y/z")):
        write(make_cache(tmp_path / name, seed=1) / path, b"{}\n")
        save(name, tmp_path / name, store)
    with pytest.raises(CheckFailed, match="1 entry has several versions"):
        merge("a", "b", store=store)
    for prefer, path in (("a", "cache/x"), ("b", "cache/x/y/z")):
        merge("a", "b", store=store, name=prefer * 3, prefer=prefer)
        assert (restore(prefer * 3, tmp_path / f"new-{prefer}", store) / path).read_bytes() == b"{}\n"


def graph(cache: Path, *names: str) -> Path:
    """Files under the key of a graph, each named by its content."""
    for name in names:
        write(cache / "fxgraph" / "ab" / "fabc" / name, b"\x80\x05" + name.encode() + b".")
    return cache


def test_a_graph_with_other_files_is_another_version(store: Path, tmp_path: Path):
    """Each rank's timings are in its files, so that their names differ."""
    for name, files in (("a", ("one", "both")), ("b", ("two", "both"))):
        save(name, graph(make_cache(tmp_path / name, seed=1), *files), store)
    with pytest.raises(CheckFailed) as caught:
        merge("a", "b", store=store)
    assert (
        caught.value.facts[0] == "1 fxgraph" and "one" in caught.value.facts[1] and "both" not in caught.value.facts[1]
    )
    assert "--variants" in caught.value.hint
    result = merge("a", "b", store=store, name="both", prefer="b")
    assert any("--variants keeps them all" in note for note in result.notes)
    key = restore("both", tmp_path / "new", store) / "fxgraph" / "ab" / "fabc"
    assert {path.name for path in key.iterdir()} == {"two", "both"}


def test_variants_of_a_graph_may_be_kept(store: Path, tmp_path: Path):
    for name, files in (("a", ("one", "both")), ("b", ("two", "both")), ("c", ("both",))):
        save(name, graph(make_cache(tmp_path / name, seed=1), *files), store)
    result = merge("a", "b", "c", store=store, name="all", variants=True)
    assert not result.conflicts and result.shares["fxgraph"] == union.Share((0, 0, 0), shared=4, variants=1)
    assert result.snapshot and result.snapshot.header.counts["fxgraph"].entries == 5
    key = restore("all", tmp_path / "new", store) / "fxgraph" / "ab" / "fabc"
    assert {path.name: path.read_bytes() for path in key.iterdir()} == {
        name: b"\x80\x05" + name.encode() + b"." for name in ("one", "two", "both")
    }


def test_what_the_preferred_one_does_not_have_stays_a_conflict(store: Path, tmp_path: Path):
    for number, name in enumerate("abc"):
        cache = make_cache(tmp_path / name, seed=1)
        if number:
            write(cache / "cache" / "x", b'{"x": %d}' % number)
        save(name, cache, store)
    with pytest.raises(CheckFailed) as caught:
        merge("a", "b", "c", store=store, prefer="a")
    assert caught.value.hint.startswith("a has none of these; ")
    for prefer, content in (("first", b'{"x": 1}'), ("newest", b'{"x": 2}')):
        merge("a", "b", "c", store=store, name="all", prefer=prefer)
        assert (restore("all", tmp_path / prefer, store) / "cache" / "x").read_bytes() == content


def test_newest_goes_by_time(store: Path, tmp_path: Path):
    for name in "ab":
        write(make_cache(tmp_path / name, seed=1) / "cache" / "x", b'{"x": "%s"}' % name.encode())
        save(name, tmp_path / name, store)
    repository = open_repository(store)
    later = repository.manifest(repository.resolve("a"))
    newest = repository.commit(replace(later.header, created="2099-01-31T08:15:00Z"), later.tables).id
    for order in ((newest, "b"), ("b", newest)):
        result = merge(*order, store=store, prefer="newest", dry_run=True)
        assert [item.taken for item in result.conflicts] == [newest]


def test_one_that_is_not_merged_cannot_be_preferred(ranks: object, store: Path, tmp_path: Path):
    save("c", make_cache(tmp_path / "c", seed=3), store)
    with pytest.raises(UsageError, match="not among"):
        merge("a", "b", store=store, prefer="c")
    with pytest.raises(NotFound):
        merge("a", "b", store=store, prefer="nothing")


def test_the_list_of_conflicts_is_bounded(store: Path, tmp_path: Path):
    for name in "ab":
        for number in range(100):
            write(tmp_path / name / "cache" / f"{number:03}", b'{"x": "%s"}' % name.encode())
        save(name, tmp_path / name, store)
    with pytest.raises(CheckFailed) as caught:
        merge("a", "b", store=store)
    assert len(caught.value.facts) == 14 and caught.value.facts[-1].startswith("and 88 more")
    assert len(merge("a", "b", store=store, dry_run=True).conflicts) == 100


# Dry run


def test_a_dry_run_writes_nothing(store: Path, tmp_path: Path):
    for name in "ab":
        save(name, kernel_with(tmp_path / name, 0, name.encode(), 1).parents[2], store)
    before = objects(store)
    result = merge("a", "b", store=store, name="both", dry_run=True)
    assert result.snapshot is None and not result.ok and result.dry_run and not result.name_moved
    assert [item.taken for item in result.conflicts] == [""] and result.shares["triton"].conflicts == 1
    assert merge("a", "b", store=store, prefer="first", dry_run=True).ok
    assert merge("a", "b", store=open_store(str(store), read_only=True), prefer="first", dry_run=True).ok
    with pytest.raises(ReadOnly):
        merge("a", "b", store=open_store(str(store), read_only=True), prefer="first")
    assert objects(store) == before


# Environments


def test_other_environments_never_mix(ranks: object, store: Path, tmp_path: Path, machine: Machine):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    save("c", make_cache(tmp_path / "c", seed=3), store)
    before = objects(store)
    with pytest.raises(EnvironmentMismatch) as caught:
        merge("a", "b", "c", store=store, name="all", prefer="first")
    assert objects(store) == before and caught.value.exit_code == 4
    ids = [cachekeeper.show(name, store=store).snapshot.id[:8] for name in "ac"]
    assert caught.value.facts == (f"torch  2.11.0 in {ids[0]}   2.12.0 in {ids[1]}",)


def test_what_was_saved_without_torch_is_said_in_a_line_each(store: Path, tmp_path: Path, machine: Machine):
    known, missing = machine.fingerprint, Fact(unknown="torch is not installed in this Python")
    machine.fingerprint = replace(known, must={**known.must, "torch": missing})
    for seed, name in enumerate("ab"):
        save(name, make_cache(tmp_path / name, seed=seed), store)
    with pytest.raises(EnvironmentMismatch, match="depend on is not known") as caught:
        merge("a", "b", store=store)
    ids = [cachekeeper.show(name, store=store).snapshot.id[:8] for name in "ab"]
    assert caught.value.facts == tuple(f"{id}  torch is not installed in this Python" for id in ids)
    assert "with the job's Python" in caught.value.hint


def test_what_only_libraries_depend_on(store: Path, tmp_path: Path, machine: Machine):
    """It counts where any of them has a library, since the union has it too."""
    for seed, (name, threads) in enumerate((("a", 1), ("b", 2), ("c", 2))):
        machine.fingerprint = samples.fingerprint(threads=Fact(threads))
        cache = make_cache(tmp_path / name, seed=seed, graphs=1 if name == "c" else 0)
        save(name, cache, store)
    assert any("threads 1 in" in note for note in merge("a", "b", store=store).notes)
    for order in permutations("ac"):
        with pytest.raises(EnvironmentMismatch):
            merge(*order, store=store)


def test_lesser_differences_are_noted(ranks: object, store: Path, tmp_path: Path, machine: Machine):
    machine.fingerprint = replace(machine.fingerprint, should={"driver": Fact("575.1")})
    save("c", make_cache(tmp_path / "c", seed=3), store)
    result = merge("a", "c", store=store)
    assert any(note.startswith("driver 570.86.10 in ") and "575.1 in" in note for note in result.notes)
    assert result.snapshot and result.snapshot.header.fingerprint.should["driver"] == Fact("570.86.10")


def test_models_are_compared_two_by_two(store: Path, tmp_path: Path, machine: Machine):
    for seed, model in enumerate((None, ModelHash("1" * 64), ModelHash("2" * 64))):
        machine.fingerprint = replace(machine.fingerprint, model=model)
        save("abc"[seed], make_cache(tmp_path / "abc"[seed], seed=seed), store)
    assert merge("a", "b", store=store).ok
    with pytest.raises(EnvironmentMismatch):
        merge("a", "b", "c", store=store)


# Headers of the parts


def test_what_was_said_of_the_parts_is_said_of_the_whole(store: Path, tmp_path: Path):
    caches = [make_cache(tmp_path / name, seed=seed) for seed, name in enumerate("ab")]
    (caches[0] / "cache" / "x").write_bytes(b"{")
    save("a", caches[0], store, allow_damaged=True)
    save("b", caches[1], store)
    repository = open_repository(store)
    other = repository.manifest(repository.resolve("b"))
    step = Proof("train.py:step", "", "2026-01-31T08:10:00Z", False, False, ())
    live = repository.commit(replace(other.header, live=("it changes",), proof=step), other.tables).id
    result = merge("a", live, store=store)
    assert result.snapshot and result.snapshot.header.live == (f"{live[:8]}: it changes",)
    [line] = result.snapshot.header.damaged
    assert line.startswith(f"{result.sources[0].id[:8]}: cache/x: JSON does not parse")
    assert result.snapshot.header.proof is None
    assert any("certificate" in note for note in result.notes) and any("damaged" in note for note in result.notes)


def test_allowed_secrets_of_what_was_taken_are_said(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    secret = "0123456789abcdef0123456789abcdef01234567"
    monkeypatch.setenv("WANDB_API_KEY", secret)
    for name, text in (("a", secret), ("b", "")):
        cache = make_cache(tmp_path / name, seed=1)
        (cache / "cache" / "x").write_text(json.dumps({"a": text}))
        save(name, cache, store, allow_secrets=True)
    for prefer, secrets in (("a", ("cache/x  the value of WANDB_API_KEY",)), ("b", ())):
        result = merge("a", "b", store=store, prefer=prefer)
        assert result.snapshot and result.snapshot.header.secrets == secrets


def test_damage_that_was_left_out_is_not_said(store: Path, tmp_path: Path):
    for name, data in (("a", b"{"), ("b", b"{}")):
        cache = make_cache(tmp_path / name, seed=1)
        (cache / "cache" / "x").write_bytes(data)
        kernel = kernel_with(cache, 0, b"code", 1)
        if name == "a":
            (kernel / f"{KERNEL}.cubin").write_bytes(b"")
        save(name, cache, store, allow_damaged=True)
    assert len(cachekeeper.show("a", store=store).snapshot.header.damaged) == 3
    for prefer, number in (("a", 3), ("b", 0)):
        result = merge("a", "b", store=store, prefer=prefer)
        assert result.snapshot and len(result.snapshot.header.damaged) == number
        assert any(note.startswith(f"{number} damaged entries in it") for note in result.notes) == (number > 0)


def test_directories_beside_the_cache(store: Path, tmp_path: Path):
    for name in "ab":
        cache = make_cache(tmp_path / name, seed=ord(name))
        beside = tmp_path / f"beside-{name}" / "kernels"
        make_triton_entry(beside, seed=1)
        make_triton_entry(beside, seed=ord(name))
        save(name, cache, store, also=[beside])
    result = merge("a", "b", store=store, name="both")
    assert result.snapshot and dict(result.snapshot.header.also) == {"kernels": str(tmp_path / "beside-a" / "kernels")}
    assert result.snapshot.header.triton_dirs["also/kernels"] == 3
    place = restore("both", tmp_path / "new", store)
    assert len(list((place / "also" / "kernels").iterdir())) == 3


# Names


def test_the_name_stays_where_the_union_is_much_smaller(ranks: object, store: Path, tmp_path: Path):
    big = save("big", make_cache(tmp_path / "big", seed=5, kernels=40, graphs=40), store)
    result = merge("a", "b", store=store, name="big")
    assert not result.name_moved and not result.ok and result.shrunk_from > 0
    assert open_repository(store).latest("big") == big
    assert result.snapshot and cachekeeper.verify(result.snapshot.id, store=store).ok
    assert merge("a", "b", store=store, name="big", force=True).name_moved
    assert open_repository(store).latest("big") != big


@pytest.mark.parametrize("name", ["latest", "abcd", "-x", ""])
def test_a_name_that_is_none(ranks: object, store: Path, name: str):
    before = objects(store)
    with pytest.raises(UsageError):
        merge("a", "b", store=store, name=name)
    assert objects(store) == before


def test_the_configured_name(ranks: object, store: Path, monkeypatch: pytest.MonkeyPatch):
    assert merge("a", "b", store=store).name == ""
    monkeypatch.setenv("CACHEKEEPER_NAME", "both")
    result = merge("a", "b", store=store)
    assert result.snapshot and open_repository(store).latest("both") == result.snapshot.id


# What is damaged, or goes away


def test_a_pack_that_is_missing_or_cut(ranks: object, store: Path):
    pack = next((store / "packs").iterdir())
    data = pack.read_bytes()
    pack.chmod(0o644)
    for change in (lambda: pack.write_bytes(data[:-1]), pack.unlink):
        change()
        before = objects(store)
        with pytest.raises(DamagedStore, match="1 pack of these snapshots cannot be used"):
            merge("a", "b", store=store, name="both")
        with pytest.raises(DamagedStore):
            merge("a", "b", store=store, dry_run=True)
        assert objects(store) == before


def test_a_manifest_that_is_damaged(ranks: object, store: Path):
    manifest = store / "snapshots" / f"{open_repository(store).resolve('b')}.json.zst"
    manifest.chmod(0o644)
    manifest.write_bytes(manifest.read_bytes()[:-5])
    before = objects(store)
    with pytest.raises(DamagedStore):
        merge("a", "b", store=store, name="both")
    assert objects(store) == before


class Stopping(MemoryStore):
    """Dies before the write of one kind of object."""

    stop = ""

    def create(self, key: str, *parts: Any) -> bool:
        if self.stop and key.startswith(self.stop):
            raise KeyboardInterrupt
        return super().create(key, *parts)


@pytest.mark.parametrize("stop", ["snapshots/", "names/"])
def test_a_crash_leaves_no_half_snapshot(tmp_path: Path, stop: str):
    store = Stopping()
    for seed, name in enumerate("ab"):
        save(name, make_cache(tmp_path / name, seed=seed), store)
    store.stop = stop
    with pytest.raises(KeyboardInterrupt):
        merge("a", "b", store=store, name="both")
    store.stop = ""
    assert cachekeeper.verify(every=True, store=store).ok
    assert "both" not in open_repository(store).names()
    assert merge("a", "b", store=store, name="both").name_moved
    restore("both", tmp_path / "new", store)


def test_one_name_twice_in_a_manifest_of_others(ranks: object, store: Path):
    """Entries that say nothing of their files' paths: what would not restore is not written."""
    repository = open_repository(store)
    good = repository.manifest(repository.resolve("a"))
    entries = tuple(EntryRow("other", f"x{number}") for number in range(len(good.tables.entries)))
    counts = {"other": Count(len(entries), good.header.files, good.header.bytes)}
    snapshot, data = encode(replace(good.header, counts=counts), replace(good.tables, entries=entries))
    store_object = store / "snapshots" / f"{snapshot.id}.json.zst"
    store_object.write_bytes(data)
    before = objects(store)
    with pytest.raises((CheckFailed, DamagedStore)):
        merge("a", snapshot.id, store=store, name="both")
    assert objects(store) == before
    result = merge("a", snapshot.id, store=store, prefer="first")
    assert result.snapshot and cachekeeper.verify(result.snapshot.id, store=store).ok


def test_large_and_empty_files(store: Path, tmp_path: Path):
    """A file over several frames, and one in none."""
    for name in "ab":
        cache = make_cache(tmp_path / name, seed=ord(name))
        write(cache / f"large-{name}", name.encode() * (20 << 20))
        write(cache / f"empty-{name}", b"")
        save(name, cache, store)
    result = merge("a", "b", store=store, name="both")
    assert result.snapshot and result.snapshot.header.counts["other"].files == 4
    place = restore("both", tmp_path / "new", store)
    assert (place / "large-b").read_bytes() == b"b" * (20 << 20) and (place / "empty-a").read_bytes() == b""
    assert unplaced(place) == unplaced(tmp_path / "a") | unplaced(tmp_path / "b")


# Any entries


PLACES = (
    "triton/0/HASH/k.json",
    "triton/0/HASH/k.cubin",
    "triton/1/HASH/k.json",
    "triton/1/HASH/k.cubin",
    "fxgraph/ab/fabc/one",
    "fxgraph/ab/fabc/two",
    "aotautograd/aabc/one",
    "ab/cabc.py",
    "ab/cabc.so",
    "ab/cdef.so",
    "cache/x",
    "cache/x/y",
    "also/k/HASH/k.json",
)
HASH = "A" * 52
caches = st.dictionaries(st.sampled_from(PLACES), st.sampled_from([b"", b"1", b"2"]), min_size=1).filter(
    lambda cache: not {"cache/x", "cache/x/y"} <= cache.keys()
)


def manifest(cache: dict[str, bytes], number: int) -> Manifest:
    """A manifest of some files, in a pack of its own."""
    entries: dict[tuple[str, str], int] = {}
    rows, frames, offset = [], [], 0
    for path, data in sorted((path.replace("HASH", HASH), data) for path, data in cache.items()):
        place = classify(path)
        assert place
        entry = entries.setdefault(place, len(entries))
        rows.append(FileRow(path, 0o644, len(data), hashlib.sha256(data).hexdigest(), len(frames), 0, entry))
        frames.append(FrameRow(0, offset, 10, len(data)))
        offset += 10
    table = Tables(
        (PackRow(f"{number:064x}", 10_000),), tuple(frames), tuple(EntryRow(*entry) for entry in entries), tuple(rows)
    )
    header = samples.header(counts=manifests.counts(table), also={"k": "/k"})
    check(header, table)
    snapshot, _ = encode(header, table)
    return Manifest(f"{number:064x}", snapshot.header, table)


def whole(source: Manifest) -> dict[EntryRow, frozenset[tuple[str, str]]]:
    """Entry -> its files."""
    found: dict[EntryRow, set[tuple[str, str]]] = {}
    for file in source.tables.files:
        found.setdefault(source.tables.entries[file.entry], set()).add((file.path, file.sha256))
    return {entry: frozenset(files) for entry, files in found.items()}


@settings(max_examples=300, deadline=None)
@given(st.lists(caches, min_size=2, max_size=4), st.booleans())
def test_every_entry_is_whole_from_one_source(found: list[dict[str, bytes]], preferring: bool):
    sources = [manifest(cache, number) for number, cache in enumerate(found)]
    result = union.unite(sources, range(len(sources)) if preferring else ())
    table = tables.united(sources, result.parts)
    check(samples.header(counts=manifests.counts(table), also={"k": "/k"}), table)
    merged = whole(Manifest("", samples.header(), table))
    parts = list(map(whole, sources))
    for entry, files in merged.items():
        assert any(part.get(entry) == files for part in parts)
    if not result.conflicts:
        assert merged.keys() == {entry for part in parts for entry in part}
    for file in table.files:  # every file lies in a pack of a source that has it
        if file.size:
            number = int(table.packs[table.frames[file.frame].pack].id, 16)
            assert file.sha256 in {other.sha256 for other in sources[number].tables.files if other.path == file.path}


@settings(max_examples=300, deadline=None)
@given(st.lists(caches, min_size=2, max_size=3))
@example(
    [
        {"triton/0/HASH/k.cubin": b"", "triton/1/HASH/k.json": b""},
        {"triton/1/HASH/k.cubin": b"", "triton/0/HASH/k.json": b""},
    ]
)
def test_a_conflict_is_one_path_with_two_contents(found: list[dict[str, bytes]]):
    sources = [manifest(cache, number) for number, cache in enumerate(found)]
    result = union.unite(sources)
    stems = [{entry.path: set() for entry in whole(source)} for source in sources]
    for contents, source in zip(stems, sources, strict=True):
        for entry, files in whole(source).items():
            contents[entry.path] |= files
    paths = {path for contents in stems for path in contents}
    differing = {path for path in paths if len({frozenset(c[path]) for c in stems if path in c}) > 1}
    named = {path for left in result.left for path in left}
    assert differing <= named
    kernel = {path for path in paths if HASH in path}
    nested = {path for path in paths if path.startswith("cache/")} if {"cache/x", "cache/x/y"} <= paths else set()
    assert named <= differing | kernel | nested
    if not (kernel & named) and not nested:
        assert bool(result.conflicts) == bool(differing)


@settings(max_examples=200, deadline=None)
@given(st.lists(caches, min_size=2, max_size=3), st.randoms(use_true_random=False))
def test_without_conflicts_the_order_does_not_matter(found: list[dict[str, bytes]], random: Any):
    sources = [manifest(cache, number) for number, cache in enumerate(found)]
    mixed = random.sample(sources, len(sources))
    one, other = union.unite(sources), union.unite(mixed)
    assert [(item.kind, item.entry, len(item.versions)) for item in one.conflicts] == [
        (item.kind, item.entry, len(item.versions)) for item in other.conflicts
    ]
    if not one.conflicts:
        ours, theirs = tables.united(sources, one.parts), tables.united(mixed, other.parts)
        assert whole(Manifest("", samples.header(), ours)) == whole(Manifest("", samples.header(), theirs))


def test_builds_of_a_kernel_that_change_places():
    """The same two builds in both, but not in the same directories: `triton/0` would be of the one or of the other."""
    places = ("triton/0/HASH/k.json", "triton/1/HASH/k.json")
    builds = ((b"1", b"2"), (b"2", b"1"))
    sources = [manifest(dict(zip(places, there, strict=True)), number) for number, there in enumerate(builds)]
    [conflict] = union.unite(sources).conflicts
    assert [len(version.snapshots) for version in conflict.versions] == [1, 1]


def test_a_path_of_two_thousand_directories():
    deep = "a/" * 1900 + "x"
    sources = [manifest({path: b"1"}, number) for number, path in enumerate((deep, deep + "/y"))]
    assert len(union.unite(sources).conflicts) == 1
    assert not union.unite([sources[0], manifest({"a/x": b"1"}, 2)]).conflicts


def test_the_parts_of_the_package_are_found():
    assert merging.__all__ == ["Conflict", "MergeResult", "Share", "Version", "merge"]
