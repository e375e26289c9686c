"""A cache's files -> its inventory."""

from __future__ import annotations

import gzip
import json
import math
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.inductor.sources import module_name
from cachekeeper.inventory import budget, graphs, kernels, reading
from cachekeeper.inventory.models import Coverage, Inventory, Kernel, Option, Product, Winner
from cachekeeper.inventory.reading import inventory
from cachekeeper.inventory.tree import LiveTree, SnapshotTree, alike
from cachekeeper.models import Graph as ToldGraph
from cachekeeper.repository import open_repository
from cachekeeper.telemetry import Compiled, Log, Process
from cachekeeper.testing import make_cache

from .caches import (
    ADD,
    AUTOGRAD_KEY,
    COMPONENTS,
    FIRST,
    GELU,
    GOLDEN,
    KEY,
    NORM,
    OWN,
    SECOND,
    TEMPLATE,
    WRAPPER,
    WRAPPER_MODULE,
    WRAPPER_TEXT,
    MemoryTree,
    best_config,
    compiled,
    gpu_cache,
    graph_pickle,
    module_of,
    place,
    write_files,
)


def seen(files: dict[str, bytes], **options: object) -> Inventory:
    return inventory(MemoryTree(files), **options)  # type: ignore[arg-type]


def kernel(found: Inventory, name: str) -> Kernel:
    (kernel,) = [kernel for kernel in found.kernels if kernel.name == name]
    return kernel


def without(files: dict[str, bytes], *parts: str) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if not any(part in path for part in parts)}


def log(*graphs: tuple[ToldGraph, float | None]) -> Log:
    return Log(Process(1, "host", 0.0), tuple(Compiled(0.0, "MainThread", graph, at) for graph, at in graphs))


# Graphs


def test_a_graph_is_joined_with_its_wrapper_and_the_entry_that_names_it():
    (graph,) = seen(gpu_cache()).graphs
    assert (graph.key, graph.direction, graph.device) == (KEY, "forward", "cuda:0")
    assert graph.wrapper == WRAPPER_MODULE
    assert graph.kernels == (NORM, TEMPLATE, ADD, GELU, ADD, OWN)
    assert graph.calls == {"extern_kernels.addmm": 4}
    assert graph.inputs[:2] == ("bf16[8, 512, 256]", "bf16[256]")
    assert graph.operations["aten.addmm"] == 4
    assert graph.components == COMPONENTS
    assert (graph.seconds, graph.variants, graph.entry) == (2.5, 1, AUTOGRAD_KEY)
    assert graph.bytes == len(gpu_cache()[f"fxgraph/gr/{KEY}/entry"])


def test_telemetry_comes_first():
    told = ToldGraph("fx", "miss", KEY, function="forward (model.py:12)", components=("[a] b: c",))
    later = ToldGraph("fx", "hit", KEY, function="other (model.py:99)")
    (graph,) = seen(gpu_cache(), telemetry=log((told, 7.0), (later, 0.1))).graphs
    assert (graph.function, graph.seconds, graph.components) == ("forward (model.py:12)", 7.0, ("[a] b: c",))
    assert graph.direction == "forward"


def test_seconds_of_a_hit_are_not_those_of_compiling():
    (graph,) = seen(gpu_cache(), telemetry=log((ToldGraph("fx", "hit", KEY), 0.1))).graphs
    assert graph.seconds == 2.5


def test_variants_of_a_graph_are_counted():
    files = gpu_cache() | {f"fxgraph/gr/{KEY}/other": graph_pickle("c" * 52, "")}
    (graph,) = seen(files).graphs
    assert (graph.variants, graph.wrapper) == (2, WRAPPER_MODULE)


def test_an_entry_alone_tells_its_wrapper_and_kernels():
    found = seen({f"fxgraph/gr/{KEY}/entry": gpu_cache()[f"fxgraph/gr/{KEY}/entry"]})
    assert found.graphs[0].kernels == (NORM, TEMPLATE, ADD, GELU, ADD, OWN)
    assert {item.name for item in found.kernels} == {NORM, TEMPLATE, ADD, GELU, OWN}
    assert kernel(found, ADD).module == module_of(ADD)
    assert kernel(found, ADD).source.startswith("@triton.jit\ndef triton_poi_fused_add_view_2(")
    assert (kernel(found, ADD).compiled, kernel(found, ADD).winner) == (0, Winner())


