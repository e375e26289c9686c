"""What was found of two caches, before it is judged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ..inventory.models import Graph, Kernel
from .metrics import is_start
from .models import KernelPair, Metric, Parts


@dataclass(frozen=True)
class Findings(Parts):
    """What the rules look at, which find suspects.

    Attributes:
        unread: number of files of both that could not be read.
        looked_at: of the kernels of one side, those that were looked into, and all: of the side that lacks more.
    """

    unread: int = 0
    looked_at: tuple[int, int] = (0, 0)

    @cached_property
    def direction(self) -> str:
        """What the metrics say of the speed of b: "slower", "faster", "mixed", "same", or "" without one."""
        return _together(metric for metric in self.metrics if not is_start(metric.name))

    @cached_property
    def start(self) -> str:
        """The same of its start, by metrics as cold_s."""
        return _together(metric for metric in self.metrics if is_start(metric.name))

    @property
    def fair(self) -> bool:
        """False where the work is another one."""
        return self.work.comparable != "no"

    @property
    def headline(self) -> Metric | None:
        """The metric to be named: of the speed, a rate before a time, greatest change first."""
        told = [metric for metric in self.metrics if metric.verdict in ("slower", "faster")]
        return min(
            told, key=lambda metric: (is_start(metric.name), metric.better != "higher", -_apart(metric)), default=None
        )

    @cached_property
    def _by_change(self) -> dict[tuple[str, str], list[KernelPair]]:
        found: dict[tuple[str, str], list[KernelPair]] = defaultdict(list)
        for pair in self.kernels.changed:
            for change in pair.changes:
                if change.effect and pair.effect in (change.effect, "mixed"):
                    found[change.name, change.effect].append(pair)
        return found

    def changed(self, name: str, effect: str) -> list[KernelPair]:
        """Kernels on which one change has an effect that a measurement does not gainsay, heaviest first."""
        return self.heaviest(self._by_change.get((name, effect), ()))

    @cached_property
    def _launches(self) -> dict[str, Counter[str]]:
        pairs = self.graphs.pairs
        graphs: list[Graph] = [*(pair.b for pair in pairs), *self.graphs.only_b]
        return {graph.key: Counter(graph.kernels) for graph in graphs}

    def launches(self, kernel: Kernel) -> int:
        """How often the graphs of b launch a kernel; at least once for each that names it."""
        known = self._launches
        return sum(known[key][kernel.name] or 1 if key in known else 1 for key in kernel.graphs)

    def heaviest(self, pairs: Iterable[KernelPair]) -> list[KernelPair]:
        """Those with the most time and launches first."""
        return sorted(pairs, key=lambda pair: (-self.weight(pair), pair.b.name))

    def weight(self, pair: KernelPair) -> float:
        """Milliseconds of all launches as far as they were measured, else a small number for each launch."""
        return (pair.b.winner.milliseconds or 1e-3) * max(1, self.launches(pair.b))


def _together(metrics: Iterable[Metric]) -> str:
    verdicts = {metric.verdict for metric in metrics} - {""}
    told = verdicts - {"same"}
    if len(told) > 1:
        return "mixed"
    return told.pop() if told else "same" if verdicts else ""


def _apart(metric: Metric) -> float:
    greatest = max(abs(metric.a), abs(metric.b))
    return abs(metric.a - metric.b) / greatest if greatest else 0.0
