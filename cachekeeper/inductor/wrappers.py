"""The Python that Inductor writes: the wrappers, each of which launches the kernels of one graph.

Nothing is imported or executed.
Source: torch/_inductor/codegen/wrapper.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .sources import LARGEST, literal, module_name, operator, tensor

_START = "# AOT ID:"
_TRITON = "triton"
_DIRECTION = re.compile(r"# AOT ID: \['[^'\n]*?_(forward|backward|inference)'\]")
_KERNEL = re.compile(r"^(\w+) = async_compile\.(\w+)\(([^\n]*?)(\b[rR])?'''", re.MULTILINE)
_NODE = re.compile(r"^#   %(\w+) .*?\bcall_function\[target=torch\.ops\.([\w.]+)\]", re.MULTILINE)
_LAUNCH = re.compile(r"^[ \t]+(\w+)(\.run)?\(", re.MULTILINE)
_CALL = re.compile(r"(?<![\w.])((?:extern_kernels|aten|inductor_ops|_quantized|torch\.ops\.\w+)\.\w[\w.]*)\(")
_GUARD = re.compile(r"\btorch\.(\w+)\._DeviceGuard\((\d+)\)")
_INPUT = re.compile(
    r"^    \w+ = (?:rand_strided\(\(([^()\n]*)\), \([^()\n]*\), device='([^'\n]*)', dtype=torch\.(\w+)\)|(-?\d+)$)",
    re.MULTILINE,
)
_ASSERTED = re.compile(r"^ +assert_size_stride\(\w+, \(([^()\n]*)\),", re.MULTILINE)
_BODY = "async_compile.wait(globals())"
_HARNESS = re.compile(r"^def (?:get_args|benchmark_compiled_module)\(", re.MULTILINE)
_LANGUAGES = {"cpp_pybinding": "cpp"}
_CPP = " = async_compile.cpp"
_ASSIGNED, _QUOTES = " = async_compile.triton(", "'''"
_DECORATOR = b"@triton_heuristics."
_PATH = "# kernel path: "


@dataclass(frozen=True)
class WrapperSource:
    """A module that launches the kernels of one graph.

    Attributes:
        direction: "forward", "backward", "inference"; "" where it does not say.
        device: of the kernels, as "cuda:0"; "cuda:0, cuda:1" for several.
        kernels: name -> module, as "c6jix..."; "" for another language than Triton's.
        launches: names of kernels in order, each as often as it is launched.
        calls: what is called besides, as it is written -> how often, as {"extern_kernels.mm": 4}.
        inputs: as "bf16[8, 512, 256]"; "int" for a size that is passed in; without the type where it is not told.
        operations: how many nodes of the graph were compiled, by operator, as {"aten.mm": 3}; empty where the wrapper
            has no comments (torch 2.13 without provenance) and calls nothing.
        sources: name of a kernel -> the text of its module, or its C++.
        languages: name of a kernel -> "triton", "cpp", or what else compiles it, as "cutlass".
    """

    direction: str
    device: str
    kernels: Mapping[str, str]
    launches: tuple[str, ...]
    calls: Mapping[str, int]
    inputs: tuple[str, ...]
    operations: Mapping[str, int]
    sources: Mapping[str, str]
    languages: Mapping[str, str]


class _Kernel(NamedTuple):
    name: str
    language: str
    source: str
    module: str


def is_wrapper(data: bytes) -> bool:
    """True for a module that launches kernels, False for one that holds a kernel, or for another file."""
    return data.startswith(_START.encode())


def names_triton(data: bytes) -> bool:
    """True for a module that launches a kernel of Triton's, or holds one."""
    return _ASSIGNED.encode() in data or _DECORATOR in data


def wrapper_source(text: str) -> WrapperSource | None:
    """Read the module that launches a graph's kernels; None for another module."""
    if not text.startswith(_START) or len(text) > LARGEST:
        return None
    rest, kernels = _without_sources(text)
    body = rest[max(rest.find(_BODY), 0) :]
    harness = _HARNESS.search(body)
    code, harnessed = (body[: harness.start()], body[harness.start() :]) if harness else (body, "")
    languages = {kernel.name: kernel.language for kernel in kernels}
    calls = Counter(match[1] for match in _CALL.finditer(code))
    direction = _DIRECTION.match(text)
    return WrapperSource(
        direction=direction[1] if direction else "",
        device=_devices(code, harnessed),
        kernels={kernel.name: kernel.module for kernel in kernels},
        launches=tuple(
            match[1] for match in _LAUNCH.finditer(code) if match[2] or languages.get(match[1], "triton") != "triton"
        ),
        calls=dict(calls),
        inputs=_inputs(code, harnessed),
        operations=_operations(rest, calls),
        sources={kernel.name: kernel.source for kernel in kernels},
        languages=languages,
    )


