"""What Triton wrote beside a compiled kernel: `<name>.json`.

Source: triton/compiler/compiler.py, `compile` (the options of the backend, the target, and the name).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

_MOST = 2**31  # no number of a launch is larger


class Metadata(NamedTuple):
    """How a kernel was compiled.

    Attributes:
        name: of the kernel, and of its entry in the cubin.
        target: what it was built for, as "cuda:90"; "" where that is not said.
        num_warps, num_stages, num_ctas: as compiled.
        shared: bytes of shared memory that a launch asks for.

    A number is None where the file does not say it.
    """

    name: str
    target: str
    num_warps: int | None
    num_stages: int | None
    num_ctas: int | None
    shared: int | None


def metadata(data: bytes) -> Metadata | None:
    """How a kernel was compiled; None for a file that is not a kernel's: not JSON, a group, or timings."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(name := document.get("name"), str) or not name:
        return None
    return Metadata(
        name=name,
        target=_target(document.get("target")),
        num_warps=_number(document, "num_warps"),
        num_stages=_number(document, "num_stages"),
        num_ctas=_number(document, "num_ctas"),
        shared=_number(document, "shared"),
    )


def _target(target: object) -> str:
    if not isinstance(target, dict):
        return ""
    backend, arch = target.get("backend"), target.get("arch")
    return f"{backend}:{arch}" if isinstance(backend, str) and backend and isinstance(arch, int | str) else ""


def _number(document: Mapping[str, object], name: str) -> int | None:
    value = document.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
        return None
    return value
