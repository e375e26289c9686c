"""What a cubin says about the machine code of its kernel: registers, spills, shared memory, size, and what built it.

A cubin is an ELF64 file. ptxas writes attributes (EIATTR) into `.nv.info`, some of them for each function by the index
of its symbol, and its own version and options into a note. The numbers are those that the driver tells of a loaded
kernel (cuFuncGetAttribute: NUM_REGS, LOCAL_SIZE_BYTES, SHARED_SIZE_BYTES). NVIDIA documents none of the layout.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = struct.Struct("<4sB35xQ10xHHH")  # magic, class, section offset; size, number, index of names of sections
_SECTION = struct.Struct("<II16xQQ24x")  # name, type, offset, size
_SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
_ATTRIBUTE = struct.Struct("<BBH")  # format, attribute, value or number of bytes that follow
_OF_FUNCTION = struct.Struct("<II")  # index of a symbol, value
_NOTE = struct.Struct("<III")  # bytes of name, bytes of description, type
_TOOLS = struct.Struct("<IIIIII")  # version of the layout; offsets of object, name, version, build and options

_CUDA = 190  # EM_CUDA
_CUDA_AT = 18
_NO_BITS = 8  # SHT_NOBITS: a section with a size and no bytes
_FUNCTION = 2  # STT_FUNC
_ENTRY = 0x10  # STO_CUDA_ENTRY
_SIZED = 4  # EIFMT_SVAL: the attribute is followed by bytes
_FRAME_SIZE, _REGISTERS, _TOOLKIT = 0x11, 0x2F, 0x37  # EIATTR_FRAME_SIZE, EIATTR_REGCOUNT, EIATTR_CUDA_API_VERSION
_TOOLS_TYPE = 2000
_KEPT = 1024  # bytes of shared memory a block
_NAME_LIMIT = 4096
_MOST_SYMBOLS = 65536
_DIGITS = 12
_VERSION = re.compile(r"V(\d+(?:\.\d+)+)")
_SILENT = ("-v", "--verbose")  # change nothing in the code


class Resources(NamedTuple):
    """What a kernel takes.

    Attributes:
        registers: a thread.
        local_bytes: of local memory a thread: the stack frame, which spilled registers are in; 0: none.
        static_shared: bytes of shared memory of the code itself, without what a launch adds.
        code_bytes: of machine code, with the functions that the kernel calls.
        tools: what built it, as "ptxas 13.0.88 -lineinfo -arch sm_90a", or only "CUDA 12.8" of a ptxas that writes no
            note; "" where the file does not say.
        code: the first 12 hexadecimal digits of the SHA-256 of the machine code; "" where the file has none.

    A number is None where the file does not have it.
    """

    registers: int | None
    local_bytes: int | None
    static_shared: int | None
    code_bytes: int | None
    tools: str
    code: str = ""


class _Section(NamedTuple):
    type: int
    offset: int
    size: int


def resources(data: bytes, kernel: str = "") -> Resources | None:
    """What a kernel of a cubin takes.

    Args:
        data: of the whole file.
        kernel: name of the entry; "": the first, which in a file of Triton's is the only one.

    Returns:
        None where this is no cubin, where it is cut, or where it has no such entry.
    """
    sections = _sections(data)
    symbol, name = _entry(data, sections, kernel.encode("utf-8", "replace"))
    if not name:
        return None
    attributes = _of_function(_part(data, sections.get(b".nv.info")), symbol)
    code = sections.get(b".text." + name)
    return Resources(
        registers=attributes.get(_REGISTERS),
        local_bytes=attributes.get(_FRAME_SIZE),
        static_shared=_static_shared(sections, name),
        code_bytes=code.size if code else None,
        tools=_tools(_part(data, sections.get(b".note.nv.tkinfo")))
        or _toolkit(_part(data, sections.get(b".nv.info." + name))),
        code=_digest(_part(data, code)),
    )


def is_damaged(data: bytes) -> bool:
    """True for what is no ELF file, and for one for CUDA that is cut or has no sections that can be found."""
    if len(data) < 64 or data[:4] != b"\x7fELF":
        return True
    return data[_CUDA_AT : _CUDA_AT + 2] == _CUDA.to_bytes(2, "little") and not _sections(data)


def library_code(data: bytes) -> str | None:
    """The first 12 hexadecimal digits of the SHA-256 of the machine code of a library for the CPU.

    Args:
        data: of the whole ELF file, for any machine.

    Returns:
        "" where it has no machine code; None where it is no ELF64 file, or is cut.
    """
    sections = _sections(data, machine=None)
    return _digest(_part(data, sections.get(b".text"))) if sections else None


def _digest(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()[:_DIGITS] if code else ""


def _sections(data: bytes, machine: int | None = _CUDA) -> dict[bytes, _Section]:
    """Name -> section; empty for what is not a whole ELF64 file for the machine."""
    if len(data) < 64:
        return {}
    if machine is not None and data[_CUDA_AT : _CUDA_AT + 2] != machine.to_bytes(2, "little"):
        return {}
    magic, bits, offset, size, count, index = _HEADER.unpack_from(data)
    end = offset + count * _SECTION.size
    if magic != b"\x7fELF" or bits != 2 or size != _SECTION.size or index >= count or end > len(data):
        return {}
    headers = [(name, _Section(*rest)) for name, *rest in _SECTION.iter_unpack(data[offset:end])]
    names = _part(data, headers[index][1])
    if any(section.type != _NO_BITS and section.offset + section.size > len(data) for _, section in headers):
        return {}
    return {_text(names, name): section for name, section in reversed(headers)}


def _part(data: bytes, section: _Section | None) -> bytes:
    return data[section.offset : section.offset + section.size] if section and section.type != _NO_BITS else b""


def _text(strings: bytes, start: int) -> bytes:
    """The string at an offset; empty for one without end."""
    end = strings.find(b"\0", start, start + _NAME_LIMIT)
    return strings[start:end] if end > start else b""


def _entry(data: bytes, sections: dict[bytes, _Section], kernel: bytes) -> tuple[int, bytes]:
    """Index of the symbol and name of an entry; (0, b"") where there is none."""
    symbols = _part(data, sections.get(b".symtab"))
    strings = _part(data, sections.get(b".strtab"))
    whole = min(len(symbols) // _SYMBOL.size, _MOST_SYMBOLS) * _SYMBOL.size
    for index, (start, info, other, *_) in enumerate(_SYMBOL.iter_unpack(symbols[:whole])):
        if info & 0xF == _FUNCTION and other & _ENTRY:
            name = _text(strings, start)
            if name and kernel in (b"", name):
                return index, name
    return 0, b""


def _static_shared(sections: dict[bytes, _Section], name: bytes) -> int:
    """Without what the driver keeps for itself, which from sm_90 on stands before a kernel's own."""
    section = sections.get(b".nv.shared." + name)
    kept = _KEPT if b".nv.shared.reserved.0" in sections else 0
    return max(0, section.size - kept) if section else 0


