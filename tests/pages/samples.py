"""Comparisons and reports as values, made by hand after real ones."""

from __future__ import annotations

from dataclasses import replace

from cachekeeper.diffing.models import (
    Change,
    CoveragePair,
    Covered,
    Difference,
    Environment,
    GraphPair,
    Graphs,
    KernelPair,
    Kernels,
    Metric,
    ProductPair,
    Products,
    Side,
    Suspect,
    Work,
)
from cachekeeper.inventory.models import Binary, Coverage, Graph, Inventory, Kernel, Option, Product, Winner
from cachekeeper.manifest import RunSummary
from cachekeeper.models import Fact, Fingerprint
from cachekeeper.pages.models import Point, Report

SOFTCAP = '''@triton.jit
def softcap(source, target, cap, SIZE: tl.constexpr):
    """A kernel of the job's own: cap * tanh(x / cap) and the row's norm, a row a program."""
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(source + at).to(tl.float32)
    norm = tl.sqrt(tl.sum(x * x) / SIZE + 1e-6)
    scaled = x / (norm * cap)
    for _ in range(4):
        scaled = scaled + tl.exp(-scaled * scaled) * x / (1 + tl.abs(scaled))
    tl.store(target + at, (cap * scaled).to(target.dtype.element_ty))'''

ATTENTION = (
    "--- a",
    "+++ b",
    "@@ -41,8 +41,9 @@",
    "     # -- load k --",
    "     offs_n_load = kv_start + tl.arange(0, BLOCK_N)",
    "     k = load_checked_2d(K, offs_n_load, offs_k, stride_kn, stride_kk, IS_DIVISIBLE, SAFE_HEAD_DIM, "
    "KV_LEN, QK_HEAD_DIM)",
    "-    qk = tl.dot(q, tl.trans(k), input_precision='tf32') # TODO: use cuda matmul when q_len <= 2.",
    "+    qk = tl.dot(q, tl.trans(k), input_precision='ieee') # TODO: use cuda matmul when q_len <= 2.",
    "     if not PRESCALE_QK:",
    "         qk *= SM_SCALE",
    "@@ -88,4 +89,5 @@",
    "     p = tl.math.exp2(post_mod_scores - m_ij_masked[:, None])",
    "-    l_i = l_i * alpha + tl.sum(p, 1)",
    "+    # the sum is kept in float32 even where the product is not, because a row of 2,048 probabilities "
    "loses digits otherwise, and this comment is long so that the line has to wrap on any screen that there is",
    "+    l_i = l_i * alpha + tl.sum(p, 1).to(tl.float32)",
    "     acc = acc * alpha[:, None]",
)

_NAMES = (
    "triton_per_fused__unsafe_view_add_clone_permute_select_backward_sum_view_10",
    "triton_per_fused_flex_attention_backward_transpose_view_6",
    "triton_per_fused_gelu_gelu_backward_sum_view_4",
    "triton_poi_fused_add_clone_permute_select_backward_8",
    "triton_poi_fused_gelu_gelu_backward_view_2",
    "triton_poi_fused_gelu_view_3",
    "triton_red_fused_native_layer_norm_native_layer_norm_backward_view_11",
)


def fingerprint(torch: str = "2.11.0+cu130") -> Fingerprint:
    gpu = [{"name": "NVIDIA H200", "capability": "sm_90"}]
    must = {"torch": Fact(torch), "triton": Fact("3.6.0"), "cuda": Fact("13.0"), "gpu": Fact(gpu), "hip": Fact(None)}
    return Fingerprint("6c01c005de14", must, {"driver": Fact("580.159.04"), "glibc": Fact("glibc 2.39")}, {})


