"""The words that people give a snapshot: its tags, and the names of its metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..masking import is_secret

_MOST_TAGS = 100
_TAG_LIMIT = 1000
# What a new snapshot is given; `wrong_tag` takes what earlier versions took.
_KEY = re.compile(r"\w[\w./-]{0,99}")
_KEY_OF_METRIC = re.compile(r"\w[\w./%-]{0,99}")


def wrong_new_tag(tags: Mapping[str, str]) -> str:
    """What is wrong with tags that a new snapshot is to have, in words; "" for nothing. No secret is in the words."""
    for key, value in tags.items():
        if not _KEY.fullmatch(key):
            return f"the key {key[:80]!r}: a key has 1 to 100 letters, digits, and . _ - /"
        if not value.isprintable():
            return f"the value of {key!r} has control characters"
        if is_secret(key, value):
            return f"{key!r} looks like a secret, and a snapshot is for others to read"
    return wrong_tag(tags)


def wrong_metric(key: str) -> str:
    """What is wrong with the name of a metric, in words; "" for nothing."""
    return "" if _KEY_OF_METRIC.fullmatch(key) else "a key has 1 to 100 letters, digits, and . _ - / %"


def wrong_tag(tags: Mapping[str, str]) -> str:
    """What is wrong with the tags of a snapshot, in words; "" for nothing."""
    if len(tags) > _MOST_TAGS:
        return f"{len(tags):,} tags, and {_MOST_TAGS} is the most"
    for key, value in tags.items():
        if not key or "=" in key or key != key.strip():
            return f"the key {key[:80]!r}"
        if len(key) + len(value) > _TAG_LIMIT:
            return f"{key[:80]!r} is longer than {_TAG_LIMIT:,} characters"
    return ""
