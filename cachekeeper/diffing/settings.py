"""Settings of which it is known that one value makes slower code than another."""

from __future__ import annotations

import re

# Of torch._inductor.config: on, each of them looks for faster code.
_FASTER_ON = frozenset(
    (
        *("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning"),
        *("epilogue_fusion", "triton.cudagraphs", "shape_padding", "layout_optimization", "loop_ordering_after_fusion"),
    )
)
_FASTER_OFF = frozenset(("deterministic", "deterministic algorithms", "force_same_precision"))
_OFF_TO_ON = {("False", "True"), ("off", "on")}
PRECISION = "float32 matmul precision"
# From slow to fast, in both spellings that torch has for it.
_PRECISIONS = (("highest", "ieee", "none"), ("high", "tf32"), ("medium", "bf16"))
_WHERE = re.compile(r"^(inductor config|compile option) ")


def effect_of(name: str, a: str, b: str) -> str:
    """ "slower", "faster" (of b against a), or "" where nothing is known.

    Args:
        name: as "inductor config max_autotune", "float32 matmul precision".
    """
    plain = _WHERE.sub("", name)
    if plain == PRECISION:
        one, other = map(_precision, (a, b))
        return "" if one is None or other is None or one == other else "slower" if other < one else "faster"
    if (plain not in _FASTER_ON and plain not in _FASTER_OFF) or not {(a, b), (b, a)} & _OFF_TO_ON:
        return ""
    return "faster" if ((a, b) in _OFF_TO_ON) == (plain in _FASTER_ON) else "slower"


def _precision(value: str) -> int | None:
    return next((number for number, words in enumerate(_PRECISIONS) if value in words), None)
