"""Results in order, with bounded work ahead."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from cachekeeper.errors import NotFound
from cachekeeper.workers import in_child, ordered, thread_count


def test_results_come_in_order():
    def slow_first(number: int) -> int:
        time.sleep(0.02 if number % 5 == 0 else 0)
        return number * number

    assert list(ordered(slow_first, range(40))) == [number * number for number in range(40)]


def test_nothing_is_nothing():
    assert list(ordered(str, [])) == []


def test_work_is_done_side_by_side():
    together = threading.Barrier(2, timeout=10)
    list(ordered(lambda _: together.wait(), range(2)))


def test_no_more_is_taken_than_can_be_held():
    taken: list[int] = []

    def items():
        for number in range(1000):
            taken.append(number)
            yield number

    results = ordered(int, items(), ahead=2)
    next(results)
    assert len(taken) <= thread_count() * 2
    results.close()


def test_an_error_comes_out_and_ends_it():
    started: list[int] = []

    def fail(number: int) -> None:
        started.append(number)
        if number == 3:
            raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        list(ordered(fail, range(10_000)))
    assert len(started) < 1000


forking = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # a test process may have threads


@forking
def test_work_in_a_child_comes_back():
    here = os.getpid()
    wait = in_child(lambda: (os.getpid(), {"a": 1}))
    child, value = wait()
    assert child != here and value == {"a": 1}


@forking
def test_an_error_in_a_child_comes_back_whole():
    def work() -> None:
        raise NotFound("no snapshot", facts=["one"], hint="look")

    with pytest.raises(NotFound) as raised:
        in_child(work)()
    assert (raised.value.message, raised.value.facts, raised.value.hint) == ("no snapshot", ("one",), "look")


@forking
def test_the_work_of_a_child_that_was_killed_is_done_here():
    here = os.getpid()

    def work() -> int:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    assert in_child(work)() == here
