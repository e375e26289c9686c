"""PTX: instructions by class."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper.inductor.ptx import CLASSES, mix

ADD = (Path(__file__).parents[1] / "golden" / "kernels" / "add.ptx").read_bytes()

# From a flex_attention in float32: with matmul precision "high", and with "highest".
TF32 = b"""
	// begin inline asm
	wgmma.fence.sync.aligned;
	// end inline asm
	// begin inline asm
	wgmma.mma_async.sync.aligned.m64n32k8.f32.tf32.tf32 {%r185,%r186}, %rd43, %rd44, 0, 1, 1;
	// end inline asm
	wgmma.commit_group.sync.aligned;
	// begin inline asm
	wgmma.wait_group.sync.aligned 0;
"""
IEEE = b"""
	ld.shared.v4.b32 	{%r1, %r2, %r3, %r4}, [%r9+16];
	fma.rn.f32 	%r5, %r1, %r2, %r6;
	fma.rn.f32 	%r7, %r3, %r4, %r5;
"""


def line(instruction: str) -> bytes:
    return f"\n\t{instruction};\n".encode()


def test_a_real_kernel():
    assert mix(ADD) == {"global load": 2, "global store": 1, "float": 4, "integer": 7, "branch": 1, "other": 12}


def test_classes_are_told_in_their_order():
    found = list(mix(IEEE + TF32))
    assert found == ["tensor", "shared load", "barrier", "float"]
    assert found == [name for name in CLASSES if name in found]


def test_products_on_tensor_cores_and_without():
    assert mix(TF32) == {"tensor": 1, "barrier": 3}
    assert mix(IEEE) == {"shared load": 1, "float": 2}


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1}, {%r2}, {%r3}, {%r1}", "tensor"),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1", "tensor"),
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2]", "other"),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%r1]", "barrier"),
        ("cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2", "async copy"),
        ("cp.async.commit_group", "barrier"),
        ("cp.async.wait_group 2", "barrier"),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2}], [%r3]",
            "async copy",
        ),
        ("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1}, [%r2]", "ldmatrix"),
        ("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {%r2}", "shared store"),
        ("@%p1 ld.global.L1::evict_last.L2::cache_hint.v4.b32 { %r1 }, [ %rd1 + 0 ], %rd2", "global load"),
        ("@!%p1 st.global.b32 [ %rd1 + 0 ], { %r1 }", "global store"),
        ("ld.b32 %r1, [%rd1]", "global load"),
        ("ld.acquire.gpu.global.b32 %r1, [%rd1]", "global load"),
        ("st.shared::cta.b32 [%r1], %r2", "shared store"),
        ("ld.local.b32 %r1, [%rd1]", "local load"),
        ("st.local.v2.b32 [%rd1], {%r1, %r2}", "local store"),
        ("ld.param.b64 %rd1, [kernel_param_0]", "other"),
        ("atom.global.gpu.acq_rel.add.f32 %r1, [%rd1], %r2", "atomic"),
        ("red.async.relaxed.cluster.global.add.u32 [%rd1], %r1", "atomic"),
        ("bar.sync 0", "barrier"),
        ("mbarrier.try_wait.parity.shared.b64 p, [%r1], %r2", "barrier"),
        ("fence.proxy.async.shared::cta", "barrier"),
        ("fma.rn.ftz.f32 %r1, %r2, %r3, %r4", "float"),
        ("add.bf16x2 %r1, %r2, %r3", "float"),
        ("setp.ge.f32 %p1, %r1, 0f3F8060FE", "float"),
        ("max.s32 %r1, %r2, %r3", "integer"),
        ("mad.wide.s32 %rd1, %r1, 2, %rd2", "integer"),
        ("cvt.rn.bf16x2.f32 %r1, %r2, %r3", "convert"),
        ("@%p1 bra $L__BB0_2", "branch"),
        ("ret", "branch"),
        ("ex2.approx.ftz.f32 %r1, %r2", "special"),
        ("rsqrt.approx.ftz.f32 %r1, %r2", "special"),
        ("mov.b32 {%rs1, %rs2}, %r1", "other"),
        ("shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1", "other"),
    ],
)
def test_instructions(instruction: str, expected: str):
    assert mix(line(instruction)) == {expected: 1}


def test_several_instructions_a_line():
    assert mix(b"\n\t{ .reg .b32 tmp; mov.b64 {%r1, tmp}, %rd60; }\n") == {"other": 1}
    assert mix(b"\n  add.f32 a, b, c; @%p1 mul.f32 a, b, c;\n") == {"float": 2}


def test_what_is_no_instruction():
    text = b"// add.f32\n\t.reg .b32 \t%r<19>;\n$L__tmp0:\n.b8 1\n\t.loc\t1 2 3\n\t// begin inline asm\n"
    assert mix(text + b"\t{\n\t}\n\t.section\t.debug_loc") == {}
    assert mix(b"") == {}


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes):
    for text in (data, b"\n\t" + data, ADD[:700] + data):
        assert set(mix(text)) <= set(CLASSES)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", [b"\n\t", b"\n\t@", b"@" * 9, b"; ", b"\n\ta.", b"c", b"\n \t \t"])
def test_time_is_linear(part: bytes):
    text = part * (1_000_000 // len(part))
    mix(text)