def test_an_unreadable_entry_is_still_a_graph():
    files = {**gpu_cache(), f"fxgraph/gr/{KEY}/entry": b"\x80\x04cut"}
    found = seen(files, telemetry=log((ToldGraph("fx", "miss", KEY, direction="forward", device="cuda:0"), 3.0)))
    (graph,) = found.graphs
    assert (graph.direction, graph.wrapper, graph.content, graph.seconds) == ("forward", "", "", 3.0)
    assert kernel(found, ADD).graphs == ()
    assert kernel(found, ADD).winner.how == "recorded"


# Kernels


def test_a_recorded_choice_with_what_it_was_compiled_to():
    found = kernel(seen(gpu_cache()), ADD)
    assert (found.module, found.type, found.graphs, found.device) == (module_of(ADD), "pointwise", (KEY,), "cuda:0")
    assert found.size_hints == {"x": 1048576}
    config = {"XBLOCK": 512, "num_warps": 8, "num_stages": 1}
    assert found.winner == Winner(config, "recorded", tuning_seconds=0.04)
    assert found.compiled == 2
    binary = found.binary
    assert binary
    assert (binary.hash, binary.target, binary.num_warps, binary.num_stages) == (SECOND, "cuda:90", 8, 1)
    assert (binary.registers, binary.local_bytes, binary.static_shared, binary.code_bytes) == (18, 0, 0, 512)
    assert binary.tools == "ptxas 13.0.88 -lineinfo -arch sm_90a"
    assert (binary.ptx_bytes, binary.cubin_bytes) == (3993, 6608)
    assert binary.mix
    assert binary.mix["global store"] == 1


def test_bytes_of_a_kernel_are_its_module_directories_and_result():
    files = gpu_cache()
    mine = [place(module_of(ADD)), *(path for path in files if f"/{FIRST}/" in path or f"/{SECOND}/" in path)]
    mine += [path for path in files if path.endswith(".best_config")]
    assert kernel(seen(files), ADD).bytes == sum(len(files[path]) for path in mine)


def test_a_result_that_names_no_directory_is_found_by_what_fits():
    files = without(gpu_cache(), ".best_config")
    result = best_config("ho", XBLOCK=1024, num_warps=4, triton_cache_hash=None, found_by_coordesc=True)
    found = kernel(seen(files | result), ADD)
    assert found.winner.by_descent
    assert found.winner.config == {"XBLOCK": 1024, "num_warps": 4, "num_stages": 1}
    assert found.binary
    assert found.binary.hash == FIRST


@pytest.mark.parametrize(
    "config",
    [
        {"XBLOCK": 1024, "num_warps": 2},  # nothing was compiled with so many warps
        {"XBLOCK": 1024, "R0_BLOCK": 8, "num_warps": 4},  # the kernel has no such parameter
    ],
)
def test_a_result_that_does_not_fit_is_no_choice(config: dict[str, int]):
    files = without(gpu_cache(), ".best_config") | best_config("ho", triton_cache_hash=None, **config)
    found = kernel(seen(files), ADD)
    assert (found.winner, found.binary, found.compiled) == (Winner(), None, 2)


def test_two_results_that_fit_are_no_choice():
    files = without(gpu_cache(), ".best_config")
    for number in range(2):
        files |= best_config("ho", number, XBLOCK=1024 >> number, num_warps=4, triton_cache_hash=None)
    assert kernel(seen(files), ADD).winner == Winner()


def test_blocks_tell_configurations_of_as_many_warps_apart():
    files = without(gpu_cache(), ".best_config")
    for hash_, length in ((FIRST, 1024), (SECOND, 512)):
        files |= compiled(hash_, ADD, module_of(ADD), warps=4)
        files[f"triton/0/{hash_}/{ADD}.ttir"] += b"%%0 = tt.make_range {end = %d : i32, start = 0 : i32}\n" % length
    files |= best_config("ho", XBLOCK=512, num_warps=4, triton_cache_hash=None)
    found = kernel(seen(files), ADD)
    assert found.binary
    assert found.binary.hash == SECOND


