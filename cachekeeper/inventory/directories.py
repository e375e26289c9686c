"""Directories of Triton's cache: which module each was compiled from, and what was compiled."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..inductor.cubin import is_damaged, resources
from ..inductor.layout import CODE
from ..inductor.metadata import Metadata, metadata
from ..inductor.ptx import mix
from ..inductor.sources import KernelModule
from ..inductor.ttir import block_lengths, source_module
from .budget import Reader
from .listing import KernelDirectory
from .models import Binary, Config
from .modules import Modules
from .tree import TreeFile

# Without `full`: counting the instructions of PTX takes longest.
CUBINS = "cubins"
_DESCRIPTIONS = "descriptions of kernels"
_TTIR_SHARE = 48 << 20
_PTX_SHARE = 6 << 20
THERE, GONE, DAMAGED = "there", "gone", "damaged"


class Code(NamedTuple):
    """What was read of a directory's cubin and PTX: the bytes of each, or None."""

    cubin: bytes | None = None
    ptx: bytes | None = None


def read_metadata(directories: Iterable[KernelDirectory], reader: Reader) -> dict[str, Metadata]:
    """Path of a directory -> what Triton says of its kernel."""
    files = {directory.files["json"]: directory.path for directory in directories if "json" in directory.files}
    found: dict[str, Metadata] = {}
    for file, data in reader.each(files, _DESCRIPTIONS):
        described = metadata(data)
        if described:
            found[files[file]] = described
        elif not is_json(data):
            reader.reject(file, _DESCRIPTIONS)
    return found


def is_json(data: bytes) -> bool:
    """True for a whole document, whatever is in it."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def options(described: Metadata) -> Config:
    """The launch options that a kernel was compiled with, as far as Triton says them."""
    given = {"num_warps": described.num_warps, "num_stages": described.num_stages}
    return {name: value for name, value in given.items() if value is not None}


def by_module(
    wanted: Collection[KernelModule],
    modules: Modules,
    named: Mapping[str, Sequence[KernelDirectory]],
    reader: Reader,
    full: bool,
) -> dict[str, list[KernelDirectory]]:
    """Name of each wanted module -> the directories that were compiled from it.

    Triton's key has the source of the function and no path: what two modules share is compiled once, and names one of
    the two. Where all modules with a function of that name are alike, nothing need be read.
    """
    found: dict[str, list[KernelDirectory]] = {}
    doubtful: list[KernelModule] = []
    for module in wanted:
        if modules.are_several(module.function):
            doubtful.append(module)
        else:
            found[module.name] = list(named.get(module.function, ()))
    names = {module.function for module in doubtful}
    directories = [item for name in sorted(names) for item in named.get(name, ())]
    own: dict[str, list[KernelDirectory]] = {}
    alike: dict[str, list[KernelDirectory]] = {}
    known = origins(directories, modules, reader, full)
    for item in directories:
        if origin := known.get(item.path):
            own.setdefault(origin.name, []).append(item)
            alike.setdefault(origin.likeness, []).append(item)
    for module in doubtful:
        found[module.name] = own.get(module.name) or alike.get(module.likeness, [])
    return found


def origins(
    directories: Iterable[KernelDirectory], modules: Modules, reader: Reader, full: bool
) -> dict[str, KernelModule]:
    """Path of a directory -> the module that it says it was compiled from."""
    files: dict[TreeFile, str] = {}
    for directory in directories:
        # The first line of ttir names the module; PTX does too, and is three times as long.
        file = directory.files.get("ttir") or directory.files.get("ptx")
        if file:
            files[file] = directory.path
    found = {}
    for file, data in reader.each(files, "intermediate files of kernels", None if full else _TTIR_SHARE):
        module = modules.kernels.get(source_module(data))
        if module:
            found[files[file]] = module
    return found


def with_blocks(
    directories: Sequence[KernelDirectory], blocks: Collection[int], reader: Reader
) -> list[KernelDirectory]:
    """Those of a kernel's directories that were compiled with blocks of these lengths, as far as that can be told."""
    files = {item.files["ttir"]: item for item in directories if "ttir" in item.files}
    wanted = {length for length in blocks if length > 1}
    read = reader.each(files, "intermediate files of kernels")
    return [files[file] for file, data in read if wanted <= block_lengths(data)]


def read_code(directories: Iterable[KernelDirectory], reader: Reader, full: bool) -> dict[str, Code]:
    """Path of a directory -> its code.

    Args:
        full: without it, no more than a part of the budget goes into PTX: counting its instructions takes long.
    """
    unique = list({item.path: item for item in directories}.values())
    found: dict[str, Code] = {}
    cubins = {item.files["cubin"]: item.path for item in unique if "cubin" in item.files}
    for file, data in reader.each(cubins, CUBINS):
        found[cubins[file]] = Code(cubin=data)
    ptx = {item.files["ptx"]: item.path for item in unique if "ptx" in item.files}
    for file, data in reader.each(ptx, "PTX files", None if full else _PTX_SHARE):
        path = ptx[file]
        found[path] = found.get(path, Code())._replace(ptx=data)
    return found


def binary(directory: KernelDirectory, described: Metadata | None, code: Code) -> Binary:
    """What a directory holds, as far as it was read."""
    built = resources(code.cubin, described.name if described else "") if code.cubin is not None else None
    damaged = code.cubin is not None and built is None and is_damaged(code.cubin)
    lengths = {suffix: directory.files[suffix].size for suffix in ("ptx", "cubin") if suffix in directory.files}
    return Binary(
        hash=directory.hash,
        bytes=directory.bytes,
        target=described.target if described else "",
        num_warps=described.num_warps if described else None,
        num_stages=described.num_stages if described else None,
        num_ctas=described.num_ctas if described else None,
        dynamic_shared=described.shared if described else None,
        static_shared=built.static_shared if built else None,
        registers=built.registers if built else None,
        local_bytes=built.local_bytes if built else None,
        code_bytes=built.code_bytes if built else None,
        ptx_bytes=lengths.get("ptx", 0),
        cubin_bytes=lengths.get("cubin", 0),
        mix=mix(code.ptx) if code.ptx is not None else None,
        tools=built.tools if built else "",
        code=DAMAGED if damaged else built.code if built else "",
    )


def presence(chosen: KernelDirectory | None, compiled: Sequence[KernelDirectory]) -> str:
    """Is there what a kernel was compiled to: "there", "gone", or "" where that cannot be told.

    Args:
        chosen: the directory of what is launched, where that is known.
        compiled: all that bear the kernel's name.
    """
    if chosen:
        return THERE if _has_code(chosen) else GONE
    return GONE if not any(map(_has_code, compiled)) else ""


def _has_code(directory: KernelDirectory) -> bool:
    return not CODE.isdisjoint(directory.files)