def _attributes(info: bytes) -> Iterator[tuple[int, bytes]]:
    """The attributes of a section that are followed by bytes, with these."""
    at = 0
    while at + _ATTRIBUTE.size <= len(info):
        format_, attribute, size = _ATTRIBUTE.unpack_from(info, at)
        at += _ATTRIBUTE.size
        if format_ == _SIZED:
            yield attribute, info[at : at + size]
            at += size


def _of_function(info: bytes, symbol: int) -> dict[int, int]:
    """Attribute -> value, of one function."""
    pairs = ((name, _OF_FUNCTION.unpack(value)) for name, value in _attributes(info) if len(value) == _OF_FUNCTION.size)
    return {attribute: value for attribute, (index, value) in pairs if index == symbol}


def _toolkit(info: bytes) -> str:
    """The version of CUDA, which is kept as 128 for 12.8."""
    found = (
        int.from_bytes(value, "little") for name, value in _attributes(info) if name == _TOOLKIT and len(value) == 4
    )
    version = next(found, 0)
    return f"CUDA {version // 10}.{version % 10}" if 0 < version < 1000 else ""


def _tools(note: bytes) -> str:
    """Name, version and options of the assembler, from the first note."""
    if len(note) < _NOTE.size:
        return ""
    name_size, size, type_ = _NOTE.unpack_from(note)
    at = _NOTE.size + (name_size + 3) // 4 * 4
    if type_ != _TOOLS_TYPE or size < _TOOLS.size or at + _TOOLS.size > len(note):
        return ""
    _, _, name, version, _, options = _TOOLS.unpack_from(note, at)
    strings = note[at + _TOOLS.size : at + size]
    number = _VERSION.search(_word(strings, version))
    given = [option for option in _word(strings, options).split() if option not in _SILENT]
    return " ".join([*_word(strings, name).split(), *([number[1]] if number else []), *given])


def _word(strings: bytes, start: int) -> str:
    """Printable text at an offset."""
    text = _text(strings, start).decode("ascii", "replace")
    return "".join(letter for letter in text if letter.isprintable())
