"""Limits: so many bytes a second, and patience with what vanishes again and again."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

Clock = Callable[[], float]


class Bucket:
    """A token bucket: `rate` bytes a second, with a burst of what one second gives.

    Args:
        rate: bytes a second.
        clock: seconds that only grow.
    """

    def __init__(self, rate: float, clock: Clock = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._tokens = rate
        self._filled = clock()

    def take(self, size: int) -> float:
        """Spend so many bytes; the seconds to wait before going on. One thing may be larger than any burst."""
        now = self._clock()
        self._tokens = min(self._rate, self._tokens + (now - self._filled) * self._rate) - size
        self._filled = now
        return max(0.0, -self._tokens / self._rate)


class Patience:
    """Which entries may be put back now: one that vanishes again and again has to wait, longer each time.

    Args:
        most: how often an entry may be put back within `window` seconds without a wait.
        first, longest: seconds of the first wait, and of the longest; each is twice the one before.
    """

    def __init__(
        self,
        most: int = 5,
        window: float = 600.0,
        first: float = 10.0,
        longest: float = 600.0,
        clock: Clock = time.monotonic,
    ) -> None:
        self.most, self._window, self._first, self._longest = most, window, first, longest
        self._clock = clock
        self._times: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=most))
        self._waits: dict[str, float] = {}
        self._until: dict[str, float] = {}

    def put_back(self, entries: Iterable[str]) -> None:
        """Entries were put back, or an attempt failed: either counts."""
        now = self._clock()
        for entry in entries:
            self._times[entry].append(now)
            if self._is_restless(entry, now):
                wait = min(self._longest, self._waits.get(entry, self._first / 2) * 2)
                self._waits[entry], self._until[entry] = wait, now + wait
            else:
                self._waits.pop(entry, None)
                self._until.pop(entry, None)

    def _is_restless(self, entry: str, now: float) -> bool:
        times = self._times[entry]
        return len(times) == self.most and now - times[0] <= self._window + self._waits.get(entry, 0.0) * self.most

    def wait(self, entry: str) -> float:
        """Seconds until an entry may be put back; 0 where it may be now."""
        return max(0.0, self._until.get(entry, 0.0) - self._clock())


class Pause:
    """How long to leave a thing alone that fails: twice as long each time, until it works.

    Args:
        first, longest: seconds.
    """

    def __init__(self, first: float = 5.0, longest: float = 600.0, clock: Clock = time.monotonic) -> None:
        self._first, self._longest, self._clock = first, longest, clock
        self._wait = 0.0
        self._until = 0.0

    def failed(self) -> float:
        """It failed; the seconds until it should be tried again."""
        self._wait = min(self._longest, self._wait * 2 or self._first)
        self._until = self._clock() + self._wait
        return self._wait

    def worked(self) -> bool:
        """It worked; True where it had failed before."""
        failed, self._wait, self._until = self._wait > 0, 0.0, 0.0
        return failed

    @property
    def left(self) -> float:
        """Seconds until it should be tried."""
        return max(0.0, self._until - self._clock())
