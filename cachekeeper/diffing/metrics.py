"""Numbers of two runs: which way is better, and are they the same."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from .models import Metric

# Two runs of the same job differ by so much.
SAME = 0.01
_TIMES = 2

# A name is looked at as "_tok_s_", word by word. What is counted decides before the unit: steps_s is a rate, step_s a
# time. Of a unit that is not known nothing follows.
_MANY = (
    r"(?:[kmg]?toks|[kmg]?tokens|samples|imgs|images|its|iters|iterations|steps|reqs|requests|words|seqs|sequences|"
    r"frames|batches|rows|examples|items|records|queries|calls|prompts)"
)
_ONE = r"(?:[kmg]?tok|token|sample|img|image|it|iter|req|request|word|seq|frame|batch|row|example|item|query)"
_AMOUNT = r"(?:[kmgtp]?i?b|[kmgtp]?bytes|[kmgtpe]?flops?)"
_COUNTED = rf"(?:{_MANY}|{_ONE}|{_AMOUNT})"
_UNIT = r"(?:s|sec|second|ms|us|ns|min|minute|h|hour)"
_LONG_UNIT = r"(?:ms|msec|us|usec|ns|secs|seconds|minutes|mins|hours|hrs)"
_ANY_UNIT = rf"(?:{_UNIT}|{_LONG_UNIT})"
_SHARED = r"(?:gpu|device|chip|core|rank|node|host|user|worker|process|replica|card)"
_SIZES = r"(?:step|batch|sample|example|seq|sequence|image|img|request|prompt|word|epoch|expert|doc|document)"
# What goes with a number in seconds. A "loss_s" is no time.
_EVENT = (
    r"(?:step|epoch|cold|warm|warmup|start|startup|load|loading|compile|compiling|compilation|run|train|training|eval|"
    r"validation|inference|forward|backward|fwd|bwd|first|prefill|decode|save|saving|restore|init|setup|import|wall|"
    r"total|elapsed|job|loop|time|mean|avg|median|max|e2e|optimizer|dataloader|generate|generation|p\d\d)"
)
_RATE = re.compile(
    rf"_(?:throughput|goodput|bandwidth|mfu|hfu|fps|tps|qps|rps|[kmgt]i?bps|(?<!_total_)[kmgtpe]?flops)_"
    rf"|_{_COUNTED}_(?:s|sec)_"
    rf"|_{_COUNTED}_(?:per_)?{_SHARED}_(?:per_)?(?:s|sec|second)_"
    rf"|_{_COUNTED}_per_{_UNIT}_"
    rf"|_(?!{_ANY_UNIT}_|time_|latency_|per_)[a-z0-9]+_per_(?:s|sec|second)_"
    rf"|_[kmg]?tok(?:s|en|ens)?_per_(?!{_SIZES}s?_)"
)
_TIME = re.compile(
    rf"_{_ANY_UNIT}_per_|_latency_|_latencies_|_(?:time|duration|elapsed|runtime|walltime)_(?:$|per_|to_|{_ANY_UNIT}_)"
    rf"|_{_LONG_UNIT}_$|_{_EVENT}_(?:s|sec)_$|^_(?:sec|p\d\d)_$|_(?:ttft|tpot|itl)_"
)
_UNCLEAR = re.compile(rf"_{_MANY}_{_LONG_UNIT}_$|_(?:std|stddev|var|variance|count)_$")
_MEMORY = re.compile(r"_(?:memory|mem|vram|rss)_|_(?:bytes|[kmgt]i?b)_$")
_START = re.compile(r"_(?:cold|warm|warmup|compile|compiling|compilation|start|startup|load|first)_")
_STATISTIC = re.compile(r"_(?:mean|avg|average|median|min|max|total|final|last|best|p\d\d)_$")
_SLASH = re.compile(rf"/(?={_UNIT}$|{_ONE}$|step$|epoch$|{_SHARED}$|(?:s|sec|second)/)")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z]$)")
_LONGEST = 200


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
    """Which is better: "higher" for tok_s, "lower" for step_ms and peak_memory_gb, "" for loss and the unknown."""
    return {"rate": "higher", "time": "lower", "memory": "lower"}.get(_kind(_words(name)), "")


def is_memory(name: str) -> bool:
    """True for an amount of memory, of which no speed follows."""
    return _kind(_words(name)) == "memory"


def is_start(name: str) -> bool:
    """True for what a start takes, as cold_s and compile_seconds, False for the speed of what runs."""
    words = _words(name)
    return bool(_START.search(words)) and _kind(words) != "rate"


def _words(name: str) -> str:
    """ "Train/tokensPerSec" -> "_train_tokens_per_sec_"; "s/it" -> "_s_per_it_"."""
    plain = _SLASH.sub("_per_", _HUMP.sub("_", name[:_LONGEST]).lower())
    return f"_{re.sub(r'[^a-z0-9]+', '_', plain).strip('_')}_"


def _kind(words: str) -> str:
    """ "rate", "time", "memory", or ""."""
    if _UNCLEAR.search(words):
        return ""
    if _RATE.search(words):
        return "rate"
    plain = _STATISTIC.sub("_", words) if len(words) > len("_p99_") else words
    if _TIME.search(words) or _TIME.search(plain):
        return "time"
    return "memory" if _MEMORY.search(plain) else ""


def is_same(a: float, b: float) -> bool:
    """True for two numbers that differ by at most `SAME` of the greater one."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return True
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= SAME * max(abs(a), abs(b))


def in_words(metric: Metric) -> str:
    """From 100 tok_s to 86: "slower by 14 %"; from 0.1 step_ms to 0.45: "4.5 times slower".

    Of a number that is zero or negative nothing is so many times another: "slower" alone.
    """
    small, large = sorted((metric.a, metric.b))
    if small <= 0:
        return metric.verdict
    if large / small >= _TIMES:
        return f"{large / small:.1f} times {metric.verdict}"
    percent = (large - small) / metric.a * 100
    return f"{metric.verdict} by {percent:.{0 if percent >= 1.95 else 1}f} %"
