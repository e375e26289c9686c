"""The Python that Inductor writes: modules of one Triton kernel each. `wrappers` are those that launch them.

Nothing is imported or executed. Of a kernel's module only the decorator is parsed; the rest is searched line by line.
Source: torch/_inductor/codegen/triton.py, select_algorithm.py.
"""

from __future__ import annotations

import ast
import base64
import cmath
import hashlib
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TypeGuard

Constant = int | float | bool | str

LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
LARGEST = 32 << 20  # bytes of a source that is looked at
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


@dataclass
class KernelModule:
    """The source of a kernel, parsed as far as somebody asks.

    Attributes:
        name: of the module, as "c6jix...".
        text: its Python source.
        bytes: of its file, 0 where there is none.
    """

    name: str
    text: str
    bytes: int = 0

    @cached_property
    def source(self) -> KernelSource | None:
        """All of it; None where it is no kernel's."""
        return kernel_source(self.text)

    @cached_property
    def function(self) -> str:
        """The kernel's function as Triton calls it, and so the files of its directories; "" where there is none."""
        start = self.text.find(_DECORATOR)
        found = _FUNCTION.search(self.text, start) if start >= 0 else None
        return found[1] if found else ""

    @cached_property
    def likeness(self) -> str:
        """A hash of what Triton's own key takes of it: modules of one likeness share directories.

        Source: triton/runtime/jit.py, `JITFunction.cache_key`: source, dedented, and its first line's number.
        """
        start = self.text.find("@triton.jit", max(self.text.find(_DECORATOR), 0))
        line = self.text.count("\n", 0, start)
        dedented = self.text[start:].rstrip()
        if " \n" in dedented or "\t\n" in dedented:  # to search for such lines takes longer
            dedented = _BLANK.sub("", dedented)
        return hashlib.sha256(f"{line} {dedented}".encode(errors="replace")).hexdigest()

    @cached_property
    def parameters(self) -> frozenset[str]:
        """Names of the function's parameters."""
        start = self.text.find(f"def {self.function}(")
        inner = self.text[start : self.text.find("):", start)].partition("(")[2]
        return frozenset(part.partition(":")[0].partition("=")[0].strip() for part in inner.split(","))

    @cached_property
    def sizes(self) -> Mapping[str, str]:
        """Of a template's blocks, and of its launch, without parsing it."""
        jit = max(self.text.find("@triton.jit"), 0)
        body = self.text[jit : jit + _SIZES_WITHIN]
        found: dict[str, str] = {}
        for name, value in (*_OPTION.findall(self.text[:jit]), *_SIZE.findall(body)):
            found.setdefault(name, value)
        return found

    @property
    def type(self) -> str:
        """The heuristic as the kernel's name tells it, without parsing."""
        return _TYPES.get(self.function.removeprefix("triton_").partition("_")[0], "")


# Kernels

_HEURISTIC = re.compile(r"^@triton_heuristics\.(\w+)\(", re.MULTILINE)
_JIT = re.compile(r"^@triton\.jit\b", re.MULTILINE)
_DEF = re.compile(r"^def (\w+)\(", re.MULTILINE)
_AFTER_KERNEL = re.compile(r"^(?:def get_args\(|def call\(|if __name__ )", re.MULTILINE)  # with benchmark_kernel
_CONSTANT = re.compile(r"^    (\w+)[ \t]*:[ \t]*tl\.constexpr[ \t]*=[ \t]*(\S.*)$", re.MULTILINE)
_OF_TRITON = re.compile(r"tl\.[\w.]+")  # tl.float32
_TRUTH = {"True": True, "False": False}
_DIMENSIONS = ("x", "y", "z")
# The function that the heuristic's decorator stands above: helpers may come before and after.
_DECORATOR = "@triton_heuristics."
_FUNCTION = re.compile(r"^def (\w+)", re.MULTILINE)
_BLANK = re.compile(r"^[ \t]+$", re.MULTILINE)
_SIZE = re.compile(r"\n    (BLOCK_\w+) ?: ?tl\.constexpr ?= ?(\d+)\b")
_OPTION = re.compile(r"[\n ](num_warps|num_stages)=(\d+),")
_SIZES_WITHIN = 8192
_TYPES = {
    "poi": "pointwise",
    "red": "reduction",
    "per": "persistent_reduction",
    "tem": "template",
    "for": "foreach",
    "spl": "split_scan",
}
_OPTIONS = (*LAUNCH_OPTIONS, "num_buffers_warp_spec", "num_consumer_groups")


def kernel_source(text: str) -> KernelSource | None:
    """Read a module of one Triton kernel; None for another module, or one that cannot be read."""
    start = _HEURISTIC.search(text) if len(text) <= LARGEST else None
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
