"""One fresh Python that does a job, and tells what it does."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import CachekeeperError, CheckFailed, NotFound, UsageError
from ..inside.job import Job, encode_job

_INSIDE = f"{__package__.rpartition('.')[0]}.inside"
_TICK = 0.5
_GRACE = 5.0
_LINGER = 30.0
_ERRORS: Mapping[str, type[CachekeeperError]] = {kind.code: kind for kind in (UsageError, NotFound)}


class Process:
    """A fresh Python that does a job, in a session of its own, so that all that it started ends with it."""

    def __init__(self, job: Job, variables: Mapping[str, str]) -> None:
        self._job = job
        self._variables = variables
        self.code = 0

    def __enter__(self) -> Process:
        self._pipe, inner = os.pipe()
        command = [sys.executable, "-m", _INSIDE, encode_job(self._job), str(inner)]
        try:
            self._child = subprocess.Popen(
                command,
                env={**os.environ, **self._variables, "PYTHONPATH": _with_this_package()},
                stdin=subprocess.DEVNULL,
                pass_fds=(inner,),
                start_new_session=True,
                stdout=2,
            )
        finally:
            os.close(inner)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self._end(signal.SIGTERM)
        try:
            self.code = self._child.wait(_LINGER if error is None else _GRACE)
        except subprocess.TimeoutExpired:
            self._end(signal.SIGKILL)
            self._child.wait()
        self._end(signal.SIGTERM)  # compile workers that are still there
        os.close(self._pipe)

    def _end(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)

    def events(self) -> Iterator[tuple[str, Any]]:
        """What the process tells, and ("tick", None) while it says nothing."""
        buffer = b""
        while True:
            if not select.select([self._pipe], [], [], _TICK)[0]:
                if self._child.poll() is not None and not select.select([self._pipe], [], [], 0)[0]:
                    return  # a grandchild may still hold the pipe
                yield "tick", None
                continue
            data = os.read(self._pipe, 1 << 16)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                yield from json.loads(line).items()


def _with_this_package() -> str:
    """PYTHONPATH by which the process finds this package, from wherever it was imported."""
    ours = str(Path(__file__).parents[2])
    before = os.environ.get("PYTHONPATH", "")
    return before if ours in before.split(os.pathsep) else os.pathsep.join(filter(None, (before, ours)))


def failure(value: Mapping[str, Any]) -> CachekeeperError:
    """The error that a process told of."""
    error = _ERRORS.get(value["code"], CachekeeperError)(value["message"], facts=value["facts"], hint=value["hint"])
    error.code = value["code"]
    return error


def death(code: int, step: str, planned: bool) -> CachekeeperError:
    """The error for a process that ended without a word.

    Args:
        step: the one that it was in, as "cuda:0 train 512"; "" for none.
        planned: it had told its plan.
    """
    kind = CheckFailed if step else CachekeeperError
    where = f"in step {step}" if step else "between two steps" if planned else "at its start"
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    hint = (
        "what it wrote is above; SIGKILL is most often the kernel, out of memory"
        if code == -signal.SIGKILL
        else ("what it wrote is above; run the function by hand to see more")
    )
    return kind(f"the process of the warmup {how} {where}", hint=hint)
