"""Which plan a target has: what is given, what the file of settings says, and how a person calls the target."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence

from .config import warmups
from .errors import NotFound, UsageError
from .plans import DEVICE_KINDS, Axes, axes


def declared(target: str | None, given: Axes) -> tuple[str, Axes]:
    """The target, and its axes: those given, and where they say nothing those of the file of settings.

    Args:
        target: None for the one target of the file of settings.

    Raises:
        UsageError: there is not one, or its table makes no sense.
        NotFound: a device of a kind that there is not.
    """
    tables = warmups()
    if target is None:
        if len(tables) != 1:
            known = [f"declared  {for_people(name)}" for name in tables]
            raise UsageError("which target?", facts=known, hint="give one, as `train.py:step`")
        [target] = tables
    table = next((table for name, table in tables.items() if _same(name, target)), {})
    unknown = table.keys() - {"devices", "modes", "shapes", "order"}
    if unknown:
        raise UsageError(
            f"the plan of {for_people(target)} has no {sorted(unknown)[0]!r}",
            hint="it has devices, modes, shapes and order",
        )
    whole = given.over(axes(**table))  # type: ignore[arg-type]
    _check_devices(whole.devices)
    return target, whole


def _check_devices(devices: Sequence[str]) -> None:
    """Refuse what no machine has, before torch is imported: that takes seconds."""
    for device in devices:
        kind, _, index = device.partition(":")
        if kind not in DEVICE_KINDS:
            meant = difflib.get_close_matches(kind.replace("gpu", "cuda"), DEVICE_KINDS, n=1) or ["cuda"]
            raise NotFound(
                f"no device {device}: a warmup runs on {', '.join(DEVICE_KINDS[:-1])} and {DEVICE_KINDS[-1]}",
                hint=f"did you mean `{meant[0]}{f':{index}' if index and meant[0] != 'cpu' else ''}`?",
            )


def other_plans(target: str) -> tuple[list[str], str]:
    """The tables of the file of settings where none is of this target, a fact each, and the one perhaps meant by it.

    Returns:
        Both empty where one is of this target.
    """
    tables = warmups()
    if any(_same(name, target) for name in tables):
        return [], ""
    names = list(map(for_people, tables))
    close = difflib.get_close_matches(for_people(target), names, n=1)
    return [f'[warmup."{name}"] is of another target' for name in names], close[0] if close else ""


def _same(one: str, other: str) -> bool:
    return _absolute(one) == _absolute(other)


def _absolute(target: str) -> str:
    place, colon, name = target.rpartition(":")
    return os.path.abspath(os.path.expanduser(place)) + colon + name if place.endswith(".py") else target


def for_people(target: str) -> str:
    """A file below the working directory without that."""
    here = os.getcwd() + os.sep
    return target.removeprefix(here)
