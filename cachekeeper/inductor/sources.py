"""The Python that Inductor writes: modules of one Triton kernel each, and the wrappers that launch them.

Nothing is imported or executed. Of a kernel's module only the decorator is parsed; the rest is searched line by line.
Source: torch/_inductor/codegen/triton.py, select_algorithm.py (kernels); codegen/wrapper.py (wrappers).
"""

from __future__ import annotations

import ast
import base64
import cmath
import hashlib
import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeGuard

Constant = int | float | bool | str

_LARGEST = 32 << 20  # bytes of a source that is looked at
_LARGEST_DECORATOR = 64 << 10
_MOST_CONSTANTS = 1000
_LITERAL_ERRORS = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)


@dataclass(frozen=True)
class KernelSource:
    """A module with one Triton kernel.

    Attributes:
        name: of the function, as "triton_poi_fused_gelu_0".
        type: the heuristic's name: "pointwise", "reduction", "persistent_reduction", "template", "user_autotune", ...
        function: the source of the functions under @triton.jit, without the heuristic's decorator.
        size_hints: as {"x": 8192, "r0_": 128}; a list of hints, as older versions write it, gets "x", "y", ...
        num_warps, num_stages: given with the source, as for templates; None where they are left to autotuning.
        constants: what the kernel's body sets as `NAME : tl.constexpr = value`, by name, a type as "tl.float32"; for a
            kernel of the job's own its constant arguments, with those of its configuration if there is only one.
        device: as "cuda:0"; "" where it does not say.
        meta: `inductor_meta`, as far as its values are literals.
    """

    name: str
    type: str
    function: str
    size_hints: Mapping[str, int] = field(default_factory=dict)
    num_warps: int | None = None
    num_stages: int | None = None
    constants: Mapping[str, Constant] = field(default_factory=dict)
    device: str = ""
    meta: Mapping[str, object] = field(default_factory=dict)


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


# Kernels

_HEURISTIC = re.compile(r"^@triton_heuristics\.(\w+)\(", re.MULTILINE)
_JIT = re.compile(r"^@triton\.jit\b", re.MULTILINE)
_DEF = re.compile(r"^def (\w+)\(", re.MULTILINE)
_AFTER_KERNEL = re.compile(r"^(?:def get_args\(|def call\(|if __name__ )", re.MULTILINE)  # with benchmark_kernel
_CONSTANT = re.compile(r"^    (\w+)[ \t]*:[ \t]*tl\.constexpr[ \t]*=[ \t]*(\S.*)$", re.MULTILINE)
_OF_TRITON = re.compile(r"tl\.[\w.]+")  # tl.float32
_TRUTH = {"True": True, "False": False}
_DIMENSIONS = ("x", "y", "z")
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "num_buffers_warp_spec", "num_consumer_groups")


def kernel_source(text: str) -> KernelSource | None:
    """Read a module of one Triton kernel; None for another module, or one that cannot be read."""
    start = _HEURISTIC.search(text) if len(text) <= _LARGEST else None
    jit = _JIT.search(text, start.end()) if start else None
    name = _DEF.search(text, jit.end()) if jit else None
    if not start or not jit or not name or jit.start() - start.start() > _LARGEST_DECORATOR:
        return None
    keywords = _keywords(text[start.start() + 1 : jit.start()])
    if keywords is None:
        return None
    tail = _AFTER_KERNEL.search(text, jit.end())
    main = text[jit.start() : tail.start() if tail else len(text)]
    helper = _JIT.search(text, 0, start.start())
    function = (text[helper.start() : start.start()] if helper else "") + main
    given = _given(keywords)
    return KernelSource(
        name=name[1],
        type=start[1],
        function=function.strip() + "\n",
        size_hints=_size_hints(_literal(keywords.get("size_hints"))),
        num_warps=_number(given.get("num_warps")),
        num_stages=_number(given.get("num_stages")),
        constants={**_constants(text, name.end()), **_own_constants(start[1], given, keywords)},
        device=_device(keywords.get("triton_meta")),
        meta=_literals(keywords.get("inductor_meta")),
    )


