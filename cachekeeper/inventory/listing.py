"""What a cache's files are, by their names alone: nothing is read here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..inductor import is_group, triton_dirs
from ..inductor.autotuner import SUFFIX
from ..inductor.layout import FORMS
from .tree import TreeFile

_FEW_GRAPHS = 12
_LARGE = 4000  # directories of Triton's cache


@dataclass
class KernelDirectory:
    """A directory of Triton's cache.

    Attributes:
        path: of the entry.
        hash: the directory's name.
        name: of the kernel, as its files are named; "" where none says.
        files: suffix, as "ptx", -> the file.
        bytes: of all its files but the group, whose length is that of the cache directory's path.
    """

    path: str
    hash: str
    name: str = ""
    files: dict[str, TreeFile] = field(default_factory=dict)
    bytes: int = 0

    @property
    def is_kernel(self) -> bool:
        """False for a launcher's, which has a library alone."""
        return bool(self.name) and not self.files.keys().isdisjoint(("json", *FORMS))


@dataclass
class GraphFiles:
    """An entry of Inductor's or AOTAutograd's cache: a file a guarded variant."""

    key: str
    files: list[TreeFile] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return sum(file.size for file in self.files)


class CppFiles(NamedTuple):
    """A source in C++, its library where there is one, and the bytes of both with all that belongs to them."""

    module: str
    source: TreeFile
    library: TreeFile | None
    bytes: int


@dataclass(frozen=True)
class Listing:
    """The files of a cache, each at its place.

    Attributes:
        modules: name, as "c6jix...", -> its Python file.
        cpp: entries of C++ sources, with what was built from them.
        configs: directory -> the .best_config files in it.
        timings: files of max-autotune's measurements.
        autotuned: name of a kernel -> files of what Triton's own autotuner measured.
        kernels: directories of Triton's cache, by path.
        graphs, autograd: entries by key.
        entries, bytes: kind -> number of entries, and of bytes.
        triton_dirs: directory of kernels -> number of entries.
    """

    modules: Mapping[str, TreeFile]
    cpp: Sequence[CppFiles]
    configs: Mapping[str, list[TreeFile]]
    timings: list[TreeFile]
    autotuned: Mapping[str, list[TreeFile]]
    kernels: Mapping[str, KernelDirectory]
    graphs: Mapping[str, GraphFiles]
    autograd: Mapping[str, GraphFiles]
    entries: Mapping[str, int]
    bytes: Mapping[str, int]
    triton_dirs: Mapping[str, int]

    @property
    def is_small(self) -> bool:
        """True where there is time for all that is in the entries of graphs."""
        return len(self.graphs) <= _FEW_GRAPHS

    @property
    def is_large(self) -> bool:
        """True where there is time for some of what takes long only."""
        return len(self.kernels) > _LARGE

    @property
    def named(self) -> dict[str, list[KernelDirectory]]:
        """Name of a kernel -> its directories of Triton's cache, sorted by path; without those of launchers."""
        found: dict[str, list[KernelDirectory]] = defaultdict(list)
        for directory in self.kernels.values():
            if directory.is_kernel:
                found[directory.name].append(directory)
        return dict(found)


def listing(files: Iterable[TreeFile]) -> Listing:
    """Sort files, given in the order of their paths, into what they are."""
    kinds: dict[str, list[TreeFile]] = defaultdict(list)
    for file in files:
        kinds[file.kind].append(file)
    entries = {kind: {file.entry for file in members} for kind, members in kinds.items()}
    timings, configs = _tuning(kinds["autotune"])
    return Listing(
        modules={_stem(file): file for file in kinds["module"]},
        cpp=_cpp(kinds["native"]),
        configs=configs,
        timings=timings,
        autotuned=_autotuned(kinds["triton"]),
        kernels=_kernels(kinds["triton"]),
        graphs=_graphs(kinds["fxgraph"]),
        autograd=_graphs(kinds["aotautograd"]),
        entries={kind: len(paths) for kind, paths in sorted(entries.items()) if paths},
        bytes={kind: sum(file.size for file in members) for kind, members in sorted(kinds.items()) if members},
        triton_dirs=triton_dirs(entries.get("triton", ())),
    )


def _cpp(files: Iterable[TreeFile]) -> list[CppFiles]:
    entries: dict[str, list[TreeFile]] = defaultdict(list)
    for file in files:
        entries[file.entry].append(file)
    found = []
    for members in entries.values():
        source = next((file for file in members if file.path.endswith(".cpp")), None)
        library = next((file for file in members if file.path.endswith(".so")), None)
        if source:
            found.append(CppFiles(_stem(source), source, library, sum(file.size for file in members)))
    return found


def _stem(file: TreeFile) -> str:
    return file.path.rpartition("/")[2].partition(".")[0]


def _tuning(files: Iterable[TreeFile]) -> tuple[list[TreeFile], dict[str, list[TreeFile]]]:
    """Files of measurements, and directory -> its .best_config files."""
    timings: list[TreeFile] = []
    configs: dict[str, list[TreeFile]] = defaultdict(list)
    for file in files:
        directory, _, name = file.path.rpartition("/")
        if name.endswith(".best_config"):
            configs[directory].append(file)
        elif directory.rpartition("/")[2] == "cache":
            timings.append(file)
    return timings, dict(configs)


def _autotuned(files: Iterable[TreeFile]) -> dict[str, list[TreeFile]]:
    found: dict[str, list[TreeFile]] = defaultdict(list)
    for file in files:
        if file.path.endswith(SUFFIX):
            found[file.path.rpartition("/")[2].removesuffix(f".{SUFFIX}")].append(file)
    return dict(found)


def _kernels(files: Iterable[TreeFile]) -> dict[str, KernelDirectory]:
    found: dict[str, KernelDirectory] = {}
    for file in files:
        path, _, entry, size, _ = file
        directory = found.get(entry)
        if directory is None:
            directory = found[entry] = KernelDirectory(entry, entry.rpartition("/")[2])
        name, _, suffix = path[path.rfind("/") + 1 :].partition(".")
        if suffix == "json" and is_group(path):
            continue
        directory.bytes += size
        if suffix != SUFFIX:
            directory.files[suffix] = file
            if suffix == "json" or not directory.name:
                directory.name = name
    return found


def _graphs(files: Iterable[TreeFile]) -> dict[str, GraphFiles]:
    found: dict[str, GraphFiles] = {}
    for file in files:
        key = file.entry.rpartition("/")[2]
        if file.path != file.entry:
            found.setdefault(key, GraphFiles(key)).files.append(file)
    return found
