"""The components of a graph's key, as torch lists them: `[hash] name: value`, and what differs between two keys.

The key of Inductor's cache and the key of AOTAutograd's are listed alike; the second has some more.
Source: torch/_inductor/codecache.py, `FxGraphCachePickler.debug_lines`, `FxGraphHashDetails`;
torch/_functorch/_aot_autograd/autograd_cache.py, `AOTAutogradCacheDetails`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from . import user_kernels

_LINE = re.compile(r"\[(\w+)\] ([^:]+): (.*)", re.DOTALL)
_DEVICE = re.compile(r"device\(type='(\w+)'(?:, index=(\d+))?\)")
_INPUT = re.compile(r"example_inputs\[(\d+)\]")
_OPEN_SIZE = re.compile(r"\('[a-z]+_?\d+',\)")  # s77; in a key of AOTAutograd from torch 2.14 on s_0
_SYMBOL = re.compile(r"\] example_inputs\[\d+\]: " + _OPEN_SIZE.pattern)
_ATTRIBUTE = re.compile(r"(\w+)=(device\([^)]*\)|torch\.Size\([^)]*\)|\([^)]*\)|[^,()]+)")
_BOXED = re.compile(r"Boxed\w+\(value=(.*)\)")
_VALUE_LIMIT = 120
_PREFIX = 90  # a hash has 51 digits
_MOST = 6
_NOTHING = "nothing"


class Component(NamedTuple):
    """A component: the hash that goes into the key, and the value for a person."""

    hash: str
    value: str


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


def in_words(names: Iterable[str], old: Mapping[str, Component], new: Mapping[str, Component]) -> list[str]:
    """What differs, as "inductor config max_autotune: False -> True" or "inputs 0, 1: device cuda:0 -> cuda:1"."""
    return [change.words for change in changes(names, old, new)]


def changes(names: Iterable[str], old: Mapping[str, Component], new: Mapping[str, Component]) -> list[Change]:
    """What differs, without what follows from something else that is said.

    Args:
        names: of components that differ.
    """
    names = list(names)
    if "torch_version" in names:  # another version has other components, too
        names = [name for name in names if name == "gm" or _INPUT.fullmatch(name) or (name in old and name in new)]
    if "deterministic_algorithms_settings" in names:
        names = [name for name in names if name != _DETERMINISTIC_SETTING]
    found = [change for name in names if name != "gm" for change in _of_setting(name, old, new)]
    # Sizes that are open now, or no longer, move the inputs: all of them are looked at.
    found += _of_inputs(old, new) if any(map(_INPUT.fullmatch, names)) else []
    found = _causes(list(dict.fromkeys(found)))
    if "gm" in names and (change := _of_operations(old, new, {change.kind for change in found})):
        found.insert(0, change)
    return _causes(found) or [_UNSEEN] * bool(names)


def _causes(found: list[Change]) -> list[Change]:
    """Without what follows from another change, or comes with it."""
    kinds = {change.kind for change in found}
    for cause, consequences in _CONSEQUENCES.items():
        if cause in kinds:
            found = [change for change in found if change.kind not in consequences or change.kind == cause]
    vague = [change for change in found if change.kind == "arguments"]
    return [change for change in found if change.kind != "arguments"] or vague


_UNSEEN = Change("other", "something that torch does not show", "something that torch does not show")
# A torch of another version has other settings, by other names and with other defaults.
_CONSEQUENCES = {
    "torch": ("setting", "option", "pass", "system", "key tag", "other", "tracing"),
    "gradients": ("option", "backward"),
    "shape": ("option",),
    "dynamic": ("option", "shape", "stride", "input"),
    "device": ("current device",),
    "operations": ("option", "shape", "stride", "input", "requires_grad"),
}


# Settings


def _of_setting(name: str, old: Mapping[str, Component], new: Mapping[str, Component]) -> Iterator[Change]:
    if _INPUT.fullmatch(name):
        return
    before, after = (side[name].value if name in side else None for side in (old, new))
    if name in _PLAIN:
        kind, words = _PLAIN[name]
    elif name in _SPOKEN:
        kind, spoken, value = _SPOKEN[name]
        words = f"{spoken}: {_told(before, value)} -> {_told(after, value)}"
    elif user_kernels.COMPONENT.fullmatch(name):
        kind, words = "kernel", user_kernels.difference(before, after)
    elif name.startswith("system_info"):
        yield from _of_system(name, old, new)
        return
    else:
        kind, words = _of_group(name, before, after)
    yield Change(kind, words, words)


def _of_group(name: str, before: str | None, after: str | None) -> tuple[str, str]:
    group, _, rest = name.partition("[")
    rest = rest.removesuffix("]")
    if group in _GROUPS:
        kind, spoken = _GROUPS[group]
        return kind, f"{spoken} {rest}: {_told(before, _cut)} -> {_told(after, _cut)}"
    if group == "autocast_state":
        return "autocast", f"autocast of {rest}: {_told(before, _plain, 'off')} -> {_told(after, _plain, 'off')}"
    kind = "pass" if "pass" in name or "partitioner" in name else "other"
    return kind, f"{name.replace('[', ' ').replace(']', '')}: {_told(before, _cut)} -> {_told(after, _cut)}"


def _told(value: str | None, spoken: Callable[[str], str], nothing: str = _NOTHING) -> str:
    return nothing if value is None else spoken(value)


def _cut(value: str) -> str:
    boxed = _BOXED.fullmatch(value)
    text = " ".join((boxed[1] if boxed else value).split())
    return text if len(text) <= _VALUE_LIMIT else text[: _VALUE_LIMIT - 3] + "..."


def _plain(value: str) -> str:
    """A device as "cuda:5", a size as "(8, 16)"."""
    device = _DEVICE.fullmatch(value)
    if device:
        return f"{device[1]}:{device[2]}" if device[2] else device[1]
    return value.removeprefix("torch.").removeprefix("Size").replace("([", "(").replace("])", ")")


def _on_or_off(value: str) -> str:
    return {"True": "on", "False": "off"}.get(value, value)


def _first(value: str) -> str:
    """The first of a tuple of settings, which is the one that people set."""
    return _on_or_off(value.strip("()").partition(",")[0].strip("'"))


# name -> kind, and all that can be said
_PLAIN = {
    "torch_version": ("torch", "torch's source differs"),
    "autograd_config": ("setting", "a setting of torch._functorch.config (torch does not say which)"),
    "aot_config": ("arguments", "the names or sources of the function's arguments"),
    "fx_kwargs[is_backward]": ("backward", "a backward, of which none was known"),
}
# name -> kind, what it is called, and how its value is said
_SPOKEN: Mapping[str, tuple[str, str, Callable[[str], str]]] = {
    "grad_enabled": ("gradients", "grad mode", _on_or_off),
    "fx_kwargs[is_inference]": (
        "gradients",
        "grad mode",
        lambda value: "inference" if value == "True" else "training",
    ),
    "disable_amp": ("autocast", "autocast", _on_or_off),
    "deterministic_algorithms": ("deterministic", "deterministic algorithms", _on_or_off),
    "deterministic_algorithms_settings": ("deterministic", "deterministic algorithms", _first),
    "cuda_matmul_settings": ("matmul", "float32 matmul precision", _first),
    "cpp_runtime_thread_count": ("threads", "number of CPU threads", _cut),
    "default_dtype": ("default dtype", "default dtype", _plain),
    "cache_key_tag": ("key tag", "cache key tag", repr),
    "provenance_tracking_level": ("tracing", "provenance tracking", _cut),
    "fx_kwargs[boxed_forward_device_index]": ("current device", "current device", _cut),
    "default_cuda_device_index": ("current device", "current device", _plain),
}
_DETERMINISTIC_SETTING = "inductor_config[deterministic]"
_GROUPS = {
    "inductor_config": ("setting", "inductor config"),
    "inductor_config_comms": ("setting", "inductor config"),
    "fx_kwargs": ("option", "compile option"),
}


def _of_system(name: str, old: Mapping[str, Component], new: Mapping[str, Component]) -> Iterator[Change]:
    """The GPU's name and the versions of CUDA and Triton; their common hash says nothing where they are said."""
    if name == "system_info[hash]" and any(name in side for side in (old, new) for name in _SYSTEM):
        return
    before, after = (_literal(side[name].value) if name in side else None for side in (old, new))
    if name not in _SYSTEM or not isinstance(before, dict) or not isinstance(after, dict):
        what = {"system_info[device]": "GPU", "system_info[version]": "CUDA and Triton"}.get(
            name, "GPU, CUDA or Triton"
        )
        words = f"{what}: {'none' if before is None else 'another'} -> {'none' if after is None else 'another'}"
        yield Change("system", words if None in (before, after) else f"{what} differs", what)
        return
    for key in {**before, **after}:
        one, other = (str(side.get(key)) for side in (before, after))
        if one != other:
            yield _system_change(key, one, other)


