"""The JSON that Triton writes beside a kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper.inductor.metadata import Metadata, metadata

REAL = (Path(__file__).parents[1] / "golden" / "kernels" / "add.json").read_bytes()


def changed(**fields: Any) -> bytes:
    """The real one with some fields replaced."""
    return json.dumps({**json.loads(REAL), **fields}).encode()


def test_a_real_one():
    assert metadata(REAL) == Metadata("triton_poi_fused_add_view_2", "cuda:90", 4, 1, 1, 0)


def test_numbers():
    found = metadata(changed(num_warps=8, num_stages=3, num_ctas=2, shared=65536))
    assert found == Metadata("triton_poi_fused_add_view_2", "cuda:90", 8, 3, 2, 65536)


def test_of_rocm():
    found = metadata(changed(target={"backend": "hip", "arch": "gfx942", "warp_size": 64}))
    assert found
    assert found.target == "hip:gfx942"


@pytest.mark.parametrize("value", [None, True, -1, 2**31, 1.5, "4", [4]])
def test_what_is_no_number_is_none(value: object):
    found = metadata(changed(num_warps=value))
    assert found
    assert found.num_warps is None


@pytest.mark.parametrize("target", [None, "cuda", {}, {"backend": "cuda"}, {"backend": 1, "arch": 90}, {"arch": 90}])
def test_an_odd_target_is_empty(target: object):
    found = metadata(changed(target=target))
    assert found
    assert found.target == ""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b'{"child_paths": {"k.cubin": "/cache/k.cubin"}}',
        b'{"name": ""}',
        b'{"name": 1}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"name": "k", "shared": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_metadata_is_none(data: bytes):
    assert metadata(data) is None


@given(st.binary(max_size=20), st.integers(0, len(REAL)))
def test_damage_raises_nothing(part: bytes, at: int):
    found = metadata(REAL[:at] + part + REAL[at + len(part) :])
    assert found is None or found.name


def test_every_cut_is_none():
    assert not any(metadata(REAL[:length]) for length in range(len(REAL)))
