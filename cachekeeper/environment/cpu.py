"""What Inductor's C++ kernels depend on in the processor: the instruction set and the number of threads."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..models import Fact

CPUINFO = Path("/proc/cpuinfo")
TOPOLOGY = Path("/sys/devices/system/cpu")

# The compiler's major version that Inductor's trial compilation takes (torch/_inductor/cpu_vec_isa.py).
_GCC_NEEDS = {"avx512_bf16": 10, "amx": 11, "amx_fp16": 13}
_CLANG_NEEDS = {"avx512_bf16": 9, "amx": 11, "amx_fp16": 16}


def cpu_flags(text: str | None = None) -> frozenset[str]:
    """The flags of the first processor, from the text of /proc/cpuinfo (only its start is read)."""
    text = _cpuinfo() if text is None else text
    match = re.search(r"^(?:flags|features)\s*:(.*)$", text, re.MULTILINE | re.IGNORECASE)
    return frozenset(match[1].lower().split()) if match else frozenset()


def cpu_model() -> str:
    """The name of the processor, or its architecture where /proc/cpuinfo names none."""
    match = re.search(r"^model name\s*:\s*(.+)$", _cpuinfo(), re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def instruction_set(
    flags: frozenset[str],
    environ: Mapping[str, str],
    *,
    machine: str,
    compiler: str | None,
    torch_source: str = "",
) -> Fact:
    """The instruction set Inductor would compile C++ for, as "avx512_vnni", "amx+bf16", "neon" or "none".

    The rules are those of `pick_vec_isa()` in torch/_inductor/cpu_vec_isa.py, without its trial compilation.

    Args:
        flags: of the processor.
        machine: as `platform.machine()`.
        compiler: first line of `$CXX --version`; None: there is none, and Inductor then compiles nothing.
        torch_source: text of the installed cpu_vec_isa.py; versions of torch know different sets.
    """
    if compiler is None or environ.get("TORCHINDUCTOR_VEC_ISA_OK") == "0":
        return Fact("none")
    if machine == "x86_64":
        return Fact(_chosen(_x86_sets(flags, compiler, torch_source), environ.get("ATEN_CPU_CAPABILITY", "")))
    if machine == "aarch64":
        return Fact(_chosen([_arm_set(flags, torch_source)], environ.get("ATEN_CPU_CAPABILITY", "")))
    if machine == "ppc64le":
        return Fact(_chosen(["vsx"], environ.get("ATEN_CPU_CAPABILITY", "")))
    if machine == "s390x":
        sets = ["zvector"] if "vxe" in flags else []
        return Fact(_chosen(sets, environ.get("ATEN_CPU_CAPABILITY", "")))
    return Fact(unknown=f"not known for {machine} processors")


def threads(environ: Mapping[str, str], *, machine: str) -> Fact:
    """What `torch.get_num_threads()` would answer.

    On x86-64 torch takes MKL's number (`init_num_threads` in aten/src/ATen/ParallelOpenMP.cpp): what
    MKL_NUM_THREADS, else OMP_NUM_THREADS ask for, at most one per physical core of the affinity mask, unless
    MKL_DYNAMIC=FALSE. Elsewhere it takes what the variables ask for, else all physical cores of the machine.
    """
    if machine == "x86_64":
        return _mkl_threads(environ)
    asked = _positive(environ.get("MKL_NUM_THREADS")) or _positive(environ.get("OMP_NUM_THREADS"))
    return Fact(asked) if asked else _cores(_online())


def _cpuinfo() -> str:
    try:
        with CPUINFO.open("rb") as file:
            # The first processor's stanza; on a large machine the whole file takes 50 ms.
            return file.read(8192).decode("ascii", "replace")
    except OSError:
        return ""


def _x86_sets(flags: frozenset[str], compiler: str, torch_source: str) -> list[str]:
    sets = []
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= flags:
        sets = ["avx512" + ("+bf16" if _usable("avx512_bf16", flags, compiler) else "")]
        if "avx512_vnni" in flags and "VecAVX512VNNI" in torch_source:
            sets.insert(0, "avx512_vnni")
        if _amx(flags, compiler):
            sets.insert(0, _amx_name(flags, compiler))
    return [*sets, "avx2"] if "avx2" in flags else sets


def _amx(flags: frozenset[str], compiler: str) -> bool:
    needed = {"amx_tile", "avx512_vnni"} <= flags
    return needed and _new_enough("amx", compiler)


def _amx_name(flags: frozenset[str], compiler: str) -> str:
    extras = [name for name in ("avx512_bf16", "amx_fp16") if _usable(name, flags, compiler)]
    return "+".join(["amx", *(name.rpartition("_")[2] for name in extras)])


def _usable(name: str, flags: frozenset[str], compiler: str) -> bool:
    return name in flags and _new_enough(name, compiler)


def _new_enough(name: str, compiler: str) -> bool:
    needs = _CLANG_NEEDS if "clang" in compiler.lower() else _GCC_NEEDS
    version = re.search(r"(\d+)\.\d+(\.\d+)?", compiler)
    return version is None or int(version[1]) >= needs[name]


def _arm_set(flags: frozenset[str], torch_source: str) -> str:
    bits = _sve_bits() if {"sve", "bf16"} <= flags else 0
    if "sve_max_length" in torch_source and bits:
        return "sve128" if bits == 128 else "sve256"
    return "sve256" if bits == 256 else "neon"


def _sve_bits() -> int:
    import ctypes

    pr_sve_get_vl, length_mask = 51, 0xFFFF
    answer = int(ctypes.CDLL(None).prctl(pr_sve_get_vl, 0, 0, 0, 0))
    return (answer & length_mask) * 8 if answer > 0 else 0


def _chosen(sets: list[str], capability: str) -> str:
    if capability == "default" or not sets:
        return "none"
    if capability in ("zvector", "vsx", "avx2", "avx512"):
        # An AMX set calls itself "avx512 avx512_vnni amx_tile" and so is found for "avx512" too.
        for name in sets:
            if capability in name or (capability == "avx512" and name.startswith("amx")):
                return name
    return sets[0]


def _mkl_threads(environ: Mapping[str, str]) -> Fact:
    cores = _cores(os.sched_getaffinity(0))
    asked = _mkl_number(environ.get("MKL_NUM_THREADS", ""))
    asked = asked or _openmp_number(environ.get("OMP_NUM_THREADS", ""))
    if environ.get("MKL_DYNAMIC", "").upper() == "FALSE" and asked:
        return Fact(asked)
    if cores.unknown or not asked:
        # One is one, however many cores there are.
        return Fact(1) if asked == 1 else cores
    return Fact(min(asked, int(str(cores.value))))


def _mkl_number(value: str) -> int:
    """MKL takes nothing and 0 as "not set", and what is not a number as 1 (tried with MKL 2024.2)."""
    value = value.strip()
    if value in ("", "0"):
        return 0
    return int(value) if value.isdecimal() else 1


def _openmp_number(value: str) -> int:
    """libgomp takes the first number of a list, and ignores a list with anything else in it."""
    numbers = [part.strip() for part in value.split(",")]
    if all(re.fullmatch(r"\+?0*[1-9]\d*", number) for number in numbers):
        return int(numbers[0])
    return 0


def _positive(value: str | None) -> int:
    match = re.match(r"\s*\+?(\d+)", value or "")
    return int(match[1]) if match else 0


def _online() -> set[int]:
    try:
        text = (TOPOLOGY / "online").read_text("ascii")
    except OSError:
        return set(range(os.cpu_count() or 1))
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def _cores(cpus: Iterable[int]) -> Fact:
    """Physical cores among the given CPUs: CPUs with the same siblings share one."""
    siblings = set()
    for cpu in cpus:
        try:
            siblings.add((TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text("ascii"))
        except OSError:
            return Fact(unknown=f"{TOPOLOGY} does not tell which CPUs share a core")
    return Fact(len(siblings))
