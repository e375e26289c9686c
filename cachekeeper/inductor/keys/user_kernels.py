"""Triton kernels of the job's own in a graph's key: (source, constants, launch options), and what differs between two.

Source: torch/_inductor/codecache.py, `FxGraphHashDetails.user_defined_triton_source`.
"""

from __future__ import annotations

import ast
import json
import re

COMPONENT = re.compile(r"user_defined_triton_source(?:\[\d+\])?")
_NAME = re.compile(r"\bdef (\w+)\(")
_OPTION = re.compile(r"'(\w+)', ([^()]*)\)")


def difference(before: str | None, after: str | None) -> str:
    """In words, as "own Triton kernel softcap: num_warps 8 -> 1".

    Args:
        before, after: values of the component; None where a key has none.
    """
    one, other = _read(before), _read(after)
    name = next((match[1] for source, _ in (other, one) if (match := _NAME.search(source))), "")
    who = f"own Triton kernel {name}".rstrip()
    if before is None or after is None:
        return f"{who}: {'no longer in the graph' if after is None else 'new in the graph'}"
    if one[0] != other[0]:
        return f"{who}: another source"
    options = {key: (one[1].get(key, "not set"), other[1].get(key, "not set")) for key in {**one[1], **other[1]}}
    said = [f"{key} {a} -> {b}" for key, (a, b) in options.items() if a != b]
    return f"{who}: {', '.join(said) or 'other constants or launch options'}"


def _read(value: str | None) -> tuple[str, dict[str, str]]:
    """Source and launch options; what cannot be read, or several configurations, have no options."""
    try:
        parts = ast.literal_eval(value or "")
        source, configurations = str(parts[0]), json.loads(parts[-1])
    except (ValueError, SyntaxError, TypeError, LookupError, MemoryError, RecursionError):
        return value or "", {}
    options = configurations[0] if isinstance(configurations, list) and len(configurations) == 1 else []
    return source, dict(_OPTION.findall(" ".join(map(str, options))))
