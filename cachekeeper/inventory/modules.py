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
_CPP = " = async_compile.cpp"
_ASSIGNED, _QUOTES, _TRITON = " = async_compile.triton(", "'''", "triton"
_PATH = "# kernel path: "
# The function that the heuristic's decorator stands above: helpers may come before and after.
_DECORATOR = "@triton_heuristics."
_FUNCTION = re.compile(r"^def (\w+)", re.MULTILINE)
_BLANK = re.compile(r"^[ \t]+$", re.MULTILINE)
_DIRECTION = re.compile(r"# AOT ID: \['[^'\n]*?_(forward|backward|inference)'\]")
_GUARD = re.compile(r"torch\.(\w+)\._DeviceGuard\((\d+)\)")
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


@dataclass
class Modules:
    """What the modules of a cache say.

    Attributes:
        wrappers: by name of the module.
        kernels: the same of the others.
        texts: name of a wrapper of which only the kernels are told -> its text.
    """

    wrappers: dict[str, WrapperSource] = field(default_factory=dict)
    kernels: dict[str, KernelModule] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    @cached_property
    def by_function(self) -> Mapping[str, list[KernelModule]]:
        """Name of a kernel's function -> the modules that hold one."""
        found: dict[str, list[KernelModule]] = {}
        for module in self.kernels.values():
            if module.function:
                found.setdefault(module.function, []).append(module)
        return found

    def module_of(self, source: str, named: str) -> str:
        """The module of a source. Where that which is named has this source, nothing need be hashed."""
        known = self.kernels.get(named)
        return named if known and known.text.strip() == source.strip() else module_name(source)

    def complete(self, name: str) -> None:
        """Take all of a wrapper of which only the kernels are told so far."""
        text = self.texts.pop(name, "")
        if text:
            self.wrappers[name] = wrapper_source(text) or self.wrappers[name]

    def take_sources(self) -> None:
        """Take the sources of kernels that have no module of their own from all wrappers."""
        for _, wrapper in sorted(self.wrappers.items()):
            self.take_sources_of(wrapper)

    def take_sources_of(self, wrapper: WrapperSource) -> None:
        """The same from one."""
        for kernel, source in wrapper.sources.items():
            module = wrapper.kernels.get(kernel, "")
            if module and module not in self.kernels and wrapper.languages.get(kernel, _TRITON) == _TRITON:
                self.kernels[module] = KernelModule(module, source)

    def are_several(self, function: str) -> bool:
        """True where several modules hold a function of this name."""
        return len(self.by_function.get(function, ())) > 1


def read_modules(listing: Listing, reader: Reader, skip: Collection[str], full: bool = False) -> Modules:
    """Read all modules that there are; of wrappers that are many, only which kernels they launch.

    Args:
        full: read all of each wrapper, but of those that both sides have alike.
    """
    modules = Modules()
    wrappers: dict[str, str] = {}
    whole: set[str] = set()
    for file, data in reader.each(listing.modules.values(), "modules"):
        name = file.path.rpartition("/")[2].removesuffix(".py")
        if not data or b"\0" in data:  # Python would not read it
            reader.reject(file, "modules")
        text = data.decode(errors="replace")
        if not data.startswith(_WRAPPER_START):
            modules.kernels[name] = KernelModule(name, text, file.size)
            continue
        wrappers[name] = text
        if listing.is_small or (full and file.path not in skip):
            whole.add(name)
    for name, text in wrappers.items():
        if name in whole or not _add_names(modules, name, text):
            add_wrapper(modules, name, text)
        if name not in modules.wrappers:
            reader.reject(listing.modules[name], "modules")
    modules.take_sources()
    return modules


def _add_names(modules: Modules, name: str, text: str) -> bool:
    """Take a wrapper's kernels in Triton, its direction and device; False where only all of it says what these are."""
    found = _triton_kernels(text)
    if found is None or _CPP in text:
        return False
    kernels = {kernel: modules.module_of(source, named) for kernel, (source, named) in found.items()}
    direction = _DIRECTION.match(text)
    guards = {f"{kind}:{index}" for kind, index in _GUARD.findall(text, max(text.find("async_compile.wait("), 0))}
    if not guards:
        return False
    modules.wrappers[name] = WrapperSource(
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
    modules.texts[name] = text
    return True


def _triton_kernels(text: str) -> dict[str, tuple[str, str]] | None:
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


def add_wrapper(modules: Modules, name: str, text: str) -> None:
    """Take all of a wrapper, and with it the kernels' sources that it carries and that have no module of their own."""
    wrapper = wrapper_source(text)
    if wrapper is not None:
        modules.wrappers[name] = wrapper
        modules.take_sources_of(wrapper)
