"""Which way a number is better, and whether it is the same."""

from __future__ import annotations

import math

import pytest

from cachekeeper.diffing.metrics import direction, in_words, is_memory, is_start, metrics


@pytest.mark.parametrize(
    ("name", "better"),
    [
        *((name, "higher") for name in ("tok_s", "ktok_s", "tokens_per_s", "samples_s", "throughput")),
        *((name, "higher") for name in ("mfu", "tflops", "train/tok_s", "steps_per_second", "gb_per_s", "it_s")),
        *((name, "lower") for name in ("step_ms", "step_s", "cold_s", "warm_seconds", "latency", "p99", "time")),
        *((name, "lower") for name in ("peak_memory", "memory_gb", "peak_gib")),
        *((name, "") for name in ("loss", "accuracy", "items", "epochs", "seed", "class", "")),
    ],
)
def test_direction(name, better):
    assert direction(name) == better


def only(name, a, b):
    (metric,) = metrics({name: a, "one side": 1.0}, {name: b})
    return metric.verdict


@pytest.mark.parametrize(
    ("name", "a", "b", "verdict"),
    [
        ("tok_s", 100, 99, "same"),
        ("tok_s", 100, 98.9, "slower"),
        ("tok_s", 98.9, 100, "faster"),
        ("step_ms", 100, 102, "slower"),
        ("step_ms", 102, 100, "faster"),
        ("step_ms", 0, 0, "same"),
        ("memory_gb", 1, 2, ""),
        ("loss", 1, 2, ""),
        ("loss", 1, 1, "same"),
        ("tok_s", math.nan, 1, ""),
        ("tok_s", math.nan, math.nan, "same"),
        ("tok_s", math.inf, 1, ""),
    ],
)
def test_verdict(name, a, b, verdict):
    assert only(name, a, b) == verdict


@pytest.mark.parametrize(
    ("name", "a", "b", "words"),
    [
        ("tok_s", 100, 86, "slower by 14 %"),
        ("tok_s", 100, 98.5, "slower by 1.5 %"),
        ("step_ms", 0.057, 0.257, "4.5 times slower"),
        ("tok_s", 100, 200, "2.0 times faster"),
        ("tok_s", 0, 200, "faster"),
    ],
)
def test_words(name, a, b, words):
    assert in_words(metrics({name: a}, {name: b})[0]) == words


def test_starts_and_memory():
    assert [is_start(name) for name in ("cold_s", "compile_seconds", "step_s", "warmup_tok_s")] == [
        True,
        True,
        False,
        False,
    ]
    assert [is_memory(name) for name in ("peak_gb", "gb_per_s", "step_ms")] == [True, False, False]
