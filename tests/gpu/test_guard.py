"""Threads that train through flex_attention on one GPU and on two, with no warmup: without the guard, and with it.

    CACHEKEEPER_STRESS_ROUNDS=20 python -m pytest tests/gpu/test_guard.py -s

runs that many rounds on one GPU and half as many on two (default: 4). The first is cold, the others warm. Each is a
fresh process: some 8 s warm, 30 s cold, and the deadline where it hangs.
"""

from __future__ import annotations

import os
import sys

import pytest

from ..guard.stress import Caches, Result, Row, one, table
from ..guard.stress_job import Round
from .test_warmup import GPUS, two_gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPUS == 0, reason="no NVIDIA GPU"),
    pytest.mark.timeout(580),
]
# Read here: no test sees CACHEKEEPER_ variables.
ROUNDS = int(os.environ.get("CACHEKEEPER_STRESS_ROUNDS", "4"))
TRIES = 3
DEVICES = {1: ("cuda:0",), 2: ("cuda:0", "cuda:1")}


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Caches:
    return Caches(tmp_path_factory.mktemp("stress"))


def row(gpus: int, threads: int, guard: str, start: str) -> Row:
    deadline = 40.0 if guard == "off" else 100.0
    return Row(sys.executable, start, Round("train", threads, DEVICES[gpus], guard, deadline, ("flex",), (256, 512)))


def go(row: Row, caches: Caches) -> Result:
    result = one(row, caches.directory(row))
    said = result.said
    print(row.start, row.round.guard, f"{result.seconds} s", result.problems[:4], said.get("graphs"), said.get("facts"))
    for error in said.get("errors", [])[:1]:
        print(error["traceback"])
    if said.get("stacks"):
        print(said["stacks"][-6000:])
    return result


def without(gpus: int, threads: int, caches: Caches) -> Result:
    """The first bad one of a few warm rounds: a warm cache is not enough."""
    results = []
    for _ in range(TRIES):
        results.append(go(row(gpus, threads, "off", "warm"), caches))
        if results[-1].problems:
            break
    print(table(results))
    return results[-1]


def guarded(gpus: int, threads: int, caches: Caches, rounds: int) -> list[Result]:
    starts = ["cold", *["warm"] * (rounds - 1)]
    results = [go(row(gpus, threads, "on", start), caches) for start in starts]
    print(table(results))
    return results


class TestOneGpu:
    def test_without_the_guard_three_threads_fail(self, caches: Caches):
        assert without(1, 3, caches).problems

    def test_with_it_they_do_not(self, caches: Caches):
        results = guarded(1, 3, caches, ROUNDS)
        assert [result.problems for result in results] == [[]] * ROUNDS
        # One thread has both shapes, two have the longer one; each calls them twice at the least.
        assert all(result.said["facts"]["compared"] == 2 * (1 + 2 + 1) for result in results)
        assert all(result.said["graphs"]["miss"] == 0 for result in results[1:])


@two_gpus
class TestTwoGpus:
    def test_without_the_guard_four_threads_fail(self, caches: Caches):
        assert without(2, 4, caches).problems

    def test_with_it_they_do_not(self, caches: Caches):
        results = guarded(2, 4, caches, max(2, ROUNDS // 2))
        assert all(result.problems == [] for result in results)
        assert all(result.said["graphs"]["miss"] == 0 for result in results[1:])
