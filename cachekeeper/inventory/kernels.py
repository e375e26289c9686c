"""Kernels of a cache: what graphs launch, joined with modules, choices, and what was compiled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ..inductor.metadata import Metadata
from ..inductor.sources import KernelModule
from .budget import Reader
from .choices import Choice, Chooser, Record, read_records
from .cpp import cpp_kernels
from .directories import (
    CUBINS,
    DAMAGED,
    Code,
    binary,
    by_module,
    origins,
    presence,
    read_code,
    read_metadata,
    with_blocks,
)
from .graphs import Entries
from .listing import KernelDirectory, Listing
from .models import Kernel
from .modules import Modules
from .own import built, own_kernel, read_timed

_NONE: tuple[KernelDirectory, ...] = ()
# Without `full` so many are looked into, 2 ms each; the others are only named. Fewer where all else takes long as well.
_DETAILED, _DETAILED_OF_LARGE = 1000, 80
# To tell which modules so many directories come from takes longer than to look into kernels that are alike after all.
_ORIGINS = 300
_ORDER = {"reduction": 1, "persistent_reduction": 1, "split_scan": 1, "pointwise": 2, "foreach": 2}
_BESIDE = 256  # modules and results in one of 1,024 directories; a real one has a few
_GENERATED, _OF_GRAPHS = "triton_", "_fused_"


@dataclass
class Launched:
    """A kernel that wrappers launch.

    Attributes:
        module: that holds its source.
        uses: (wrapper, name there).
        device: of the wrappers.
    """

    module: KernelModule
    uses: list[tuple[str, str]] = field(default_factory=list)
    device: str = ""

    @property
    def name(self) -> str:
        """As the wrappers call it; the function's where there is none."""
        return min((name for _, name in self.uses), default=self.module.function)


@dataclass(frozen=True)
class Found:
    """Kernels as far as they are joined.

    Attributes:
        kernels: sorted by name and module.
        names: (wrapper, name there) -> name of the kernel.
        tried: number of kernels that only autotuning tried.
    """

    kernels: tuple[Kernel, ...]
    names: Mapping[tuple[str, str], str]
    tried: int


def kernels(
    listing: Listing,
    modules: Modules,
    entries: Entries,
    reader: Reader,
    skip: Collection[str],
    full: bool,
    wanted: str = "",
) -> Found:
    """Join all kernels.

    Args:
        skip: paths that are alike on both sides; kernels of nothing else are only named.
        wanted: what is in the name of kernels that are looked into first.
    """
    launched = _launched(modules)
    joiner = _Joiner(listing, modules, entries, reader, skip, wanted)
    found = [*joiner.joined(launched, full), *cpp_kernels(listing, modules, entries, reader, skip)]
    names = {use: item.name for item in launched for use in item.uses}
    tried = sum(bool(module.function) for module in modules.kernels.values()) - len(launched)
    return Found(tuple(sorted(found, key=lambda kernel: (kernel.name, kernel.module))), names, max(tried, 0))


def _launched(modules: Modules) -> list[Launched]:
    """What the wrappers launch; where there is none of them, what has a name that only kernels of graphs have."""
    found: dict[str, Launched] = {}
    for name, wrapper in sorted(modules.wrappers.items()):
        for kernel, module in wrapper.kernels.items():
            source = modules.kernels.get(module)
            if source and source.function:
                item = found.setdefault(module, Launched(source, device=wrapper.device))
                item.uses.append((name, kernel))
    if not modules.wrappers:
        return [Launched(module) for module in modules.kernels.values() if _is_final(module)]
    return list(found.values())


def _is_final(module: KernelModule) -> bool:
    """False for what max-autotune only tries, as "triton_mm"; True for a kernel of a graph, or of the job's own."""
    return bool(module.function) and (_OF_GRAPHS in module.function or not module.function.startswith(_GENERATED))


