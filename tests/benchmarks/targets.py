"""What the project promises of itself, and whether this run kept it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

from .comparison import Comparison
from .diff import OTHERS, Difference
from .measuring import middle
from .s3 import AWS, S3, S5CMD
from .startup import Startup
from .tools import BORG, CACHEKEEPER, RESTIC, TAR

MEMORY_BYTES = 250e6
START_SECONDS = 0.25
STORED_RATIO = 1.05
PULL_REQUESTS = 100
DIFF_FILES, DIFF_SECONDS = 50_000, 3

_MISSING = "not measured"


@dataclass(frozen=True)
class Verdict:
    """One target: in words, the figure, and "met", "missed" or "not measured"."""

    target: str
    figure: str
    verdict: str


def verdicts(
    comparison: Comparison | None, s3: S3 | None, startup: Startup | None, differences: Sequence[Difference]
) -> Iterator[Verdict]:
    """Judge every target that something was measured for."""
    if comparison:
        yield _at_most(comparison, "snapshot", TAR, 1.2, "pack with")
        yield _faster(comparison, "snapshot", RESTIC, 2)
        yield _faster(comparison, "snapshot", BORG, 3)
        yield _faster(comparison, "unchanged", RESTIC, 3)
        yield _faster(comparison, "changed", RESTIC, 3)
        yield _at_most(comparison, "restore", TAR, 1.1, "unpack with")
        yield _faster(comparison, "verify", RESTIC, 3, " check --read-data")
        yield _stored(comparison)
        yield _memory(comparison)
    if s3:
        yield from _s3(s3)
    for step in differences:
        if step.files >= DIFF_FILES:
            yield from _differs(step)
    if startup:
        yield from _starts(startup)


def _s3(s3: S3) -> Iterator[Verdict]:
    for operation in ("snapshot", "restore"):
        yield _faster(s3.comparison, operation, AWS, 20)
        yield _faster(s3.comparison, operation, RESTIC, 3)
        yield _at_most(s3.comparison, operation, S5CMD, 1.2, "the time of")
    target, counted = (
        f"{s3.comparison.operations['restore']}: below {PULL_REQUESTS} requests",
        s3.requests.get("restore"),
    )
    if counted is None:
        yield Verdict(target, "", _MISSING)
    else:
        total = sum(counted.values())
        yield Verdict(target, f"{total} ({s3.comparison.files:,} files)", _word(total < PULL_REQUESTS))


def _at_most(comparison: Comparison, operation: str, peer: str, limit: float, words: str) -> Verdict:
    target = f"{comparison.operations[operation]}: at most {limit}x {words} {peer}"
    ratio = _ratio(comparison, operation, CACHEKEEPER, peer)
    return Verdict(target, *_judged(ratio, "x", ratio is not None and ratio[0] <= limit))


def _faster(comparison: Comparison, operation: str, peer: str, factor: float, words: str = "") -> Verdict:
    target = f"{comparison.operations[operation]}: {factor}x faster than {peer}{words}"
    ratio = _ratio(comparison, operation, peer, CACHEKEEPER)
    return Verdict(target, *_judged(ratio, "x faster", ratio is not None and ratio[0] >= factor))


Ratio = tuple[float, float, float]


def _ratio(comparison: Comparison, operation: str, above: str, below: str) -> Ratio | None:
    """The ratio of the medians, and the least and the largest of the runs."""
    over, under = ([sample.wall for sample in comparison.samples.get((operation, tool), ())] for tool in (above, below))
    if not over or not under:
        return None
    # A tool that was run less often is compared with every run of the other.
    pairs = zip(over, under, strict=True) if len(over) == len(under) else product(over, under)
    each = [a / b for a, b in pairs]
    return median(over) / median(under), min(each), max(each)


def _judged(ratio: Ratio | None, unit: str, met: bool) -> tuple[str, str]:
    if ratio is None:
        return "", _MISSING
    middle_one, least, largest = ratio
    return f"{middle_one:.2f}{unit} (runs {least:.2f} to {largest:.2f})", _word(met)


def _word(met: bool) -> str:
    return "met" if met else "**missed**"


def _stored(comparison: Comparison) -> Verdict:
    target = "stored: at most tar.zst + 5 %"
    ours, theirs = comparison.stored.get(CACHEKEEPER), comparison.stored.get(TAR)
    if not ours or not theirs:
        return Verdict(target, "", _MISSING)
    ratio = median(ours) / median(theirs)
    return Verdict(target, f"{(ratio - 1) * 100:+.1f} %", _word(ratio <= STORED_RATIO))


def _memory(comparison: Comparison) -> Verdict:
    target = f"memory: below {MEMORY_BYTES / 1e6:.0f} MB"
    peaks = {
        operation: middle(samples).peak
        for (operation, tool), samples in comparison.samples.items()
        if tool == CACHEKEEPER
    }
    if not peaks:
        return Verdict(target, "", _MISSING)
    most = max(peaks, key=lambda operation: peaks[operation])
    return Verdict(
        target, f"{peaks[most] / 1e6:.0f} MB ({comparison.operations[most]})", _word(peaks[most] < MEMORY_BYTES)
    )


def _differs(step: Difference) -> Iterator[Verdict]:
    for other, title in OTHERS.items():
        if samples := step.samples.get((other, CACHEKEEPER)):
            wall = middle(samples).wall
            target = f"diff of {step.files:,} files, {title}: below {DIFF_SECONDS} s"
            yield Verdict(target, f"{wall:.2f} s", _word(wall < DIFF_SECONDS))


def _starts(startup: Startup) -> Iterator[Verdict]:
    for command, samples in startup.samples.items():
        if command in startup.aimed and samples:
            wall = middle(samples).wall
            yield Verdict(f"{command}: below {START_SECONDS} s", f"{wall:.3f} s", _word(wall < START_SECONDS))
