"""What a kernel's PTX says: how many instructions of each class stand in it.

The counts are of the text, not of what runs: a loop's body counts once. ptxas comes after it, so that registers which
it spills are not among the local loads and stores; `cubin.Resources.local_bytes` tells of those.
Source: NVIDIA's PTX ISA, "Instruction Set"; the text is that of LLVM's NVPTX backend with Triton's inline assembly.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

CLASSES = (
    "tensor",
    "async copy",
    "ldmatrix",
    "global load",
    "global store",
    "shared load",
    "shared store",
    "local load",
    "local store",
    "atomic",
    "barrier",
    "float",
    "integer",
    "convert",
    "branch",
    "special",
    "other",
)

# Each begins with one literal byte, which re looks for with memchr.
_FIRST = re.compile(rb"\n[\t ]+(?:@\S+[\t ]+)?([a-z][^\s;]*)")
_FURTHER = re.compile(rb";[\t ]+(?:@\S+[\t ]+)?([a-z][^\s;]*)")

_FAMILIES = {
    "mma": "tensor",
    "ldmatrix": "ldmatrix",
    "stmatrix": "shared store",
    "red": "atomic",
    "atom": "atomic",
    "cvt": "convert",
    **dict.fromkeys(("bar", "barrier", "mbarrier", "fence", "membar", "griddepcontrol"), "barrier"),
    **dict.fromkeys(("bra", "brx", "call", "ret", "exit"), "branch"),
    **dict.fromkeys(("ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"), "special"),
}
_ARITHMETIC = re.compile(
    "abs|addc?|and|bf[ei]|bfind|brev|clz|cnot|copysign|div|dp[24]a|fma|fns|lop3|mad|mad24|madc|max|min|mul|mul24|neg|"
    "not|or|popc|prmt|rem|sad|selp|setp?|shf|shl|shr|slct|subc?|szext|testp|xor"
)
_FLOATS = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"))
_WAITS = ("fence", "commit", "commit_group", "wait", "wait_group", "mbarrier", "arrive")


def mix(ptx: bytes) -> dict[str, int]:
    """Class -> number of instructions, in the order of `CLASSES` and without those that are 0.

    "tensor" is the products alone; what orders or awaits them, and what awaits copies, is under "barrier". A generic
    address counts as global. "special" is what the special function units do (ex2, rsqrt, ...).
    """
    counts: Counter[str] = Counter()
    for opcode, count in (Counter(_FIRST.findall(ptx)) + Counter(_FURTHER.findall(ptx))).items():
        counts[_class(opcode)] += count
    return {name: counts[name] for name in CLASSES if counts[name]}


@lru_cache(4096)
def _class(opcode: bytes) -> str:
    """The class of an opcode, as b"ld.global.v4.b32"."""
    family, *rest = opcode.decode("latin-1").split(".")
    if family in ("wgmma", "wmma", "tcgen05", "cp"):
        return _of_unit(family, rest)
    if family in ("ld", "ldu", "st"):
        return _of_memory("load" if family != "st" else "store", rest)
    if _ARITHMETIC.fullmatch(family):
        return "float" if _FLOATS.intersection(rest) else "integer"
    return _FAMILIES.get(family, "other")


def _of_unit(family: str, rest: list[str]) -> str:
    """Of what runs beside the threads: tensor cores and copies."""
    if set(rest).intersection(_WAITS):
        return "barrier"
    if family == "cp":
        return "async copy"
    return "tensor" if any(part.startswith("mma") for part in rest) else "other"


def _of_memory(direction: str, rest: list[str]) -> str:
    spaces = {part.partition(":")[0] for part in rest}
    space = next((space for space in ("shared", "local", "global") if space in spaces), "")
    if not space:
        return "other" if spaces & {"param", "const"} else f"global {direction}"
    return f"{space} {direction}"
