"""What a C++ kernel's source says of its vectors, and its library of the flags that it was compiled with.

Torch keeps no record of the command line: its hash is in the file's name, and nothing more. g++ writes the flags that
change code into the library's debug information (DW_AT_producer, with `-g1`, which torch passes by default), with
`-march=native` resolved to what the machine is; clang does not.
Source: torch/_inductor/codegen/cpp.py, `CppVecKernel`; torch/_inductor/cpp_builder.py, `_get_optimization_cflags`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FUNCTION = re.compile(r'^extern "C"[^(;{}\n]{0,200}?\b(\w{1,400})\s{0,20}\(', re.MULTILINE)
_PROBE = re.compile(r"__\w+_chk_kernel(?:_\d+)?")  # by which torch tries what the compiler and the machine can do
_BINDINGS = "// Python bindings to call"
_VECTORS = re.compile(r"\bVectorizedN?<")
# The number of a whole vector's elements is written 16, that of a rest 4L.
_LOAD = re.compile(
    r"\bVectorizedN?<([\w:]{1,40})(?:, ?(\d{1,3}))?>::loadu\([^;\n]{0,400}?static_cast<int64_t>\((\d{1,4})\)\);"
    r"(?:\s{0,80}auto \w{1,40} = at::vec::convert<(float)>\()?"
)
_STEP = re.compile(r"\+=static_cast<int64_t>\((\d{1,4})L?\)\)")
_BITS = {"double": 64, "int64_t": 64, "at::BFloat16": 16, "at::Half": 16, "bfloat16": 16, "half": 16}
_WIDTHS = (128, 256, 512, 1024, 2048)

_PRODUCER = re.compile(rb"GNU C\+\+[\d.]{1,8} [^\0]{1,16384}")
_OF_CODE = re.compile(
    r"-O\S*|-march=\S+|-mcpu=\S+|-mtune=\S+|-msve\S+|-mavx\S*|-mamx\S*|-mfma|-f(?!PIC|PIE|pic|pie)\S+"
)
_SILENT = ("-fasynchronous-unwind-tables", "-fno-omit-frame-pointer", "-fstack-protector", "-fstack-protector-strong")


@dataclass(frozen=True)
class CppSource:
    """A C++ kernel.

    Attributes:
        functions: names of the functions that Python or the wrapper calls, in order; usually "kernel" alone.
        source: without includes and without what binds it to Python.
        vector_bits: width of the vectors that it was written for; 0: it is scalar; None: it has vectors of a width
            that cannot be told, as a template's.
    """

    functions: tuple[str, ...]
    source: str
    vector_bits: int | None


def cpp_source(text: str) -> CppSource | None:
    """A C++ kernel; None for text that is none, such as the probes by which torch tries the compiler.

    Args:
        text: of `<key>.main.cpp` (`<key>.cpp` until torch 2.6), or the same as it stands in a wrapper.
    """
    kernel = text.partition(_BINDINGS)[0]
    functions = tuple(dict.fromkeys(name for name in _FUNCTION.findall(kernel) if not _PROBE.fullmatch(name)))
    if not functions:
        return None
    source = "\n".join(line for line in kernel.splitlines() if not line.startswith("#include")).strip()
    return CppSource(functions, source, _vector_bits(source))


def _vector_bits(source: str) -> int | None:
    if not _VECTORS.search(source):
        return 0
    loads = [_bits(*match.groups()) for match in _LOAD.finditer(source)]
    steps = [int(step) for step in _STEP.findall(source)]
    if not loads:  # nothing to load, or never a whole vector: loops go a vector of floats at a time
        loads = [step * 32 for step in steps if step > 1 and "BFloat16" not in source and "Half" not in source]
    width = max(loads, default=0)
    return width if width in _WIDTHS else None


def _bits(type_: str, vectors: str | None, elements: str, converted: str | None) -> int:
    """Of one vector. What has 8 bits, or becomes floats at once, is loaded by as much as makes a vector of floats."""
    bits = 32 if converted else _BITS.get(type_, 32)
    return int(elements) * bits // max(1, int(vectors or 1))


def compiler_flags(library: bytes) -> tuple[str, ...]:
    """The flags that change code, as "-O3" and "-march=cooperlake", sorted; empty where a library does not say them.

    Args:
        library: `<key>.main.so`, made by g++ with debug information.
    """
    producer = _PRODUCER.search(library)
    if not producer:
        return ()
    given = producer[0].decode("ascii", "replace").split()
    return tuple(sorted({flag for flag in given if _OF_CODE.fullmatch(flag) and flag not in _SILENT}))
