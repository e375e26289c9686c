"""Damage that torch would not heal, judged from bytes alone."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cachekeeper.inductor import check_file, incomplete_groups
from cachekeeper.testing.caches import elf

MODULE = b"# AOT ID: ['0_inference']\nimport torch\n\ndef call(args):\n    return args\n"
METADATA = json.dumps({"hash": "x", "target": {"backend": "cuda", "arch": 90}, "num_warps": 4}).encode()


def damage(kind: str, path: str, data: bytes) -> str:
    return check_file(kind, path, data).damage


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A shared library as Inductor builds them."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    directory = tmp_path_factory.mktemp("library")
    (directory / "k.cpp").write_text('extern "C" void kernel(float* x) { for (int i = 0; i < 64; ++i) x[i] += 1; }')
    command = [compiler, "-O3", "-shared", "-fPIC", "k.cpp", "-o", "k.so"]
    subprocess.run(command, cwd=directory, check=True)
    return (directory / "k.so").read_bytes()


def test_a_whole_library_is_sound(library: bytes):
    assert damage("native", "ab/x.main.so", library) == ""


def test_a_library_cut_anywhere_is_damaged(library: bytes):
    for length in [*range(200), *range(200, len(library), 97), len(library) - 1]:
        assert damage("native", "ab/x.main.so", library[:length]), length


def test_of_a_large_library_the_beginning_is_enough(library: bytes):
    assert check_file("native", "ab/x.so", library[:64], len(library)).damage == ""
    assert "cut" in check_file("native", "ab/x.so", library[:64], len(library) - 1).damage


def test_a_made_library_is_judged_like_a_real_one():
    whole = elf(b"x" * 3000)
    assert damage("triton", "k.cubin", whole) == ""
    for length in range(len(whole)):
        assert damage("triton", "k.cubin", whole[:length]), length


@pytest.mark.parametrize("name", ["x.so", "k.cubin", "k.hsaco", "cuda_utils.cpython-311-x86_64-linux-gnu.so"])
@pytest.mark.parametrize("data", [b"garbage", b"\x00" * 4096, b"\x7fEL", b"<html>404</html>"])
def test_garbage_is_no_library(name: str, data: bytes):
    assert damage("triton", name, data) == "not an ELF file"


def test_an_elf_of_another_layout_is_not_judged():
    """Of 32 bits: nothing here says that it is wrong."""
    assert damage("native", "x.so", b"\x7fELF\x01\x01\x01" + bytes(80)) == ""


@pytest.mark.parametrize("kind", ["fxgraph", "aotautograd", "triton", "module", "native", "autotune", "precompile"])
@pytest.mark.parametrize("name", ["x", "k.cubin", "k.json", "__grp__k.json", "k.ttir", "x.py", "x.best_config"])
def test_an_empty_file_is_damage(kind: str, name: str):
    """C2 and C7: a cubin of no bytes counts as a hit, a `.best_config` of none raises."""
    assert damage(kind, name, b"") == "empty file"


def test_a_marker_of_torch_2_14_is_empty():
    assert damage("native", "dc/cdc7n5oafecvp4ssjg5kosqqglavjijmgmok3xmnvv4qrvoak6oa.so.load_ok", b"") == ""
    assert damage("native", "dc/cdc7n5oafecvp4ssjg5kosqqglavjijmgmok3xmnvv4qrvoak6oa.so", b"") == "empty file"


@pytest.mark.parametrize("kind", ["other", "headers"])
def test_other_files_may_be_empty(kind: str):
    assert damage(kind, "x", b"") == ""


@pytest.mark.parametrize("name", ["x.best_config", "y"])
def test_two_objects_glued(name: str):
    """C1: ranks that share a directory overwrite each other's."""
    found = damage("autotune", name, b'{"num_warps": 4}{"num_warps": 8}')
    assert found.startswith("JSON does not parse: Extra data")


@pytest.mark.parametrize("data", [b'{"num_warps"', b"{", b"\x00" * 16, b"\xff\xfe", b"nonsense", b"[" * 100_000])
def test_json_that_does_not_parse(data: bytes):
    assert damage("autotune", "ab/x.best_config", data).startswith("JSON does not parse: ")
    assert damage("triton", "k.json", data).startswith("JSON does not parse: ")


