"""When a name moves to a new snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachekeeper.manifest import Count
from cachekeeper.naming import is_much_smaller
from tests import samples

KINDS = ("fxgraph", "aotautograd", "triton", "native")
OLD = samples.header(counts={kind: Count(4, 4, 4) for kind in (*KINDS, "other")})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("left", "smaller"), [(0, True), (1, True), (2, False), (4, False)])
def test_less_than_half_of_what_a_job_needs(kind: str, left: int, smaller: bool):
    new = replace(OLD, counts={**OLD.counts, kind: Count(left, left, left)})
    assert is_much_smaller(new, OLD) is smaller


def test_a_kind_that_no_job_needs_may_go():
    assert not is_much_smaller(replace(OLD, counts={**OLD.counts, "other": Count()}), OLD)


def test_less_than_half_of_all():
    many = samples.header(counts={"other": Count(9, 9, 9)})
    assert is_much_smaller(samples.header(counts={"other": Count(4, 4, 4)}), many)
    assert not is_much_smaller(samples.header(counts={"other": Count(5, 5, 5)}), many)
