"""Of two keys, what the graphs are given: the inputs that differ, and in what."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...units import listed
from .components import INPUT, OPEN_SIZE, Component
from .words import Change, cut, plain

_ATTRIBUTE = re.compile(r"(\w+)=(device\([^)]*\)|torch\.Size\([^)]*\)|\([^)]*\)|[^,()]+)")


class _Input(NamedTuple):
    number: str
    hash: str
    value: str


def of_inputs(old: Mapping[str, Component], new: Mapping[str, Component]) -> list[Change]:
    """Of inputs the attributes that differ; those of several inputs that change alike are said together."""
    one, other = _inputs(old), _inputs(new)
    found: list[Change] = []
    opened = sum(map(_is_open, other)) - sum(map(_is_open, one))
    if opened and any("TensorMetadata(" in item.value for item in (*one, *other)):
        one, other = ([item for item in side if not _is_open(item)] for side in (one, other))
        found += _of_open_sizes(one, other, opened)
    inputs: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for before, after in zip(one, other, strict=False):
        if before.hash != after.hash:
            for change in _tensor_changes(before.value, after.value):
                inputs[change].append(after.number)
    for (kind, words, general), which in inputs.items():
        found.append(Change(kind, f"{'input' if len(which) == 1 else 'inputs'} {listed(which)}: {words}", general))
    if len(one) != len(other):
        words = f"number of inputs: {len(one)} -> {len(other)}"
        found.append(Change("input", words, words))
    return found


def _inputs(side: Mapping[str, Component]) -> list[_Input]:
    found = ((INPUT.fullmatch(name), component) for name, component in side.items())
    return [_Input(match[1], *component) for match, component in found if match]


def _is_open(item: _Input) -> bool:
    return bool(OPEN_SIZE.fullmatch(item.value))


def _of_open_sizes(one: Sequence[_Input], other: Sequence[_Input], opened: int) -> list[Change]:
    """Sizes that torch keeps open on one side and has fixed on the other."""
    pairs = zip(one, other, strict=False)
    shapes = (
        (_attributes(before.value).get("shape"), _attributes(after.value).get("shape")) for before, after in pairs
    )
    shown = next((f", as {plain(a)} -> {plain(b)}" for a, b in shapes if a and b and a != b), "")
    words = "sizes: fixed -> dynamic" if opened > 0 else "sizes: dynamic -> fixed"
    return [Change("dynamic", words + shown, words)]


def _attributes(value: str) -> dict[str, str]:
    return {match[1]: match[2] for match in _ATTRIBUTE.finditer(value)}


def _tensor_changes(before: str, after: str) -> Iterator[tuple[str, str, str]]:
    """What differs between two inputs, as kind, words and general words; of tensors, the attributes that do."""
    one, other = _attributes(before), _attributes(after)
    names = [name for name in one if name in other and one[name] != other[name]]
    if not names:
        words = f"{cut(before)} -> {cut(after)}" if before != after else "differs in what torch does not show"
        yield "input", words, words
    if "shape" in names and _is_contiguous(one) and _is_contiguous(other):
        names = [name for name in names if name != "stride"]
    if {"shape", "stride"} & set(names):
        names = [name for name in names if name != "memory_format"]
    for name in names:
        change = f"{plain(one[name])} -> {plain(other[name])}"
        general = f"{name} {change}"
        if name == "shape":
            general = _sizes(_numbers(one[name]), _numbers(other[name]))
        elif name == "stride":
            general = "strides"
        yield name, f"{name} {change}", general


def _numbers(size: str) -> list[str]:
    return re.findall(r"[^\s,()\[\]]+", size.removeprefix("torch.Size"))


def _is_contiguous(attributes: Mapping[str, str]) -> bool:
    """True where the strides follow from the shape, as far as its sizes are numbers."""
    shape, stride = (_numbers(attributes.get(name, "")) for name in ("shape", "stride"))
    expected, found = 1, True
    for size, step in zip(reversed(shape), reversed(stride), strict=False):
        if not size.isdecimal() or not step.isdecimal():
            return False
        found = found and (step == str(expected) or size == "1")
        expected *= int(size)
    return found


def _sizes(one: Sequence[str], other: Sequence[str]) -> str:
    """The sizes that differ, as "size 8 -> 16"."""
    if len(one) != len(other):
        return f"{len(one)} dimensions -> {len(other)}"
    pairs = dict.fromkeys(f"size {a} -> {b}" for a, b in zip(one, other, strict=True) if a != b)
    return ", ".join(pairs)
