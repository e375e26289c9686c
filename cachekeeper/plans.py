"""The plan of a warmup: the product of devices, modes and shapes, declared beside the function that runs them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .errors import UsageError
from .units import spaced

Shape = int | tuple[int, ...] | str
Function = TypeVar("Function", bound=Callable[..., Any])

ATTRIBUTE = "__cachekeeper_plan__"
AXES = ("device", "mode", "shape")
MODES = ("train", "infer")
# What `inside` looks for; AMD's GPUs are "cuda" to torch.
DEVICE_KINDS = ("cpu", "cuda", "xpu")
_NUMBERS = re.compile(r"[0-9]+(?:x[0-9]+)*")
_DEVICE = re.compile(r"[a-z]+(?::[0-9]+)?")
_AXIS = re.compile("|".join(AXES))
_MODE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Step:
    """One call of the function: a device as "cuda:0", a mode as "train", a shape or None where the plan has none."""

    device: str
    mode: str
    shape: Shape | None = None

    def __str__(self) -> str:
        return spaced(self.device, self.mode, shape_text(self.shape))


@dataclass(frozen=True)
class Axes:
    """What a plan is the product of; an empty axis is one that nobody declared.

    Attributes:
        order: names of axes, the one that changes last first; those left out follow in the order of AXES.
    """

    devices: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = ()
    order: tuple[str, ...] = ()

    def over(self, other: Axes) -> Axes:
        """These axes, and those of `other` where these say nothing."""
        return Axes(
            self.devices or other.devices,
            self.modes or other.modes,
            self.shapes or other.shapes,
            self.order or other.order,
        )

    def steps(self) -> tuple[Step, ...]:
        """Every step; without an order all of one device before the next, and of one mode before the next."""
        shapes: Sequence[Shape | None] = self.shapes or (None,)
        values: dict[str, Sequence[Any]] = dict(zip(AXES, (self.devices, self.modes, shapes), strict=True))
        order = tuple(dict.fromkeys((*self.order, *AXES)))
        products = itertools.product(*(values[name] for name in order))
        return tuple(Step(**dict(zip(order, each, strict=True))) for each in products)


def axes(
    devices: Iterable[object] = (),
    modes: Iterable[object] = (),
    shapes: Iterable[object] = (),
    order: Iterable[object] = (),
) -> Axes:
    """Axes from what a person wrote: in a decorator, a TOML table or flags.

    Raises:
        UsageError: one of them is no device, no mode or no shape, or no axis.
    """
    return Axes(
        tuple(dict.fromkeys(_matching(device, _DEVICE, "a device, as `cuda:0`") for device in _listed(devices))),
        tuple(dict.fromkeys(_matching(mode, _MODE, "a mode, as `train` or `infer`") for mode in _listed(modes))),
        tuple(dict.fromkeys(_shape(shape) for shape in _listed(shapes))),
        tuple(dict.fromkeys(_matching(name, _AXIS, "an axis: device, mode or shape") for name in _listed(order))),
    )


def _listed(values: object) -> list[object]:
    if isinstance(values, (str, int)):
        return [values]
    try:
        return list(values)  # type: ignore[call-overload, no-any-return]
    except TypeError:
        raise UsageError(f"not a list: {values!r}", hint='write `devices = ["cuda:0", "cuda:1"]`') from None


def _matching(value: object, pattern: re.Pattern[str], what: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise UsageError(f"not {what}: {value!r}")
    return value


def _shape(value: object) -> Shape:
    """512, "512" -> 512; [8, 512], "8x512" -> (8, 512); any other word stays one."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value and value.isprintable():
        if not _NUMBERS.fullmatch(value):
            return value
        numbers = tuple(map(int, value.split("x")))
        return numbers[0] if len(numbers) == 1 else numbers
    if isinstance(value, (list, tuple)) and value and all(type(item) is int and item >= 0 for item in value):
        return tuple(value)
    raise UsageError(f"not a shape: {value!r}", hint="write a number, as 512, numbers as 8x512, or a word")


def shape_text(shape: Shape | None) -> str:
    """A shape as on the command line: 512, "8x512"; "" for none."""
    if shape is None:
        return ""
    return "x".join(map(str, shape)) if isinstance(shape, tuple) else str(shape)


def plan(
    *,
    devices: Iterable[object] = (),
    modes: Iterable[object] = (),
    shapes: Iterable[object] = (),
    order: Iterable[object] = (),
) -> Callable[[Function], Function]:
    """Declare what `cachekeeper warmup` runs a function with. It is called as before everywhere else.

    The function takes any of `device` (a str), `mode` (a str) and `shape` (an int, a tuple of ints or a str), and runs
    the real model for one step. In mode "infer" it is called under `torch.no_grad()`; in "train" with gradients, and a
    scalar that it returns is taken for the loss: its backward is run, where the function has run none itself.

    Args:
        devices: as ["cuda:0", "cuda:1"]; default: every GPU, or the CPU where there is none.
        modes: default: ["train", "infer"].
        shapes: as [512, (8, 2048)]; default: the function is called without one.
        order: as ["shape", "mode"]: every mode of one shape before the next shape. Where torch makes sizes dynamic by
            itself, which graphs there are depends on it: take the job's. Default: ["device", "mode", "shape"].
    """
    declared = axes(devices, modes, shapes, order)

    def declare(function: Function) -> Function:
        setattr(function, ATTRIBUTE, declared)
        return function

    return declare