def _keywords(decorator: str) -> dict[str, ast.expr] | None:
    """The keyword arguments of a call."""
    call = parsed(decorator)
    if not isinstance(call, ast.Call):
        return None
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def parsed(expression: str) -> ast.expr | None:
    """The tree of an expression; None for what is none. Text of a cache may be nested too deep for the parser."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            return ast.parse(expression.strip(), mode="eval").body
    except _LITERAL_ERRORS:
        return None


def is_constant(value: object) -> TypeGuard[Constant]:
    """True for a constant that a kernel can have; 1e999 is none."""
    return isinstance(value, Constant) and (not isinstance(value, float) or math.isfinite(value))


def literal(text: str, longest: int = 64 << 10) -> object:
    """The value of a literal; None for what is none, or has more characters than `longest`, and for 1e999 in it."""
    return _literal(parsed(text)) if len(text) <= longest else None


def _literal(node: ast.expr | None) -> object:
    try:
        return _finite(ast.literal_eval(node)) if node is not None else None
    except _LITERAL_ERRORS:
        return None


def _finite(value: object) -> object:
    """The same literal, with None in place of each number that has no end."""
    if isinstance(value, float | complex):
        return value if cmath.isfinite(value) else None
    if isinstance(value, dict):
        return {_finite(key): _finite(item) for key, item in value.items()}
    return type(value)(map(_finite, value)) if isinstance(value, list | tuple | set) else value


def _literals(node: ast.expr | None) -> dict[str, object]:
    """The items of a dict whose keys are strings and whose values are literals."""
    if not isinstance(node, ast.Dict):
        return {}
    found = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and not isinstance(value, ast.Call):
            known = _literal(value)
            if known is not None or (isinstance(value, ast.Constant) and value.value is None):
                found[key.value] = known
    return found


def _given(keywords: Mapping[str, ast.expr]) -> dict[object, object]:
    """Options of the launch that come with the source: of a template, or the only configuration of an own kernel."""
    configs = _literal(keywords.get("configs"))
    if isinstance(configs, list) and len(configs) == 1 and isinstance(configs[0], dict):
        return configs[0]
    return {name: _literal(keywords[name]) for name in _OPTIONS if name in keywords}


def _own_constants(
    heuristic: str, given: Mapping[object, object], keywords: Mapping[str, ast.expr]
) -> dict[str, Constant]:
    if heuristic != "user_autotune":
        return {}
    constants = _literals(keywords.get("triton_meta")).get("constants")
    found = {**(constants if isinstance(constants, dict) else {}), **given}
    return {
        key: value
        for key, value in found.items()
        if isinstance(key, str) and key not in _OPTIONS and is_constant(value)
    }


def _size_hints(hints: object) -> dict[str, int]:
    if isinstance(hints, list | tuple):
        hints = dict(zip(_DIMENSIONS, hints, strict=False))
    if not isinstance(hints, dict):
        return {}
    return {key: value for key, value in hints.items() if isinstance(key, str) and _number(value) is not None}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _constants(text: str, start: int) -> dict[str, Constant]:
    """What the main function sets; those that follow it in a template set the same, and some that do not count."""
    end = _JIT.search(text, start)
    found: dict[str, Constant] = {}
    for match in islice(_CONSTANT.finditer(text, start, end.start() if end else len(text)), _MOST_CONSTANTS):
        value = _constant(match[2].rstrip())
        if is_constant(value):
            found.setdefault(match[1], value)
    return found


def _constant(text: str) -> object:
    if text in _TRUTH or (text.isdecimal() and len(text) < 19):
        return _TRUTH[text] if text in _TRUTH else int(text)  # most are; parsing takes its time
    return text if _OF_TRITON.fullmatch(text) else literal(text)


def _device(meta: ast.expr | None) -> str:
    """From `{"device": DeviceProperties(type='cuda', index=0, ...)}`."""
    if not isinstance(meta, ast.Dict):
        return ""
    for key, value in zip(meta.keys, meta.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "device" and isinstance(value, ast.Call):
            properties = {keyword.arg: _literal(keyword.value) for keyword in value.keywords}
            kind, index = properties.get("type"), properties.get("index")
            return f"{kind}:{index}" if _number(index) is not None and kind != "cpu" else str(kind or "")
    return ""


def module_name(source: str) -> str:
    """The name of the module that torch writes a kernel's source to, as "c6jix..." (codecache.py, `code_hash`)."""
    digest = hashlib.sha256(source.strip().encode("utf-8", "surrogatepass")).digest()
    return "c" + base64.b32encode(digest)[:51].decode().lower()


# Wrappers

_START = "# AOT ID:"
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


class _Kernel(NamedTuple):
    name: str
    language: str
    source: str
    module: str


def wrapper_source(text: str) -> WrapperSource | None:
    """Read the module that launches a graph's kernels; None for another module."""
    if not text.startswith(_START) or len(text) > _LARGEST:
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
    value = _literal(parsed(f"'''{source}'''"))
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


# Words that graphs and tuning results share

_NAMES = {"bool": "b8", "bfloat16": "bf16"}
_KINDS = {"float": "f", "complex": "c", "uint": "u", "int": "i", "bits": "b"}
_TYPE = re.compile(r"(float|complex|uint|int|bits)(\d\w*)")


def dtype(name: str) -> str:
    """ "torch.bfloat16" or "bfloat16" -> "bf16", "int64" -> "i64", "float8_e4m3fn" -> "f8e4m3fn"; others as is."""
    name = name.removeprefix("torch.")
    match = _TYPE.fullmatch(name)
    return _NAMES.get(name) or (_KINDS[match[1]] + match[2].replace("_", "") if match else name)


def tensor(type_name: str, sizes: str) -> str:
    """ "bfloat16" and "8, 512" or "8, " -> "bf16[8, 512]" or "bf16[8]"."""
    return f"{dtype(type_name)}[{sizes.strip().rstrip(',')}]"


def operator(target: str) -> str:
    """ "aten.mm.default" -> "aten.mm": the operator without its overload."""
    return ".".join(target.split(".")[:2])
