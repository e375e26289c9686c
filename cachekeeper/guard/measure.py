"""A measure: a change to one module of torch, or the reason why it is not made."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

from ..inside.patches import Patches

ON = "on"
NOT_NEEDED = "not needed"
WAITING = "waits for torch"


class NotNeeded(Exception):
    """This torch does it by itself."""


class Cannot(Exception):
    """This torch lacks what the measure changes."""


class Measure(NamedTuple):
    """What is done to a module.

    Attributes:
        name: as `guard.measures()` gives it.
        module: is imported by torch or the job; the measure is taken right then.
        take: raises NotNeeded or Cannot.
    """

    name: str
    module: str
    take: Callable[[Patches, ModuleType], None]

    def state(self, patches: Patches, module: ModuleType) -> str:
        """Take the measure. Returns what became of it: "on", "not needed: why", "cannot: why"."""
        own = Patches()
        try:
            self.take(own, module)
        except NotNeeded as reason:
            own.undo()
            return f"{NOT_NEEDED}: {reason}"
        except Exception as reason:  # whatever it is, the job goes on
            own.undo()
            return f"cannot: {reason}"
        patches.then(own.undo)
        return ON
