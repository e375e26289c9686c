"""Hand-made inventories and sides: a graph, a kernel and a product to begin with, and what a test changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cachekeeper.diffing.compare import compare
from cachekeeper.diffing.models import Difference, KernelPair, Side, Suspect
from cachekeeper.inventory.models import Binary, Coverage, Graph, Inventory, Kernel, Option, Product, Winner
from cachekeeper.manifest import RunSummary
from tests.samples import fingerprint

SOURCE = """def triton_poi_fused_add_2(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    tmp0 = tl.load(in_ptr0 + (xoffset), None)
    tl.store(out_ptr0 + (xoffset), tmp0 + 1, None)"""
INPUT = (
    "[i{device}] example_inputs[0]: TensorMetadata(dtype=torch.bfloat16, shape=torch.Size([8, 512]), stride=(512, 1), "
    "device=device(type='cuda', index={device}))"
)


def components(device: int = 0, **settings: object) -> tuple[str, ...]:
    """The lines of a key: operations, an input and settings of Inductor."""
    lines = [
        "[g0] gm: <lambda>() def forward(self, x): return x",
        INPUT.format(device=device),
    ]
    given = {"max_autotune": False, "epilogue_fusion": True, **settings}
    return (*lines, *(f"[{value}] inductor_config[{name}]: {value}" for name, value in given.items()))


def graph(key: str = "fa", **changes: Any) -> Graph:
    """A forward graph on cuda:0."""
    plain = Graph(
        key,
        "forward",
        "cuda:0",
        "forward (model.py:12)",
        ("bf16[8, 512]",),
        "content",
        components(),
        {"aten.add": 1},
        {"extern_kernels.mm": 1},
        ("triton_poi_fused_add_2",),
    )
    return replace(plain, **changes)


def binary(digest: str = "A", **changes: Any) -> Binary:
    """Of sm_90, 8 warps with 32 registers: as many warps are resident as there can be."""
    plain = Binary(digest, 9000, "cuda:90", 8, 3, 1, 1024, 0, 32, 0, 4096, 8000, 9000, {"tensor": 4, "global load": 2})
    return replace(plain, **changes)


def kernel(name: str = "triton_poi_fused_add_2", **changes: Any) -> Kernel:
    """A pointwise kernel that the graph "fa" launches."""
    plain = Kernel(
        name,
        "cmodule",
        "pointwise",
        SOURCE.replace("triton_poi_fused_add_2", name),
        ("fa",),
        "cuda:0",
        {"x": 4096},
        winner(),
        binary(),
        3,
    )
    return replace(plain, **changes)


def winner(**changes: Any) -> Winner:
    """A recorded choice without a timing."""
    return replace(Winner({"XBLOCK": 512, "num_warps": 8}, "recorded"), **changes)


def cpp(**changes: Any) -> Kernel:
    """A kernel in C++ with vectors of 512 bits."""
    plain = Kernel("cpp_fused_add_0", "cmodule2", "cpp", 'extern "C" void kernel() {}', ("fa",), "cpu", vector_bits=512)
    return replace(plain, **{"flags": ("-O3", "-march=native"), **changes})


def product(*options: tuple[str, float | None], inputs: str = "bf16[8, 8] x bf16[8, 8]") -> Product:
    """A product with its options, fastest first."""
    return Product("mm", inputs, "highest", tuple(Option(*option) for option in options))


def inventory(**changes: Any) -> Inventory:
    """One graph and one kernel."""
    plain = Inventory(
        (graph(),),
        (kernel(),),
        (product(("triton_mm BLOCK_M=64", 0.10), ("mm", 0.20)),),
        (Coverage("cuda:0", forward=1, kernels=1),),
        {"fxgraph": 1, "triton": 3},
        {"fxgraph": 100, "triton": 900},
    )
    return replace(plain, **changes)


def run(*command: str) -> RunSummary:
    """A run of a command."""
    return RunSummary("r1", command, "2026-01-31T08:15:00Z", 10.0, 1.0, 1, 0, 0, 0, 0, 1, 0)


def side(label: str = "a", **changes: Any) -> Side:
    """A snapshot with nothing recorded but its fingerprint."""
    return replace(Side(label, id="ab" * 32, name="drafter", fingerprint=fingerprint()), **changes)


SLOW = ({"tok_s": 100.0}, {"tok_s": 80.0})


def differ(of_b: Inventory, of_a: Inventory | None = None, metrics: Any = ({}, {}), **of_side: Any) -> Difference:
    """Compare with the plain inventory; `of_side` is what b has and a has not."""
    a, b = side("a", metrics=metrics[0]), side("b", metrics=metrics[1], **of_side)
    return compare(a, b, of_a or inventory(), of_b)


def changed(found: Difference) -> KernelPair:
    """The one kernel that differs."""
    (pair,) = found.kernels.changed
    return pair


def of(pair: KernelPair, name: str) -> tuple[str, str, str]:
    """One change of a pair: both sides and the effect."""
    (change,) = [change for change in pair.changes if change.name == name]
    return change.a, change.b, change.effect


def kinds(found: Difference) -> list[tuple[str, str]]:
    """Likelihood and effect of the suspects."""
    return [(suspect.likelihood, suspect.effect) for suspect in found.suspects]


def first(found: Difference) -> Suspect:
    return found.suspects[0]
