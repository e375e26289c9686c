"""One process of a warmup: what it is told, and what it tells."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..models import StepReport
from ..plans import Axes, Step, axes, shape_text


@dataclass(frozen=True)
class Job:
    """What a process is told.

    Attributes:
        target: "train.py:step" or "package.module:function".
        axes: what flags and files say; what they leave open, the decorator says.
        only_device: run the steps of this device alone; "": all.
        in_thread: run each step in a worker thread of its own.
        keep_going: go on after a step that raised.
        dry_run: tell the plan, and stop.
        directories: label -> directory to watch; "" is the cache directory.
    """

    target: str
    axes: Axes
    only_device: str = ""
    in_thread: bool = False
    keep_going: bool = False
    dry_run: bool = False
    directories: Mapping[str, str] | None = None


def encode_job(job: Job) -> str:
    """A job as a line of JSON."""
    return json.dumps(asdict(job))


def decode_job(line: str) -> Job:
    """The job of a line that `encode_job` made."""
    document = json.loads(line)
    return Job(**{**document, "axes": axes(**document["axes"])})


class Events:
    """The pipe to the process that started this one: a line of JSON an event. Whole lines, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._one_at_a_time = threading.Lock()

    def _tell(self, event: str, value: Any) -> None:
        # A surrogate, as in the name of a file that is no UTF-8, is no JSON for everybody.
        data = json.dumps({event: value}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        with self._one_at_a_time:  # a pipe takes only 4 KiB at once
            while data:
                data = data[os.write(self._descriptor, data) :]

    def plan(self, steps: Sequence[Step], source: str) -> None:
        """The steps to run, and the SHA-256 of the file that the target is in."""
        rows = [(step.device, step.mode, shape_text(step.shape)) for step in steps]
        self._tell("plan", {"steps": rows, "source": source})

    def begin(self, number: int) -> None:
        """A step begins."""
        self._tell("begin", number)

    def compiling(self, what: str) -> None:
        """A function is being compiled right now."""
        self._tell("compiling", what)

    def end(self, report: StepReport) -> None:
        """A step is over."""
        self._tell("end", asdict(report))

    def failed(self, code: str, message: str, details: Sequence[str], hint: str = "") -> None:
        """The process cannot go on."""
        self._tell("failed", {"code": code, "message": message, "facts": list(details), "hint": hint})

    def done(self) -> None:
        """Every step was run."""
        self._tell("done", True)
