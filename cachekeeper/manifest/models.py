"""What a manifest says: the header, and the tables of packs, frames, entries and files. See FORMAT.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .. import inductor
from ..inductor import KINDS
from ..models import Fingerprint, Proof


class PackRow(NamedTuple):
    """A pack: its name (SHA-256) and its length in bytes."""

    id: str
    size: int


class FrameRow(NamedTuple):
    """A frame: number of its pack, and where it lies there."""

    pack: int
    offset: int
    stored: int
    raw: int


class EntryRow(NamedTuple):
    """An entry: its kind and its path."""

    kind: str
    path: str


class FileRow(NamedTuple):
    """A file: `size` bytes from `offset` in frame number `frame`, on into the next ones; number of its entry."""

    path: str
    mode: int
    size: int
    sha256: str
    frame: int
    offset: int
    entry: int


@dataclass(frozen=True)
class Tables:
    """The long part of a manifest."""

    packs: tuple[PackRow, ...]
    frames: tuple[FrameRow, ...]
    entries: tuple[EntryRow, ...]
    files: tuple[FileRow, ...]


@dataclass(frozen=True)
class TablesInfo:
    """SHA-256 of the tables' JSON, or of the telemetry's lines, and its length in bytes."""

    sha256: str
    raw: int


@dataclass(frozen=True)
class RunSummary:
    """The run that a snapshot was saved after, in numbers: those of `runs.totals.Totals` and `verbs.stats.RunStats`.

    Attributes:
        id: of the run, on the machine where it was.
        command: without its secrets.
        began: UTC, as "2026-01-31T08:15:00Z".
        seconds: how long it took; None where nobody saw its end.
        compiling: seconds in which at least one thread compiled.
    """

    id: str
    command: tuple[str, ...]
    began: str
    seconds: float | None
    compiling: float
    hits: int
    misses: int
    bypasses: int
    recompiles: int
    fallbacks: int
    processes: int
    crashed: int


@dataclass(frozen=True)
class Count:
    """How much of one kind."""

    entries: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Header:
    """The short part of a manifest.

    Attributes:
        created: UTC, as "2026-01-31T08:15:00Z".
        name: the name that it was saved under, or "".
        parent: id of the snapshot that the name pointed to before, or "".
        metrics: numbers of the run, as {"tok_s": 21500.0}.
        live: why this may be a snapshot of a moving target; empty where the cache was quiet.
        damaged: "entry: reason" of what was saved damaged on request.
        cache_dir: where the cache was, for people.
        also: label -> where the directory saved under `also/<label>/` was, for people; a restore never writes there.
            A label that is the name of an environment variable is exported under that name.
        counts: kind -> how much.
        triton_dirs: directory of kernels -> number of entries, as {"triton/0": 285}.
        stored: bytes that its frames take in the store, shared ones included.
        targets: what Triton's kernels were built for, as ["cuda:90"].
        origin: how it came to be, where no cache directory of this machine was saved: "imported from cache.tar.zst".
        proof: the certificate that a fresh process hits, or None.
        telemetry: what jobs told of the graphs in it is kept with it; None: it is not.
        run: the run that it was saved after, or None.
        tags: what the work was, as {"dataset": "pile-v2", "batch": "8"}.
        secrets: "path  kind" of what was saved on request though it looks like secrets; no secret stands in it.
    """

    format: int
    tool: str
    created: str
    name: str
    parent: str
    message: str
    metrics: Mapping[str, float]
    live: tuple[str, ...]
    damaged: tuple[str, ...]
    cache_dir: str
    also: Mapping[str, str]
    fingerprint: Fingerprint
    counts: Mapping[str, Count]
    triton_dirs: Mapping[str, int]
    stored: int
    targets: tuple[str, ...]
    tables: TablesInfo = field(default=TablesInfo("", 0))
    origin: str = ""
    proof: Proof | None = None
    telemetry: TablesInfo | None = None
    run: RunSummary | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        """Number of files."""
        return sum(count.files for count in self.counts.values())

    @property
    def bytes(self) -> int:
        """Length of all files together."""
        return sum(count.bytes for count in self.counts.values())

    @property
    def entries(self) -> int:
        """Number of entries."""
        return sum(count.entries for count in self.counts.values())

    def entries_of(self, kind: str) -> int:
        """Number of entries of a kind."""
        return self.counts[kind].entries if kind in self.counts else 0


@dataclass(frozen=True)
class Snapshot:
    """A snapshot as listed: its id and its header."""

    id: str
    header: Header


@dataclass(frozen=True)
class Manifest(Snapshot):
    """A snapshot with its tables."""

    tables: Tables


def counts(tables: Tables) -> Mapping[str, Count]:
    """Kind -> how much of it there is."""
    kinds = [tables.entries[file.entry].kind for file in tables.files]
    files = Counter(kinds)
    sizes: Counter[str] = Counter()
    for kind, file in zip(kinds, tables.files, strict=True):
        sizes[kind] += file.size
    entries = Counter(entry.kind for entry in tables.entries)
    return {kind: Count(entries[kind], files[kind], sizes[kind]) for kind in KINDS if files[kind]}


def triton_dirs(tables: Tables) -> Mapping[str, int]:
    """Directory of kernels -> number of entries."""
    return inductor.triton_dirs(entry.path for entry in tables.entries if entry.kind == "triton")
