"""Settings that threads of a process do not share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ..telemetry import Log
from ..units import listed
from .advice import OF_A_THREAD
from .known import Near, Parsed, Settings
from .missed import Missed
from .reasons import Because


class Threads:
    """Which settings each thread of each process compiled with."""

    def __init__(self, settings: Settings, logs: Iterable[Log]) -> None:
        self._settings = settings
        self._used: dict[int, dict[str, set[int]]] = {}
        for log in logs:
            used = self._used.setdefault(id(log), defaultdict(set))
            for answer in log.compiled:
                if answer.graph.components:
                    used[answer.thread].add(settings.parse(answer.graph).settings)

    def apart(self, group: Sequence[tuple[Missed, Because]]) -> tuple[str, str]:
        """Threads with a new value of a setting, and threads of the same processes with the old one; "" for none."""
        here: set[str] = set()
        there: set[str] = set()
        for item, because in group:
            if (
                because.near
                and because.wanted
                and because.near.settings
                and {change.kind for change in because.changes} <= set(OF_A_THREAD)
            ):
                here.add(item.answer.thread)
                there.update(self._with_old_value(item, because.near, because.wanted))
        if not there or here & there:
            return "", ""
        return f"thread {listed(sorted(here))}", f"thread {listed(sorted(there))}"

    def _with_old_value(self, item: Missed, near: Near, wanted: Parsed) -> Iterator[str]:
        for thread, used in self._used[id(item.log)].items():
            for number in used:
                if all(
                    self._settings.value(number, name) == self._settings.value(near.parsed.settings, name)
                    for name in near.settings
                ):
                    yield thread
