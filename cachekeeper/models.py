"""The nouns: frozen values that verbs take and return. Nothing here reads a file or imports a heavy library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
        bypasses: graphs that torch does not cache, and compiles in every process.
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
