"""Find the snapshot in a name's history with which a metric became worse: fell, or rose where lower is better."""

from __future__ import annotations

import math
import os
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..diffing.metrics import direction
from ..diffing.models import Graphs, Work
from ..diffing.sides import side_of
from ..diffing.work import work
from ..errors import NotFound, UsageError
from ..histories import Past, require_history
from ..repository import open_repository
from ..stores import Store
from ..units import count

HIGHER, LOWER = "higher", "lower"


@dataclass(frozen=True)
class BisectPoint:
    """A step in the history of a name.

    Attributes:
        number: of the move.
        id: of the snapshot; "" where what the name pointed to is damaged.
        reference: what it can be called by now, as "drafter@{1}".
        created: UTC, as "2026-01-31T08:15:00Z"; "" for a snapshot that cannot be read.
        value: of the metric; None where it is not known.
        why: why it is not known, or "".
    """

    number: int
    id: str
    reference: str
    created: str
    value: float | None
    why: str = ""


class BisectStep(NamedTuple):
    """Two snapshots with the metric, between which are only ones without it."""

    before: BisectPoint
    after: BisectPoint


@dataclass(frozen=True)
class BisectResult:
    """Where a metric fell. It falls, too, where lower is better and it rises.

    Attributes:
        better: "higher" or "lower".
        threshold: what is no fall yet, as a share of the value before.
        points: the history, oldest first.
        before, after: the first step for the worse, from the value just before it to the first bad one; None where it
            did not fall at once.
        work: did these two do the same work, as far as their headers tell? None where it did not fall at once.
        best: the best one before that step, which need not be the one just before it; without such a step, of all.
        largest: of the steps that were never made good, the one that cost most: it may be a later one than the first.
            None where nothing fell.
        drift: the best one, where the metric did not fall at once and the last one is worse than that by more than
            the threshold all the same.
    """

    name: str
    metric: str
    better: str
    threshold: float
    points: tuple[BisectPoint, ...]
    before: BisectPoint | None = None
    after: BisectPoint | None = None
    work: Work | None = None
    best: BisectPoint | None = None
    largest: BisectStep | None = None
    drift: BisectPoint | None = None

    @property
    def fell(self) -> bool:
        """True where it became worse by more than the threshold, at once or little by little."""
        return self.after is not None or self.drift is not None

    @property
    def known(self) -> tuple[BisectPoint, ...]:
        """Those with the metric."""
        return tuple(point for point in self.points if point.value is not None)

    @property
    def skipped(self) -> tuple[BisectPoint, ...]:
        """Those without it."""
        return tuple(point for point in self.points if point.value is None)


def bisect(
    name: str,
    metric: str,
    *,
    better: str | None = None,
    threshold: float = 0.05,
    store: str | os.PathLike[str] | Store | None = None,
) -> BisectResult:
    """Find the first snapshot in a name's history with which a metric fell for good.

    Of the snapshots that have the metric, in the order in which the name pointed to them, that is the first for which
    holds: its own value and each later one are worse than the value just before it by more than the threshold. So a
    dip that recovered is no fall. Where there is none, and the last value is still worse than the best one by more
    than the threshold, the metric fell little by little: `drift`. `largest` is the step that cost most.

    Args:
        metric: as given with `--metric` when they were saved.
        better: "higher" or "lower"; default: what the metric's name says.
        threshold: a share of the value before, from 0 to below 1.

    Raises:
        NotFound: no such name, or no snapshot of it has this metric; with those that there are.
        UsageError: the metric's name does not say what is better.
    """
    _check(better, threshold)
    past = require_history(open_repository(store), name)
    points = [_point(step, metric) for step in past]
    numbers = [number for number, point in enumerate(points) if point.value is not None]
    if not numbers:
        raise _no_metric_error(name, metric, past)
    better = better or _direction(metric)
    known = [points[number] for number in numbers]
    values = [value for point in known if (value := point.value) is not None]
    higher = better == HIGHER
    result = BisectResult(name, metric, better, threshold, tuple(points))
    at = first_fall(values, higher, threshold)
    best = known[_best(values[:at], higher)]
    if at is None:
        if not _is_worse(values[-1], values[known.index(best)], higher, threshold):
            return replace(result, best=best)
        return replace(result, best=best, drift=best, largest=_largest(known, values, higher))
    before, after = numbers[at - 1], numbers[at]
    return replace(
        result,
        before=points[before],
        after=points[after],
        work=_work(past[before], past[after]),
        best=best,
        largest=_largest(known, values, higher),
    )


