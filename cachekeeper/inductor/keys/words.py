"""What a change between two keys is, and how values are said."""

from __future__ import annotations

import re
from typing import NamedTuple

from .components import DEVICE

_BOXED = re.compile(r"Boxed\w+\(value=(.*)\)")
_VALUE_LIMIT = 120


class Change(NamedTuple):
    """What differs between two keys.

    Attributes:
        kind: "setting", "device", "shape" and so on: what can be done about it depends on that.
        words: for a person, as "input 2: stride (512, 1) -> (1, 512)".
        general: the same for all graphs that one cause changes: without the numbers of inputs, and of shapes only the
            sizes that differ.
    """

    kind: str
    words: str
    general: str


def cut(value: str) -> str:
    boxed = _BOXED.fullmatch(value)
    text = " ".join((boxed[1] if boxed else value).split())
    return text if len(text) <= _VALUE_LIMIT else text[: _VALUE_LIMIT - 3] + "..."


def plain(value: str) -> str:
    """A device as "cuda:5", a size as "(8, 16)"."""
    device = DEVICE.fullmatch(value)
    if device:
        return f"{device[1]}:{device[2]}" if device[2] else device[1]
    return value.removeprefix("torch.").removeprefix("Size").replace("([", "(").replace("])", ")")
