"""What Triton's own forms of a kernel say, from ttir on: which module it was compiled from, and its blocks.

Source: triton/python/src/ir.cc (locations); the text is that of MLIR.
"""

from __future__ import annotations

import re

_MODULE = re.compile(rb"c[a-z2-7]{51}\.py\b")
_RANGE = re.compile(rb"\btt\.make_range \{end = (\d+) : i32, start = 0 : i32\}")


def source_module(text: bytes) -> str:
    """Name of the Inductor module that a kernel was compiled from, as "c6jix..."; "" where there is none.

    Args:
        text: of PTX, which names the file of its first lines, or of any of Triton's own forms (ttir, ttgir, llir).
    """
    for match in _MODULE.finditer(text):
        before = text[match.start() - 1 : match.start()]
        if before in (b"/", b"\\", b'"', b" ", b""):
            return match[0][:-3].decode("ascii")
    return ""


def block_lengths(ttir: bytes) -> set[int]:
    """The lengths of the ranges that a kernel makes: of each block at least, as BLOCK_M and XBLOCK."""
    return {int(end) for end in _RANGE.findall(ttir)}
