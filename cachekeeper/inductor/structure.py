"""Is a file what its kind promises? Judged from bytes alone: nothing is unpickled, loaded or imported.

Only damage that torch would *not* heal counts: it recompiles after a torn pickle, but loads an empty cubin as a hit,
and raises ImportError, SyntaxError or JSONDecodeError into the job for a cut library, module or JSON file.
"""

from __future__ import annotations

import ast
import json
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from .groups import GroupError, group_children, is_group
from .layout import FORMS

_ELF_MAGIC = b"\x7fELF"
_ELF64_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_ELF_SUFFIXES = (".so", ".cubin", ".hsaco")
_KERNEL_SUFFIXES = tuple(f".{form}" for form in FORMS)
_MAY_BE_EMPTY = ("other", "headers")
# torch 2.14 notes beside a library that probes the instruction set that it loads (cpu_vec_isa.py).
_MARKERS = (".load_ok",)
_ZEROS = bytes(16)
_LOGS = "autoheuristic/"  # the one place of tuning results that holds no JSON
_WRAPPER_START = b"# AOT ID:"


class FileCheck(NamedTuple):
    """What one file's bytes say.

    Attributes:
        damage: in words, or "".
        target: what a Triton kernel was built for, as "cuda:90", or "".
        children: the files that a Triton group lists.
    """

    damage: str = ""
    target: str = ""
    children: tuple[str, ...] = ()


def check_file(kind: str, path: str, data: bytes | memoryview, size: int | None = None) -> FileCheck:
    """Judge one file.

    Args:
        kind: as `classify` says.
        path: only its name matters.
        data: the whole content, or the first 64 bytes or more of a library.
        size: length of the whole content in bytes, where that is not len(data).
    """
    name = path.rpartition("/")[2]
    size = len(data) if size is None else size
    if not size:
        return FileCheck("" if kind in _MAY_BE_EMPTY or name.endswith(_MARKERS) else "empty file")
    if name.endswith(_ELF_SUFFIXES):
        return FileCheck(_elf_damage(data, size))
    if (kind == "autotune" and _LOGS not in path) or (kind == "triton" and name.endswith(".json")):
        return _check_json(name, bytes(data))
    if kind == "module":
        return FileCheck(_module_damage(data))
    return FileCheck()


def _elf_damage(data: bytes | memoryview, size: int) -> str:
    if data[:4] != _ELF_MAGIC:
        return "not an ELF file"
    if size < _ELF64_HEADER.size:
        return "cut: shorter than an ELF header"
    fields = _ELF64_HEADER.unpack(data[: _ELF64_HEADER.size])
    program_offset, section_offset, header_size = fields[4], fields[5], fields[7]
    program_size, program_count, section_size, section_count = fields[8:12]
    if data[4] != 2 or header_size != _ELF64_HEADER.size or section_size not in (0, 64):
        return ""  # not a layout that this can judge
    end = max(program_offset + program_size * program_count, section_offset + section_size * section_count)
    return f"cut: {size:,} of at least {end:,} bytes" if end > size else ""


def _check_json(name: str, data: bytes) -> FileCheck:
    if is_group(name):
        try:
            return FileCheck(children=tuple(group_children(data)))
        except GroupError as error:
            return FileCheck(str(error))
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        return FileCheck(f"JSON does not parse: {error}")
    if not isinstance(document, dict):
        return FileCheck("not a JSON object")
    return FileCheck(target=_target(document))


def _target(document: dict[str, object]) -> str:
    target = document.get("target")
    if not isinstance(target, dict) or not target.get("backend"):
        return ""
    return f"{target['backend']}:{target.get('arch')}"


def _module_damage(data: bytes | memoryview) -> str:
    wrapper = data[: len(_WRAPPER_START)] == _WRAPPER_START
    if _ZEROS in (data[: len(_ZEROS)], data[-len(_ZEROS) :]) or (wrapper and b"\0" in bytes(data)):
        return "zero bytes in Python source, as a power failure leaves them"
    # Inductor ends a module with a newline. Parsing is slow, so only a module that looks cut is parsed.
    if data[-1:] == b"\n" or not wrapper:
        return ""
    try:
        ast.parse(bytes(data))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"cut: does not parse as Python ({error or 'nested too deep'})"
    return ""


def incomplete_groups(names: Collection[str], groups: Mapping[str, Collection[str]]) -> Iterable[tuple[str, str]]:
    """What a kernel's directory lacks.

    Args:
        names: the names of the files that are in the directory and not empty.
        groups: name of each group file in it -> the files that it lists.

    Yields:
        (file name, what is wrong).
    """
    for name, children in groups.items():
        missing = sorted(set(children) - set(names))
        if missing:
            yield name, "incomplete group: " + ", ".join(missing) + " missing or empty"
    if not groups and any(map(_is_of_a_kernel, names)):
        yield "", "incomplete group: no __grp__ file, so that Triton compiles it again"


def _is_of_a_kernel(name: str) -> bool:
    # Launchers and the timings of Triton's own autotuner have directories to themselves, without a group.
    return name.endswith(_KERNEL_SUFFIXES) or (name.endswith(".json") and not name.endswith(".autotune.json"))
