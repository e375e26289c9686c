"""Two caches, compared. Frozen values only; "a" is the first one named, "b" the second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..inventory.models import Coverage, Graph, Kernel, Product
from ..manifest import RunSummary
from ..models import Fingerprint


@dataclass(frozen=True)
class Side:
    """What a comparison knows of one cache besides its files.

    Attributes:
        label: as the person called it, "drafter@{1}" or a directory.
        id: of the snapshot; "" for a live directory.
        name: that it was saved under.
        created: UTC, as "2026-01-31T08:15:00Z"; "" for a live directory.
        cache_dir, origin: where it was made, or how it came to be.
        fingerprint: of the snapshot, or of this machine for a live directory.
        shapes: of the certificate's steps, as ("512", "2048").
        world_size: number of processes as their launcher told; None where nobody told.
        fallbacks: what ran uncompiled in the run, as "forward (model.py:12): recompile limit", sorted.
        proof_seconds: of all steps cold and warm, from the certificate; None without one.
    """

    label: str
    id: str = ""
    name: str = ""
    created: str = ""
    message: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    cache_dir: str = ""
    origin: str = ""
    fingerprint: Fingerprint | None = None
    run: RunSummary | None = None
    shapes: tuple[str, ...] = ()
    world_size: int | None = None
    fallbacks: tuple[str, ...] = ()
    proof_seconds: tuple[float, float] | None = None


@dataclass(frozen=True)
class Change:
    """One thing that is not the same.

    Attributes:
        name: as "registers", "torch", "transformers", "dataset".
        a, b: for a person.
        effect: "slower", "faster" (of b against a), or "" where nothing follows for the speed.
        words: what follows, as "torch would ignore every entry"; may be "".
    """

    name: str
    a: str
    b: str
    effect: str = ""
    words: str = ""


@dataclass(frozen=True)
class Environment:
    """Fingerprints side by side.

    Attributes:
        facts: of the groups must and should, in the fingerprint's order.
        breaking: names of those of them that alone make every key another one.
        variables: of the environment that differ.
        packages: that differ; "not installed" for one that a side lacks.
        config: settings of Inductor and the like that differ in graphs' keys, once for all graphs that they concern.
    """

    facts: tuple[Change, ...] = ()
    breaking: tuple[str, ...] = ()
    variables: tuple[Change, ...] = ()
    packages: tuple[Change, ...] = ()
    config: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Metric:
    """A number of the run on both sides.

    Attributes:
        better: "higher", "lower", or "" where the name does not tell.
        verdict: "slower", "faster", "same" (within 1 %), or "".
    """

    name: str
    a: float
    b: float
    better: str
    verdict: str


@dataclass(frozen=True)
class Work:
    """Do both do the same work?

    Attributes:
        comparable: "yes", "no", or "unknown" where nothing that could tell is recorded on both sides.
        differences: of model, command, processes, shapes and tags, and why the work is another one.
        same: what is recorded on both sides and equal, as ("model", "tag dataset").
        unknown: what only one side records, or none, as ("shapes",).
    """

    comparable: str
    differences: tuple[Change, ...] = ()
    same: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class GraphPair:
    """The same graph under another key. `because`: what the keys differ in, a line each."""

    a: Graph
    b: Graph
    because: tuple[str, ...]


@dataclass(frozen=True)
class Graphs:
    """`shared`: number of keys on both sides; `pairs`: same content, other key."""

    shared: int = 0
    pairs: tuple[GraphPair, ...] = ()
    only_a: tuple[Graph, ...] = ()
    only_b: tuple[Graph, ...] = ()


@dataclass(frozen=True)
class KernelPair:
    """A kernel on both sides.

    Attributes:
        matched: "module" (same source file), "name and source", "name", or "source".
        changes: of winner, launch, resources, instructions; most telling first.
        source: unified diff of the two sources, a line each; empty where they are the same or not known.
        effect: "slower", "faster", "mixed", or "".
    """

    a: Kernel
    b: Kernel
    matched: str
    changes: tuple[Change, ...] = ()
    source: tuple[str, ...] = ()
    effect: str = ""


@dataclass(frozen=True)
class Kernels:
    """`same`: number of kernels that do not differ; `changed`: those that do, most telling first.

    `unrecorded`: names of kernels on both sides for which a choice was made and at least one side records none.
    `unread`: number of kernels on both sides of which at least one side knows the name alone, to be quick.
    `rekeyed`: of those that are the same, how many are under another key of Triton's cache: it builds them again.
    """

    same: int = 0
    changed: tuple[KernelPair, ...] = ()
    only_a: tuple[Kernel, ...] = ()
    only_b: tuple[Kernel, ...] = ()
    unrecorded: tuple[str, ...] = ()
    unread: int = 0
    rekeyed: int = 0


@dataclass(frozen=True)
class ProductPair:
    """A product that both sides measured. `changes`: other winner, other timings."""

    a: Product
    b: Product
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Products:
    """`same`: number of products with the same winner."""

    same: int = 0
    changed: tuple[ProductPair, ...] = ()
    only_a: tuple[Product, ...] = ()
    only_b: tuple[Product, ...] = ()


@dataclass(frozen=True)
class CoveragePair:
    """A device on both sides; a side that has nothing for it has zeros."""

    device: str
    a: Coverage
    b: Coverage


@dataclass(frozen=True)
class Covered:
    """Entries by kind on both sides, and graphs by device.

    Attributes:
        entries: kind -> (a, b).
        bytes: kind -> (a, b).
        devices: sorted by device.
        words: what is gone, made plain: "62 entries where there were 285: ...".
        triton_dirs: directory of Triton's cache, as "triton/0" -> number of entries (a, b).
    """

    entries: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    bytes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    devices: tuple[CoveragePair, ...] = ()
    words: tuple[str, ...] = ()
    triton_dirs: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Suspect:
    """A likely cause.

    Attributes:
        likelihood: "likely", "possible" or "unlikely".
        effect: "slower", "faster", "slower start", or "" (of b against a).
        words: one sentence.
        evidence: what it is known from, a line each.
        advice: what to do; may be "".
    """

    likelihood: str
    effect: str
    words: str
    evidence: tuple[str, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class Parts:
    """What differs between two caches, part by part."""

    a: Side
    b: Side
    work: Work
    metrics: tuple[Metric, ...]
    environment: Environment
    graphs: Graphs
    kernels: Kernels
    products: Products
    coverage: Covered


@dataclass(frozen=True)
class Difference(Parts):
    """All of it, judged.

    Attributes:
        verdict: one line: "b is slower by 14 %: likely spills in softcap_0", "nothing that explains it", "not the same
            work", "no difference"; at its end how many files could not be read, for how many kernels no choice is
            recorded, and how many were looked at.
        suspects: likeliest first; at most 5.
        differs: False where nothing at all differs, and all that was to be read could be.
    """

    verdict: str
    suspects: tuple[Suspect, ...]
    differs: bool
    notes: tuple[str, ...] = ()