def test_without_a_result_several_configurations_are_no_choice():
    found = kernel(seen(without(gpu_cache(), ".best_config")), ADD)
    assert (found.winner, found.binary, found.compiled) == (Winner(), None, 2)


def test_a_kernel_of_the_job_has_its_options_given():
    found = kernel(seen(gpu_cache()), OWN)
    assert found.type == "user_autotune"
    assert found.winner == Winner({"SIZE": 4096, "num_warps": 8, "num_stages": 3}, "given")
    assert found.source.startswith("@triton.jit\ndef softcap(source, target, cap, SIZE: tl.constexpr):")
    assert found.compiled == 1


def test_spills_are_told():
    name = "triton_red_fused_native_layer_norm_native_layer_norm_backward_view_11"
    files = compiled(FIRST, name, "c" * 52, cubin="spilled")
    (found,) = seen(files).kernels
    assert found.binary
    assert found.binary.local_bytes == 8
    assert found.type == "triton"  # no module holds it


def test_a_single_configuration_is_the_only_one():
    files = gpu_cache() | compiled("D" * 52, NORM, module_of(NORM), warps=4)
    assert kernel(seen(files), NORM).winner == Winner({"num_warps": 4, "num_stages": 1}, "only one")


def test_a_template_has_its_constants():
    found = kernel(seen(gpu_cache()), TEMPLATE)
    assert (found.type, found.winner.how) == ("template", "template")
    assert found.winner.config
    assert found.winner.config["BLOCK_M"] == 128
    assert found.winner.config["num_warps"] == 4


def test_directories_of_two_modules_with_a_kernel_of_one_name_are_told_apart():
    assert WRAPPER
    other = WRAPPER.sources[ADD].replace("tmp0 + tmp1", "tmp0 - tmp1")
    assert other != WRAPPER.sources[ADD]
    files = gpu_cache() | {place(module_name(other)): other.encode()}
    files |= compiled(SECOND, ADD, module_name(other), warps=8)
    files = without(files, ".best_config")
    found = kernel(seen(files), ADD)
    assert (found.compiled, found.winner.how) == (1, "only one")
    assert found.binary
    assert found.binary.hash == FIRST


def test_modules_of_two_devices_share_what_was_compiled():
    assert WRAPPER
    text = WRAPPER_TEXT.replace("index=0", "index=1")
    other = module_name(WRAPPER.sources[ADD].replace("index=0", "index=1"))
    # The wrapper says where its modules are; for the other device they are others.
    for source in WRAPPER.sources.values():
        text = text.replace(module_name(source), module_name(source.replace("index=0", "index=1")))
    files = gpu_cache() | {
        place(other): WRAPPER.sources[ADD].replace("index=0", "index=1").encode(),
        place(module_name(text)): text.encode(),
    }
    files |= best_config(other[1:3], XBLOCK=1024, num_warps=4, triton_cache_hash=FIRST)
    first, second = sorted((k for k in seen(files).kernels if k.name == ADD), key=lambda k: k.device)
    assert (first.device, second.device) == ("cuda:0", "cuda:1")
    assert (first.compiled, second.compiled) == (2, 2)
    assert first.binary
    assert second.binary
    assert (first.binary.hash, second.binary.hash) == (SECOND, FIRST)


def test_kernels_that_only_autotuning_tried_are_counted():
    template = (GOLDEN / "sources" / "template.txt").read_text()
    found = seen(gpu_cache() | {place(module_name(template)): template.encode()})
    assert found.tried == 1
    assert len(found.kernels) == 5


def test_kernels_without_any_wrapper_are_still_kernels():
    template = (GOLDEN / "sources" / "template.txt").read_text()
    files = without(gpu_cache(), "fxgraph", WRAPPER_MODULE) | {place(module_name(template)): template.encode()}
    found = seen(files)
    assert {item.name for item in found.kernels} == {NORM, TEMPLATE, ADD, GELU, "softcap"}
    assert kernel(found, ADD).winner.how == "recorded"
    assert found.tried == 1


def test_a_kernel_that_no_module_holds_is_the_jobs_own():
    files = compiled(FIRST, "dropout", "", warps=4) | compiled(SECOND, "dropout", "", warps=8)
    found = kernel(seen(files), "dropout")
    assert (found.type, found.module, found.compiled, found.binary) == ("triton", "", 2, None)
    assert found.bytes == sum(map(len, files.values()))


