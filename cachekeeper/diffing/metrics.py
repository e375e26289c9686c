"""Numbers of two runs: which way is better, and are they the same."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from .models import Metric

# Two runs of the same job differ by so much.
SAME = 0.01
_TIMES = 2

_HIGHER = re.compile(
    r"(^|_)(throughput|mfu|hfu|tflops|gflops|flops|(tok|tokens|ktok|samples|images|steps|it|iter|items|rows|req)_s|qps)"
    r"(_|$)|_per_s(ec|econd)?(_|$)"
)
_LOWER = re.compile(
    r"(_|^)(ms|us|ns|s|sec|secs|seconds|minutes)$|(^|_)(latency|time|duration|elapsed|p\d\d?)(_|$)|(_|^)(ttft|tpot)(_|$)"
)
_MEMORY = re.compile(r"(^|_)(memory|mem|bytes|kb|kib|mb|mib|gb|gib)(_|$)")
_START = re.compile(r"(^|_)(cold|warm|warmup|compile|compiling|compilation|start|startup|load|first)(_|$)")


def metrics(a: Mapping[str, float], b: Mapping[str, float]) -> tuple[Metric, ...]:
    """The numbers that both sides have, by name."""
    return tuple(_metric(name, a[name], b[name]) for name in sorted(a.keys() & b.keys()))


def _metric(name: str, a: float, b: float) -> Metric:
    better = direction(name)
    if is_same(a, b):
        return Metric(name, a, b, better, "same")
    if not better or is_memory(name) or not (math.isfinite(a) and math.isfinite(b)):
        return Metric(name, a, b, better, "")
    return Metric(name, a, b, better, "faster" if (b > a) == (better == "higher") else "slower")


def direction(name: str) -> str:
    """Which is better: "higher" for tok_s, "lower" for step_ms and peak_memory_gb, "" for loss."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower())
    if _HIGHER.search(plain):
        return "higher"
    return "lower" if _MEMORY.search(plain) or _LOWER.search(plain) else ""


def is_memory(name: str) -> bool:
    """True for an amount of memory, of which no speed follows."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower())
    return bool(_MEMORY.search(plain)) and not _HIGHER.search(plain)


def is_start(name: str) -> bool:
    """True for what a start takes, as cold_s and compile_seconds, False for the speed of what runs."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower())
    return bool(_START.search(plain)) and not _HIGHER.search(plain)


def is_same(a: float, b: float, within: float = SAME) -> bool:
    """True for two numbers that differ by at most so much of the greater one."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return True
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= within * max(abs(a), abs(b))


def in_words(metric: Metric) -> str:
    """From 100 tok_s to 86: "slower by 14 %"; from 0.1 step_ms to 0.45: "4.5 times slower"."""
    small, large = sorted((abs(metric.a), abs(metric.b)))
    if not metric.a or not small:
        return metric.verdict
    if large / small >= _TIMES:
        return f"{large / small:.1f} times {metric.verdict}"
    percent = abs(metric.b - metric.a) / abs(metric.a) * 100
    return f"{metric.verdict} by {percent:.{0 if percent >= 1.95 else 1}f} %"
