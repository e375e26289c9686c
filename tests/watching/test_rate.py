"""Limits, on a clock of their own."""

from __future__ import annotations

import pytest

from cachekeeper.watching.rate import Bucket, Patience, Pause


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_bytes_flow_no_faster_than_the_rate_after_a_burst(clock: Clock):
    bucket = Bucket(100.0, clock)
    for _ in range(50):
        clock.now += bucket.take(70)
    assert clock.now == pytest.approx((50 * 70 - 100) / 100)


def test_a_file_larger_than_any_burst_passes(clock: Clock):
    bucket = Bucket(100.0, clock)
    assert bucket.take(1000) == pytest.approx(9.0)
    clock.now += 9.0
    assert bucket.take(50) == pytest.approx(0.5)


def test_what_vanishes_again_and_again_waits_longer_each_time(clock: Clock):
    patience = Patience(most=5, window=600.0, first=10.0, longest=600.0, clock=clock)
    waits = []
    for _ in range(14):
        patience.put_back(["busy"])
        waits.append(patience.wait("busy"))
        assert patience.wait("other") == 0
        clock.now += waits[-1]
        assert patience.wait("busy") == 0
    assert waits == [0, 0, 0, 0, 10, 20, 40, 80, 160, 320, 600, 600, 600, 600]


def test_after_a_quiet_time_it_begins_anew(clock: Clock):
    patience = Patience(clock=clock)
    for _ in range(5):
        patience.put_back(["a"])
    assert patience.wait("a") == 10
    clock.now += 3600
    for _ in range(4):
        patience.put_back(["a"])
        assert patience.wait("a") == 0


def test_seldom_is_never_too_often(clock: Clock):
    patience = Patience(clock=clock)
    for _ in range(50):
        patience.put_back(["daily"])
        assert patience.wait("daily") == 0
        clock.now += 86400


def test_a_failure_pauses_twice_as_long_each_time_until_it_works(clock: Clock):
    pause = Pause(first=1.0, longest=10.0, clock=clock)
    assert not pause.worked() and pause.left == 0
    assert [pause.failed() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    clock.now += 4
    assert pause.left == 6
    assert pause.worked() and pause.left == 0 and not pause.worked()
    assert pause.failed() == 1
