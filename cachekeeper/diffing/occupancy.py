"""How many warps of a kernel fit a multiprocessor at once, and what they are limited by.

Source: table "Technical Specifications per Compute Capability" of the CUDA C++ programming guide; registers are given
out to a warp in units of 256, and each block takes 1 KiB of shared memory for the system.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..inventory.models import Binary

REGISTERS = 65_536
_UNIT = 256
_RESERVED = 1024
_WARP = 32
_TARGET = re.compile(r"cuda:(\d+)")


class _Limits(NamedTuple):
    warps: int
    blocks: int
    shared: int


_KIB = 1024
_LIMITS = {
    80: _Limits(64, 32, 164 * _KIB),
    86: _Limits(48, 16, 100 * _KIB),
    87: _Limits(48, 16, 164 * _KIB),
    89: _Limits(48, 24, 100 * _KIB),
    90: _Limits(64, 32, 228 * _KIB),
    100: _Limits(64, 32, 228 * _KIB),
    103: _Limits(64, 32, 228 * _KIB),
    120: _Limits(48, 24, 100 * _KIB),
}


class Occupancy(NamedTuple):
    """Of one kernel on one multiprocessor.

    Attributes:
        warps: that are resident at once.
        most: that the multiprocessor holds.
        limit: "registers", "shared memory", "warps" or "blocks": what keeps more from being resident.
    """

    warps: int
    most: int
    limit: str

    def __str__(self) -> str:
        return f"{self.warps} of {self.most} warps"


def occupancy(binary: Binary) -> Occupancy | None:
    """Roughly how many warps are resident; None where its target, its warps or its registers are not known.

    Warp specialisation, clusters and setmaxnreg are not looked at.
    """
    match = _TARGET.fullmatch(binary.target)
    limits = _LIMITS.get(int(match[1])) if match else None
    if limits is None or not binary.num_warps or not binary.registers:
        return None
    if binary.num_warps < 0 or binary.registers < 0:
        return None
    of_a_warp = -(-binary.registers * _WARP // _UNIT) * _UNIT
    shared = (binary.dynamic_shared or 0) + (binary.static_shared or 0) + _RESERVED
    blocks = {
        "warps": limits.warps // binary.num_warps,
        "blocks": limits.blocks,
        "registers": REGISTERS // of_a_warp // binary.num_warps,
        "shared memory": limits.shared // max(shared, _RESERVED),
    }
    limit = min(blocks, key=lambda name: blocks[name])
    return Occupancy(blocks[limit] * binary.num_warps, limits.warps, limit)
