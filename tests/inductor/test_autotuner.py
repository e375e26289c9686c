"""Times that Triton's own autotuner keeps."""

from __future__ import annotations

import json

import pytest

from cachekeeper.inductor.autotuner import fastest


def config(block: int, warps: int, stages: int = 3) -> dict[str, object]:
    """As `triton.Config.__dict__`."""
    options = {"num_warps": warps, "num_ctas": 1, "num_stages": stages, "maxnreg": None, "pre_hook": None}
    return {"kwargs": {"BLOCK": block}, **options, "ir_override": None}


def document(*timings: object) -> bytes:
    return json.dumps({"key": [4096, "torch.float32"], "configs_timings": timings}).encode()


def test_the_fastest_is_told_with_its_median():
    data = document(
        [config(256, 4), [0.031, 0.030, 0.033]],
        [config(1024, 8, stages=2), [0.012, 0.011, 0.014]],
        [config(2048, 8), [float("inf")] * 3],
    )
    found = fastest(data)
    assert found
    assert found.config == {"BLOCK": 1024, "num_warps": 8, "num_stages": 2, "num_ctas": 1}
    assert found.milliseconds == 0.012


def test_a_time_alone_is_one():
    found = fastest(document([config(256, 4), 0.5]))
    assert found
    assert found.milliseconds == 0.5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 100_000,
        b'{"configs_timings": 3}',
        document(),
        document([config(1, 1), [float("inf")] * 3], [config(1, 1), [float("nan")] * 3]),
        document([config(1, 1), []], [config(1, 1), True], [{"kwargs": 3}, 1.0], [3, 1.0], [config(1, 1)], None),
        document([config(1, 1), 10**400], [config(1, 1), -1.0]),
    ],
)
def test_what_has_no_time_is_none(data: bytes):
    assert fastest(data) is None


def test_a_constant_without_an_end_is_left_out():
    found = fastest(b'{"configs_timings": [[{"kwargs": {"A": NaN, "B": 1e999, "C": 0.5}, "num_warps": 4}, 0.5]]}')
    assert found and found.config == {"C": 0.5, "num_warps": 4}
