"""A watch in a child process, for as long as this process lives.

The child is forked, so that it reads the store in whatever way this process would. It blocks every signal: those of the
terminal and of the group are for the job. It ends when the other end of its pipe is closed, as by `kill -9` of this
process, and what it has to tell is in a file in memory.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import NoReturn

from .telling import Event, Tell, of_error

Work = Callable[[int, Tell], object]

_PATIENCE = 10.0
_BETWEEN = 0.01


class Beside:
    """Work that goes on in a child.

    Args:
        work: called in the child with a descriptor that says when to end, as for `Noticer`, and whom to tell.

    Raises:
        OSError: there can be no child.
    """

    def __init__(self, work: Work) -> None:
        self._report = os.memfd_create("watch", os.MFD_CLOEXEC)
        ours, self._ours = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            _be_the_child(work, ours, self._report)
        os.close(ours)

    def wait_for_word(self) -> None:
        """Wait until it has told something or ended, but not for ever: from then on it looks."""
        deadline = time.monotonic() + _PATIENCE
        while not os.fstat(self._report).st_size and time.monotonic() < deadline:
            if os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return
            time.sleep(_BETWEEN)

    def finish(self) -> list[Event]:
        """End it, and hear what it had to tell; the last event is "ended", unless it was killed."""
        os.close(self._ours)
        with contextlib.suppress(ChildProcessError):
            deadline = time.monotonic() + _PATIENCE
            while not os.waitpid(self._pid, os.WNOHANG)[0]:
                if time.monotonic() > deadline:
                    os.kill(self._pid, signal.SIGKILL)  # which does the cache no harm
                    os.waitpid(self._pid, 0)
                    break
                time.sleep(_BETWEEN)
        with open(self._report, "rb") as report:
            report.seek(0)
            return [event for line in report if (event := _parsed(line)) is not None]


def _be_the_child(work: Work, until: int, report: int) -> NoReturn:
    """Work, and leave nothing of the parent's undone or done twice."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        _close_all_but(until, report)
        gc.enable()
        os.environ.pop("NOTIFY_SOCKET", None)  # the service is the job
        tell = _writer(report)
        try:
            work(until, tell)
        except Exception as error:
            code, reason = of_error(error)
            tell(Event("trouble", reason, code=code))
    finally:
        os._exit(0)


def _close_all_but(*kept: int) -> None:
    """Close what was inherited: whoever waits for the end of a pipe must not wait for us."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _writer(report: int) -> Tell:
    def tell(event: Event) -> None:
        with contextlib.suppress(OSError):
            os.write(report, json.dumps(asdict(event)).encode() + b"\n")

    return tell


def _parsed(line: bytes) -> Event | None:
    """None for a line that was cut when the child was killed."""
    try:
        values = json.loads(line)
        return Event(**values | {"entries": tuple(values["entries"])})
    except (ValueError, TypeError, KeyError):
        return None
