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
        *((name, "higher") for name in ("tok_sec", "tokens/sec", "samples_sec", "steps/sec", "requests_s", "img_s")),
        *((name, "higher") for name in ("imgs/s", "frames_s", "batches_s", "words_s", "seqs_s", "tokens_per_gpu_s")),
        *((name, "higher") for name in ("tokens_per_ms", "gb_s", "fps", "tps", "qps", "rps", "tokens/s/gpu", "toks/s")),
        *((name, "higher") for name in ("steps_s", "train_samples_per_second", "p50_tok_s", "tokensPerSec", "it/s")),
        *((name, "lower") for name in ("ms_per_step", "sec_per_step", "s/it", "sec/step", "ms/token", "step_time")),
        *((name, "lower") for name in ("latency_ms", "latency_p99", "epoch_s", "start_s", "load_s", "duration")),
        *((name, "lower") for name in ("time_to_first_token", "step_ms_p50", "train_runtime", "stepTime", "token_ms")),
        *((name, "") for name in ("loss", "accuracy", "items", "epochs", "seed", "class", "")),
        *((name, "") for name in ("s", "loss_s", "bias_s", "loss_min", "tok_s_std", "tokens_ms", "total_flops")),
        *((name, "") for name in ("tokens_per_batch", "tokens", "status", "lr", "steps")),
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
        ("tok_s", 200, 0, "slower"),
        ("tok_s", 1000, -5, "slower"),
        ("tok_s", -5, 1000, "faster"),
        ("tok_s", -10, -5, "faster"),
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
    assert [is_memory(name) for name in ("peak_gb", "gb_per_s", "step_ms", "gb_s")] == [True, False, False, False]
