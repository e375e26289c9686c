"""cachekeeper on more and more small files: does a file cost the same in a large cache as in a small one?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .comparison import Say, compare
from .measuring import Sample, middle
from .tools import CACHEKEEPER, cachekeeper

SIZES = (300, 3_000, 10_000, 50_000)
OPERATIONS = ("snapshot", "unchanged", "restore", "verify")


@dataclass(frozen=True)
class Growth:
    """One size of tree: operation -> the medians."""

    files: int
    bytes: int
    samples: dict[str, Sample]
    notes: list[str]


def grow(*, work: Path, runs: int, say: Say) -> list[Growth]:
    """Measure each size."""
    return [_measure(files, work / f"growth-{files}", runs, say) for files in SIZES]


def _measure(files: int, work: Path, runs: int, say: Say) -> Growth:
    say(f"growth: {files:,} files")
    result = compare([cachekeeper()], work=work, files=files, megabytes=0, runs=runs, only=OPERATIONS, say=say)
    samples = {operation: middle(samples) for (operation, _), samples in result.samples.items()}
    return Growth(result.files, result.bytes, samples, [f"{CACHEKEEPER}, {files:,} files: {x}" for x in result.notes])
