"""Inductor's wrappers: what they launch, of real ones and of odd ones."""

from __future__ import annotations

import pytest

from cachekeeper.inductor.sources import kernel_source
from cachekeeper.inductor.wrappers import is_wrapper, wrapper_source

from .test_sources import KERNEL, WRAPPER, sample


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


def test_wrappers_are_told_by_how_they_begin():
    assert is_wrapper(WRAPPER.encode())
    assert not is_wrapper(KERNEL.encode()) and not is_wrapper(b"")
