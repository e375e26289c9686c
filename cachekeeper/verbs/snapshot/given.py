"""What a person says of the work: numbers and tags."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...errors import UsageError
from ...manifest import wrong_metric, wrong_new_tag


def checked_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics, which a snapshot can have.

    Raises:
        UsageError: it cannot.
    """
    for key, value in metrics.items():
        if wrong := wrong_metric(key):
            raise UsageError(f"not a metric: {key[:80]!r}: {wrong}", hint="give a name, as `--metric tok_s=21500`")
        if not math.isfinite(value):
            raise UsageError(f"not a metric: {key}={value}", hint="give a number, as `--metric tok_s=21500`")
    return {key: float(value) for key, value in metrics.items()}


def checked_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags, which a snapshot can have.

    Raises:
        UsageError: it cannot.
    """
    found = {str(key): str(value) for key, value in tags.items()}
    if wrong := wrong_new_tag(found):
        raise UsageError(f"not a tag: {wrong}", hint="give a key and a value, as `--tag dataset=pile-v2`")
    return found
