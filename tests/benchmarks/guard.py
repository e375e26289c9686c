"""What the guard costs, against the same without it: `python -m tests.benchmarks.guard`, a table to stdout.

With and without take turns in small blocks, in one process where that is possible, so that a slow moment of the machine
hits both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

import cachekeeper.guard
from cachekeeper.guard import VARIABLE

from .report import table

REPOSITORY = Path(__file__).resolve().parents[2]
STARTUP = Path(cachekeeper.guard.__file__).with_name("startup")
BLOCKS, CALLS = 400, 400
STARTS, COMPILES = 60, 5


class Cost(NamedTuple):
    """Medians of what one took without the guard and with it, in seconds."""

    what: str
    without: float
    guarded: float
    unit: str


def calls() -> list[Cost]:
    """A call of a small compiled function, forward alone and with its backward; in this process."""
    import torch

    x, y = torch.ones(8), torch.ones(8, requires_grad=True)
    forward = torch.compile(lambda x: (x * 2).sin())
    backward = torch.compile(lambda x: (x * 2).cos().sum())
    cachekeeper.guard.install(telemetry=False)
    return [
        _calls("a compiled call", lambda: forward(x)),
        _calls("a compiled call and its backward", lambda: backward(y).backward()),
    ]


def _calls(what: str, call: Callable[[], object]) -> Cost:
    blocks: dict[bool, list[float]] = {False: [], True: []}
    for number in range(BLOCKS + 2):
        guarded = number % 2 == 1
        cachekeeper.guard.install(telemetry=False) if guarded else cachekeeper.guard.uninstall()
        call()
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        blocks[guarded].append((time.perf_counter() - began) / CALLS)
    # The first of each warms up.
    return Cost(what, median(blocks[False][1:]), median(blocks[True][1:]), "µs")


def processes(work: Path) -> list[Cost]:
    """Starts of Python: without torch, with torch imported, and a job that compiles and one that finds all compiled."""
    job = "import torch; torch.compile(lambda x: (x @ x).sin().sum())(torch.ones(8, 8, requires_grad=True)).backward()"
    return [
        _processes("a Python that never imports torch", "pass", work, STARTS, warm=True),
        _processes("a Python that imports torch", "import torch", work, COMPILES, warm=True),
        _processes("a job that finds its graphs", job, work, COMPILES, warm=True),
        _processes("a job that compiles its graphs", job, work, COMPILES, warm=False),
    ]


def _processes(what: str, source: str, work: Path, times: int, warm: bool) -> Cost:
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * times + 2 * warm):
        guarded = number % 2 == 1
        cache = work / ("warm" if warm else f"cold-{number}")
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", source], env=_environment(guarded, cache, work), check=True)
        if number >= 2 * warm:
            seconds[guarded].append(time.perf_counter() - began)
    return Cost(what, median(seconds[False]), median(seconds[True]), "ms")


def _environment(guarded: bool, cache: Path, work: Path) -> Mapping[str, str]:
    """As `cachekeeper run` gives it to a job."""
    own = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "CACHEKEEPER_RUNS": str(work / "runs")}
    if guarded:
        own |= {"PYTHONPATH": str(STARTUP), VARIABLE: json.dumps({})}
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | own


def main() -> None:
    """Measure, and print a table."""
    with tempfile.TemporaryDirectory(prefix="cachekeeper-bench-") as work:
        costs = [*calls(), *processes(Path(work))]
    scale = {"µs": 1e6, "ms": 1e3}
    rows = [
        (
            cost.what,
            *(f"{value * scale[cost.unit]:.2f} {cost.unit}" for value in (cost.without, cost.guarded)),
            f"{(cost.guarded - cost.without) * scale[cost.unit]:+.2f} {cost.unit}",
            f"{cost.guarded / cost.without:.3f}",
        )
        for cost in costs
    ]
    print(table(("median", "without", "guarded", "difference", "ratio"), rows))


if __name__ == "__main__":
    main()
