"""The nouns: frozen values that verbs take and return. Nothing here reads a file or imports a heavy library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .units import spaced

Scalar = str | int | float | bool | None
Value = Scalar | list[Any] | dict[str, Any]


@dataclass(frozen=True)
class Fact:
    """One thing known about an environment, or the reason why it is not known.

    `value` is JSON data; "none" facts (no GPU, no CUDA) carry the value None. Where `unknown` is set, the value means
    nothing, and such a fact never equals any other.
    """

    value: Value = None
    unknown: str = ""

    def same(self, other: Fact) -> bool:
        """True only where both are known and equal."""
        return not self.unknown and not other.unknown and self.value == other.value


Facts = Mapping[str, Fact]


@dataclass(frozen=True)
class ModelHash:
    """The canonical hash of a model config file and, optionally, of source files.

    Attributes:
        sha256: hex digest over the canonical config and the sources.
        config: path of the config file as given, or "".
        sources: paths of the source files as given.
        ignored: keys of the config that were left out because they change without changing the model.
    """

    sha256: str
    config: str = ""
    sources: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fingerprint:
    """What the validity of a compile cache depends on, in three groups.

    Attributes:
        id: 12 hex digits over the `must` group. Two fingerprints with the same id would use each other's cache;
            with an unknown `must` fact the id is unique, so that it never matches by accident.
        must: a difference means misses or wrong code.
        should: a difference deserves a warning.
        recorded: for people; never compared.
        model: hash of the model, where a config or sources were given.
    """

    id: str
    must: Facts
    should: Facts
    recorded: Facts
    model: ModelHash | None = None


@dataclass(frozen=True)
class Difference:
    """A fact that is not the same in two fingerprints.

    Attributes:
        group: "must", "should" or "model".
        name: the fact, as "torch".
        theirs, ours: what to show a person for the snapshot's side and for this machine's side.
        effect: what follows for torch, as "torch would ignore every entry".
    """

    group: str
    name: str
    theirs: str
    ours: str
    effect: str = ""


@dataclass(frozen=True)
class Comparison:
    """Two fingerprints, compared: `must` differences refuse a restore, `should` ones deserve a warning."""

    must: tuple[Difference, ...] = ()
    should: tuple[Difference, ...] = ()

    @property
    def fits(self) -> bool:
        """True where torch would use the cache."""
        return not self.must


@dataclass(frozen=True)
class ProvedStep:
    """One step of a warmup, run in two fresh processes: one that filled the cache, and one that found all in it.

    Attributes:
        device, mode, shape: as in the plan; shape is "" where the plan has none.
        cold_seconds, warm_seconds: what it took in the first process and in the second.
        built: number of entries that the first process added to the cache; 0 where it was warm already.
        hits: graphs that the second process took from the cache.
        bypasses: graphs whose autograd part torch never caches: it is traced in every process, and then found compiled.
        graphs: number of times that a compiled graph was called in the second process.
    """

    device: str
    mode: str
    shape: str
    cold_seconds: float
    warm_seconds: float
    built: int
    hits: int
    bypasses: int
    graphs: int

    def __str__(self) -> str:
        return spaced(self.device, self.mode, self.shape)


@dataclass(frozen=True)
class Proof:
    """A certificate: a fresh process did this warmup on the cache and built nothing.

    Attributes:
        target: what was run, as "train.py:step".
        source: SHA-256 of the file that holds it, or "" where that is not known.
        when: UTC, as "2026-01-31T08:15:00Z".
        in_thread: each step ran in a worker thread.
        per_device_process: each device had processes of its own.
        steps: in the order in which they ran.
    """

    target: str
    source: str
    when: str
    in_thread: bool
    per_device_process: bool
    steps: tuple[ProvedStep, ...]


@dataclass(frozen=True)
class Graph:
    """What one of torch's caches said of one graph.

    Attributes:
        cache: "fx" (Inductor's) or "aot" (AOTAutograd's).
        state: "hit", "miss" or "bypass".
        key: the key that was looked for; "" for most bypasses.
        reason: why it was passed by, or that a guard failed.
        function: what was compiled, as "forward (model.py:12)"; "" where torch does not say.
        direction: "forward", "backward", "inference", or "".
        device: of the inputs, as "cuda:5"; "cpu, cuda:0" for several.
        components: what the key was made of, a line each; empty where torch does not say.
    """

    cache: str
    state: str
    key: str
    reason: str = ""
    function: str = ""
    direction: str = ""
    device: str = ""
    components: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = " of ".join(filter(None, (self.direction, self.function))) or "a graph"
        return f"{what} on {self.device}" if self.device else what


@dataclass(frozen=True)
class StepReport:
    """What one step of a warmup did.

    Attributes:
        number: of the step in the plan, from 0.
        device, mode, shape: of the step, as in a plan; shape is "" where it has none.
        seconds: of the call, without the looking at files.
        new_entries: number of entries that appeared in the cache.
        new_files: files of the cache that appeared or were written anew.
        graphs: what the caches said, in order.
        calls: number of times that a compiled graph was called.
        triton_hits, triton_built: kernels that Triton found or compiled in this process; None where it does not say.
        compilers: command lines of compilers that were started to build something.
        recompiles: why a function was compiled again, a line each.
        graph_breaks: why a function was compiled in parts.
        fallbacks: what ran uncompiled though it was to be compiled, and why.
        peak_memory, left_memory: bytes of the device, at most and after the step; of the process for a CPU.
        elsewhere: device -> bytes that the step left on another device than its own.
        notes: what a person should know, a sentence each.
        error: traceback of a step that raised, or "".
    """

    number: int
    device: str
    mode: str
    shape: str
    seconds: float = 0.0
    new_entries: int = 0
    new_files: tuple[str, ...] = ()
    graphs: tuple[Graph, ...] = ()
    calls: int = 0
    triton_hits: int | None = None
    triton_built: int | None = None
    compilers: tuple[str, ...] = ()
    recompiles: tuple[str, ...] = ()
    graph_breaks: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    peak_memory: int = 0
    left_memory: int = 0
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        return spaced(self.device, self.mode, self.shape)

    @property
    def error_line(self) -> str:
        """The line that says what was raised; a message may go on below it, for pages."""
        lines = self.error.rstrip().splitlines()
        last = max((number for number, line in enumerate(lines) if line.startswith('  File "')), default=-1)
        return next((line for line in lines[last + 1 :] if not line.startswith(" ")), lines[-1] if lines else "")

    def number_of(self, cache: str, state: str) -> int:
        """How many graphs a cache answered so."""
        return sum(graph.cache == cache and graph.state == state for graph in self.graphs)
