"""Runs a function for each step of a plan, one after the other, as the job would."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Thread
from typing import Any

from ..errors import UsageError
from ..models import StepReport
from ..plans import Step, shape_text
from .memory import synchronise
from .settings import differences, settings, settings_of_a_new_thread
from .target import Function, own_traceback, wanted_arguments
from .watch import Watch

_MOST_SETTINGS = 8


class Runner:
    """Runs steps.

    Args:
        function: the target.
        target: what it is called, for errors.
        watch: what looks on.
        in_thread: run each step in a worker thread of its own.
    """

    def __init__(self, function: Function, target: str, watch: Watch, in_thread: bool) -> None:
        self._function = function
        self._target = target
        self._watch = watch
        self._in_thread = in_thread
        self._backwards = _Backwards()
        self._told: set[str] = set()

    def run(self, number: int, step: Step, *before: str) -> StepReport:
        """Run one step; what it raises is in the report. `before` are notes on what was done before it."""
        report = StepReport(number, step.device, step.mode, shape_text(step.shape))
        notes = list(before)
        errors: list[str] = []
        with self._watch.step(report, errors) as filled:
            if self._in_thread:
                thread = Thread(target=self._call, args=(step, notes, errors), name=f"step {step}")
                thread.start()
                thread.join()
            else:
                self._call(step, notes, errors)
        notes += self._settings_notes()
        if not errors and not filled[0].calls:
            notes.append("no compiled graph was called: is torch.compile switched off, or its backend not Inductor?")
        return replace(filled[0], notes=tuple(notes), error="".join(errors))

    def _call(self, step: Step, notes: list[str], errors: list[str]) -> None:
        given = arguments_of(step)
        arguments = {name: given[name] for name in wanted_arguments(self._function, self._target, given)}
        self._backwards.count = 0
        try:
            with _on(step.device), _mode(step.mode):
                result = self._function(**arguments)
                if step.mode == "train":
                    self._backward(result, notes)
                del result
                synchronise(step.device)
        except BaseException as error:  # a thread would lose a KeyboardInterrupt that the function raises
            errors.append(own_traceback(error))

    def _backward(self, result: Any, notes: list[str]) -> None:
        """Take a scalar that was returned for the loss, where the function ran no backward itself."""
        if self._backwards.count:
            return
        if getattr(result, "requires_grad", False) and result.numel() == 1:
            result.backward()
        else:
            notes.append(
                "no backward was run in a train step: its graphs may not be warm; call backward() in the function, or "
                "return the loss"
            )

    def _settings_notes(self) -> list[str]:
        """Where a thread that is started now would compile with other settings than this one; each is told once."""
        found = [line for line in differences(settings(), settings_of_a_new_thread()) if line not in self._told]
        self._told.update(found)
        if len(found) > _MOST_SETTINGS:
            found = [*found[:_MOST_SETTINGS], f"and {len(found) - _MOST_SETTINGS} settings more"]
        return found


class _Backwards:
    """Counts the backward passes that were begun. Source: torch/autograd/__init__.py."""

    def __init__(self) -> None:
        import torch
        from torch._guards import detect_fake_mode

        self.count = 0
        # What `Tensor.backward`, `autograd.backward` and `autograd.grad` all call.
        name = "_engine_run_backward" if hasattr(torch.autograd, "_engine_run_backward") else "backward"
        original = getattr(torch.autograd, name)

        @functools.wraps(original)
        def counted(*arguments: Any, **options: Any) -> Any:
            # torch traces backward passes with tensors that have no data: that is no step of training.
            self.count += detect_fake_mode(arguments[0]) is None
            return original(*arguments, **options)

        setattr(torch.autograd, name, counted)


def arguments_of(step: Step) -> dict[str, Any]:
    """What a function can take of a step."""
    shape = {} if step.shape is None else {"shape": step.shape}
    return {"device": step.device, "mode": step.mode, **shape}


@contextlib.contextmanager
def _on(device: str) -> Iterator[None]:
    """The device is the current one, as in a job that has a device a thread."""
    import torch

    kind = device.partition(":")[0]
    current = getattr(getattr(torch, kind, None), "device", None)
    with current(device) if current is not None and kind != "cpu" else contextlib.nullcontext():
        yield


def _mode(mode: str) -> contextlib.AbstractContextManager[Any]:
    import torch

    known: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
        "infer": torch.no_grad,
        "train": torch.enable_grad,
    }
    return known.get(mode, contextlib.nullcontext)()


def default_devices() -> tuple[str, ...]:
    """Every GPU, or the CPU where there is none.

    Raises:
        UsageError: this Python has no torch.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError(
            f"torch is not installed in this Python ({sys.executable})",
            hint="start the warmup with the Python of the job: `/path/to/python -m cachekeeper warmup ...`",
        ) from None

    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return tuple(f"{kind}:{index}" for index in range(module.device_count()))
    return ("cpu",)


def missing_devices(steps: Sequence[Step], devices: Sequence[str]) -> list[str]:
    """The devices of a plan that this machine does not have."""
    kinds = {name.partition(":")[0] for name in devices}
    wanted = dict.fromkeys(step.device for step in steps)
    return [name for name in wanted if name not in {*devices, *kinds, "cpu"}]
