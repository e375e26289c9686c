"""The first snapshot of a history with which a number fell for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cachekeeper
from cachekeeper.errors import NotFound, UsageError
from cachekeeper.manifest import RunSummary
from cachekeeper.models import ModelHash
from cachekeeper.repository import Repository, manifest_key
from cachekeeper.stores import MemoryStore
from cachekeeper.verbs.bisect import BisectResult, first_fall, lasting
from tests import samples

RUN = RunSummary("20260131-081500-7c1e04", ("python", "train.py"), "2026-01-31T08:15:00Z", 1.0, 1.0, *[0] * 7)


class Named:
    """A store in which a name moves."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.repository = Repository(self.store)
        self.repository.prepare()
        self.ids: list[str] = []

    def save(self, metrics: dict[str, float] | None = None, **changes: Any) -> str:
        header = samples.header(metrics=metrics or {}, message=str(len(self.ids)), **changes)
        self.ids.append(self.repository.commit(header, samples.tables()).id)
        self.repository.move_name("drafter", self.ids[-1])
        return self.ids[-1]

    def saves(self, values: Sequence[float | None]) -> None:
        for value in values:
            self.save({} if value is None else {"tok_s": value})

    def bisect(self, metric: str = "tok_s", **options: Any) -> BisectResult:
        return cachekeeper.bisect("drafter", metric, store=self.store, **options)


@pytest.fixture
def named() -> Named:
    return Named()


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([21500, 21450, 12800, 12900], 2),
        ([21500, 12800], 1),
        ([100, 101, 99, 100], None),
        ([100, 80, 100, 101], None),  # a dip that recovered
        ([100, 80, 100, 79, 80], 3),  # and a fall after one
        ([100, 90, 80, 70], 1),  # further falls: the first
        ([100, 97, 94, 91, 88], None),  # never more than 5 % at once
        ([100, 97, 80, 81], 2),
        ([50, 100, 60], 2),  # still worse than the value just before
        ([100, 95], None),  # the threshold itself is no fall
        ([100, 94.9], 1),
        ([0, -1], 1),
        ([0, 0], None),
        ([-100, -104], None),
        ([-100, -106], 1),
        ([7], None),
    ],
)
def test_where_it_fell(values: list[float], found: int | None):
    assert first_fall(values, True, 0.05) == found
    assert first_fall([-value for value in values], False, 0.05) == found


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=8), st.sampled_from([0.0, 0.05, 0.5]), st.booleans())
def test_it_is_what_the_words_say(values: list[int], threshold: float, higher: bool):
    def worse(value: int, before: int) -> bool:
        return (before - value if higher else value - before) > abs(before) * threshold

    numbers = range(1, len(values))
    falls = [at for at in numbers if all(worse(later, values[at - 1]) for later in values[at:])]
    assert first_fall(values, higher, threshold) == (falls[0] if falls else None)


def test_the_two_snapshots(named: Named):
    named.saves([21500, None, 21400, None, 12800, None, 12750])
    result = named.bisect()
    assert (result.fell, result.better, result.threshold) == (True, "higher", 0.05)
    assert result.before and result.after and result.drift is None
    assert (result.before.number, result.before.id, result.before.reference) == (3, named.ids[2], "drafter@{4}")
    assert (result.after.number, result.after.id, result.after.value) == (5, named.ids[4], 12800.0)
    assert result.after.created == "2026-01-31T08:15:00Z"
    assert [point.value for point in result.points] == [21500, None, 21400, None, 12800, None, 12750]
    assert [(point.number, point.why) for point in result.skipped] == [(n, "has no tok_s") for n in (2, 4, 6)]


def test_what_cannot_be_read_is_passed_over(named: Named):
    named.saves([100, 100, 50])
    named.store.delete(manifest_key(named.ids[1]))
    result = named.bisect()
    assert result.before and result.before.id == named.ids[0]
    assert [(point.id, point.created, point.why) for point in result.skipped] == [
        (named.ids[1], "", "its manifest is not in the store")
    ]


def test_no_fall(named: Named):
    named.saves([100, 110, 106])
    result = named.bisect()
    assert (result.fell, result.before, result.after, result.work, result.drift) == (False, None, None, None, None)
    assert result.largest is None and result.best and result.best.value == 110
    assert named.bisect(threshold=0.01).after


def test_a_slow_decline_is_told(named: Named):
    named.saves([90, 100, 97, 94, 91])
    result = named.bisect()
    assert result.after is None and result.drift and result.best == result.drift
    assert (result.fell, result.drift.value, result.drift.reference) == (True, 100, "drafter@{3}")
    assert result.largest and [point.value for point in result.largest] == [94, 91]  # 3.2 %, of 3, 3.1 and 3.2


