"""What a kernel's intermediate text says: the module that it was compiled from, and its blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper.inductor.ttir import block_lengths, source_module

ADD = (Path(__file__).parents[1] / "golden" / "kernels" / "add.ptx").read_bytes()
MODULE = "chohyya2wvizmou7guo4mi4zrzelcnvgzb7es3pkqyfe6ayehdwt"


def test_module():
    assert source_module(ADD) == MODULE
    assert source_module(f'#loc = loc("/cache/ho/{MODULE}.py":18:0)\n'.encode()) == MODULE
    assert source_module(f'!1 = !DIFile(filename: "{MODULE}.py", directory: "/cache/ho")'.encode()) == MODULE


@pytest.mark.parametrize("text", ["", "/home/me/kernels.py", f"/cache/ho/{MODULE}.cpp", f"/cache/x{MODULE}.py"])
def test_no_module(text: str):
    assert source_module(f'\t.file\t1 "{text}"\n'.encode()) == ""


def test_block_lengths():
    ttir = b"""
    %x = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32> loc(#loc1)
    %y = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32> loc(#loc2)
    %z = tt.make_range {end = 256 : i32, start = 128 : i32} : tensor<128xi32> loc(#loc3)
"""
    assert block_lengths(ttir) == {64, 128}
    assert block_lengths(ADD) == set()


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes):
    for text in (data, ADD[:700] + data):
        assert isinstance(source_module(text), str)
        assert block_lengths(text) == set()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", [b"c", b"/c" + b"a" * 51, b"tt.make_range {end = ", b"\n \t \t"])
def test_time_is_linear(part: bytes):
    text = part * (1_000_000 // len(part))
    source_module(text)
    block_lengths(text)
