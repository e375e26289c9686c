"""What follows from a change of a kernel: each rule where it holds, and where it just does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachekeeper.diffing.occupancy import occupancy
from cachekeeper.diffing.resources import changes, effect, is_gone, is_other_code, of_times
from tests.diffing.samples import binary, cpp, kernel, winner


def change(name, a, b):
    """Both sides and effect of one change; None where it is none."""
    found = [one for one in changes(a, b, False) if one.name == name]
    return (found[0].a, found[0].b, found[0].effect) if found else None


def built(**fields):
    return kernel(binary=binary("B", **fields))


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        ("spills", {}, {"local_bytes": 4144}, ("none", "4,144 bytes", "slower")),
        ("spills", {"local_bytes": 4144}, {"local_bytes": 16}, ("4,144 bytes", "16 bytes", "faster")),
        ("spills", {"local_bytes": 8}, {"local_bytes": 8}, None),
        ("spills", {"local_bytes": None}, {"local_bytes": 8}, None),
        ("tensor instructions", {}, {"mix": {"global load": 2}}, ("4", "0", "slower")),
        ("tensor instructions", {"mix": {}}, {"mix": {"tensor": 1}}, ("0", "1", "faster")),
        ("tensor instructions", {}, {"mix": {"tensor": 1}}, ("4", "1", "")),
        ("tensor instructions", {}, {"mix": None}, None),
        ("num_stages", {}, {"num_stages": 4}, ("3", "4", "")),
        ("num_ctas", {}, {"num_ctas": None}, None),
        # 8 warps of 32 registers: 64 of 64 warps; of 33, that is 40 as registers are given out: 51 and so 48.
        ("registers", {}, {"registers": 33}, ("32", "33", "slower")),
        ("registers", {"registers": 33}, {"registers": 32}, ("33", "32", "faster")),
        ("registers", {"registers": 24}, {"registers": 32}, ("24", "32", "")),
        ("registers", {"target": "cuda:42"}, {"target": "cuda:42", "registers": 255}, ("32", "255", "")),
        # 8 blocks of 8 warps are resident; of 28 KiB each, and one for the system, only 7.
        ("dynamic shared memory", {}, {"dynamic_shared": 28 << 10}, ("1.0 KiB", "28.0 KiB", "slower")),
        ("dynamic shared memory", {}, {"dynamic_shared": 27 << 10}, ("1.0 KiB", "27.0 KiB", "")),
        ("static shared memory", {}, {"static_shared": 32 << 10}, ("0 B", "32.0 KiB", "slower")),
        ("instructions", {}, {"mix": {"tensor": 4, "global load": 8}}, ("6", "12", "")),
        ("machine code", {}, {"code_bytes": 8192}, ("4.0 KiB", "8.0 KiB", "")),
        ("PTX", {}, {"ptx_bytes": 8100}, None),
        ("PTX", {}, {"ptx_bytes": 9000}, ("7.8 KiB", "8.8 KiB", "")),
        ("PTX", {}, {"ptx_bytes": 8100, "registers": 31}, ("7.8 KiB", "7.9 KiB", "")),
        ("target", {}, {"target": "cuda:80"}, ("cuda:90", "cuda:80", "")),
    ],
)
def test_binaries(name, before, after, said):
    a = kernel(binary=binary("A", **before))
    assert change(name, a, built(**after)) == said


def test_the_same_binary_is_not_looked_into():
    assert changes(kernel(), kernel(binary=binary("A", registers=255)), False) == ()


def test_other_code_under_the_same_key():
    a, b = (kernel(binary=binary("A", code=code)) for code in ("7a520d9a5560", "damaged"))
    (found,) = changes(a, b, False)
    assert (found.name, found.a, found.b, found.effect) == ("machine code", "7a520d9a5560", "damaged", "")
    assert found.words.startswith("the same key, other code")
    assert is_other_code(found)
    unknown = kernel(binary=binary("A", code=""))
    assert changes(a, unknown, False) == ()


def test_code_under_another_key_is_other_code_only_where_it_is_damaged():
    a, b = kernel(binary=binary("A", code="7a520d9a5560")), built(code="bf730c8b0053")
    assert changes(a, b, False) == ()
    assert change("machine code", a, built(code="damaged")) == ("7a520d9a5560", "damaged", "")


def test_a_binary_on_one_side_only():
    a, b = kernel(built="there"), kernel(built="gone", binary=None, compiled=0)
    assert change("binary", a, b) == ("there", "gone", "")
    assert [is_gone(one) for one in changes(a, b, False)] == [True]
    assert [is_gone(one) for one in changes(b, a, False)] == [False]
    assert change("binary", a, kernel(binary=None)) is None  # which one it is cannot be told


def test_libraries():
    a = cpp(built="there", module="c1", code="111111111111")
    assert change("library", a, cpp(built="gone", module="c1")) == ("there", "gone", "")
    assert change("library", a, cpp(built="damaged", module="c1")) == ("there", "no ELF file", "")
    other = cpp(built="there", module="c1", code="222222222222")
    assert change("machine code", a, other) == ("111111111111", "222222222222", "")
    assert change("machine code", a, replace(other, module="c2")) is None


def test_another_device_alone_is_no_change():
    assert changes(kernel(), kernel(device="cuda:1"), False) == ()
    assert change("device", kernel(), kernel(device="cuda:1", type="reduction")) == ("cuda:0", "cuda:1", "")


def test_the_limit_is_said():
    (found,) = [one for one in changes(kernel(), built(registers=128), False) if one.name == "registers"]
    assert found.words.startswith("64 of 64 warps -> 16 are resident at once: the limit is that of 65,536 registers")


def test_another_tile_takes_other_registers_and_nothing_follows():
    b = kernel(winner=winner(config={"XBLOCK": 2048, "num_warps": 8}), binary=binary("B", registers=128))
    assert change("registers", kernel(), b) == ("32", "128", "")
    assert change("XBLOCK", kernel(), b) == ("512", "2048", "")


@pytest.mark.parametrize(
    ("fields", "warps", "limit"),
    [
        ({}, 64, "warps"),
        ({"registers": 255}, 8, "registers"),
        ({"registers": 64}, 32, "registers"),
        ({"dynamic_shared": 200 << 10}, 8, "shared memory"),
        ({"num_warps": 1, "registers": 16}, 32, "blocks"),
        ({"target": "cuda:89", "registers": 32}, 48, "warps"),
    ],
)
def test_occupancy(fields, warps, limit):
    found = occupancy(binary(**fields))
    assert (found.warps, found.limit) == (warps, limit)


@pytest.mark.parametrize(
    "fields", [{"target": ""}, {"num_warps": None}, {"registers": None}, {"num_warps": 0}, {"registers": -1}]
)
def test_no_occupancy(fields):
    assert occupancy(binary(**fields)) is None


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [(0.1, 0.106, "slower"), (0.1, 0.105, ""), (0.106, 0.1, "faster"), (0.001, 0.0014, ""), (0.0, 1.0, "")],
)
def test_times(a, b, found):
    assert of_times(a, b) == found


def test_a_timing_decides():
    a = kernel(winner=winner(milliseconds=0.100))
    for milliseconds, found in ((0.120, "slower"), (0.080, "faster"), (0.102, "")):
        chosen = winner(config={"XBLOCK": 512, "num_warps": 4}, milliseconds=milliseconds)
        b = kernel(winner=chosen, binary=binary("B", local_bytes=64))
        assert effect(changes(a, b, False)) == found
        assert changes(a, b, False)[0].name == ("time" if found else "spills")


def test_without_a_timing_a_choice_has_no_effect():
    b = kernel(winner=winner(config={"XBLOCK": 512, "num_warps": 4}))
    found = changes(kernel(), b, False)
    assert [(one.name, one.a, one.b, one.effect) for one in found] == [("num_warps", "8", "4", "")]
    assert effect(found) == ""


def test_good_and_harm_are_mixed():
    found = changes(kernel(), built(local_bytes=8, mix={"tensor": 4}, registers=32), False)
    assert effect(found) == "slower"
    assert effect(changes(built(mix={}), kernel(binary=binary("C", local_bytes=8)), False)) == "mixed"


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        ("vector width", {}, {"vector_bits": 256}, ("512 bits", "256 bits", "slower")),
        ("vector width", {}, {"vector_bits": 0}, ("512 bits", "scalar", "slower")),
        ("vector width", {"vector_bits": 0}, {}, ("scalar", "512 bits", "faster")),
        ("vector width", {}, {"vector_bits": None}, None),
        ("vector width", {}, {}, None),
    ],
)
def test_vectors(name, before, after, said):
    assert change(name, cpp(**before), cpp(**after)) == said


def test_flags():
    slow = replace(cpp(), flags=("-O1", "-march=native"))
    assert change("flags", cpp(), slow) == ("-O3", "-O1", "slower")
    assert change("flags", cpp(), replace(cpp(), flags=("-O3",))) == ("-march=native", "nothing", "")
    assert change("flags", cpp(), replace(cpp(), flags=())) is None
    assert change("flags", cpp(), replace(cpp(), flags=("-march=native", "-O3"))) is None
