"""Cubins: what the driver tells of a kernel, read from the file.

The samples are Triton's own for an H200, and two of hand-written PTX with 400 bytes of static and some dynamic shared
memory. The numbers were taken from the driver (cuFuncGetAttribute) and from `ptxas -v`.
"""

from __future__ import annotations

import math
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper.inductor.cubin import Resources, library_code, resources

SAMPLES = Path(__file__).parents[1] / "golden" / "kernels"
PTXAS = "ptxas 13.0.88 -lineinfo -arch sm_90a"
ADD = (SAMPLES / "add.cubin").read_bytes()
SMALL = (SAMPLES / "shared_sm90.cubin").read_bytes()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", Resources(18, 0, 0, 512, PTXAS, "7a520d9a5560")),
        ("spilled", Resources(48, 8, 0, 6912, PTXAS, "bf730c8b0053")),
        ("toolkit", Resources(12, 0, 0, 896, "CUDA 12.8", "c34b80d5a608")),
        ("shared_sm80", Resources(8, 0, 400, 384, "ptxas 13.0.88 -O 3 -arch sm_80", "513292ac0098")),
        ("shared_sm90", Resources(8, 0, 400, 384, "ptxas 13.0.88 -O 3 -arch sm_90a", "7b16a18c9f64")),
    ],
)
def test_real_cubins(name: str, expected: Resources):
    assert resources((SAMPLES / f"{name}.cubin").read_bytes()) == expected


def test_other_machine_code_has_another_hash():
    changed = bytearray(ADD)
    changed[0xF80 + 0x1FF] ^= 1  # the last byte of .text, as `readelf -SW` places it
    found = resources(bytes(changed))
    assert found
    assert found.code not in ("", "7a520d9a5560")
    changed = bytearray(ADD)
    changed[0xF80 + 0x200] ^= 1
    assert resources(bytes(changed)) == resources(ADD)


def test_machine_code_of_a_library():
    data = Path(math.__file__).read_bytes() if hasattr(math, "__file__") else Path(sys.executable).read_bytes()
    digest = library_code(data)
    assert digest
    assert len(digest) == 12
    assert library_code(data[:200]) is None
    assert library_code(bytes(100)) is None
    assert library_code(ADD) == ""  # a cubin's code is in a section of another name


def test_an_entry_is_found_by_its_name():
    assert resources(ADD, "triton_poi_fused_add_view_2") == resources(ADD)
    assert resources(ADD, "triton_poi_fused_add_view_3") is None
    assert resources(ADD, "triton_poi") is None


@pytest.mark.parametrize("data", [b"", b"\x7fELF", bytes(64), ADD[:63], b"\x7fELF\x02" + bytes(100), b"{}" * 50])
def test_what_is_no_cubin_is_none(data: bytes):
    assert resources(data) is None


def test_a_library_of_the_cpu_is_none():
    machine = bytearray(ADD)
    struct.pack_into("<H", machine, 18, 62)  # EM_X86_64
    assert resources(bytes(machine)) is None


def test_one_that_is_cut_before_the_end_of_its_sections_is_none():
    (sections,) = struct.unpack_from("<Q", SMALL, 40)
    (count,) = struct.unpack_from("<H", SMALL, 60)
    end = sections + 64 * count
    found = [length for length in range(len(SMALL)) if resources(SMALL[:length])]
    assert found == list(range(end, len(SMALL)))


def test_without_attributes_numbers_are_none():
    names = bytearray(ADD).replace(b"\0.nv.info\0", b"\0.nv.gone\0").replace(b".text.triton", b".TEXT.triton")
    assert resources(bytes(names)) == Resources(None, None, 0, None, PTXAS)


def test_a_note_without_options_or_of_another_type():
    note = ADD.index(b"NVIDIA Corp\0") - 12
    other = bytearray(ADD)
    struct.pack_into("<I", other, note + 8, 1999)
    found = resources(bytes(other))
    assert found
    assert found.tools == "CUDA 13.0"
    bare = resources(ADD.replace(b"-v  -lineinfo  -arch sm_90a \0", b"\0v  -lineinfo  -arch sm_90a \0"))
    assert bare
    assert bare.tools == "ptxas 13.0.88"


def test_flipped_bytes_raise_nothing():
    for at in range(len(SMALL)):
        for change in (0xFF, 0x80):
            flipped = bytearray(SMALL)
            flipped[at] ^= change
            found = resources(bytes(flipped))
            assert found is None or isinstance(found.tools, str)


@given(st.binary(max_size=400), st.integers(0, len(SMALL)))
def test_overwritten_parts_raise_nothing(part: bytes, at: int):
    data = SMALL[:at] + part + SMALL[at + len(part) :]
    for kernel in ("", "k"):
        found = resources(data, kernel)
        assert found is None or found.static_shared is None or found.static_shared >= 0


@pytest.mark.timeout(20)
def test_many_names_without_end_take_no_time():
    count = 65535
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<H", header, 18, 190)
    struct.pack_into("<Q", header, 40, 64)
    struct.pack_into("<HHH", header, 58, 64, count, 0)
    section = struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 64, 64 * count, 0, 0, 0, 0)
    assert resources(bytes(header) + section * count) is None
