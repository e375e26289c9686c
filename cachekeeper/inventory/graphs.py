"""Graphs of a cache: entries of Inductor's cache, the wrappers that launch their kernels, and what the job told."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from ..inductor.graph_heads import Settings, autograd_head, graph_head, wrapper_named
from ..inductor.graphs import (
    AutogradEntry,
    GraphEntry,
    autograd_entry,
    content,
    graph_entry,
    inputs,
    is_torn,
    operations,
)
from ..inductor.keys.components import direction as direction_of
from ..inductor.wrappers import WrapperSource
from ..models import Graph as ToldGraph
from ..telemetry import Log
from .budget import Reader
from .listing import GraphFiles, Listing
from .models import Graph
from .modules import Modules, add_wrapper
from .tree import TreeFile

# An entry carries its kernels once more, so that it is long: they leave room for the kernels themselves.
_AUTOGRAD, _GRAPHS = "entries of AOTAutograd", "entries of graphs"
_AUTOGRAD_SHARE = 8 << 20
_GRAPHS_SHARE = 32 << 20
_FOR_KERNELS = 80 << 20
_ALIKE_SHARE = 8 << 20
# Of an entry all that is read takes 5 ms; so many are in any case.
_MOST_ENTRIES, _MOST_OF_LARGE = 300, 40


@dataclass(frozen=True)
class Told:
    """What telemetry says of a graph; `seconds` of the compile that missed."""

    function: str = ""
    direction: str = ""
    device: str = ""
    components: tuple[str, ...] = ()
    seconds: float | None = None


@dataclass
class Entries:
    """What was read of graphs.

    Attributes:
        graphs: key -> the entry of its first variant that can be read.
        autograd: key of an entry of AOTAutograd's cache -> the graphs that it names.
    """

    graphs: dict[str, GraphEntry] = field(default_factory=dict)
    autograd: dict[str, AutogradEntry] = field(default_factory=dict)

    @property
    def by_wrapper(self) -> Mapping[str, list[str]]:
        """Name of a wrapper -> keys of the graphs whose kernels it launches, sorted."""
        found: dict[str, list[str]] = {}
        for key, entry in sorted(self.graphs.items()):
            found.setdefault(entry.wrapper, []).append(key)
        return found


def told(log: Log | None) -> dict[str, Told]:
    """Key of a graph -> what the job told of it: the first that it said of each thing."""
    found: dict[str, Told] = {}
    for event in log.compiled if log else ():
        graph = event.graph
        if graph.cache == "fx" and graph.key:
            found[graph.key] = _with(found.get(graph.key, Told()), graph, event.seconds)
    return found


def _with(known: Told, graph: ToldGraph, seconds: float | None) -> Told:
    return Told(
        known.function or graph.function,
        known.direction or graph.direction,
        known.device or graph.device,
        known.components or graph.components,
        seconds if known.seconds is None and graph.state == "miss" else known.seconds,
    )


def read_entries(listing: Listing, modules: Modules, reader: Reader, skip: Collection[str], full: bool) -> Entries:
    """Read the entries of graphs; wrappers that have no file of their own are added to the modules.

    Args:
        skip: paths that are alike on both sides: of many, these are read last, and only for the wrapper.
        full: read all of them, and all that is in them. A few are read so in any case.
    """
    found = Entries()
    most = _MOST_OF_LARGE if listing.is_large else _MOST_ENTRIES
    walked = full or listing.is_small
    shares = (_AUTOGRAD_SHARE, max((reader.left or 0) - _AUTOGRAD_SHARE - _FOR_KERNELS, _GRAPHS_SHARE))
    for file, key, data in _read(listing.autograd, reader, _AUTOGRAD, skip, None if full else _AUTOGRAD_SHARE, most):
        autograd = (None if walked else autograd_head(data)) or autograd_entry(data)
        if autograd:
            found.autograd[key] = autograd
        elif is_torn(data):
            reader.reject(file, _AUTOGRAD)
    settings = Settings()
    share = None if full else shares[1]
    for file, key, data in _read(listing.graphs, reader, _GRAPHS, skip, share, most):
        entry = (None if walked else _head(data, modules, file.path in skip, settings)) or graph_entry(data)
        if entry is None and is_torn(data):
            reader.reject(file, _GRAPHS)
        if entry:
            found.graphs[key] = entry
            if entry.wrapper and entry.wrapper not in modules.wrappers:
                add_wrapper(modules, entry.wrapper, entry.source)
            elif file.path not in skip:
                modules.complete(entry.wrapper)
    return found


def _head(data: bytes, modules: Modules, alike: bool, settings: Settings) -> GraphEntry | None:
    wrapper = wrapper_named(data)
    known = wrapper in modules.wrappers
    if alike and known:
        return GraphEntry(wrapper, "", (), "", {}, "")
    return graph_head(data, with_source=not known, settings=settings)


def _read(
    entries: Mapping[str, GraphFiles], reader: Reader, what: str, skip: Collection[str], share: int | None, most: int
) -> Iterator[tuple[TreeFile, str, bytes]]:
    """The first variant of each entry.

    Where not all can be read, the longest of which there is room for many are: keys are hashes, but the entry of a
    graph is about as long on the other side. Of those that both sides have alike only some are read.
    """
    files = {item.files[0]: key for key, item in sorted(entries.items()) if item.files}
    unlike = [file for file in files if file.path not in skip]
    if share is not None and (len(unlike) > most or sum(file.size for file in unlike) > share):
        unlike.sort(key=lambda file: (file.size > share // most, -file.size))
        reader.pass_over(max(len(unlike) - most, 0), what)
        unlike = unlike[:most]
    for file, data in reader.each(unlike, what, share):
        yield file, files[file], data
    alike = [file for file in files if file.path in skip]
    for file, data in reader.each(alike, "", share and _ALIKE_SHARE):
        yield file, files[file], data


def graphs(
    listing: Listing, entries: Entries, modules: Modules, log: Log | None, names: Mapping[tuple[str, str], str]
) -> tuple[Graph, ...]:
    """All graphs, sorted by key.

    Args:
        names: (wrapper, name that it calls a kernel by) -> name of the kernel in the inventory.
    """
    known = told(log)
    owners = _owners(entries.autograd)
    found = []
    for key, files in sorted(listing.graphs.items()):
        entry = entries.graphs.get(key)
        wrapper = modules.wrappers.get(entry.wrapper) if entry else None
        owner, direction = owners.get(key, ("", ""))
        found.append(_graph(files, known.get(key, Told()), entry, wrapper, names, owner=owner, direction=direction))
    return tuple(found)


def _graph(
    files: GraphFiles,
    known: Told,
    entry: GraphEntry | None,
    wrapper: WrapperSource | None,
    names: Mapping[tuple[str, str], str],
    *,
    owner: str,
    direction: str,
) -> Graph:
    components = known.components or (entry.components if entry else ())
    # Telemetry has the graph's code cut; the entry has it whole.
    whole, code = (entry.components, entry.code) if entry else (components, "")
    facing = (wrapper.direction if wrapper else "") or known.direction or direction_of(components) or direction
    module = entry.wrapper if entry else ""
    return Graph(
        key=files.key,
        direction=facing,
        device=(wrapper.device if wrapper else "") or known.device,
        function=known.function,
        inputs=tuple(map(_without_strides, inputs(whole, code))) or (wrapper.inputs if wrapper else ()),
        content=content(facing, whole, code) if entry else "",
        components=components,
        operations=operations(whole, code) or (wrapper.operations if wrapper else {}),
        calls=wrapper.calls if wrapper else {},
        kernels=tuple(names.get((module, name), name) for name in wrapper.launches) if wrapper else (),
        wrapper=module,
        seconds=known.seconds if known.seconds is not None else (entry.seconds if entry else None),
        variants=max(len(files.files), 1),
        bytes=files.bytes,
        entry=owner,
    )


def _without_strides(text: str) -> str:
    head, bracket, _ = text.partition("]")
    return head + bracket


def _owners(autograd: Mapping[str, AutogradEntry]) -> dict[str, tuple[str, str]]:
    """Key of a graph -> (key of AOTAutograd's entry that names it, direction that it names it for)."""
    found: dict[str, tuple[str, str]] = {}
    for owner, entry in sorted(autograd.items()):
        for direction, key in zip(entry._fields, entry, strict=True):
            if key:
                found.setdefault(key, (owner, direction))
    return found
