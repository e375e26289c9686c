"""Says it loudly, or raises, when something runs uncompiled."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from .errors import RanUncompiled

MODES = ("warn", "error", "off")
_MOST = 20


class Alarm:
    """What is said on standard error, each thing once.

    Args:
        mode: "warn", "error" (raise in the thread, before it runs where that is possible), or "off".
        tell: called with the function and the reason, each time.
    """

    def __init__(self, mode: str, tell: Callable[[str, str], None]) -> None:
        self._mode = mode
        self._tell = tell
        self._said: set[tuple[str, str]] = set()
        self._local = threading.local()

    def found(self, function: str, reason: str, for_good: bool) -> None:
        """Something runs uncompiled.

        Raises:
            RanUncompiled: in mode "error", where it has not begun yet.
        """
        if for_good:  # told from within a compile, which would take an error for its own
            pending = getattr(self._local, "pending", {})
            self._local.pending = {function: reason} | pending
            return
        self._tell(function, reason)
        if self._mode == "error":
            raise RanUncompiled(_words(function, reason))
        self._warn(function, reason)

    def compile_ended(self) -> None:
        """Say, or raise, what the compile that is over in this thread gave up.

        Raises:
            RanUncompiled: in mode "error".
        """
        pending: dict[str, str] = getattr(self._local, "pending", {})
        self._local.pending = {}
        for function, reason in pending.items():
            self._tell(function, reason)
            if self._mode == "error":
                raise RanUncompiled(_words(function, reason))
            self._warn(function, reason)

    def compile_raised(self) -> None:
        """The compile in this thread raised: what it gave up does not run at all."""
        self._local.pending = {}

    def _warn(self, function: str, reason: str) -> None:
        if self._mode == "off" or (function, reason) in self._said or len(self._said) > _MOST:
            return
        self._said.add((function, reason))
        more = "" if len(self._said) <= _MOST else " (and more, which are not said)"
        say(f"UNCOMPILED  {_words(function, reason)}{more}")


def say(text: str) -> None:
    """A line on standard error, for the person who reads the job's log."""
    try:
        sys.stderr.write(f"cachekeeper: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


def _words(function: str, reason: str) -> str:
    return f"{function} in thread {threading.current_thread().name} runs uncompiled: {reason}"
