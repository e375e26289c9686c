"""The components of a graph's key, as torch lists them: `[hash] name: value`.

The key of Inductor's cache and the key of AOTAutograd's are listed alike; the second has some more.
Source: torch/_inductor/codecache.py, `FxGraphCachePickler.debug_lines`, `FxGraphHashDetails`;
torch/_functorch/_aot_autograd/autograd_cache.py, `AOTAutogradCacheDetails`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_LINE = re.compile(r"\[(\w+)\] ([^:]+): (.*)", re.DOTALL)
DEVICE = re.compile(r"device\(type='(\w+)'(?:, index=(\d+))?\)")
INPUT = re.compile(r"example_inputs\[(\d+)\]")
OPEN_SIZE = re.compile(r"\('[a-z]+_?\d+',\)")  # s77; in a key of AOTAutograd from torch 2.14 on s_0
_SYMBOL = re.compile(r"\] example_inputs\[\d+\]: " + OPEN_SIZE.pattern)
_PREFIX = 90  # a hash has 51 digits
_FLAGS = {"is_backward": "backward", "is_inference": "inference"}


class Component(NamedTuple):
    """A component: the hash that goes into the key, and the value for a person."""

    hash: str
    value: str


def components(lines: Iterable[str]) -> dict[str, Component]:
    """Name -> component, as "inductor_config[max_autotune]"."""
    found = (_LINE.match(line) for line in lines)
    return {match[2]: Component(match[1], match[3]) for match in found if match}


def is_of_graph(line: str) -> bool:
    """True for a line that says what the graph is, False for one of the settings that it is compiled with."""
    return "] gm: " in line[:_PREFIX] or "] example_inputs[" in line[:_PREFIX]


def differences(old: Mapping[str, Component], new: Mapping[str, Component]) -> list[str]:
    """Names of the components that differ, in the order of the key."""
    missing = Component("", "")
    return [name for name in {**old, **new} if old.get(name, missing).hash != new.get(name, missing).hash]


def direction(lines: Iterable[str]) -> str:
    """What a graph is of: "forward", "backward", "inference"; "" where the lines do not say."""
    found = components(lines)
    flags = {name: found[f"fx_kwargs[{name}]"].value for name in _FLAGS if f"fx_kwargs[{name}]" in found}
    if not flags:
        return ""
    return next((word for name, word in _FLAGS.items() if flags.get(name) == "True"), "forward")


def is_symbolic(lines: Iterable[str]) -> bool:
    """True where an input of the graph is a size that torch keeps open."""
    return any(_SYMBOL.search(line) for line in lines)


def device(lines: Iterable[str]) -> str:
    """The device of a graph's inputs, as "cuda:5"; "" where they are on none, "cpu, cuda:0" for several."""
    found = (match for line in lines if "example_inputs[" in line for match in DEVICE.finditer(line))
    return ", ".join(sorted({f"{match[1]}:{match[2]}" if match[2] else match[1] for match in found}))