# C++


def cpu_cache() -> dict[str, bytes]:
    pickles = {name: gzip.decompress((GOLDEN / "sources" / f"cpu-{name}.pickle.gz").read_bytes()) for name in _PICKLES}
    return {f"fxgraph/zn/{CPU_KEY}/x": pickles["graph"], f"aotautograd/{AUTOGRAD_KEY}/x": pickles["autograd"]}


_PICKLES = ("graph", "autograd")
CPU_KEY = "fznlsffup6q5q3wrf3p6tfcrfvyf6r3zrdqts5oelxumajgo4yrr"


def test_cpp_kernels_are_read_from_the_graph():
    found = seen(cpu_cache())
    (graph,) = found.graphs
    assert (graph.device, graph.entry) == ("cpu", AUTOGRAD_KEY)
    (only,) = found.kernels
    assert (only.name, only.type, only.graphs, only.device) == (graph.kernels[0], "cpp", (CPU_KEY,), "cpu")
    assert only.vector_bits
    assert (only.module, only.flags, only.bytes) == ("", (), 0)


def test_cpp_kernels_are_joined_with_source_and_library():
    text = kernel_text()
    library = b"\x7fELF...GNU C++17 13.2.0 -march=x86-64-v3 -O3 -g1\0"
    module = "cc" + "a" * 50
    files = {f"ca/{module}.main.cpp": f"{text}\n// Python bindings to call kernel(): ...".encode()}
    files[f"ca/{module}.main.so"] = library
    (only,) = seen(cpu_cache() | files).kernels
    assert (only.module, only.flags) == (module, ("-O3", "-march=x86-64-v3"))
    assert only.bytes == sum(map(len, files.values()))


def kernel_text() -> str:
    from cachekeeper.inductor.graphs import graph_entry
    from cachekeeper.inductor.wrappers import wrapper_source

    entry = graph_entry(cpu_cache()[f"fxgraph/zn/{CPU_KEY}/x"])
    wrapper = wrapper_source(entry.source if entry else "")
    assert wrapper
    (text,) = wrapper.sources.values()
    return text


# Products


def test_options_of_a_product_are_named_by_their_modules():
    template = (GOLDEN / "sources" / "template.txt").read_text()
    module = module_name(template)
    lost = "c" + "q" * 51
    times = {f"triton_mm-{module}": 0.02, "mm-" + lost: 0.03, f"triton_mm-{lost}": math.inf}
    inputs = "[('cuda', 'torch.bfloat16', 8, 16, 16, 1, 0), ('cuda', 'torch.bfloat16', 16, 4, 4, 1, 0)]"
    document = {"system": {}, "cache": {"mm": {inputs: {"highest": times}}}}
    files = {f"cache/{'0' * 64}": json.dumps(document).encode(), place(module): template.encode()}
    named = "triton_mm BLOCK_M=32 BLOCK_N=32 BLOCK_K=16 num_warps=2 num_stages=1"
    assert seen(files).products == (
        Product(
            "mm",
            "bf16[8, 16] x bf16[16, 4]",
            "highest",
            (Option(named, 0.02), Option("mm", 0.03), Option("triton_mm (cqqqqqqq)", None)),
        ),
    )


# Coverage, listing


def test_coverage_and_listing():
    found = seen(gpu_cache())
    assert found.coverage == (Coverage("cuda:0", forward=1, kernels=5),)
    assert found.entries == {"aotautograd": 1, "autotune": 1, "fxgraph": 1, "module": 6, "triton": 3}
    assert found.bytes["aotautograd"] == len(gpu_cache()[f"aotautograd/{AUTOGRAD_KEY}/entry"])
    assert found.triton_dirs == {"triton/0": 3}
    assert found.notes == ()


def test_wrappers_stand_for_graphs_that_cannot_be_read():
    files = {**gpu_cache(), f"fxgraph/gr/{KEY}/entry": b"cut", "fxgraph/gr/fother/entry": b"cut"}
    assert seen(files).coverage == (Coverage("", unknown=1), Coverage("cuda:0", forward=1, kernels=5))


def test_nothing_gives_nothing():
    assert seen({}) == Inventory()


