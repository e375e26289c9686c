"""The Python that Inductor writes, read: real modules, cut down, in tests/golden/sources (torch 2.11 and 2.13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachekeeper.inductor.sources import dtype, kernel_source, literal, module_name, tensor

SAMPLES = Path(__file__).parent.parent / "golden" / "sources"
KERNEL = "@triton_heuristics.pointwise({})\n@triton.jit\ndef triton_a(x, XBLOCK : tl.constexpr):\n    pass\n"
WRAPPER = "# AOT ID: ['0_forward']\n"


def sample(name):
    return (SAMPLES / f"{name}.txt").read_text()


def test_a_reduction():
    found = kernel_source(sample("reduction"))
    assert (found.name, found.type) == ("triton_red_fused_sum_view_0", "reduction")
    assert found.size_hints == {"x": 8192, "r0_": 128}
    assert (found.num_warps, found.num_stages) == (None, None)
    assert found.device == "cuda:0"
    assert found.constants == {}  # RBLOCK is another name of an argument
    assert found.meta["num_reduction"] == 1
    assert found.meta["autotune_remote_cache"] is None
    assert found.meta["tiling_scores"] == {"x": 2162688, "r0_": 0}
    lines = found.function.splitlines()
    assert lines[0] == "@triton.jit"
    assert lines[1].startswith("def triton_red_fused_sum_view_0(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK")
    assert lines[-1] == "    tl.store(out_ptr0 + (x3), tmp2, None)"


def test_a_template_has_its_configuration_in_the_source():
    found = kernel_source(sample("template"))
    assert (found.name, found.type, found.num_warps, found.num_stages) == ("triton_mm", "template", 2, 1)
    assert found.constants == {
        "EVEN_K": True,
        "USE_FAST_ACCUM": False,
        "ACC_TYPE": "tl.float32",
        "BLOCK_M": 32,
        "BLOCK_N": 32,
        "BLOCK_K": 16,
        "GROUP_M": 8,
        "ALLOW_TF32": False,
        "INDEX_DTYPE": "tl.int32",
    }
    assert found.size_hints == {}
    assert found.meta["config_args"]["BLOCK_K"] == 16


def test_a_kernel_of_the_job_has_its_only_configuration():
    found = kernel_source(sample("own"))
    assert (found.name, found.type, found.num_warps, found.num_stages) == ("softcap", "user_autotune", 8, 3)
    assert found.constants == {"SIZE": 4096}
    assert found.function.startswith("@triton.jit\ndef softcap(source, target, cap, SIZE: tl.constexpr):\n")
    assert found.meta["kernel_name"] == "softcap_0"


def test_several_configurations_are_left_to_autotuning():
    configs = "[{'num_warps': 8, 'BLOCK': 64}, {'num_warps': 4, 'BLOCK': 32}]"
    found = kernel_source(sample("own").replace("[{'num_warps': 8, 'num_stages': 3}]", configs))
    assert (found.num_warps, found.num_stages, found.constants) == (None, None, {"SIZE": 4096})
    found = kernel_source(sample("own").replace("'num_stages': 3", "'num_stages': 3, 'BLOCK': 64"))
    assert found.constants == {"SIZE": 4096, "BLOCK": 64}


def test_what_benchmarks_a_kernel_is_not_of_the_kernel():
    found = kernel_source(sample("benchmarked"))
    assert (found.name, found.type, found.size_hints) == ("triton_", "pointwise", {"x": 4194304})
    assert found.function.rstrip().endswith("tl.store(in_out_ptr0 + (x2), tmp10, None)")


def test_functions_before_and_after_the_main_one_are_kept():
    before = "import triton\n\n@triton.jit\ndef _triton_helper_fn0(a, b):\n    return a + b\n\n"
    after = "\n@triton.jit\ndef helper(a):\n    OTHER : tl.constexpr = 1\n"
    found = kernel_source(before + KERNEL.format("size_hints=[8, 4]") + after)
    assert found.name == "triton_a"
    assert [line for line in found.function.splitlines() if line.startswith("def ")] == [
        "def _triton_helper_fn0(a, b):",
        "def triton_a(x, XBLOCK : tl.constexpr):",
        "def helper(a):",
    ]
    assert "@triton_heuristics" not in found.function
    assert found.size_hints == {"x": 8, "y": 4}
    assert found.constants == {}


@pytest.mark.parametrize(
    ("meta", "device"),
    [
        ("{'device': DeviceProperties(type='cuda', index=3, cc=90)}", "cuda:3"),
        ("{'device': DeviceProperties(type='cpu', index=0)}", "cpu"),
        ("{'device': DeviceProperties(type='xpu', index=None)}", "xpu"),
        ("{'device': 0}", ""),
        ("{}", ""),
        ("meta", ""),
    ],
)
def test_device(meta, device):
    assert kernel_source(KERNEL.format(f"triton_meta={meta}")).device == device


@pytest.mark.parametrize(
    "text", ["", "x", "import torch\n", "@triton.jit\ndef a():\n", KERNEL.format("")[:40], WRAPPER]
)
def test_other_modules_are_no_kernels(text):
    assert kernel_source(text) is None


@pytest.mark.parametrize(
    "value",
    [
        "[" * 20_000,
        "-" * 50_000 + "1",
        "1+" * 30_000 + "1",
        "9" * 60_000,
        "a" + ".b" * 20_000,
        "'\0'",
        "1" + " " * 70_000,
        "x) + (",
    ],
    ids=["brackets", "minuses", "sum", "digits", "attributes", "zero", "long", "cut"],
)
def test_hostile_decorators(value):
    found = kernel_source(KERNEL.format(f"size_hints={value}"))
    assert found is None or found.size_hints == {}


@pytest.mark.parametrize(
    "value", ["2**99999999", "'a' * 10**9", r"'\d'", "{1: 2}", "{'x': True, 'y': 1.5}", "open('/')", "None"]
)
def test_nothing_is_evaluated(value):
    assert kernel_source(KERNEL.format(f"size_hints={value}")).size_hints == {}


def test_hostile_constants():
    bodies = ["(" * 60_000, "9" * 60_000, "[1, 2]", "x", "tl.float32 + 1", "2 ** 9"]
    text = KERNEL.format("") + "".join(f"    A{at} : tl.constexpr = {body}\n" for at, body in enumerate(bodies))
    assert kernel_source(text + "    B : tl.constexpr = 2\n").constants == {"B": 2}


def test_literals_are_not_longer_than_asked_for():
    assert literal("(1, 'a')") == (1, "a")
    assert literal("'" + "a" * 70_000 + "'") is None
    assert len(literal("'" + "a" * 70_000 + "'", 1 << 20)) == 70_000


def test_a_module_is_named_by_its_text():
    # The names that torch gave these files.
    assert module_name(sample("reduction")) == "cksck4rpgal46oxqqrb3mnxkfc4mwx2ny7nd3l5kjyklrjk5zj3p"
    assert module_name(sample("own")) == "c2r2lwgevckgjoatg7lo3uh7gdgfislolcppdpf2y4y63p7fevzn"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("torch.bfloat16", "bf16"),
        ("float32", "f32"),
        ("torch.int64", "i64"),
        ("torch.uint8", "u8"),
        ("torch.bool", "b8"),
        ("torch.complex64", "c64"),
        ("torch.float8_e4m3fn", "f8e4m3fn"),
        ("bf16", "bf16"),
        ("torch.qint8", "qint8"),
    ],
)
def test_types(name, short):
    assert dtype(name) == short


def test_tensors():
    assert tensor("torch.float16", "8, ") == "f16[8]"
    assert tensor("", "") == "[]"


def test_a_number_without_an_end_is_none():
    assert literal("[1, 1e999, {'a': (-1e999, 2.5)}, 1e999j]") == [1, None, {"a": (None, 2.5)}, None]
    text = KERNEL_WITHOUT_AN_END
    found = kernel_source(text)
    assert found and found.constants == {"BLOCK": 64} and found.meta == {"backend_hash": "b"}


KERNEL_WITHOUT_AN_END = """
@triton_heuristics.template(
    num_stages=3,
    num_warps=4,
    triton_meta={'signature': {}},
    inductor_meta={'kernel_num_gb': 1e999, 'backend_hash': 'b'},
)
@triton.jit
def triton_mm(arg_A):
    ALPHA : tl.constexpr = 1e999
    BLOCK : tl.constexpr = 64
"""