def _system_change(key: object, one: str, other: str) -> Change:
    if key == "triton":  # a hash of its sources
        return Change("triton", "triton's source differs", "triton's source differs")
    words = f"{ {'name': 'GPU', 'cuda': 'CUDA', 'hip': 'ROCm'}.get(str(key), key) } {one} -> {other}"
    return Change("system", words, words)


_SYSTEM = ("system_info[device]", "system_info[version]")


def _literal(value: str) -> object:
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value


# Inputs


class _Input(NamedTuple):
    number: str
    hash: str
    value: str


def _of_inputs(old: Mapping[str, Component], new: Mapping[str, Component]) -> list[Change]:
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
        found.append(Change(kind, f"{'input' if len(which) == 1 else 'inputs'} {_few(which)}: {words}", general))
    if len(one) != len(other):
        words = f"number of inputs: {len(one)} -> {len(other)}"
        found.append(Change("input", words, words))
    return found


def _inputs(side: Mapping[str, Component]) -> list[_Input]:
    found = ((_INPUT.fullmatch(name), component) for name, component in side.items())
    return [_Input(match[1], *component) for match, component in found if match]


def _is_open(item: _Input) -> bool:
    return bool(_OPEN_SIZE.fullmatch(item.value))


def _of_open_sizes(one: Sequence[_Input], other: Sequence[_Input], opened: int) -> list[Change]:
    """Sizes that torch keeps open on one side and has fixed on the other."""
    pairs = zip(one, other, strict=False)
    shapes = (
        (_attributes(before.value).get("shape"), _attributes(after.value).get("shape")) for before, after in pairs
    )
    shown = next((f", as {_plain(a)} -> {_plain(b)}" for a, b in shapes if a and b and a != b), "")
    words = "sizes: fixed -> dynamic" if opened > 0 else "sizes: dynamic -> fixed"
    return [Change("dynamic", words + shown, words)]