def test_files_of_another_kind_are_passed_over(tmp_path: Path):
    tree = LiveTree(make_cache(tmp_path / "cache", kernels=2, graphs=2))
    found = inventory(tree)
    assert len(found.graphs) == 2
    assert found.entries["triton"] == 2
    assert [item.compiled for item in found.kernels] == [2]


# What is read


def test_what_both_sides_have_alike_is_only_named():
    tree, other = MemoryTree(gpu_cache()), MemoryTree(gpu_cache())
    found = inventory(tree, skip=alike(tree, other))
    assert not [path for path in tree.asked if "/triton/" in path or path.endswith((".best_config", ".ptx", ".cubin"))]
    named = kernel(found, ADD)
    assert (named.module, named.graphs, named.type) == (module_of(ADD), (KEY,), "pointwise")
    assert (named.source, named.binary, named.winner) == ("", None, Winner())


def test_one_side_tells_as_much_as_the_other_where_they_differ():
    a, b = MemoryTree(gpu_cache()), MemoryTree(gpu_cache() | compiled("D" * 52, ADD, module_of(ADD), warps=2))
    skip = alike(a, b)
    first, second = (kernel(inventory(tree, skip=skip), ADD) for tree in (a, b))
    assert (first.compiled, second.compiled) == (2, 3)
    assert first.winner == second.winner
    assert kernel(inventory(a, skip=skip), OWN) == kernel(inventory(b, skip=skip), OWN)


def test_the_budget_leaves_the_longest_out_and_says_so(monkeypatch: pytest.MonkeyPatch):
    files = {
        **gpu_cache(),
        f"fxgraph/gr/{KEY}/entry": graph_pickle(WRAPPER_MODULE, WRAPPER_TEXT, ["[a] b: " + "x" * 10**6]),
    }
    monkeypatch.setattr(reading, "LIMIT", 300_000)
    found = seen(files)
    assert found.notes == ("1 entries of graphs not read, to be quick",)
    assert found.graphs[0].wrapper == ""
    assert kernel(found, ADD).winner.how == "recorded"
    assert seen(files, full=True).graphs[0].wrapper == WRAPPER_MODULE


def test_progress_never_passes_its_total(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(budget, "_BATCH_BYTES", 10_000)
    told: list[tuple[str, int, int]] = []
    tree = LiveTree(write_files(tmp_path / "cache", gpu_cache()))
    inventory(tree, progress=lambda *values: told.append(values))
    assert {stage for stage, _, _ in told} == {"Reading"}
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert all(done <= total for _, done, total in told)


def test_a_snapshot_has_the_inventory_of_its_directory(tmp_path: Path):
    cache = write_files(tmp_path / "cache", gpu_cache())
    cachekeeper.snapshot("drafter", cache_dir=cache, store=tmp_path / "store", wait=0, allow_damaged=True)
    repository = open_repository(tmp_path / "store")
    saved = inventory(SnapshotTree(repository, repository.manifest(repository.resolve("drafter"))))
    assert saved == replace(inventory(LiveTree(cache)), notes=saved.notes)
    assert saved.kernels


def many(files: dict[str, bytes], number: int = 13) -> dict[str, bytes]:
    """So many graphs that not all of their entries are walked: copies of one, which launch the same kernels."""
    real = gzip.decompress((GOLDEN / "sources" / "cpu-graph.pickle.gz").read_bytes())
    return files | {f"fxgraph/zn/f{'ab'[n % 2] * 50}{chr(97 + n)}/x": real for n in range(number)}


def test_of_many_graphs_only_the_beginning_is_read():
    found = seen(many(gpu_cache()))
    assert len(found.graphs) == 14
    assert {graph.content for graph in found.graphs} - {""} == {seen(cpu_cache()).graphs[0].content}
    assert sum(graph.device == "cpu" for graph in found.graphs) == 13
    # The other graph is walked after all, since its beginning is not as torch 2.11 writes it.
    assert kernel(found, ADD).graphs == (KEY,)


def test_of_many_graphs_those_that_are_alike_are_only_linked():
    a, b = MemoryTree(many(gpu_cache())), MemoryTree(many(gpu_cache()))
    found = inventory(a, skip=alike(a, b))
    (graph,) = [graph for graph in found.graphs if graph.key == KEY]
    assert (graph.wrapper, graph.direction, graph.device) == (WRAPPER_MODULE, "forward", "cuda:0")
    assert (graph.content, graph.components) == ("", ())
    assert kernel(found, ADD).graphs == (KEY,)


def test_a_changed_directory_makes_its_kernel_be_looked_into():
    path = f"triton/0/{FIRST}/{ADD}.json"
    changed = json.loads(gpu_cache()[path]) | {"num_stages": 5}
    a, b = MemoryTree(gpu_cache()), MemoryTree({**gpu_cache(), path: json.dumps(changed).encode()})
    for tree in (a, b):
        found = inventory(tree, skip=alike(a, b))
        assert kernel(found, ADD).compiled == 2
        assert kernel(found, ADD).winner.how == "recorded"
        assert kernel(found, OWN).compiled == 0  # alike, and only named


def test_more_kernels_than_there_is_time_for_are_only_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "_DETAILED", 2)
    found = seen(gpu_cache())
    assert found.notes == ("3 kernels not read, to be quick",)
    # What tells most comes first: templates and the job's own.
    assert {item.name for item in found.kernels if item.source} == {TEMPLATE, OWN}
    assert len(found.kernels) == 5
    assert all(item.source for item in seen(gpu_cache(), full=True).kernels)