def side(label: str, **changes: object) -> Side:
    command = ("python3", "train.py", "--config", "block.toml")
    run = RunSummary("r1", command, "2026-01-30T08:10:00Z", 48.2, 31.6, 0, 12, 0, 0, 0, 1, 0)
    plain = Side(
        label=label,
        id="328c90ec04de58404ef838021007c9ca1b6ff705312ef3c05829b0ab876616ff",
        name="block",
        created="2026-01-30T08:15:00Z",
        metrics={"tok_s": 2_540_111.0, "step_ms": 1.6125},
        tags={"dataset": "wiki-32k"},
        cache_dir="/cache/torchinductor",
        fingerprint=fingerprint(),
        run=run,
        shapes=("512",),
        world_size=1,
        proof_seconds=(31.6, 4.3),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def softcap(warps: int) -> Kernel:
    spills = warps == 1
    mix = {"float": 9_300, "special": 410, "branch": 6, "global load": 8, "global store": 8, "integer": 96}
    if spills:
        mix = {
            "float": 61_200,
            "special": 3_290,
            "branch": 6,
            "global load": 64,
            "global store": 64,
            "integer": 380,
            "local load": 1_036,
        }
    binary = Binary(
        "M7LJ6BP52JDNS2REJ37YUMAQXG2JNKVCGNRSBUCY6OKWZ7FOBH2A",
        bytes=1_739_000 if spills else 265_000,
        target="cuda:90",
        num_warps=warps,
        num_stages=3,
        num_ctas=1,
        dynamic_shared=0 if spills else 32,
        static_shared=0,
        registers=255 if spills else 80,
        local_bytes=4_144 if spills else 0,
        code_bytes=418_560 if spills else 61_312,
        mix=mix,
        tools="ptxas 13.0.88 -lineinfo -arch sm_90a",
    )
    winner = Winner({"SIZE": 4096, "num_warps": warps}, "given")
    return Kernel(
        "softcap", "", "user_autotune", SOFTCAP, ("fab12cd",), "cuda:0", {}, winner, binary, 1, bytes=binary.bytes
    )


def attention(precise: bool) -> Kernel:
    mix = {"float": 8_344, "tensor": 0, "ldmatrix": 0} if precise else {"float": 92, "tensor": 60, "ldmatrix": 24}
    binary = Binary(
        "FXER3QPHNJCOXM33KDNI34MYSY5EYERRSJDRPYWZFXZYAY7K42JQ",
        812_000,
        "cuda:90",
        4,
        3,
        1,
        98_304,
        0,
        255,
        0,
        81_920,
        mix=mix,
    )
    winner = Winner(
        {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3}, "template", 0.241 if precise else 0.0412
    )
    name = "triton_tem_fused_flex_attention_permute_select_view_1"
    return Kernel(name, "c4geaprc", "template", "", ("fab12cd",), "cuda:0", {}, winner, binary, 1, bytes=812_000)


def generated(number: int, block: int = 1024, seconds: float | None = 0.018) -> Kernel:
    name = _NAMES[number % len(_NAMES)] + ("" if number < len(_NAMES) else f"_{number}")
    binary = Binary(f"HASH{number}", 41_000, "cuda:90", 4, 1, 1, 0, 512, 24 + number, 0, 4_096)
    winner = Winner({"XBLOCK": block, "num_warps": 4, "num_stages": 1}, "recorded", 0.0061 + number / 1e4, seconds)
    return Kernel(
        name, f"c{number}", "pointwise", "", ("fab12cd",), "cuda:0", {"x": 256}, winner, binary, 2, bytes=41_000
    )


def graph(direction: str, device: str = "cuda:0", seconds: float | None = 12.4) -> Graph:
    key = f"f{direction[:3]}{device[-1]}jixdogrcazg7datqa3a44lm6zfmkhzjscbqfcl5vjopz3z6cv"
    inputs = ("bf16[8, 512, 256]", "bf16[256]", "bf16[768, 256]", "i32[1, 1, 4]")
    function = "forward (model.py:61)"
    return Graph(
        key, direction, device, function, inputs, "c0ffee", (), {"aten.mm": 4}, {}, _NAMES[:3], "cw", seconds, 1, 61_000
    )


def product(best: float) -> Product:
    options = (
        Option("triton_mm BLOCK_M=64 BLOCK_N=128 BLOCK_K=32 num_warps=4 num_stages=3", best),
        Option("mm", 0.0112),
        Option("triton_mm BLOCK_M=128 BLOCK_N=128 BLOCK_K=64 num_warps=8 num_stages=3", 0.0125),
        Option("triton_mm BLOCK_M=32 BLOCK_N=32 BLOCK_K=16 num_warps=2 num_stages=1", 0.0431),
        Option("triton_mm BLOCK_M=256 BLOCK_N=128 BLOCK_K=128 num_warps=8 num_stages=5", None),
    )
    return Product("mm", "bf16[4096, 256] x bf16[256, 1024]", "highest", options)


def _pairs() -> tuple[KernelPair, ...]:
    spilled = (
        Change("spills", "0 B", "4,144 B a thread", "slower", "registers go to local memory and back"),
        Change("num_warps", "8", "1"),
        Change("registers", "80", "255", "slower", "the most that there are"),
        Change("code", "59.9 KiB", "409 KiB", "slower", "more than the instruction cache holds"),
    )
    precise = (
        Change("instructions", "60 tensor", "0 tensor", "slower", "no tensor core is used any more"),
        Change("time", "41.2 µs", "241 µs", "slower"),
    )
    blocks = (Change("XBLOCK", "1024", "512"),)
    effects = ("", "faster", "mixed", "", "faster")
    pairs = [
        KernelPair(softcap(8), softcap(1), "source", spilled, (), "slower"),
        KernelPair(attention(False), attention(True), "name", precise, ATTENTION, "slower"),
    ]
    pairs += [
        KernelPair(generated(at), generated(at, 512, None), "module", blocks, (), effect)
        for at, effect in enumerate(effects)
    ]
    return tuple(pairs)


def difference() -> Difference:
    """A train step that became slower, with something in each section."""
    b = side(
        "block",
        id="1357e336" + "0" * 56,
        created="2026-01-31T08:15:00Z",
        tags={"dataset": "wiki-32k", "branch": "warps"},
    )
    kinds = {"fxgraph": (4, 4), "aotautograd": (2, 1), "triton": (231, 41), "module": (29, 11), "autotune": (19, 5)}
    sizes = {
        "triton": (2_310_144, 4_260_002),
        "fxgraph": (248_021, 251_007),
        "module": (310_221, 120_112),
        "aotautograd": (66_000, 31_000),
    }
    return Difference(
        a=side("block@{1}"),
        b=b,
        verdict="b is slower by 14 %: likely spills in softcap",
        suspects=(
            Suspect(
                "likely",
                "slower",
                "softcap spills 4,144 bytes a thread, and did not before.",
                (
                    "num_warps 8 → 1, registers 80 → 255",
                    "1,036 loads from local memory in the PTX where there were none",
                ),
                "launch it with num_warps=8 again, or let triton.autotune choose",
            ),
            Suspect(
                "possible",
                "slower",
                "flex_attention no longer uses tensor cores.",
                ("60 tensor instructions → 0", "float32_matmul_precision high → highest"),
                'call torch.set_float32_matmul_precision("high")',
            ),
            Suspect(
                "unlikely", "slower start", "The backward of one device is not in the cache.", ("1 graph only in a",)
            ),
        ),
        differs=True,
        work=Work(
            "yes",
            (Change("tag branch", "not recorded", "warps"),),
            ("model", "command", "shapes", "tag dataset"),
            ("host",),
        ),
        metrics=(
            Metric("tok_s", 2_540_111.0, 2_181_402.0, "higher", "slower"),
            Metric("step_ms", 1.6125, 1.8776, "lower", "slower"),
            Metric("peak_gib", 2.1, 2.1, "", "same"),
        ),
        environment=Environment(
            facts=(
                Change("torch", "2.9.1+cu128", "2.11.0+cu130", "", "torch would ignore every entry"),
                Change("driver", "570.86.10", "580.159.04"),
            ),
            breaking=("torch",),
            variables=(Change("TORCHINDUCTOR_MAX_AUTOTUNE", "not set", "1", "", "other kernels may be chosen"),),
            packages=(Change("transformers", "5.6.0", "5.8.1"), Change("liger-kernel", "not installed", "0.7.0")),
            config=(Change("max_autotune", "False", "True"),),
        ),
        graphs=Graphs(
            shared=1,
            pairs=(
                GraphPair(
                    graph("forward"), graph("forward", seconds=15.1), ("inductor setting max_autotune", "torch version")
                ),
            ),
            only_a=(graph("backward", seconds=19.2), graph("backward", "cuda:1", 17.9)),
            only_b=(graph("inference", seconds=None),),
        ),
        kernels=Kernels(12, _pairs(), (generated(5),), (generated(6), generated(12)), ("triton_poi_fused_add_view_5",)),
        products=Products(
            1,
            (
                ProductPair(
                    product(0.0104), product(0.0119), (Change("winner", "triton_mm 64 x 128 x 32", "mm", "slower"),)
                ),
            ),
            (),
            (replace(product(0.0222), inputs="bf16[4096, 1024] x bf16[1024, 256]"),),
        ),
        coverage=Covered(
            entries=kinds,
            bytes=sizes,
            devices=(
                CoveragePair("cuda:0", Coverage("cuda:0", 1, 1, 0, 0, 19), Coverage("cuda:0", 1, 0, 1, 0, 8)),
                CoveragePair("cuda:1", Coverage("cuda:1", 1, 1, 0, 0, 19), Coverage("cuda:1")),
            ),
            words=("62 entries where there were 285: Triton's kernels 231 → 41, and nothing for cuda:1.",),
        ),
        notes=("In a, 12 MiB of graphs were not read: `--full` reads them.",),
    )


def other_work() -> Difference:
    """Two runs whose numbers cannot be compared."""
    why = (
        Change("tag dataset", "wiki-32k", "code-8k", "", "other lengths of sequences"),
        Change("shapes", "512", "2048"),
    )
    return replace(
        difference(), verdict="not the same work: another dataset, other shapes", work=Work("no", why, ("model",), ())
    )


def report() -> Report:
    """A snapshot with eight before it and one after it."""
    kernels = (softcap(1), attention(False), *(generated(number) for number in range(9)))
    graphs = (graph("forward"), graph("backward", seconds=19.2), graph("inference", "cuda:1", None))
    covered = (Coverage("cuda:0", 1, 1, 0, 0, 19), Coverage("cuda:1", 0, 0, 1, 0, 8))
    inventory = Inventory(
        graphs,
        kernels,
        (product(0.0104),),
        covered,
        {"fxgraph": 3, "triton": 231, "module": 29, "aotautograd": 2},
        {"fxgraph": 248_021, "triton": 2_310_144, "module": 310_221, "aotautograd": 66_000},
        {"triton/shared": 231},
        14,
        ("The PTX of 3 kernels was not read.",),
    )
    return Report(side("block"), inventory, tuple(map(_point, range(10))), ("Two kernels spill.",))


def _point(number: int) -> Point:
    proof = (28.0 + number % 3 * 2.5, 4.1 + number % 2 * 0.4) if number != 4 else (None, None)
    return Point(
        f"{number:08x}" + "0" * 56,
        "block",
        f"2026-01-{number * 3 + 1:02}T08:15:00Z",
        entries=280 - (number > 6) * 190 + number,
        graphs=4,
        triton=29 + number,
        bytes=3_100_000 - (number > 6) * 1_400_000,
        stored=610_000,
        metrics={"tok_s": 2_540_111.0 - (number > 6) * 360_000 + number * 4_000, "step_ms": 1.61 + (number > 6) * 0.26},
        cold_seconds=proof[0],
        warm_seconds=proof[1],
        is_this=number == 8,
    )
