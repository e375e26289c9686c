"""`python -m cachekeeper.inside JOB DESCRIPTOR`: one process of a warmup."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Sequence

from ..errors import CachekeeperError, NotFound, UsageError
from ..plans import ATTRIBUTE, MODES, Axes, Step
from . import steps as running
from .job import Events, Job, decode_job
from .target import Function, load, source_hash, wanted_arguments
from .watch import Watch


def main(job: Job, events: Events) -> None:
    """Do a job and tell of it.

    Raises:
        CachekeeperError: the job makes no sense here.
    """
    watch = None if job.dry_run else Watch(job.directories or {}, events.compiling)
    if watch:
        watch.before_torch()
    function = load(job.target)
    devices = running.default_devices()
    plan = _steps(job, function, devices)
    if missing := running.missing_devices(plan, devices):
        there = ", ".join(devices)
        raise NotFound(f"no device {', '.join(missing)} on this machine", facts=[f"there is  {there}"])
    events.plan(plan, source_hash(function))
    if watch is None:
        return events.done()
    imported = watch.after_torch()
    runner = running.Runner(function, job.target, watch, job.in_thread)
    for number, step in enumerate(plan):
        if job.only_device in ("", step.device):
            events.begin(number)
            report, imported = runner.run(number, step, *filter(None, [imported])), ""
            events.end(report)
            if report.error and not job.keep_going:
                return events.done()
    return events.done()


def _steps(job: Job, function: Function, default_devices: tuple[str, ...]) -> tuple[Step, ...]:
    declared = job.axes.over(getattr(function, ATTRIBUTE, Axes()))
    axes = declared.over(Axes(default_devices, MODES))
    plan = axes.steps()
    takes = wanted_arguments(function, job.target, running.arguments_of(plan[0]))
    if "device" not in takes and len(axes.devices) > 1:
        raise UsageError(
            f"the plan has {len(axes.devices)} devices and {job.target} takes none",
            hint="give the function a parameter `device`, or name the one that it uses with --device",
        )
    return plan


def _start(arguments: Sequence[str]) -> int:
    faulthandler.enable()
    job, events = decode_job(arguments[0]), Events(int(arguments[1]))
    # As the user's own script would see it.
    sys.argv = [job.target.rpartition(":")[0]]
    # What the user's code prints is for people: standard output may carry JSON.
    os.dup2(2, 1)
    try:
        main(job, events)
    except CachekeeperError as error:
        events.failed(error.code, error.message, error.facts, error.hint)
        return 1
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(_start(sys.argv[1:]))
