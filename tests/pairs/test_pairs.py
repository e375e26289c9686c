"""What `diff` says of real pairs, made by tests/pairs/make.py: those on H200s with torch 2.11, and some on a CPU."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path

import cachekeeper
from cachekeeper.diffing.models import Change, Difference, KernelPair
from cachekeeper.inventory.tree import SnapshotTree
from cachekeeper.repository import open_repository

STORE = Path(__file__).parents[1] / "golden/pairs"


@functools.cache
def diff(a: str, b: str) -> Difference:
    return cachekeeper.diff(a, b, store=STORE).difference


def kernel(found: Difference, name: str) -> KernelPair:
    return next(pair for pair in found.kernels.changed if pair.b.name == name)


def change(pair: KernelPair, name: str) -> Change:
    return next(change for change in pair.changes if change.name == name)


def says(found: Difference, *words: str) -> bool:
    """True where one suspect says all of it."""
    told = [" ".join((one.likelihood, one.effect, one.words, *one.evidence, one.advice)) for one in found.suspects]
    return any(all(word in text for word in words) for text in told)


def test_fewer_warps_that_spill():
    found = diff("default", "warps")
    assert found.verdict == ("warps is slower by 16 % (tok_s 15,931,277 -> 13,423,560): likely spills in softcap_0")
    pair = kernel(found, "softcap_0")
    assert (pair.effect, pair.matched, pair.source) == ("slower", "name and source", ())
    assert (change(pair, "spills").a, change(pair, "spills").b) == ("none", "4,144 bytes")
    assert (change(pair, "num_warps").a, change(pair, "num_warps").b) == ("8", "1")
    assert (change(pair, "registers").a, change(pair, "registers").b) == ("158", "168")
    assert (found.kernels.same, len(found.kernels.changed)) == (17, 1)
    (graph,) = found.graphs.pairs
    assert graph.because == ("own Triton kernel softcap: num_warps 8 -> 1",)
    assert (graph.a.direction, found.graphs.shared) == ("forward", 1)
    assert found.work.comparable == "yes"


def test_tensor_cores_that_are_gone():
    found = diff("tf32", "ieee")
    assert found.verdict == (
        "ieee is 9.7 times slower (tok_s 255,133,304 -> 26,389,309): likely tensor-core instructions gone from "
        "triton_tem_fused_flex_attention_0 (float32 matmul precision tf32 -> ieee)"
    )
    tensor = change(kernel(found, "triton_tem_fused_flex_attention_0"), "tensor instructions")
    assert (tensor.a, tensor.b, tensor.effect) == ("48", "0", "slower")
    assert says(found, "likely slower", "spills more", "none -> 832 bytes")
    assert [graph.because for graph in found.graphs.pairs] == [("float32 matmul precision: tf32 -> ieee",)]


def test_max_autotune_against_the_default():
    found = diff("plain", "tuned-1")
    assert found.verdict == (
        "tuned-1 is slower by 12 % (tok_s 279,121,510 -> 245,111,423): possibly 2 products in Triton's templates"
    )
    assert says(found, "2 extern_kernels.mm -> 3 kernels", "0.03798 ms, the library mm 0.05997 ms")
    assert says(found, "inductor config max_autotune False -> True", "meant to be faster")
    assert [len(product.options) for product in found.products.only_b] == [20, 20]
    assert {kernel.name for kernel in found.kernels.only_b} == {"triton_tem_fused_mm_0", "triton_tem_fused_gelu_mm_2"}


def test_two_runs_of_max_autotune_that_chose_alike():
    found = diff("tuned-1", "tuned-2")
    assert found.verdict == "as fast as before (step_ms, tok_s within 1 %)"
    assert (found.graphs.shared, found.products.same, found.kernels.same) == (1, 2, 3)
    assert found.differs and found.suspects == ()  # what was only tried differs


def test_two_runs_of_max_autotune_that_chose_otherwise():
    found = diff("small-1", "small-2")
    assert found.verdict == (
        "small-2 is slower by 28 % (tok_s 60,278,180 -> 43,406,660): "
        "possibly other launch parameters of triton_poi_fused_gelu_1"
    )
    assert (found.graphs.shared, found.products.same, len(found.products.changed)) == (1, 0, 2)
    assert says(found, "triton_poi_fused_gelu_1: num_warps 16 -> 8, XBLOCK 512 -> 256")
    # All options of that product took longer in the second run, the chosen ones and the others.
    assert says(found, "unlikely", "most of its options took longer or shorter alike")


def test_a_lost_backward():
    found = diff("default", "forward")
    assert found.verdict == "may start slower: the backward graph gone from the cache"
    assert [graph.direction for graph in found.graphs.only_a] == ["backward"]
    assert found.graphs.shared == 1
    assert found.coverage.words[0] == "17 entries where there were 56: the backward graph is gone"
    (device,) = found.coverage.devices
    assert (device.device, device.a.backward, device.b.backward, device.b.forward) == ("cuda:0", 1, 0, 1)


def test_a_cache_of_inference_alone():
    found = diff("default", "infer")
    assert found.verdict == "may start slower: the forward graph and the backward graph gone from the cache"
    assert [graph.direction for graph in found.graphs.only_b] == ["inference"]
    assert not found.graphs.shared and not found.graphs.pairs
    # Of one name, made for another graph: it keeps nothing for a backward.
    norm = kernel(found, "triton_per_fused_native_layer_norm_0")
    assert norm.matched == "name"
    assert (change(norm, "dynamic shared memory").a, change(norm, "dynamic shared memory").b) == ("16 B", "0 B")
    assert "-    tl.store(out_ptr0 + (x0), tmp9, None)" in norm.source
    names = [{one.name for one in side} for side in (found.kernels.only_a, found.kernels.only_b)]
    assert not names[0] & names[1]
    assert names[1] == {"triton_poi_fused_add_view_4"}


def test_a_lost_device():
    found = diff("two", "default")
    assert found.verdict.endswith("may start slower: device cuda:1 gone from the cache")
    assert {graph.device for graph in found.graphs.only_a} == {"cuda:1"}
    assert [(pair.device, pair.b.kernels) for pair in found.coverage.devices] == [("cuda:0", 18), ("cuda:1", 0)]
    assert found.kernels.same == 18 and not found.kernels.changed


def test_another_torch():
    found = diff("cpu", "cpu-other")
    assert found.environment.facts[0].name == "torch"
    assert {"torch", "triton", "cuda"} <= set(found.environment.breaking)
    assert found.graphs.shared == 0 and len(found.graphs.pairs) == 2
    assert {pair.because for pair in found.graphs.pairs} == {("torch's source differs",)}
    assert says(found, "torch 2.13.0+cpu -> 2.14.1+cu130", "makes every key another one")
    assert [change.name for change in found.environment.packages] == []  # torch is said once


def test_scalar_code():
    found = diff("cpu", "cpu-scalar")
    assert found.graphs.shared == 2  # on a CPU the key does not tell
    widths = [change(pair, "vector width") for pair in found.kernels.changed]
    assert [(width.a, width.b, width.effect) for width in widths] == [("512 bits", "scalar", "slower")] * 2
    assert says(found, "likely slower", "narrower vectors", "ATEN_CPU_CAPABILITY", "cpp.simdlen")


def test_other_work():
    found = diff("tf32", "tuned-1")
    assert found.verdict.startswith("not the same work: ") and "tag job attention -> products" in found.verdict
    assert found.suspects[0].words == "Not the same work: no number of the one says anything of the other"
    assert not any(one.likelihood == "likely" for one in found.suspects[1:])


def unpacked(name: str, directory: Path) -> Path:
    """The files of a snapshot, as a live cache."""
    repository = open_repository(STORE)
    tree = SnapshotTree(repository, repository.manifest(repository.resolve(name)))
    for path, data in tree.read(file.path for file in tree.files).items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
    return directory


def test_damaged_code_is_no_no_difference(tmp_path: Path):
    live = unpacked("default", tmp_path)
    (cubin,) = live.glob("triton/shared/*/softcap.cubin")
    whole = cubin.read_bytes()
    flipped = bytearray(whole)
    flipped[0xBD00 + 64] ^= 0xFF  # in .text.softcap, as `readelf -SW` places it
    cubin.write_bytes(flipped)
    found = cachekeeper.diff("default", str(live), store=STORE).difference
    assert found.differs
    assert change(kernel(found, "softcap_0"), "machine code").words.startswith("the same key, other code")
    assert says(found, "machine code of softcap_0", "`cachekeeper verify default --live ")
    cubin.write_bytes(whole[:200])
    found = cachekeeper.diff("default", str(live), store=STORE).difference
    assert found.verdict.endswith("; 1 file could not be read")
    assert change(kernel(found, "softcap_0"), "machine code").b == "damaged"
    cubin.unlink()
    found = cachekeeper.diff("default", str(live), store=STORE).difference
    assert (change(kernel(found, "softcap_0"), "binary").b, found.kernels.same) == ("gone", 17)
    assert says(found, "possible slower start", "there -> gone")


def test_libraries_that_are_damaged_or_gone(tmp_path: Path):
    live = unpacked("cpu", tmp_path)
    libraries = list(live.glob("*/*.so"))
    for library in libraries:
        library.write_bytes(b"damaged" * 20)
    found = cachekeeper.diff("cpu", str(live), store=STORE).difference
    assert [change(pair, "library").b for pair in found.kernels.changed] == ["no ELF file"] * 2
    assert found.verdict.endswith("; 2 files could not be read")
    for library in libraries:
        library.unlink()
    found = cachekeeper.diff("cpu", str(live), store=STORE).difference
    assert [change(pair, "library").b for pair in found.kernels.changed] == ["gone"] * 2


def test_a_store_without_its_packs(tmp_path: Path):
    store = tmp_path / "store"
    shutil.copytree(STORE, store, ignore=lambda path, names: names if path.endswith("packs") else [])
    found = cachekeeper.diff("default", "default", store=store).difference
    assert found.differs
    assert found.verdict.startswith("no difference in what could be read; ")
    found = cachekeeper.diff("default", "warps", store=store).difference
    assert "nothing that explains it; " in found.verdict
    assert found.verdict.endswith(" files could not be read")


def test_the_same():
    found = diff("default", "default")
    assert (found.verdict, found.differs, found.suspects) == ("no difference", False, ())


def test_nothing_heavy_is_imported_and_nothing_is_unpickled():
    code = (
        "import sys, pickle, cachekeeper\n"
        "pickle.loads = pickle.load = pickle.Unpickler = None\n"
        f"cachekeeper.diff('default', 'warps', store={str(STORE)!r})\n"
        "print([name for name in ('torch', 'triton', 'boto3', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
