"""The Python that Inductor writes, read: real modules, cut down, in tests/golden/sources (torch 2.11 and 2.13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachekeeper.inductor.sources import dtype, kernel_source, literal, module_name, tensor
from cachekeeper.inductor.wrappers import wrapper_source

SAMPLES = Path(__file__).parent.parent / "golden" / "sources"
KERNEL = "@triton_heuristics.pointwise({})\n@triton.jit\ndef triton_a(x, XBLOCK : tl.constexpr):\n    pass\n"
WRAPPER = "# AOT ID: ['0_forward']\n"


def sample(name):
    return (SAMPLES / f"{name}.txt").read_text()


# Kernels


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


# Wrappers


def test_a_wrapper_of_a_forward():
    found = wrapper_source(sample("forward-wrapper"))
    assert (found.direction, found.device) == ("forward", "cuda:0")
    assert found.launches == (
        "triton_per_fused_native_layer_norm_0",
        "triton_tem_fused_flex_attention_permute_select_view_1",
        "triton_poi_fused_add_view_2",
        "triton_poi_fused_gelu_view_3",
        "triton_poi_fused_add_view_2",
        "softcap_0",
    )
    assert set(found.languages) == set(found.launches)
    assert set(found.languages.values()) == {"triton"}
    assert found.calls == {"extern_kernels.addmm": 4}
    assert found.inputs[:6] == (
        "bf16[8, 512, 256]",
        "bf16[256]",
        "bf16[256]",
        "bf16[768, 256]",
        "bf16[768]",
        "i32[1, 1, 4, 4]",
    )
    assert len(found.inputs) == 19


def test_kernels_of_a_wrapper_are_tied_to_their_modules():
    found = wrapper_source(sample("forward-wrapper"))
    assert (
        found.kernels["triton_per_fused_native_layer_norm_0"] == "cedio57uzi7lqszpwdbohuz3l4zofoxqerxhjedilsgb7fgt4tdv"
    )
    # No comment says this one.
    assert found.kernels["softcap_0"] == "c2r2lwgevckgjoatg7lo3uh7gdgfislolcppdpf2y4y63p7fevzn"
    assert found.sources["softcap_0"].strip() == sample("own").strip()
    assert kernel_source(found.sources["triton_poi_fused_gelu_view_3"]).name == "triton_poi_fused_gelu_view_3"


def test_operations_count_a_node_once_however_many_kernels_compute_it():
    found = wrapper_source(sample("inference-wrapper"))
    assert found.operations == {
        "aten.add": 1,
        "aten.erf": 1,
        "aten.mm": 2,
        "aten.mul": 3,
        "prims.convert_element_type": 2,
    }
    twice = sample("inference-wrapper").replace("# Graph fragment:\n", "# Graph fragment:\n" + FRAGMENT)
    assert wrapper_source(twice).operations == found.operations


FRAGMENT = (
    '#   %mul : Tensor "f32[4096, 1024][1024, 1]cuda:0"[num_users=1] = '
    "call_function[target=torch.ops.aten.mul.Tensor](args = (%convert_element_type_2, 0.5), kwargs = {})\n"
)


def test_a_wrapper_for_the_cpu():
    found = wrapper_source(sample("cpu-backward-wrapper"))
    name = "cpp_fused_expand_gelu_gelu_backward_unsqueeze_0"
    assert (found.direction, found.device, found.launches) == ("backward", "cpu", (name,))
    assert found.languages == {name: "cpp"}
    assert found.kernels == {name: ""}
    assert found.sources[name].lstrip().startswith("#include <torch/csrc/inductor/cpp_prefix.h>")
    assert found.calls == {"extern_kernels.mm": 2}
    assert found.operations == {"aten.mm": 2}  # there are no comments
    assert found.inputs == ("f32[64, 48]", "f32[32, 64]", "f32[48, 32]", "f32[64]")


def test_what_is_called_besides_kernels():
    body = (
        "async_compile.wait(globals())\ndef call(args):\n"
        "    buf0 = torch.ops.aten._scaled_dot_product_flash_attention.default(a, b)\n"
        "    aten.index_put_(buf0, [x], y)\n    # aten.mm(a, b)\n    extern_kernels.mm(a, b, out=c)\n"
        "    extern_kernels.mm(a, b, out=c)\n    multi_kernel_0.run(a)\n"
    )
    found = wrapper_source(WRAPPER + body)
    assert found.calls == {
        "torch.ops.aten._scaled_dot_product_flash_attention.default": 1,
        "aten.index_put_": 1,
        "aten.mm": 1,
        "extern_kernels.mm": 2,
    }
    assert found.operations == {"aten._scaled_dot_product_flash_attention": 1, "aten.mm": 2}
    assert found.launches == ("multi_kernel_0",)


def test_several_devices_and_inputs_without_a_harness():
    body = (
        "    assert_size_stride(arg0_1, (4096, 256), (256, 1))\n    assert_size_stride(arg1_1, (8, ), (1, ), 'input')\n"
        "    with torch.cuda._DeviceGuard(1):\n    with torch.cuda._DeviceGuard(0):\n"
    )
    found = wrapper_source(WRAPPER + body)
    assert found.device == "cuda:0, cuda:1"
    assert found.inputs == ("[4096, 256]", "[8]")


def test_sizes_that_are_passed_in():
    body = (
        "def get_args():\n    s77 = 10\n"
        "    arg1_1 = rand_strided((10, 3), (3, 1), device='cuda:2', dtype=torch.float8_e4m3fn)\n    return []\n"
    )
    found = wrapper_source(WRAPPER + body)
    assert (found.inputs, found.device) == (("int", "f8e4m3fn[10, 3]"), "cuda:2")


def test_sources_keep_their_escapes():
    text = (
        WRAPPER
        + r"""a = async_compile.triton('a', '''
x = "\\n" \'\'\'doc\'\'\'
''', device_str='cuda')
b = async_compile.cpp_pybinding(['int*'], r'''
"\n"
''')
"""
    )
    found = wrapper_source(text)
    assert found.sources == {"a": "\nx = \"\\n\" '''doc'''\n", "b": '\n"\\n"\n'}


def test_what_a_source_holds_is_not_the_wrappers():
    inner = (
        "    fake.run(x)\n    extern_kernels.mm(a)\n#   %a = call_function[target=torch.ops.aten.mul.Tensor](args)\n"
    )
    found = wrapper_source(f"{WRAPPER}a = async_compile.triton('a', '''\n{inner}''')\n    a.run(x)\n")
    assert (found.launches, found.calls, found.operations) == (("a",), {}, {})


@pytest.mark.parametrize(("start", "direction"), [("['3_inference']", "inference"), ("None", ""), ("['x']", "")])
def test_direction(start, direction):
    assert wrapper_source(f"# AOT ID: {start}\n").direction == direction


def test_other_modules_are_no_wrappers():
    assert wrapper_source("") is None
    assert wrapper_source(sample("reduction")) is None


@pytest.mark.parametrize(
    "body",
    [
        "a = async_compile.triton('a', '''",
        "a = async_compile.triton('a', '''" * 5_000,
        "a = async_compile.triton('a', '\n" * 5_000,
        "a = async_compile.triton('a', '''" + "\\" * 100_001 + "''')",
        "torch.ops." * 10_000,
        "#   %a call_function[target=torch.ops." * 10_000,
        "    a = rand_strided((" * 5_000,
        "\0\ud800",
    ],
    ids=["open", "opened often", "no source", "backslashes", "operators", "nodes", "inputs", "bytes"],
)
def test_hostile_wrappers(body):
    found = wrapper_source(WRAPPER + body)
    assert found.direction == "forward"
    assert found.launches == ()


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