def _without_sources(text: str) -> tuple[str, list[_Kernel]]:
    """The wrapper without its kernels' sources, and these."""
    parts, kernels, done = [], [], 0
    for match in _KERNEL.finditer(text):
        end = text.find("'''", match.end()) if match.start() >= done else -1
        if end < 0:
            continue
        between = text[done : match.start()]
        language = _LANGUAGES.get(match[2], match[2])
        source = _unescaped(text[match.end() : end], raw=bool(match[4]))
        # The comment "kernel path" before a template names another module than the one that is loaded.
        module = module_name(source) if language == "triton" else ""
        kernels.append(_Kernel(match[1], language, source, module))
        parts.append(between)
        done = end
    return "".join([*parts, text[done:]]), kernels


def _unescaped(source: str, raw: bool) -> str:
    """The value of a literal in triple quotes."""
    if raw or "\\" not in source:
        return source
    value = literal(f"'''{source}'''", LARGEST)
    return value if isinstance(value, str) else source


def _devices(code: str, harness: str) -> str:
    found = {f"{match[1]}:{match[2]}" for match in _GUARD.finditer(code)}
    found = found or {match[2] for match in _INPUT.finditer(harness) if match[2]}
    return ", ".join(sorted(found)) or ("cpu" if "empty_strided_cpu(" in code else "")


def _inputs(code: str, harness: str) -> tuple[str, ...]:
    if harness:
        found = _INPUT.finditer(harness)
        return tuple("int" if match[4] else tensor(match[3], match[1]) for match in found)
    return tuple(tensor("", match[1]) for match in _ASSERTED.finditer(code))


def _operations(rest: str, calls: Mapping[str, int]) -> dict[str, int]:
    """Nodes that kernels were made of, each once however many kernels compute it again, and what is called."""
    nodes = {match[1]: operator(match[2]) for match in _NODE.finditer(rest)}
    found = Counter(nodes.values())
    for name, number in calls.items():
        if name.startswith("extern_kernels."):
            found[f"aten.{name.partition('.')[2]}"] += number
        elif name.startswith("torch.ops."):
            found[operator(name.removeprefix("torch.ops."))] += number
    return dict(sorted(found.items()))


def skimmed(text: str, module_of: Callable[[str, str], str]) -> WrapperSource | None:
    """Of a wrapper the kernels in Triton, the direction and the device; None where only all of it says what these are.

    Args:
        module_of: (a kernel's source, the module that a comment says it has, or "") -> its module.
    """
    found = _skimmed_kernels(text)
    if found is None or _CPP in text:
        return None
    direction = _DIRECTION.match(text)
    guards = {f"{kind}:{index}" for kind, index in _GUARD.findall(text, max(text.find("async_compile.wait("), 0))}
    if not guards:
        return None
    kernels = {kernel: module_of(source, named) for kernel, (source, named) in found.items()}
    return WrapperSource(
        direction=direction[1] if direction else "",
        device=", ".join(sorted(guards)),
        kernels=kernels,
        launches=tuple(kernels),
        calls={},
        inputs=(),
        operations={},
        sources={kernel: source for kernel, (source, _) in found.items()},
        languages=dict.fromkeys(kernels, _TRITON),
    )


def _skimmed_kernels(text: str) -> dict[str, tuple[str, str]] | None:
    """Name -> source of the kernels in a wrapper, and the module that a comment says it has, or "".

    None where a source is to be unescaped.

    A search for the beginning of lines takes ten times as long.
    """
    found: dict[str, tuple[str, str]] = {}
    at, before = text.find(_ASSIGNED), 0
    while at >= 0:
        name = text[text.rfind("\n", 0, at) + 1 : at]
        start = text.find(_QUOTES, at, text.find("\n", at)) + len(_QUOTES)
        end = text.find(_QUOTES, start) if start >= len(_QUOTES) else -1
        if end < 0 or "\\" in text[start:end]:
            return None
        if name.isidentifier():
            found[name] = text[start:end], _commented(text, before, at)
        at, before = text.find(_ASSIGNED, end), end
    return found


def _commented(text: str, start: int, end: int) -> str:
    at = text.rfind(_PATH, start, end)
    return text[at : text.find("\n", at, end)].rpartition("/")[2].removesuffix(".py") if at >= 0 else ""
