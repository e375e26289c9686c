"""Of two keys, the settings that their graphs are compiled with, and the machine: what differs, in words."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from . import user_kernels
from .components import INPUT, Component
from .words import Change, cut, plain

_NOTHING = "nothing"
DETERMINISTIC_SETTING = "inductor_config[deterministic]"


def of_setting(name: str, old: Mapping[str, Component], new: Mapping[str, Component]) -> Iterator[Change]:
    if INPUT.fullmatch(name):
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
        return kind, f"{spoken} {rest}: {_told(before, cut)} -> {_told(after, cut)}"
    if group == "autocast_state":
        return "autocast", f"autocast of {rest}: {_told(before, plain, 'off')} -> {_told(after, plain, 'off')}"
    kind = "pass" if "pass" in name or "partitioner" in name else "other"
    return kind, f"{name.replace('[', ' ').replace(']', '')}: {_told(before, cut)} -> {_told(after, cut)}"


def _told(value: str | None, spoken: Callable[[str], str], nothing: str = _NOTHING) -> str:
    return nothing if value is None else spoken(value)


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
    "cpp_runtime_thread_count": ("threads", "number of CPU threads", cut),
    "default_dtype": ("default dtype", "default dtype", plain),
    "cache_key_tag": ("key tag", "cache key tag", repr),
    "provenance_tracking_level": ("tracing", "provenance tracking", cut),
    "fx_kwargs[boxed_forward_device_index]": ("current device", "current device", cut),
    "default_cuda_device_index": ("current device", "current device", plain),
}
_GROUPS = {
    "inductor_config": ("setting", "inductor config"),
    "inductor_config_comms": ("setting", "inductor config"),
    "fx_kwargs": ("option", "compile option"),
}
_SYSTEM = ("system_info[device]", "system_info[version]")


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


def _literal(value: str) -> object:
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