def test_the_largest_step_need_not_be_the_first(named: Named):
    named.saves([1000, 940, None, 400])
    result = named.bisect()
    assert result.after and result.after.value == 940
    assert result.largest and [point.value for point in result.largest] == [940, 400]
    assert named.bisect(threshold=0.1).after == result.largest.after


def test_a_dip_that_recovered_is_not_the_largest_step(named: Named):
    named.saves([1000, 100, 1000, 900, 880])
    result = named.bisect()
    assert result.largest and [point.value for point in result.largest] == [1000, 900]


def test_the_best_one_before_is_told_too(named: Named):
    named.saves([1000, 900, 960, 890])
    result = named.bisect()
    assert result.before and result.after and result.best
    assert (result.before.value, result.after.value, result.best.value, result.drift) == (960, 890, 1000, None)
    assert result.best.reference == "drafter@{3}"


@pytest.mark.parametrize(
    ("values", "costs"),
    [
        ([100, 80, 90], [0, 0.1, -0.125]),
        ([1000, 940, 400], [0, 0.06, 540 / 940]),
        ([0, -1], [0, float("inf")]),
        ([0, 0], [0, 0]),
        ([-100, -106], [0, 0.06]),
        ([7], [0]),
    ],
)
def test_what_a_step_cost_for_good(values: list[float], costs: list[float]):
    assert lasting(values, True) == pytest.approx(costs)
    assert lasting([-value for value in values], False) == pytest.approx(costs)


def test_one_alone(named: Named):
    named.saves([None, 100])
    result = named.bisect()
    assert not result.fell and len(result.known) == 1


def test_what_is_better(named: Named):
    for loss in (2.0, 2.0, 3.0):
        named.save({"loss": loss, "step_ms": 10 * loss})
    assert (
        named.bisect("step_ms").better == "lower" and named.bisect("step_ms").after == named.bisect("step_ms").points[2]
    )
    with pytest.raises(UsageError, match="'loss' does not say what is better") as caught:
        named.bisect("loss")
    assert caught.value.hint == "add --higher-is-better or --lower-is-better"
    assert named.bisect("loss", better="lower").after == named.bisect("loss", better="lower").points[2]
    assert named.bisect("loss", better="higher").after is None
    assert named.bisect("step_ms", better="higher").better == "higher"


def test_other_work(named: Named):
    named.save({"tok_s": 9}, tags={"dataset": "a", "batch": "8", "only": "x"}, run=RUN)
    model = replace(samples.fingerprint(), model=ModelHash("ab" * 32))
    named.save({"tok_s": 3}, tags={"dataset": "b", "batch": "8"}, run=RUN, fingerprint=model)
    work = named.bisect().work
    assert work and work.comparable == "no"
    assert [(change.name, change.a, change.b) for change in work.differences] == [("tag dataset", "a", "b")]
    assert work.same == ("command", "tag batch") and {"model", "tag only"} <= set(work.unknown)


def test_an_unknown_metric(named: Named):
    named.save({"loss": 1.0, "tok_s": 1.0})
    named.save({"loss": 1.0})
    with pytest.raises(NotFound, match="no snapshot of drafter has the metric 'tok'") as caught:
        named.bisect("tok")
    assert caught.value.facts == ("loss  in 2 snapshots", "tok_s  in 1 snapshot")
    assert caught.value.hint == "name one of them: `--metric loss`"


def test_no_metric_at_all(named: Named):
    named.saves([None])
    with pytest.raises(NotFound, match="no snapshot of drafter has a metric") as caught:
        named.bisect()
    assert caught.value.hint == "give one when you save: `cachekeeper snapshot drafter --metric tok_s=21500`"


@pytest.mark.parametrize(
    "options", [{"threshold": -0.1}, {"threshold": 1.0}, {"threshold": float("nan")}, {"better": "x"}]
)
def test_arguments_that_make_no_sense(named: Named, options: dict[str, Any]):
    named.saves([1.0])
    with pytest.raises(UsageError):
        named.bisect(**options)


def test_names(named: Named):
    named.saves([1.0])
    with pytest.raises(NotFound, match="no snapshot 'draftr'"):
        cachekeeper.bisect("draftr", "tok_s", store=named.store)
    with pytest.raises(NotFound, match="is no name"):
        cachekeeper.bisect(named.ids[0][:12], "tok_s", store=named.store)
