"""What this machine found out about a place, kept for a while in the user's cache directory. It may be lost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time

from ..config import cache_home, keep_in_cache


class Remembered:
    """One answer, True or False, or None where it is not known or too old.

    Args:
        topic: what was asked.
        place: of what.
        seconds: how long an answer holds.
    """

    def __init__(self, topic: str, place: str, seconds: float) -> None:
        self._path = cache_home() / topic / f"{hashlib.sha256(os.fsencode(place)).hexdigest()[:32]}.json"
        self.value: bool | None = None
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(self._path.read_bytes())
            if 0 <= time.time() - document["when"] < seconds and isinstance(document["answer"], bool):
                self.value = document["answer"]

    def save(self, answer: bool) -> None:
        """Remember an answer; a failure to write is no matter."""
        self.value = answer
        keep_in_cache(self._path, json.dumps({"answer": answer, "when": time.time()}).encode())