def test_a_kernels_metadata_cut_anywhere(tmp_path: Path):
    """C3."""
    assert damage("triton", "k.json", METADATA) == ""
    for length in range(len(METADATA)):
        assert damage("triton", "k.json", METADATA[:length]), length


@pytest.mark.parametrize("data", [b'{"child_pa', b"{}", b'{"child_paths": {"../x": "/x"}}'])
def test_a_group_that_is_none(data: bytes):
    """C4."""
    assert damage("triton", "triton/0/H/__grp__k.json", data)


def test_a_group_tells_its_children():
    data = b'{"child_paths": {"k.cubin": "/x/k.cubin", "k.json": "/x/k.json"}}'
    assert check_file("triton", "triton/0/H/__grp__k.json", data) == ("", "", ("k.cubin", "k.json"))


@pytest.mark.parametrize(
    ("data", "target"),
    [
        (METADATA, "cuda:90"),
        (b'{"target": {"backend": "hip", "arch": "gfx942"}}', "hip:gfx942"),
        (b'{"target": null}', ""),
        (b'{"target": {}}', ""),
        (b"[]", ""),
    ],
)
def test_what_a_kernel_was_built_for(data: bytes, target: str):
    assert check_file("triton", "k.json", data).target == target


def test_a_module_cut_where_it_shows():
    assert damage("module", "ab/c.py", MODULE) == ""
    for cut in (MODULE[:-12], MODULE[:32], b"# AOT ID: ['0_inference']\nx = ("):
        assert "does not parse as Python" in damage("module", "ab/c.py", cut), cut


def test_a_module_without_a_newline_that_parses_is_sound():
    assert damage("module", "ab/c.py", MODULE.rstrip()) == ""


@pytest.mark.parametrize("data", [b"\x00" * 500, MODULE[:40] + b"\x00" * 100, MODULE + b"\x00\n"])
def test_a_module_with_zeros_after_a_power_failure(data: bytes):
    assert "zero bytes" in damage("module", "ab/c.py", data)


def test_torn_pickles_are_torchs_to_heal():
    assert damage("fxgraph", "fxgraph/ab/fx/y", b"\x80\x05half") == ""


# Groups

KERNEL = {"k.ttir", "k.llir", "k.ptx", "k.cubin", "k.json", "__grp__k.json"}
GROUPS = {"__grp__k.json": KERNEL - {"__grp__k.json"}}


def test_a_whole_group():
    assert list(incomplete_groups(KERNEL, GROUPS)) == []


def test_a_kernel_gone_from_its_group():
    """C6."""
    found = list(incomplete_groups(KERNEL - {"k.cubin", "k.ptx"}, GROUPS))
    assert found == [("__grp__k.json", "incomplete group: k.cubin, k.ptx missing or empty")]


def test_two_groups_in_a_directory_are_judged_apart():
    groups = {**GROUPS, "__grp__other.json": {"other.cubin"}}
    assert [name for name, _ in incomplete_groups(KERNEL | {"__grp__other.json"}, groups)] == ["__grp__other.json"]


@pytest.mark.parametrize("name", ["k.cubin", "k.json", "k.ttir", "k.hsaco"])
def test_a_kernel_without_a_group_is_compiled_again(name: str):
    [(where, reason)] = incomplete_groups({name}, {})
    assert where == "" and "no __grp__ file" in reason


@pytest.mark.parametrize("names", [{"cuda_utils.so"}, {"__triton_launcher.so"}, {"k.autotune.json"}, set()])
def test_launchers_and_timings_have_no_group(names: set[str]):
    assert list(incomplete_groups(names, {})) == []


@pytest.mark.parametrize("data", [b"[]", b"null", b"4", b'"text"'])
@pytest.mark.parametrize("kind, path", [("autotune", "ab/x.best_config"), ("triton", "triton/0/H/k.json")])
def test_json_that_is_no_object(kind: str, path: str, data: bytes):
    assert check_file(kind, path, data).damage == "not a JSON object"


def test_logs_of_autoheuristic_are_no_json():
    assert check_file("autotune", "autoheuristic/mm/NVIDIA_H200/data.txt", b"1,2,triton").damage == ""