def test_a_kernel_that_is_asked_for_comes_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "_DETAILED", 1)
    found = seen(gpu_cache(), wanted="gelu_view")
    assert {item.name for item in found.kernels if item.source} == {GELU}


def test_of_very_many_graphs_some_are_read_and_no_direction_is_guessed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(graphs, "_MOST_ENTRIES", 2)
    found = seen(many(gpu_cache()) | {place("c" + "z" * 51): WRAPPER_TEXT.encode()})
    assert found.notes == ("12 entries of graphs not read, to be quick",)
    assert sum(bool(graph.wrapper) for graph in found.graphs) == 2
    assert len(seen(many(gpu_cache()), full=True).graphs) == 14


def test_triton_own_autotuner_tells_the_time_of_a_choice():
    files = compiled(FIRST, "dropout", "", warps=4) | compiled(SECOND, "dropout", "", warps=8)
    timings = [({"kwargs": {"BLOCK": 64 * warps}, "num_warps": warps}, [warps / 100] * 3) for warps in (4, 8)]
    data = json.dumps({"key": [1], "configs_timings": timings}).encode()
    one = kernel(seen(files | {f"triton/0/{'K' * 52}/dropout.autotune.json": data}), "dropout")
    assert one.winner == Winner({"BLOCK": 256, "num_warps": 4}, "recorded", 0.04)
    assert one.binary
    assert (one.binary.hash, one.binary.num_warps) == (FIRST, 4)
    # Of two files nobody knows which is whose.
    two = seen(files | {f"triton/0/{letter * 52}/dropout.autotune.json": data for letter in "KL"})
    assert kernel(two, "dropout").winner == Winner()


# What cannot be read


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def in_the_middle(data: bytes) -> bytes:
    """All bits of the middle half flipped: its beginning and its end are whole."""
    first, last = len(data) // 4, len(data) * 3 // 4
    return data[:first] + bytes(byte ^ 0xFF for byte in data[first:last]) + data[last:]


def test_measurements_that_cannot_be_parsed_are_counted():
    assert seen({f"cache/{'0' * 64}": b'{"system": {}, "cache": {}}'}).unread == 0
    assert seen({f"cache/{'0' * 64}": b'{"system": {}, "cac'}).unread == 1


