"""Inductor's Python modules of a cache: wrappers, which launch kernels, and the kernels' own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ..inductor.sources import KernelModule, module_name
from ..inductor.wrappers import WrapperSource, is_wrapper, skimmed, wrapper_source
from .budget import Reader
from .listing import Listing

_TRITON = "triton"


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
        if not is_wrapper(data):
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
    """Take what a look at a wrapper tells; False where only all of it says what it launches."""
    wrapper = skimmed(text, modules.module_of)
    if wrapper is None:
        return False
    modules.wrappers[name] = wrapper
    modules.texts[name] = text
    return True


def add_wrapper(modules: Modules, name: str, text: str) -> None:
    """Take all of a wrapper, and with it the kernels' sources that it carries and that have no module of their own."""
    wrapper = wrapper_source(text)
    if wrapper is not None:
        modules.wrappers[name] = wrapper
        modules.take_sources_of(wrapper)
