"""Instruction sets from samples of /proc/cpuinfo, and thread counts against torch itself."""

import os
import shutil
import subprocess
import sys

import pytest

from cachekeeper.environment import cpu
from cachekeeper.models import Fact

GCC = "g++ (Debian 12.2.0-14+deb12u1) 12.2.0"
AVX512 = "avx2 avx512f avx512vl avx512bw avx512dq"
NEW_TORCH = "class VecAVX512VNNI ... sve_max_length"


def cpuinfo(flags, key="flags"):
    return f"processor\t: 0\nmodel name\t: AMD EPYC\n{key}\t\t: {flags}\nbugs\t: x\n\nprocessor\t: 1\n{key}\t: other\n"


def chosen(flags, *, machine="x86_64", compiler=GCC, torch_source=NEW_TORCH, **environ):
    found = cpu.cpu_flags(cpuinfo(flags))
    fact = cpu.instruction_set(found, environ, machine=machine, compiler=compiler, torch_source=torch_source)
    assert not fact.unknown
    return fact.value


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("sse4_2", "none"),
        ("avx2 fma", "avx2"),
        ("avx2 avx512f avx512bw avx512dq", "avx2"),
        (AVX512, "avx512"),
        (AVX512 + " avx512_bf16", "avx512+bf16"),
        (AVX512 + " avx512_vnni avx512_bf16", "avx512_vnni"),
        (AVX512 + " avx512_vnni avx512_bf16 amx_tile", "amx+bf16"),
        (AVX512 + " avx512_vnni amx_tile amx_fp16", "amx"),
        (AVX512 + " amx_tile", "avx512"),
    ],
)
def test_x86(flags, expected):
    assert chosen(flags) == expected


def test_what_the_compiler_cannot_do_does_not_count():
    flags = AVX512 + " avx512_vnni avx512_bf16 amx_tile amx_fp16"
    assert chosen(flags, compiler="g++ (GCC) 13.1.0") == "amx+bf16+fp16"
    assert chosen(flags, compiler="g++ (Ubuntu 10.5.0-1) 10.5.0") == "avx512_vnni"
    assert chosen(flags, compiler=None) == "none"
    assert chosen(flags, compiler="Debian clang version 14.0.6") == "amx+bf16"


def test_torch_before_vnni():
    assert chosen(AVX512 + " avx512_vnni", torch_source="class VecAVX512") == "avx512"


@pytest.mark.parametrize(
    ("capability", "expected"),
    [("default", "none"), ("avx2", "avx2"), ("avx512", "amx"), ("nonsense", "amx"), ("", "amx"), ("vsx", "amx")],
)
def test_capability_variable(capability, expected):
    flags = AVX512 + " avx512_vnni amx_tile"
    assert chosen(flags, ATEN_CPU_CAPABILITY=capability) == expected


def test_switched_off():
    assert chosen(AVX512, TORCHINDUCTOR_VEC_ISA_OK="0") == "none"


def test_other_processors(monkeypatch):
    monkeypatch.setattr(cpu, "_sve_bits", lambda: 128)
    assert chosen("asimd sve sve2 bf16", machine="aarch64") == "sve128"
    assert chosen("asimd sve sve2 bf16", machine="aarch64", torch_source="") == "neon"
    assert chosen("asimd bf16", machine="aarch64") == "neon"
    monkeypatch.setattr(cpu, "_sve_bits", lambda: 256)
    assert chosen("asimd sve bf16", machine="aarch64", torch_source="") == "sve256"
    assert chosen("", machine="ppc64le") == "vsx"
    assert chosen("vxe", machine="s390x") == "zvector"
    assert cpu.instruction_set(frozenset(), {}, machine="riscv64", compiler=GCC).unknown


def test_only_the_first_processor_is_read():
    assert cpu.cpu_flags(cpuinfo("avx2 fma")) == {"avx2", "fma"}
    assert cpu.cpu_flags(cpuinfo("asimd", "Features")) == {"asimd"}
    assert cpu.cpu_flags("") == frozenset()


@pytest.fixture
def eight_cores(tmp_path, monkeypatch):
    """Sixteen CPUs, two a core, all of them ours."""
    for number in range(16):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{number % 8},{number % 8 + 8}\n")
    (tmp_path / "online").write_text("0-7,8-15\n")
    monkeypatch.setattr(cpu, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, 8),
        ({"OMP_NUM_THREADS": "4"}, 4),
        ({"OMP_NUM_THREADS": "16"}, 8),
        ({"OMP_NUM_THREADS": "4,2"}, 4),
        ({"OMP_NUM_THREADS": "4,x"}, 8),
        ({"OMP_NUM_THREADS": "0"}, 8),
        ({"OMP_NUM_THREADS": ""}, 8),
        ({"MKL_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, 3),
        ({"MKL_NUM_THREADS": "0", "OMP_NUM_THREADS": "5"}, 5),
        ({"MKL_NUM_THREADS": "abc"}, 1),
        ({"OMP_NUM_THREADS": "16", "MKL_DYNAMIC": "false"}, 16),
        ({"MKL_DYNAMIC": "FALSE"}, 8),
    ],
)
def test_threads_on_x86(eight_cores, environ, expected):
    assert cpu.threads(environ, machine="x86_64") == Fact(expected)


def test_threads_elsewhere(eight_cores):
    assert cpu.threads({"OMP_NUM_THREADS": "16"}, machine="aarch64") == Fact(16)
    assert cpu.threads({}, machine="aarch64") == Fact(8)


def test_affinity_counts_cores_not_cpus(eight_cores, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 8, 1})
    assert cpu.threads({}, machine="x86_64") == Fact(2)


def test_threads_without_a_topology(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "TOPOLOGY", tmp_path)
    assert cpu.threads({}, machine="x86_64").unknown
    assert cpu.threads({"OMP_NUM_THREADS": "1"}, machine="x86_64") == Fact(1)


QUESTION = """
import platform, warnings
from cachekeeper.environment import cpu
import os
ours = cpu.threads(os.environ, machine=platform.machine())
warnings.simplefilter("ignore")
import torch
print(ours.value, torch.get_num_threads())
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OMP_NUM_THREADS": "1"},
        {"OMP_NUM_THREADS": "1x"},
        {"OMP_NUM_THREADS": "64"},
        {"MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "2"},
        {"MKL_NUM_THREADS": "0", "OMP_NUM_THREADS": "1"},
        {"OMP_NUM_THREADS": "64", "MKL_DYNAMIC": "FALSE"},
    ],
)
def test_threads_agree_with_torch(run_python, environ):
    ours, torchs = run_python(QUESTION, environ=environ).split()
    assert ours == torchs


@pytest.mark.torch
@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset")
def test_threads_agree_with_torch_on_one_cpu():
    one = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", one, sys.executable, "-c", QUESTION]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["1", "1"]