def _best(values: Sequence[float], higher: bool) -> int:
    return (max if higher else min)(range(len(values)), key=values.__getitem__)


def _largest(known: Sequence[BisectPoint], values: Sequence[float], higher: bool) -> BisectStep:
    costs = lasting(values, higher)
    at = max(range(1, len(values)), key=costs.__getitem__)
    return BisectStep(known[at - 1], known[at])


def lasting(values: Sequence[float], higher: bool) -> list[float]:
    """What each step cost for good: the share of the value before that no later value had again.

    The first value has no step, and costs nothing; what became better costs less than nothing.
    """
    costs = [0.0] * len(values)
    best = values[-1]
    for number in range(len(values) - 1, 0, -1):
        best = max(best, values[number]) if higher else min(best, values[number])
        before = values[number - 1]
        lost = before - best if higher else best - before
        costs[number] = lost / abs(before) if before else lost * math.inf if lost else 0.0
    return costs


def _check(better: str | None, threshold: float) -> None:
    if not 0 <= threshold < 1:
        raise UsageError(f"a threshold of {threshold:g} makes no sense", hint="give a share of 1, as 0.05 for 5 %")
    if better not in (HIGHER, LOWER, None):
        raise UsageError(f"better is neither {HIGHER!r} nor {LOWER!r}: {better!r}")


def first_fall(values: Sequence[float], higher: bool, threshold: float) -> int | None:
    """Number of the first value that is worse than the one before it, as all later ones are; None for none.

    Args:
        higher: higher is better.
        threshold: worse is what is worse by more than this share of the one before.
    """
    found = None
    best = values[-1]
    for number in range(len(values) - 1, 0, -1):
        best = max(best, values[number]) if higher else min(best, values[number])
        if _is_worse(best, values[number - 1], higher, threshold):
            found = number
    return found


def _is_worse(value: float, before: float, higher: bool, threshold: float) -> bool:
    fall = before - value if higher else value - before
    return fall > abs(before) * threshold


def _work(before: Past, after: Past) -> Work:
    a, b = (side_of(step.reference, step.snapshot, None) for step in (before, after) if step.snapshot)
    return work(a, b, Graphs())


def _point(step: Past, metric: str) -> BisectPoint:
    number, identifier = step.move.number, step.move.snapshot
    if step.snapshot is None:
        return BisectPoint(number, identifier, step.reference, "", None, step.trouble)
    header = step.snapshot.header
    value = header.metrics.get(metric)
    why = f"has no {metric}" if value is None else ""
    return BisectPoint(number, identifier, step.reference, header.created, value, why)


def _no_metric_error(name: str, metric: str, past: Iterable[Past]) -> NotFound:
    numbers = Counter(key for step in past if step.snapshot for key in step.snapshot.header.metrics)
    if not numbers:
        hint = (
            f"give one when you save: `cachekeeper snapshot {shlex.quote(name)} --metric {shlex.quote(metric)}=21500`"
        )
        return NotFound(f"no snapshot of {name} has a metric", hint=hint)
    facts = [f"{key}  in {count(number, 'snapshot')}" for key, number in numbers.most_common()]
    hint = f"name one of them: `--metric {shlex.quote(facts[0].rpartition('  ')[0])}`"
    return NotFound(f"no snapshot of {name} has the metric {metric!r}", facts=facts, hint=hint)


def _direction(metric: str) -> str:
    found = direction(metric)
    if found:
        return found
    raise UsageError(
        f"the name {metric!r} does not say what is better", hint="add --higher-is-better or --lower-is-better"
    )