class _Joiner:
    def __init__(
        self,
        listing: Listing,
        modules: Modules,
        entries: Entries,
        reader: Reader,
        skip: Collection[str],
        wanted: str,
    ) -> None:
        self._listing, self._modules, self._entries, self._reader, self._skip = listing, modules, entries, reader, skip
        self._wanted = wanted
        self._graphs = entries.by_wrapper
        self._skipped: dict[str, bool] = {}
        self._named = listing.named
        self._hashes = {item.hash: item for group in self._named.values() for item in group}

    def joined(self, launched: Sequence[Launched], full: bool) -> list[Kernel]:
        others = sorted(self._unlike(launched, full), key=self._rank)
        most = len(others) if full else _DETAILED_OF_LARGE if self._listing.is_large else _DETAILED
        passed = {item.module.name for item in others[most:]}
        self._reader.pass_over(len(passed), "kernels")
        others = others[:most]
        looked_at = {item.module.name for item in others}
        alike = [item for item in launched if item.module.name not in looked_at]
        directories = by_module([item.module for item in others], self._modules, self._named, self._reader, full)
        own = self._own_kernels()
        described = read_metadata(
            [item for group in (*directories.values(), *own.values()) for item in group], self._reader
        )
        choices = self._choices(others, directories, described)
        chosen = [choice.directory for choice in choices if choice.directory]
        timed = read_timed(own, self._listing, self._reader)
        launched_as = {name: built(group, timed.get(name), described) for name, group in own.items()}
        code = read_code([*chosen, *filter(None, launched_as.values())], self._reader, full)
        found = [
            *(self._named_only(item, item.module.name not in passed) for item in alike),
            *(
                self._kernel(item, directories.get(item.module.name, []), choice, described, code)
                for item, choice in zip(others, choices, strict=True)
            ),
            *(
                own_kernel(name, group, launched_as[name], timed.get(name), described, code)
                for name, group in own.items()
            ),
        ]
        for kernel in found:
            if kernel.binary and kernel.binary.code == DAMAGED:
                self._reader.reject(self._hashes[kernel.binary.hash].files["cubin"], CUBINS)
        return found

    def _rank(self, item: Launched) -> tuple[bool, bool, int, str, str]:
        """What somebody asks for first, then what is another module on the other side.

        Of these products, attention and the job's own kernels, then reductions: both sides look into the same ones.
        """
        asked = bool(self._wanted) and self._wanted in item.name
        order = _ORDER.get(item.module.type, 0)
        return not asked, self._module_is_alike(item.module), order, item.name, item.module.name

    # What both sides have alike

    def _unlike(self, launched: Sequence[Launched], full: bool) -> list[Launched]:
        """The kernels of which something is another on the other side, or could be."""
        if not self._skip:
            return list(launched)
        touched = [item for item in launched if not self._is_alike(item.module)]
        names = {item.module.function for item in touched}
        changed = [item for name in sorted(names) for item in self._named.get(name, ()) if not self._skips(item)]
        if not full and len(changed) > _ORIGINS:
            return touched
        known = origins(changed, self._modules, self._reader, full)
        likenesses = {module.likeness for module in known.values()}
        unknown = {item.name for item in changed if item.path not in known}
        return [
            item
            for item in touched
            if not self._module_is_alike(item.module)
            or item.module.function in unknown
            or item.module.function not in self._named
            or item.module.likeness in likenesses
        ]

    def _is_alike(self, module: KernelModule) -> bool:
        """True where nothing that could belong to a kernel is another on the other side."""
        directories = self._named.get(module.function, ())
        return bool(directories) and self._module_is_alike(module) and all(map(self._skips, directories))

    def _module_is_alike(self, module: KernelModule) -> bool:
        file = self._listing.modules.get(module.name)
        if file is None or file.path not in self._skip:
            return False
        return all(item.path in self._skip for item in self._listing.configs.get(file.path.rpartition("/")[0], ()))

    def _named_only(self, item: Launched, alike: bool) -> Kernel:
        graphs = self._graphs_of(item.uses)
        return Kernel(item.name, item.module.name, item.module.type, graphs=graphs, device=item.device, read=alike)

    def _graphs_of(self, uses: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        return tuple(sorted({key for wrapper, _ in uses for key in self._graphs.get(wrapper, ())}))

    # Choices

    def _choices(
        self,
        launched: Sequence[Launched],
        directories: Mapping[str, Sequence[KernelDirectory]],
        described: Mapping[str, Metadata],
    ) -> list[Choice]:
        chooser = Chooser(described, self._hashes, partial(with_blocks, reader=self._reader))
        records = self._records(launched)
        owners = self._owners(launched, records, directories, chooser)
        found = []
        for item in launched:
            own = owners.get(item.module.name, [])
            named = [record for record in records.get(self._directory_of(item.module), ()) if record.chosen.triton_hash]
            compiled = directories.get(item.module.name, _NONE)
            found.append(chooser.choice(item.module, compiled, [*named, *own], self._hint(item)))
        return found

    def _owners(
        self,
        launched: Iterable[Launched],
        records: Mapping[str, Sequence[Record]],
        directories: Mapping[str, Sequence[KernelDirectory]],
        chooser: Chooser,
    ) -> dict[str, list[Record]]:
        """Name of a module -> the results beside it that name no directory, and can be of no other module there."""
        found: dict[str, list[Record]] = {}
        for here, rivals in self._by_place(launched).items():
            for record in records.get(here, ()):
                if record.chosen.triton_hash:
                    continue
                fitting = [
                    module
                    for module in rivals[:_BESIDE]
                    if chooser.fits(module, directories.get(module.name, _NONE), record.chosen)
                ]
                if len(fitting) == 1:
                    found.setdefault(fitting[0].name, []).append(record)
        return found

    def _records(self, launched: Iterable[Launched]) -> dict[str, list[Record]]:
        places = {self._directory_of(item.module) for item in launched}
        files = [file for place in sorted(places) for file in self._listing.configs.get(place, ())[:_BESIDE]]
        return read_records(files, self._reader)

    def _by_place(self, launched: Iterable[Launched]) -> dict[str, list[KernelModule]]:
        """Directory -> the modules in it that are looked into."""
        found: dict[str, list[KernelModule]] = {}
        for item in launched:
            found.setdefault(self._directory_of(item.module), []).append(item.module)
        return found

    def _directory_of(self, module: KernelModule) -> str:
        file = self._listing.modules.get(module.name)
        return file.path.rpartition("/")[0] if file else module.name[1:3]

    def _hint(self, item: Launched) -> str:
        """The directory that a graph's entry names for a kernel."""
        for wrapper, name in item.uses:
            for key in self._graphs.get(wrapper, ()):
                entry = self._entries.graphs[key]
                found = entry.kernels.get(name) or entry.kernels.get(item.module.function)
                if found:
                    return found
        return ""

    # Results

    def _kernel(
        self,
        item: Launched,
        directories: Sequence[KernelDirectory],
        choice: Choice,
        described: Mapping[str, Metadata],
        code: Mapping[str, Code],
    ) -> Kernel:
        source, chosen = item.module.source, choice.directory
        file = self._listing.modules.get(item.module.name)
        if source is None and file:
            self._reader.reject(file, "modules")
        return Kernel(
            name=item.name,
            module=item.module.name,
            type=source.type if source else item.module.type,
            source=source.function if source else "",
            graphs=self._graphs_of(item.uses),
            device=(source.device if source else "") or item.device,
            size_hints=source.size_hints if source else {},
            winner=choice.winner,
            binary=binary(chosen, described.get(chosen.path), code.get(chosen.path, Code())) if chosen else None,
            compiled=len(directories),
            bytes=item.module.bytes
            + sum(directory.bytes for directory in directories)
            + (choice.file.size if choice.file else 0),
            built=presence(chosen, self._named.get(item.module.function, _NONE)),
        )

    def _own_kernels(self) -> dict[str, list[KernelDirectory]]:
        """Name -> directories of kernels that no module of Inductor holds."""
        known = self._modules.by_function
        found = {}
        for name, directories in sorted(self._named.items()):
            here = [item for item in directories if not self._skips(item)]
            if here and name not in known:
                found[name] = here
        return found

    def _skips(self, directory: KernelDirectory) -> bool:
        if not self._skip:
            return False
        known = self._skipped.get(directory.path)
        if known is None:
            known = all(file.path in self._skip for file in directory.files.values())
            self._skipped[directory.path] = known
        return known
