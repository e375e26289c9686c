"""Kernels in C++: what wrappers launch, joined with sources and libraries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from ..inductor.cpp import CppSource, compiler_flags, cpp_source
from ..inductor.cubin import library_code
from .budget import Reader
from .directories import DAMAGED, GONE, THERE
from .graphs import Entries
from .listing import CppFiles, Listing
from .models import Kernel
from .modules import Modules

_LIBRARIES = "C++ libraries"
_LIBRARIES_SHARE = 16 << 20


@dataclass
class _Use:
    """A kernel that wrappers launch: its name, its text there, and the wrappers."""

    name: str
    text: str
    device: str
    wrappers: list[str] = field(default_factory=list)


def cpp_kernels(
    listing: Listing, modules: Modules, entries: Entries, reader: Reader, skip: Collection[str]
) -> list[Kernel]:
    """The kernels in C++ that wrappers launch.

    Args:
        skip: paths that are alike on both sides: their libraries are not read for the compiler's flags.
    """
    uses = _uses(modules)
    sources = [cpp_source(use.text) for use in uses]
    wanted = {source.source for source in sources if source}
    files = _files(listing, wanted, reader) if wanted else {}
    libraries = _libraries([files[text] for text in sorted(files)], reader, skip)
    graphs = entries.by_wrapper
    return [
        _kernel(
            use, source, files, libraries, tuple(sorted({key for name in use.wrappers for key in graphs.get(name, ())}))
        )
        for use, source in zip(uses, sources, strict=True)
    ]


def _uses(modules: Modules) -> list[_Use]:
    found: dict[tuple[str, str], _Use] = {}
    for name, wrapper in sorted(modules.wrappers.items()):
        for kernel, language in wrapper.languages.items():
            if language == "cpp":
                text = wrapper.sources.get(kernel, "")
                use = found.setdefault((kernel, text), _Use(kernel, text, wrapper.device or "cpu"))
                use.wrappers.append(name)
    return list(found.values())


def _files(listing: Listing, wanted: Collection[str], reader: Reader) -> dict[str, CppFiles]:
    """Source of a kernel -> its files. A file has bindings to Python besides, which the wrapper has not."""
    by_file = {item.source: item for item in listing.cpp}
    found = {}
    for file, data in reader.each(by_file, "C++ sources"):
        source = cpp_source(data.decode(errors="replace"))
        if source and source.source in wanted:
            found[source.source] = by_file[file]
    return found


class _Library(NamedTuple):
    """The flags that a library was compiled with, and its machine code as a hash; None: it is no ELF file."""

    flags: tuple[str, ...]
    code: str | None


def _libraries(files: Collection[CppFiles], reader: Reader, skip: Collection[str]) -> dict[str, _Library]:
    """Name of a module -> its library, of those that were read."""
    libraries = {item.library: item.module for item in files if item.library and item.library.path not in skip}
    found: dict[str, _Library] = {}
    for file, data in reader.each(libraries, _LIBRARIES, _LIBRARIES_SHARE):
        found[libraries[file]] = _Library(compiler_flags(data), library_code(data))
        if found[libraries[file]].code is None:
            reader.reject(file, _LIBRARIES)
    return found


def _kernel(
    use: _Use,
    source: CppSource | None,
    files: dict[str, CppFiles],
    libraries: dict[str, _Library],
    graphs: tuple[str, ...],
) -> Kernel:
    file = files.get(source.source) if source else None
    library = libraries.get(file.module) if file else None
    there = THERE if file and file.library else GONE
    return Kernel(
        name=use.name,
        module=file.module if file else "",
        type="cpp",
        source=source.source if source else use.text,
        graphs=graphs,
        device=use.device,
        vector_bits=source.vector_bits if source else None,
        flags=library.flags if library else (),
        bytes=file.bytes if file else 0,
        built=DAMAGED if library and library.code is None else there,
        code=(library.code or "") if library else "",
    )
