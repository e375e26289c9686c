"""Writers, readers and sweeps, interleaved at every storage operation, on a virtual clock: nothing is ever lost.

A failure prints GC_SEED and who did what: with that in the environment, the same history is run again, and only that.
GC_HISTORIES=20 runs twenty times as many, other ones.
"""

from __future__ import annotations

import os

import pytest

from cachekeeper import sweeping

from . import world
from .broken import BROKEN, changed

HISTORIES = 10_000
_PARTS = 4
_TIMES = int(os.environ.get("GC_HISTORIES", "1"))
_ONLY = os.environ.get("GC_SEED", "")
_FOUND_WITHIN = 3_000


def seeds(part: int, number: int) -> range:
    """The seeds of one part of the histories."""
    if _ONLY:
        return range(int(_ONLY), int(_ONLY) + 1)
    number = number * _TIMES // _PARTS
    return range(part * number, (part + 1) * number)


parts = pytest.mark.parametrize("part", range(_PARTS))


@parts
def test_nothing_is_lost_whoever_goes_first(part: int) -> None:
    chosen = seeds(part, HISTORIES)
    steps = world.run(chosen)
    assert steps > 30 * len(chosen)


@parts
def test_nothing_is_lost_in_long_histories(part: int) -> None:
    """One crowd after the other in one store: a thousand operations and more."""
    world.run(seeds(part, 120), actors=5, rounds=6)


@parts
def test_nothing_is_lost_where_somebody_deletes_leases(part: int) -> None:
    """All but those of sweeps: a writer whose lease is gone looks again, or fails; readers have no such way."""
    world.run(seeds(part, 800), unlocking=True)


def test_two_sweeps_that_do_not_see_each_other_do_no_harm() -> None:
    with changed((sweeping, "_refuse_two", lambda repository, others: None)):
        world.run(range(600), theme=world.Theme(("orphan", "orphan", "condemn"), ("sweep", "sweep", "write", "copy")))


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_protocol_is_found(how: str) -> None:
    with changed(*BROKEN[how].changes), pytest.raises(world.Broken, match="GC_SEED"):
        world.run(range(_FOUND_WITHIN), theme=BROKEN[how].theme)
