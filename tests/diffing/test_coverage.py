"""Entries and graphs that are gone, or new."""

from __future__ import annotations

import pytest

from cachekeeper.diffing.coverage import coverage
from cachekeeper.inventory.models import Coverage, Inventory

FULL = (Coverage("cuda:0", 7, 3, 0, 0, 40), Coverage("cuda:1", 7, 3, 0, 0, 40))


def words(entries, devices, others=({"fxgraph": 285}, FULL)):
    a, b = (Inventory(coverage=rows, entries=counts) for counts, rows in (others, (entries, devices)))
    return coverage(a, b).words


def test_the_drop_is_made_plain():
    found = words({"fxgraph": 62}, (Coverage("cuda:0", 3, 0, 0, 0, 9),))
    assert found == (
        "62 entries where there were 285: 4 of 7 forward graphs, every backward graph and device cuda:1 are gone",
        "by kind: fxgraph 62 (was 285)",
    )


def test_nothing_is_said_of_the_same():
    assert words({"fxgraph": 285}, FULL) == ()


def test_more_is_said_too():
    found = words({"fxgraph": 285}, FULL, ({"fxgraph": 1}, (Coverage("cuda:0", 7, 2),)))
    assert found[0] == "285 entries where there was 1: 1 backward graph and device cuda:1 are new"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Coverage("cuda:0", 6, 3), "1 of 7 forward graphs is gone"),
        (Coverage("cuda:0", 7, 0), "every backward graph is gone"),
        (
            Coverage("cuda:0", 0, 0, 10),
            "every forward graph and every backward graph are gone; 10 inference graphs are new",
        ),
    ],
)
def test_as_many_entries_with_other_graphs(row, said):
    assert words({"fxgraph": 1}, (row,), ({"fxgraph": 1}, (Coverage("cuda:0", 7, 3),))) == (said,)


def test_everything_gone_is_no_device_of_its_own():
    found = words({}, (), ({"fxgraph": 2}, (Coverage("cuda:0", 1, 1),)))
    assert found[0] == "0 entries where there were 2: the forward graph and the backward graph are gone"


def test_kinds_and_devices_of_one_side():
    found = coverage(
        Inventory(coverage=FULL[:1], entries={"fxgraph": 1}, bytes={"fxgraph": 10}),
        Inventory(coverage=FULL[1:], entries={"triton": 2}, bytes={"triton": 20}),
    )
    assert found.entries == {"fxgraph": (1, 0), "triton": (0, 2)}
    assert found.bytes == {"fxgraph": (10, 0), "triton": (0, 20)}
    assert [(pair.device, pair.a.forward, pair.b.forward) for pair in found.devices] == [
        ("cuda:0", 7, 0),
        ("cuda:1", 0, 7),
    ]
