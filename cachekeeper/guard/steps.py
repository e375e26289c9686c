"""Whole first steps, one thread at a time: for a torch where a measure cannot be taken."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator


class FirstSteps:
    """Lets a thread step alone until a step of its own compiles nothing; then it steps along with others of that kind.

    A thread that only calls what is compiled must not run beside one that compiles, either: before torch 2.14 most
    errors hit functions that were compiled already. So there are two kinds of steps: a first step excludes all others,
    and the rest go together. When no thread is in first steps, a step costs two short locks.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._alone: int | None = None
        self._waiting = 0
        self._local = threading.local()
        self.compiles = 0

    def compiled(self) -> None:
        """Take note that this process compiled something, in whatever thread: a backward has one of its own."""
        self.compiles += 1

    @contextlib.contextmanager
    def step(self, timeout: float = 600.0) -> Iterator[None]:
        """Do one whole step, forward and backward, in this context.

        Nothing in it may wait for another thread that is to take a step.

        Raises:
            TimeoutError: other threads did not end their steps in `timeout` seconds.
        """
        if getattr(self._local, "within", False):  # a step in a step is a part of it
            yield
            return
        settled = getattr(self._local, "settled", False)
        before = self._enter(settled, timeout)
        self._local.within = True
        try:
            yield
        finally:
            self._local.within = False
            self._local.settled = self.compiles == before
            self._leave(settled)

    def _enter(self, settled: bool, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        with self._changed:
            self._waiting += not settled
            try:
                while self._must_wait(settled):
                    if not self._changed.wait(deadline - time.monotonic()):
                        raise TimeoutError(self._why(timeout))
                if settled:
                    self._inside += 1
                else:
                    self._alone = threading.get_ident()
            finally:
                self._waiting -= not settled
                self._changed.notify_all()
            return self.compiles

    def _must_wait(self, settled: bool) -> bool:
        # Those that wait to step alone go first, or they might never.
        return self._alone is not None or (self._waiting > 0 if settled else self._inside > 0)

    def _why(self, timeout: float) -> str:
        who = f"thread {self._alone} steps alone" if self._alone else f"{self._inside} threads are in a step"
        return (
            f"guard.first_steps() waited {timeout:.0f} s: {who}. A step must not wait for another thread's step: take "
            "barriers and collectives between threads out of it"
        )

    def _leave(self, settled: bool) -> None:
        with self._changed:
            if settled:
                self._inside -= 1
            else:
                self._alone = None
            self._changed.notify_all()
