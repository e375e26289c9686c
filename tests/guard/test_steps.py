"""Whole first steps, one thread at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from cachekeeper.guard.steps import FirstSteps


class Job:
    """Threads that step; what overlapped is counted."""

    def __init__(self) -> None:
        self.steps = FirstSteps()
        self.running: set[str] = set()
        self.overlaps: set[tuple[str, ...]] = set()
        self.lock = threading.Lock()

    def step(self, compiles: bool, within: Callable[[], object] = lambda: time.sleep(0.02)) -> None:
        name = threading.current_thread().name + (" compiles" if compiles else "")
        with self.steps.step(timeout=20):
            with self.lock:
                self.running.add(name)
                self.overlaps.add(tuple(sorted(self.running)))
            within()
            if compiles:
                self.steps.compiled()
            with self.lock:
                self.running.remove(name)

    def together(self, *jobs: Callable[[], object]) -> None:
        threads = [threading.Thread(target=job, name=str(number)) for number, job in enumerate(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)


def test_what_compiles_is_alone_and_the_rest_together():
    job = Job()
    meet = threading.Barrier(3)

    def trains() -> None:
        job.step(compiles=True)
        job.step(compiles=False)  # alone still: it might have compiled
        # All three are within at once, or this never ends.
        job.step(compiles=False, within=lambda: meet.wait(20))

    job.together(trains, trains, trains)
    assert ("0", "1", "2") in job.overlaps
    assert all(len(names) == 1 for names in job.overlaps if any("compiles" in name for name in names))


def test_a_step_that_compiles_later_makes_the_next_one_alone():
    job = Job()
    for compiles in (True, False, True):
        job.step(compiles)
    held = threading.Event()
    entered = threading.Event()

    def other() -> None:
        job.step(compiles=False)
        entered.set()

    def first() -> None:
        with job.steps.step():
            held.set()
            assert not entered.wait(0.3)

    thread = threading.Thread(target=lambda: (held.wait(10), other()))
    thread.start()
    first()
    thread.join(10)
    assert entered.is_set()


def test_first_steps_do_not_wait_for_ever_for_a_chance():
    """Others that are settled go on and on; one that wants to be alone comes through."""
    job = Job()
    done = threading.Event()

    def settled() -> None:
        job.step(compiles=False)
        while not done.is_set():
            job.step(compiles=False, within=lambda: time.sleep(0.005))

    def late() -> None:
        time.sleep(0.2)
        job.step(compiles=True)
        done.set()

    job.together(settled, settled, late)
    assert done.is_set()


def test_a_step_within_a_step_is_a_part_of_it():
    job = Job()
    with job.steps.step(timeout=1), job.steps.step(timeout=1):
        pass
    job.step(compiles=True)


def test_an_error_lets_others_go_on():
    job = Job()
    with pytest.raises(ValueError, match="no"), job.steps.step():
        raise ValueError("no")
    job.together(lambda: job.step(compiles=True))


def test_a_step_that_waits_for_another_is_told_why():
    job = Job()
    held, over = threading.Event(), threading.Event()

    def holder() -> None:
        with job.steps.step():
            held.set()
            over.wait(20)

    thread = threading.Thread(target=holder)
    thread.start()
    held.wait(10)
    with (
        pytest.raises(TimeoutError, match=r"steps alone\. A step must not wait for another thread"),
        job.steps.step(0.2),
    ):
        pass
    over.set()
    thread.join(10)
    job.step(compiles=True)  # who gave up leaves nothing behind
