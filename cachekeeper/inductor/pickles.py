"""Paths in pickled entries, rewritten without unpickling.

An FX graph entry for a GPU carries its autotuners, and these the absolute paths of their kernel's module and
`.best_config`. Restored elsewhere as it is, torch would read autotune results from the directory where the cache was
made, and write them there. Only strings that are such a path as a whole are touched; the opcodes are walked with
`pickletools`, which executes nothing.
Source: torch/_inductor/runtime/autotune_cache.py, triton_heuristics.py (`CachingAutotuner.filename`).
"""

from __future__ import annotations

import pickletools
import re
import struct
from typing import NamedTuple

_INNER = r"[a-z0-9]{2}/(?:c[a-z2-7]{51}\.py|[0-9a-f]{64}\.best_config)"
_PATH = re.compile(rf"(/.*|\[REPLACE\])/({_INNER})", re.DOTALL)
# Such a string followed by MEMOIZE, or by BINPUT before protocol 4: most entries hold none, and need not be walked.
_SIGN = re.compile(rb"/" + _INNER.encode() + rb"[\x94qr]")
_STRINGS = ("SHORT_BINUNICODE", "BINUNICODE")
_FRAME_HEADER = struct.Struct("<cQ")


class _Edit(NamedTuple):
    """Bytes from `start` to `end` of a pickle become `new`."""

    start: int
    end: int
    new: bytes


def rewrite_paths(data: bytes, root: str) -> tuple[bytes, frozenset[str]]:
    """A pickle with `root` in place of the directory that its paths are below.

    Returns:
        The bytes, and the directories that were named before. What is no whole pickle comes back as it is.
    """
    if not _SIGN.search(data):
        return data, frozenset()
    try:
        strings, frames = _walk(data)
    except ValueError:
        return data, frozenset()
    matches = [(start, end, match) for start, end, text in strings if (match := _PATH.fullmatch(text))]
    short = data[:1] == b"\x80" and data[1] >= 4
    edits = [_Edit(start, end, _encoded(f"{root}/{match[2]}", short)) for start, end, match in matches]
    return _apply(data, edits, frames), frozenset(match[1] for *_, match in matches)


def _walk(data: bytes) -> tuple[list[tuple[int, int, str]], list[tuple[int, int]]]:
    """Strings as (start, end, text) of their opcodes, and frames as (position, length)."""
    strings: list[tuple[int, int, str]] = []
    frames: list[tuple[int, int]] = []
    pending: tuple[int, str] | None = None
    for opcode, argument, position in pickletools.genops(data):
        assert position is not None
        if pending:
            strings.append((pending[0], position, pending[1]))
            pending = None
        if opcode.name in _STRINGS and isinstance(argument, str):
            pending = position, argument
        elif opcode.name == "FRAME" and isinstance(argument, int):
            frames.append((position, argument))
    return strings, frames


def _encoded(text: str, short: bool) -> bytes:
    """The opcode that pickle writes for a string; `short`: from protocol 4 on."""
    raw = text.encode("utf-8", "surrogatepass")
    return b"\x8c" + bytes([len(raw)]) + raw if short and len(raw) < 256 else b"X" + struct.pack("<I", len(raw)) + raw


def _apply(data: bytes, edits: list[_Edit], frames: list[tuple[int, int]]) -> bytes:
    longer = [_Edit(position, position + 9, _header(position + 9, length, edits)) for position, length in frames]
    parts: list[bytes] = []
    done = 0
    for edit in sorted([*edits, *longer]):
        parts += [data[done : edit.start], edit.new]
        done = edit.end
    return b"".join([*parts, data[done:]])


def _header(start: int, length: int, edits: list[_Edit]) -> bytes:
    inside = [edit for edit in edits if start <= edit.start < start + length]
    return _FRAME_HEADER.pack(b"\x95", length + sum(len(edit.new) - (edit.end - edit.start) for edit in inside))
