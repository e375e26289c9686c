"""The components of an FX graph's key, as torch lists them: `[hash] name: value`.

Source: torch/_inductor/codecache.py, `FxGraphCachePickler.debug_lines`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_LINE = re.compile(r"\[(\w+)\] ([^:]+): (.*)", re.DOTALL)
_DEVICE = re.compile(r"device\(type='(\w+)'(?:, index=(\d+))?\)")
_INPUT = re.compile(r"example_inputs\[(\d+)\]")
_SYMBOL = re.compile(r"\] example_inputs\[\d+\]: \('s\d+',\)")
_ATTRIBUTE = re.compile(r"(\w+)=(device\([^)]*\)|torch\.Size\([^)]*\)|\([^)]*\)|[^,()]+)")
_VALUE_LIMIT = 120
# What is long, or different in every process, and says nothing to a person.
_WORDS = {"gm": "the graph's operations differ", "torch_version": "torch's source differs"}
_GROUPS = {"inductor_config": "inductor config", "fx_kwargs": "compile option", "system_info": "system"}
_MOST = 6


class Component(NamedTuple):
    """A component: the hash that goes into the key, and the value for a person."""

    hash: str
    value: str


def components(lines: Iterable[str]) -> dict[str, Component]:
    """Name -> component, as "inductor_config[max_autotune]"."""
    found = (_LINE.match(line) for line in lines)
    return {match[2]: Component(match[1], match[3]) for match in found if match}


def differences(old: Mapping[str, Component], new: Mapping[str, Component]) -> list[str]:
    """Names of the components that differ, in the order of the key."""
    missing = Component("", "")
    return [name for name in {**old, **new} if old.get(name, missing).hash != new.get(name, missing).hash]


def in_words(names: Iterable[str], old: Mapping[str, Component], new: Mapping[str, Component]) -> list[str]:
    """What differs, as "inductor config max_autotune: False -> True" or "inputs 0, 1: device cuda:0 -> cuda:1"."""
    inputs: dict[str, list[str]] = defaultdict(list)
    words: list[str] = []
    for name in names:
        before, after = (side[name].value if name in side else "nothing" for side in (old, new))
        if match := _INPUT.fullmatch(name):
            for change in _tensor_changes(before, after):
                inputs[change].append(match[1])
        elif name in _WORDS:
            words.append(_WORDS[name])
        else:
            words.append(f"{_spoken(name)}: {_cut(before)} -> {_cut(after)}")
    said = [f"{'input' if len(which) == 1 else 'inputs'} {_few(which)}: {change}" for change, which in inputs.items()]
    return words + said


def _spoken(name: str) -> str:
    """ "inductor_config[max_autotune]" -> "inductor config max_autotune"."""
    group, bracket, rest = name.partition("[")
    return f"{_GROUPS.get(group, group)} {rest.removesuffix(']')}" if bracket else name


def _tensor_changes(before: str, after: str) -> list[str]:
    """What differs between two inputs; of tensors, the attributes that do."""
    one, other = ({match[1]: match[2] for match in _ATTRIBUTE.finditer(text)} for text in (before, after))
    changes = [
        f"{name} {_plain(one[name])} -> {_plain(other[name])}"
        for name in one
        if name in other and one[name] != other[name]
    ]
    return changes or [f"{_cut(before)} -> {_cut(after)}"]


def _plain(value: str) -> str:
    """A device as "cuda:5", a size as "(8, 16)"."""
    device = _DEVICE.fullmatch(value)
    if device:
        return f"{device[1]}:{device[2]}" if device[2] else device[1]
    return value.removeprefix("torch.").removeprefix("Size").replace("([", "(").replace("])", ")")


def _few(which: Sequence[str]) -> str:
    return ", ".join(which[:_MOST]) + (f" and {len(which) - _MOST} more" if len(which) > _MOST else "")


def _cut(value: str) -> str:
    text = " ".join(value.split())
    return text if len(text) <= _VALUE_LIMIT else text[: _VALUE_LIMIT - 3] + "..."


def explain(lines: Sequence[str], known: Iterable[Sequence[str]]) -> list[str]:
    """Why a key is another one than those that are known: what differs from the nearest of them, in words.

    Args:
        lines: the components of the key that missed.
        known: the components of keys that the cache holds.

    Returns:
        Empty where no key is known.
    """
    wanted = components(lines)
    nearest = min(
        ((differences(other, wanted), other) for other in map(components, known)),
        key=lambda item: ("gm" in item[0], len(item[0])),
        default=None,
    )
    if nearest is None or not wanted:
        return []
    words = in_words(nearest[0], nearest[1], wanted)
    return [*words[:_MOST], f"and {len(words) - _MOST} more"] if len(words) > _MOST else words


def direction(lines: Iterable[str]) -> str:
    """What a graph is of: "forward", "backward", "inference"; "" where the lines do not say."""
    found = components(lines)
    flags = {name: found[f"fx_kwargs[{name}]"].value for name in _FLAGS if f"fx_kwargs[{name}]" in found}
    if not flags:
        return ""
    return next((word for name, word in _FLAGS.items() if flags.get(name) == "True"), "forward")


_FLAGS = {"is_backward": "backward", "is_inference": "inference"}


def is_symbolic(lines: Iterable[str]) -> bool:
    """True where an input of the graph is a size that torch keeps open."""
    return any(_SYMBOL.search(line) for line in lines)


def device(lines: Iterable[str]) -> str:
    """The device of a graph's inputs, as "cuda:5"; "" where they are on none, "cpu, cuda:0" for several."""
    found = (match for line in lines if "example_inputs[" in line for match in _DEVICE.finditer(line))
    return ", ".join(sorted({f"{match[1]}:{match[2]}" if match[2] else match[1] for match in found}))
