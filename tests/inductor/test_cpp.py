"""C++ kernels: the width of their vectors, and the flags in their libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper.inductor.cpp import compiler_flags, cpp_source

SOFTMAX = (Path(__file__).parents[1] / "golden" / "kernels" / "softmax.main.cpp").read_text()
# What g++ 12 wrote of torch 2.13's command line, with -march=native, on a machine with AVX-512; some of -m left out.
PRODUCER = (
    b"\0long int\0GNU C++20 12.2.0 -march=cooperlake -mmmx -mpopcnt -msse -msse2 -mavx -mavx2 -mno-sse4a -mno-fma4 "
    b"-mbmi -mavx512cd -mno-avx512er -mno-hle --param=l1-cache-size=48 -mtune=generic -mavx512f -mfma -mamx-tile -g1 "
    b"-O3 -std=c++20 -fno-omit-frame-pointer -fno-trapping-math -ffp-contract=off -fno-tree-loop-vectorize -fPIC "
    b"-fopenmp -fasynchronous-unwind-tables\0unsigned int\0"
)
SCALAR = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(float* in_out_ptr0)
{
    #pragma GCC ivdep
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(100L); x0+=static_cast<int64_t>(1L))
    {
        auto tmp0 = in_out_ptr0[static_cast<int64_t>(x0)];
        in_out_ptr0[static_cast<int64_t>(x0)] = tmp0;
    }
}
"""
PROBE = """
#include <cstdint>
#include <immintrin.h>

extern "C" __m256i __avx512_vnni_chk_kernel_1(__m256i src, __m256i a, __m256i b) {
    return _mm256_dpbusd_epi32(src, a, b);
}
"""


def loop(step: int, *statements: str) -> str:
    """A kernel of one loop, as Inductor writes it."""
    lines = "\n".join(f"            {statement}" for statement in statements)
    return f"""
extern "C"  void  cpp_fused_add_0(const double* in_ptr0)
{{
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(1000L); x0+=static_cast<int64_t>({step}L))
    {{
{lines}
    }}
}}
"""


def load(type_: str, elements: str) -> str:
    return f"auto tmp0 = at::vec::{type_}::loadu(in_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>({elements}));"


def test_a_real_kernel():
    found = cpp_source(SOFTMAX)
    assert found
    assert (found.functions, found.vector_bits) == (("kernel",), 512)
    assert found.source.startswith('extern "C"  void  kernel(const float* in_ptr0,\n')
    assert found.source.endswith("inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);\n}")


def test_a_scalar_kernel():
    found = cpp_source(SCALAR)
    assert found
    assert (found.functions, found.vector_bits) == (("kernel",), 0)
    assert "#include" not in found.source


@pytest.mark.parametrize(
    ("step", "statements", "bits"),
    [
        (8, [load("Vectorized<float>", "8")], 256),
        (16, [load("VectorizedN<double,2>", "16"), load("VectorizedN<double,2>", "8L")], 512),
        (8, [load("VectorizedN<int64_t,2>", "8")], 256),
        (
            16,
            [load("Vectorized<at::BFloat16>", "16"), "auto tmp1 = at::vec::convert<float,2,at::BFloat16,1>(tmp0);"],
            256,
        ),
        (32, [load("Vectorized<at::BFloat16>", "32"), load("Vectorized<at::BFloat16>", "8L")], 512),
        (16, [load("Vectorized<at::Half>", "16"), "auto tmp1 = at::vec::convert<float>(tmp0);"], 512),
        (16, [load("Vectorized<int8_t>", "16"), "auto tmp1 = at::vec::convert<float>(tmp0);"], 512),
        (8, [load("Vectorized<int8_t>", "8")], 256),
        (4, [load("Vectorized<float>", "4")], 128),
        (16, ["auto tmp0 = at::vec::Vectorized<float>(0);", "tmp0.store(out_ptr0 + static_cast<int64_t>(x0));"], 512),
        (16, [load("Vectorized<float>", "4L")], 512),
        (1, ["auto tmp0 = at::vec::Vectorized<float>(0);"], None),
        (3, [load("Vectorized<float>", "3")], None),
    ],
)
def test_widths(step: int, statements: list[str], bits: int | None):
    found = cpp_source(loop(step, *statements))
    assert found
    assert found.functions == ("cpp_fused_add_0",)
    assert found.vector_bits == bits


@pytest.mark.parametrize("text", ["", "int main() {}", PROBE, '# AOT ID: ["0_inference"]', 'extern "C"'])
def test_what_is_no_kernel_is_none(text: str):
    assert cpp_source(text) is None


def test_flags_are_of_the_library():
    expected = (
        "-O3 -ffp-contract=off -fno-trapping-math -fno-tree-loop-vectorize -fopenmp -mamx-tile -march=cooperlake "
        "-mavx -mavx2 -mavx512cd -mavx512f -mfma -mtune=generic"
    )
    assert " ".join(compiler_flags(b"\x7fELF" + bytes(100) + PRODUCER)) == expected


@pytest.mark.parametrize(
    "library", [b"", b"clang version 18.1.3\0", b"GNU C++", b"GNU C++20 \0", b"GNU C++20 12.2.0\0"]
)
def test_without_flags(library: bytes):
    assert compiler_flags(library) == ()


@given(st.text(max_size=200), st.integers(0, len(SOFTMAX)))
def test_damage_raises_nothing(part: str, at: int):
    found = cpp_source(SOFTMAX[:at] + part + SOFTMAX[at + len(part) :])
    assert found is None or found.functions
    assert compiler_flags(part.encode("utf-8", "replace")) == ()


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "part", ['extern "C" ', 'extern "C" a\n', "Vectorized<float>::loadu(", "a", "static_cast<int64_t>(", "\n", " "]
)
def test_time_is_linear(part: str):
    text = part * (300_000 // len(part))
    cpp_source(loop(16, load("Vectorized<float>", "16")) + text)
    compiler_flags(b"GNU C++" * 50_000)
