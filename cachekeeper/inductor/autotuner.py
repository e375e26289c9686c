"""What Triton's own autotuner measured for a kernel of the job: `<name>.autotune.json`.

Only with `cache_results=True` or TRITON_CACHE_AUTOTUNING=1. Inductor's choices are in other files, and have no times.
Source: triton/runtime/autotuner.py, `Autotuner.check_disk_cache` (3.4 to 3.8).
"""

from __future__ import annotations

import json
from typing import NamedTuple

from .sources import LAUNCH_OPTIONS, Constant, is_constant

_LARGEST = 4 << 20
_MOST_CONFIGS = 10_000
_LONGEST = 1e9  # milliseconds
SUFFIX = "autotune.json"


class Fastest(NamedTuple):
    """The configuration that was chosen, as {"BLOCK": 1024, "num_warps": 4}, and the milliseconds of a call with it."""

    config: dict[str, Constant]
    milliseconds: float


def fastest(data: bytes) -> Fastest | None:
    """The fastest configuration in a file; None where none was measured, or the file cannot be read."""
    try:
        document = json.loads(data) if len(data) <= _LARGEST else None
    except (ValueError, RecursionError):
        return None
    timings = document.get("configs_timings") if isinstance(document, dict) else None
    if not isinstance(timings, list) or len(timings) > _MOST_CONFIGS:
        return None
    return min(filter(None, map(_row, timings)), key=lambda row: row.milliseconds, default=None)


def _row(pair: object) -> Fastest | None:
    """From a configuration and its median, 20th and 80th percentile, or its only time."""
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], dict):
        return None
    config, times = pair
    time = times[0] if isinstance(times, list) and times else times
    own = config.get("kwargs")
    # A configuration that failed has an endless time.
    if not isinstance(time, int | float) or isinstance(time, bool) or not 0 <= time < _LONGEST:
        return None
    if not isinstance(own, dict):
        return None
    given = {**own, **{name: config.get(name) for name in LAUNCH_OPTIONS}}
    return Fastest({name: value for name, value in given.items() if is_constant(value)}, float(time))
