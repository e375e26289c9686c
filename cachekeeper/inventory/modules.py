"""Inductor's Python modules: wrappers, which launch kernels, and the kernels' own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ..inductor.sources import KernelSource, WrapperSource, kernel_source, module_name, wrapper_source
from .budget import Reader
from .listing import Listing

_WRAPPER_START = b"# AOT ID:"
_CPP = b" = async_compile.cpp"
# The function that the heuristic's decorator stands above: helpers may come before and after.
_DECORATOR = "@triton_heuristics."
_FUNCTION = re.compile(r"^def (\w+)", re.MULTILINE)
_BLANK = re.compile(r"^[ \t]+$", re.MULTILINE)
_DIRECTION = re.compile(r"# AOT ID: \['[^'\n]*?_(forward|backward|inference)'\]")
_LAUNCHED = re.compile(r"^(\w+) = async_compile\.triton\([^\n]*'''", re.MULTILINE)
_GUARD = re.compile(r"torch\.(\w+)\._DeviceGuard\((\d+)\)")
_SIZE = re.compile(r"\n    (BLOCK_\w+) ?: ?tl\.constexpr ?= ?(\d+)\b")
_OPTION = re.compile(r"\n *(num_warps|num_stages)=(\d+),")
_SIZES_WITHIN = 8192
_TYPES = {
    "poi": "pointwise",
    "red": "reduction",
    "per": "persistent_reduction",
    "tem": "template",
    "for": "foreach",
    "spl": "split_scan",
}


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
        dedented = _BLANK.sub("", self.text[start:].rstrip())
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


@dataclass
class Modules:
    """What the modules of a cache say.

    Attributes:
        wrappers: by name of the module.
        kernels: the same of the others.
    """

    wrappers: dict[str, WrapperSource] = field(default_factory=dict)
    kernels: dict[str, KernelModule] = field(default_factory=dict)

    @cached_property
    def by_function(self) -> Mapping[str, list[KernelModule]]:
        """Name of a kernel's function -> the modules that hold one."""
        found: dict[str, list[KernelModule]] = {}
        for module in self.kernels.values():
            if module.function:
                found.setdefault(module.function, []).append(module)
        return found

    def are_several(self, function: str) -> bool:
        """True where several modules hold a function of this name."""
        return len(self.by_function.get(function, ())) > 1


def read_modules(listing: Listing, reader: Reader, skip: Collection[str]) -> Modules:
    """Read all modules that there are; of wrappers that both sides have alike, only which kernels they launch."""
    modules = Modules()
    for file, data in reader.each(listing.modules.values(), "modules"):
        name = file.path.rpartition("/")[2].removesuffix(".py")
        text = data.decode(errors="replace")
        if not data.startswith(_WRAPPER_START):
            modules.kernels[name] = KernelModule(name, text, file.size)
        elif file.path in skip and not listing.is_small and _CPP not in data:
            modules.wrappers[name] = _named_only(text)
        else:
            add_wrapper(modules, name, text)
    return modules


def _named_only(text: str) -> WrapperSource:
    """A wrapper's kernels in Triton, its direction and device."""
    direction = _DIRECTION.match(text)
    kernels: dict[str, str] = {}
    for match in _LAUNCHED.finditer(text):
        kernels[match[1]] = module_name(text[match.end() : text.find("'''", match.end())])
    guard = _GUARD.search(text, max(text.find("async_compile.wait("), 0))
    device = f"{guard[1]}:{guard[2]}" if guard else ""
    plain = dict.fromkeys(kernels, "triton")
    return WrapperSource(direction[1] if direction else "", device, kernels, tuple(kernels), {}, (), {}, {}, plain)


def add_wrapper(modules: Modules, name: str, text: str) -> None:
    """Take a wrapper, and with it the kernels' sources that it carries and that have no module of their own."""
    wrapper = wrapper_source(text)
    if wrapper is None:
        return
    modules.wrappers[name] = wrapper
    for kernel, source in wrapper.sources.items():
        if wrapper.languages.get(kernel, "triton") == "triton":
            module = wrapper.kernels.get(kernel, "")
            if module and module not in modules.kernels:
                modules.kernels[module] = KernelModule(module, source)
