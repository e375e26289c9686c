"""Sources of two kernels: do they differ but for their names, and where."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from ..inventory.models import Kernel

_NUMBER = re.compile(r"_\d+$")
_CONTEXT = 3
# Of longer sources all lines are said to differ that are not the same at the beginning and the end.
_LONG = 1000
_MOST_LINES = 2000


def unnumbered(name: str) -> str:
    """ "triton_poi_fused_add_2" -> "triton_poi_fused_add": Inductor counts the kernels of a graph."""
    return _NUMBER.sub("", name) if name.startswith(("triton_", "cpp_")) else name


def normal(kernel: Kernel) -> str:
    """The source with the kernel's name, and its number with it, taken out; "" where it is not known."""
    return kernel.source.replace(kernel.name, unnumbered(kernel.name)) if kernel.name else kernel.source


def source_diff(a: Kernel, b: Kernel) -> tuple[str, ...]:
    """A unified diff of the two sources, a line each, without names of files; empty where one is not known."""
    one, other = normal(a), normal(b)
    if not one or not other or one == other:
        return ()
    return _unified(one.splitlines(), other.splitlines())


def cost(a: Kernel, b: Kernel) -> int:
    """Roughly the number of steps that a diff takes."""
    one, other = (side.source.count("\n") for side in (a, b))
    product = 0 if max(one, other) >= _LONG else one * other
    return 50 * (one + other) + product // 16 + 200


def _unified(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    if max(len(one), len(other)) > _LONG:
        return _cut(_roughly(one, other))
    return _cut(list(difflib.unified_diff(one, other, n=_CONTEXT, lineterm=""))[2:])


def _roughly(one: Sequence[str], other: Sequence[str]) -> list[str]:
    pairs = list(zip(one, other, strict=False))
    before = next((number for number, (a, b) in enumerate(pairs) if a != b), len(pairs))
    ends = list(zip(reversed(one[before:]), reversed(other[before:]), strict=False))
    after = next((number for number, (a, b) in enumerate(ends) if a != b), len(ends))
    gone, new = (side[before : len(side) - after] for side in (one, other))
    head = f"@@ -{before + 1},{len(gone)} +{before + 1},{len(new)} @@"
    return [head, *(f"-{line}" for line in gone), *(f"+{line}" for line in new)]


def _cut(lines: Sequence[str]) -> tuple[str, ...]:
    if len(lines) <= _MOST_LINES:
        return tuple(lines)
    return (*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES:,} more lines")
