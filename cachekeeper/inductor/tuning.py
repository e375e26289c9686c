"""What autotuning found: the configuration of a kernel, and the times of the ways to do a matrix product.

Source: torch/_inductor/runtime/autotune_cache.py (`<xx>/<hash>.best_config`), codecache.py, `PersistentCache`, and
select_algorithm.py, `AlgorithmSelectorCache.key_of` (`cache/<hash>`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .sources import Constant, is_constant, literal, tensor

_LARGEST = 64 << 20
_MOST = 100_000
_LONGEST = 200
_SEARCH = ("configs_hash", "found_by_coordesc", "time_taken_ms", "triton_cache_hash")


class Chosen(NamedTuple):
    """The configuration that autotuning chose for a kernel.

    Attributes:
        config: as {"XBLOCK": 1024, "num_warps": 4, "num_stages": 1}.
        by_descent: found by coordinate descent.
        seconds: that choosing took; None where it does not say.
        triton_hash: name of the directory of Triton's cache that it was compiled to; "" where it does not say.
    """

    config: dict[str, Constant]
    by_descent: bool
    seconds: float | None
    triton_hash: str


class Measured(NamedTuple):
    """The ways to do one matrix product, convolution and so on.

    Attributes:
        operation: as "mm".
        inputs: as torch writes them; see `inputs_in_words`.
        precision: of float32 products: "highest", "high", "medium"; "" where it does not say.
        times: name and module, as "triton_mm-c6bfg..." -> milliseconds a call; None for one that failed.
    """

    operation: str
    inputs: str
    precision: str
    times: dict[str, float | None]


def chosen(data: bytes) -> Chosen | None:
    """Read a `.best_config`; None for what is none."""
    document = _document(data)
    config = {key: value for key, value in document.items() if key not in _SEARCH and is_constant(value)}
    if not config:
        return None
    milliseconds, triton_hash = _time(document.get("time_taken_ms")), document.get("triton_cache_hash")
    return Chosen(
        config,
        document.get("found_by_coordesc") is True,
        None if milliseconds is None else milliseconds / 1000,
        triton_hash if isinstance(triton_hash, str) else "",
    )


def measured(data: bytes) -> list[Measured]:
    """Read a file of `cache/`, in the order of the file; empty for what is none. At most 100,000 times are read."""
    found: list[Measured] = []
    left = _MOST
    for operation, by_inputs in _tables(_document(data).get("cache")):
        for inputs, by_precision in _tables(by_inputs):
            # Before torch 2.2 there was no precision.
            plain = bool(by_precision) and not any(isinstance(times, dict) for times in by_precision.values())
            for precision, times in [("", by_precision)] if plain else _tables(by_precision):
                left -= len(times)
                if left < 0:
                    return found
                found.append(Measured(operation, inputs, precision, {name: _time(times[name]) for name in times}))
    return found


def _document(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data) if len(data) <= _LARGEST else None
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _tables(value: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    items = value.items() if isinstance(value, Mapping) else ()
    return ((key, table) for key, table in items if isinstance(table, dict))


def _time(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def inputs_in_words(raw: str) -> str:
    """Inputs as torch keys them -> "bf16[4096, 256] x bf16[256, 1024]"; those of another kind stay as they are, cut.

    Args:
        raw: a list of flat (device, type, sizes, strides, offset), as "[('cuda', 'torch.bfloat16', 8, 4, 4, 1, 0)]".
    """
    nodes = literal(raw)
    words = [_in_words(node) for node in nodes] if isinstance(nodes, list) else []
    return " x ".join(words) if words and all(words) else raw[:_LONGEST]


def _in_words(node: object) -> str:
    if not isinstance(node, tuple) or len(node) < 3 or len(node) % 2 == 0 or not isinstance(node[1], str):
        return ""
    return tensor(node[1], ", ".join(map(str, node[2 : 2 + (len(node) - 3) // 2])))
