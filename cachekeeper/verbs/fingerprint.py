"""fingerprint: what a cache made or used here depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import environment
from ..environment import CacheDirectory
from ..models import Fact, Fingerprint


@dataclass(frozen=True)
class DeepCheck:
    """One fact as cachekeeper found it and as torch itself tells it.

    Attributes:
        name: the fact.
        ours, torchs: what to show a person.
        agree: True also where only torch can know the fact (`torch_key`).
    """

    name: str
    ours: str
    torchs: str
    agree: bool


@dataclass(frozen=True)
class FingerprintReport:
    """This machine's fingerprint, the cache directory of a job started here, and torch's own word on it."""

    fingerprint: Fingerprint
    cache_dir: CacheDirectory
    deep: tuple[DeepCheck, ...] = ()

    @property
    def agrees(self) -> bool:
        """True where torch contradicts nothing, or was not asked."""
        return all(check.agree for check in self.deep)


def fingerprint(
    *, model_config: Path | None = None, model_sources: Sequence[Path] = (), deep: bool = False
) -> FingerprintReport:
    """Look at this machine.

    Args:
        model_config: a model's config file to hash (JSON or TOML).
        model_sources: sources that belong to the model.
        deep: also ask torch itself, in a process that imports it (2 to 15 s).

    Raises:
        UsageError: the model's config or sources cannot be read.
    """
    found = environment.fingerprint(model_config=model_config, model_sources=model_sources)
    directory = environment.cache_directory()
    checks = _checks(found, directory, environment.asked_torch()) if deep else ()
    return FingerprintReport(found, directory, checks)


def _checks(found: Fingerprint, directory: CacheDirectory, answers: dict[str, Fact]) -> tuple[DeepCheck, ...]:
    ours = {**found.recorded, **found.should, **found.must, "cache_dir": Fact(str(directory.path))}
    return tuple(_check(name, ours.get(name), answer) for name, answer in answers.items())


def _check(name: str, ours: Fact | None, answer: Fact) -> DeepCheck:
    if ours is None:
        return DeepCheck(name, "only torch knows", environment.shown(name, answer), agree=not answer.unknown)
    return DeepCheck(name, environment.shown(name, ours), environment.shown(name, answer), ours.same(answer))