def _attributes(value: str) -> dict[str, str]:
    return {match[1]: match[2] for match in _ATTRIBUTE.finditer(value)}


def _tensor_changes(before: str, after: str) -> Iterator[tuple[str, str, str]]:
    """What differs between two inputs, as kind, words and general words; of tensors, the attributes that do."""
    one, other = _attributes(before), _attributes(after)
    names = [name for name in one if name in other and one[name] != other[name]]
    if not names:
        words = f"{_cut(before)} -> {_cut(after)}" if before != after else "differs in what torch does not show"
        yield "input", words, words
    if "shape" in names and _is_contiguous(one) and _is_contiguous(other):
        names = [name for name in names if name != "stride"]
    if {"shape", "stride"} & set(names):
        names = [name for name in names if name != "memory_format"]
    for name in names:
        change = f"{_plain(one[name])} -> {_plain(other[name])}"
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


def _few(which: Sequence[str]) -> str:
    return ", ".join(which[:_MOST]) + (f" and {len(which) - _MOST} more" if len(which) > _MOST else "")


# Operations

_OPERATIONS_DIFFER = "the graph's operations differ"
# Of changes of these kinds it follows that constants, sizes and devices within the graph are others, too.
_WITHIN = frozenset(("shape", "dynamic", "device", "current device", "dtype", "stride", "input"))
_STATEMENT = re.compile(r"\s*(\w+)(?: : [^=]+)? = (.+)", re.DOTALL)
_CALL = re.compile(r"([A-Za-z_][\w.]*)\(")
_BINARY = re.compile(r"[\w.]+ (@|\+|-|\*|/|//|%|\*\*|<=?|>=?|==|!=|&|\||\^|<<|>>) [\w.]+")
_CUT_BY_TORCH = 1000  # torch cuts some values, and we cut the rest; what is past that cannot be compared


def _of_operations(old: Mapping[str, Component], new: Mapping[str, Component], kinds: set[str]) -> Change | None:
    """How the operations of two graphs differ; None where it follows from other changes."""
    if kinds & {"gradients", "backward"}:
        return None  # what is kept for a backward, or not
    codes = [side["gm"].value if "gm" in side else "" for side in (old, new)]
    one, other = map(operations, codes)
    past = ""
    if any(len(code) >= _CUT_BY_TORCH for code in codes):
        shown = min(len(one), len(other)) - 1  # the last may be cut in two
        one, other = one[:shown], other[:shown]
        past = f" past the first {shown}, which are all that torch shows"
    before, after = (Counter(name for name, _ in side) for side in (one, other))
    told = [
        f"{word} {_counted(counts)}"
        for word, counts in (("more", after - before), ("without", before - after))
        if counts and one and other
    ]
    if told:
        return Change("operations", f"{_OPERATIONS_DIFFER}: {'; '.join(told)}", _OPERATIONS_DIFFER)
    if kinds & _WITHIN:
        return None
    said = next((f": {a} -> {b}" for (_, a), (_, b) in zip(one, other, strict=False) if a != b), "")
    if kinds and not said:
        return None
    return Change("operations", _OPERATIONS_DIFFER + (said or past), _OPERATIONS_DIFFER)


def _counted(counts: Mapping[str, int]) -> str:
    return _few([name if number == 1 else f"{number} {name}" for name, number in counts.items()])


def operations(code: str) -> list[tuple[str, str]]:
    """The statements of a graph's code, each as the name of its operation and the whole, with variables numbered."""
    numbers: dict[str, str] = {}
    found = []
    body = code.partition("def forward")[2].partition("\n")[2]
    for statement in re.split(r"[;\n]", body):
        match = _STATEMENT.match(statement)
        if not match or match[2].endswith("= None") or match[2] == "None":
            continue
        numbers.setdefault(match[1], f"v{len(numbers)}")
        whole = re.sub(r"\b[A-Za-z_]\w*\b(?!\()", lambda word: numbers.get(word[0], word[0]), match[2])
        found.append((_operation(match[2]), _cut(re.sub(r"torch\.ops\.(\w+)\.|\.default(?=\()", "", whole))))
    return found


def _operation(expression: str) -> str:
    """ "torch.ops.aten.mm.default(a, b)" -> "mm", "a.t()" -> "t", "a @ b" -> "@"."""
    if match := _CALL.match(expression):
        parts = match[1].split(".")
        return parts[3] if parts[:2] == ["torch", "ops"] and len(parts) > 3 else parts[-1]
    match = _BINARY.match(expression)
    return match[1] if match else "another"


# Keys


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