@pytest.mark.parametrize(
    ("part", "change", "note"),
    [
        (f"fxgraph/gr/{KEY}/entry", cut, "1 entries of graphs cannot be parsed: fxgraph/gr/"),
        (f"aotautograd/{AUTOGRAD_KEY}/entry", lambda data: b"", "1 entries of AOTAutograd cannot be parsed: "),
        (f"{SECOND}/{ADD}.cubin", lambda data: data[:200], "1 cubins cannot be parsed: triton/0/BBBB"),
        (f"fxgraph/gr/{KEY}/entry", in_the_middle, "1 entries of graphs cannot be parsed: fxgraph/gr/"),
        (f"{SECOND}/{ADD}.json", in_the_middle, "1 descriptions of kernels cannot be parsed: triton/0/BBBB"),
        (f"{SECOND}/{ADD}.json", cut, "1 descriptions of kernels cannot be parsed: triton/0/BBBB"),
        (".best_config", cut, "1 autotune results cannot be parsed: "),
        (place(module_of(ADD)), lambda data: bytes(len(data)), "1 modules cannot be parsed: "),
        (place(WRAPPER_MODULE), lambda data: b"", "1 modules cannot be parsed: "),
    ],
)
def test_files_that_cannot_be_parsed_are_counted(part: str, change: Callable[[bytes], bytes], note: str):
    files = gpu_cache()
    assert seen(files).unread == 0
    (path,) = [path for path in files if path.endswith(part)]
    found = seen({**files, path: change(files[path])})
    assert found.unread == 1
    assert [text for text in found.notes if text.startswith(note) and path in text]


def test_an_entry_of_autograd_that_names_no_graph_is_not_damaged():
    assert seen({f"aotautograd/{AUTOGRAD_KEY}/entry": pickle.dumps(["no graph"], protocol=4)}).unread == 0


def test_files_that_vanish_are_counted(tmp_path: Path):
    cache = write_files(tmp_path / "cache", gpu_cache())
    tree = LiveTree(cache)
    for path in (f"fxgraph/gr/{KEY}/entry", f"triton/0/{SECOND}/{ADD}.cubin"):
        (cache / path).unlink()
    found = inventory(tree)
    assert found.unread == 2
    (binary,) = [item.binary for item in found.kernels if item.name == ADD]
    assert binary
    assert binary.code == ""  # not read, which is not damaged


def test_machine_code_has_a_hash():
    binary = kernel(seen(gpu_cache()), ADD).binary
    assert binary
    assert binary.code == "7a520d9a5560"
    files = gpu_cache()
    path = f"triton/0/{SECOND}/{ADD}.cubin"
    binary = kernel(seen({**files, path: files[path][:200]}), ADD).binary
    assert binary
    assert (binary.code, binary.registers) == ("damaged", None)


def test_is_there_what_a_kernel_was_compiled_to():
    assert kernel(seen(gpu_cache()), ADD).built == "there"
    assert kernel(seen(gpu_cache()), NORM).built == "gone"  # none of its directories is in this cache
    assert kernel(seen(without(gpu_cache(), f"{SECOND}/{ADD}.cubin")), ADD).built == "gone"
    # Without a choice nobody knows which of the two it is, and one of them is there.
    assert kernel(seen(without(gpu_cache(), ".best_config", f"{SECOND}/{ADD}.cubin")), ADD).built == ""


def test_what_was_passed_over_is_said_of_each_kernel(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "_DETAILED", 2)
    assert {item.name for item in seen(gpu_cache()).kernels if not item.read} == {ADD, GELU, NORM}
    a, b = MemoryTree(gpu_cache()), MemoryTree(gpu_cache())
    found = inventory(a, skip=alike(a, b))
    assert kernel(found, ADD).read  # it need not be looked into
    assert kernel(found, ADD).binary is None


def test_an_eager_kernel_with_one_binary_has_nothing_to_choose():
    found = kernel(seen(compiled(FIRST, "dropout", "", warps=4)), "dropout")
    assert found.winner == Winner({"num_warps": 4, "num_stages": 1}, "only one")
    assert (found.built, found.binary and found.binary.hash) == ("there", FIRST)


@pytest.mark.parametrize(
    ("library", "built", "unread"),
    [(None, "gone", 0), (b"random" * 20, "damaged", 1), (Path(sys.executable).read_bytes(), "there", 0)],
)
def test_libraries_of_kernels_in_c_plus_plus(library: bytes | None, built: str, unread: int):
    module = "cc" + "a" * 50
    files = {f"ca/{module}.main.cpp": f"{kernel_text()}\n// Python bindings to call kernel(): ...".encode()}
    if library is not None:
        files[f"ca/{module}.main.so"] = library
    found = seen(cpu_cache() | files)
    (only,) = found.kernels
    assert (only.built, bool(only.code), found.unread) == (built, built == "there", unread)
