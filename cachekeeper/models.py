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
