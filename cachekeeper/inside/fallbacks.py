"""What ran uncompiled in a step of a warmup, and how often compiled graphs were called."""

from __future__ import annotations

from typing import Any

from .patches import Patches
from .uncompiled import Uncompiled, before, now


class Fallbacks:
    """Gathers fallbacks until they are cleared; a function that stays uncompiled is told again for every step."""

    def __init__(self) -> None:
        self._for_good: dict[str, str] = {}
        self.calls = 0
        self.clear()

    def clear(self) -> None:
        """Forget what passes; keep what stays as it is."""
        self.calls = 0
        self._found: list[str] = []
        self._told = len(self._for_good)

    def failed(self, function: str, reason: str) -> None:
        """Take note of a function that torch gave up; it runs as plain Python from now on."""
        self._for_good.setdefault(function, f"{function} runs uncompiled: {reason}")

    def raised(self) -> None:
        """What failed since the last `clear` was raised: it did not run at all."""
        self._for_good = dict(list(self._for_good.items())[: self._told])

    @property
    def found(self) -> tuple[str, ...]:
        """What ran uncompiled since the last `clear`."""
        lines = list(self._for_good.values())
        since = [f"{line} (since an earlier step)" for line in lines[: self._told]]
        return tuple(dict.fromkeys([*since, *lines[self._told :], *self._found]))

    def install(self) -> None:
        """Watch, from now on."""
        patches = Patches()
        Uncompiled(self.note).install(patches)
        now(
            "torch._inductor.output_code",
            lambda module: before(patches, module, "CompiledFxGraph.__call__", self._count_call),
        )

    def note(self, function: str, reason: str, for_good: bool) -> None:
        """Take note of what runs uncompiled now."""
        if for_good:
            self.failed(function, reason)
        else:
            self._found.append(f"{function} runs uncompiled: {reason}")

    def _count_call(self, arguments: tuple[Any, ...]) -> None:
        self.calls += 1
