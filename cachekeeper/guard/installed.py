"""The guard of this process: what it changes in torch, and takes back."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from ..inside.compiles import Compiled, Compiles
from ..inside.patches import Patches
from ..inside.uncompiled import Uncompiled
from ..models import Graph
from . import compiling, flags, tracing
from .alarm import Alarm, say
from .imports import Callback, forget, when_imported
from .measure import NOT_NEEDED, ON, WAITING, Measure
from .settings import Carrying
from .steps import FirstSteps
from .telling import Telling, WarmOrNothing

_MOST_SETTINGS = 8


@dataclass(frozen=True)
class Options:
    """How the guard is to behave.

    Attributes:
        fallback: "warn", "error" or "off", when something runs uncompiled.
        carry: give worker threads the settings of the thread that started them.
        telemetry: write down what compiles.
        assert_warm: end the job at the first miss.
        measures: names of the measures to take; empty: all. For finding out which of them heals what.
    """

    fallback: str = "warn"
    carry: bool = False
    telemetry: bool = True
    assert_warm: bool = False
    measures: tuple[str, ...] = ()


class Guard:
    """Watches torch from the moment it is imported; imports nothing of it itself."""

    def __init__(self, options: Options, steps: FirstSteps) -> None:
        self._options = options
        self._steps = steps
        self._patches = Patches()
        self._waiting: list[Callback] = []
        self._telling = Telling(options.telemetry)
        self._alarm = Alarm(options.fallback, self._telling.fallback)
        self._warm = WarmOrNothing(self._telling.directory) if options.assert_warm else None
        self._compiles = Compiles(failed=self._failed, answered=self._answered, ended=self._ended)
        self._said: set[str] = set()
        self.measures: dict[str, str] = {}

    def install(self) -> None:
        """Take every measure as soon as the module that it changes is imported."""
        carrying = Carrying(self._options.carry, self._settings_differ)
        for measure in (
            Measure("a tracing flag for each thread", tracing.SYMBOLIC_TRACE, tracing.flag_of_each_thread),
            Measure("one tracer at a time", tracing.SYMBOLIC_TRACE, tracing.one_tracer),
            Measure("compile and export flags of each thread", flags.COMPILER, flags.flags_of_each_thread),
            Measure("autograd on the compiling thread", tracing.CONVERT_FRAME, compiling.autograd_on_this_thread),
            Measure("backward compiled with forward", compiling.GRAPH_COMPILE, compiling.backward_with_forward),
            Measure("settings of each thread compared", tracing.CONVERT_FRAME, carrying.take),
            Measure("fallbacks noticed", tracing.CONVERT_FRAME, self._around_compiles),
        ):
            if not self._options.measures or measure.name in self._options.measures:
                self.measures[measure.name] = WAITING
                self._when(measure.module, functools.partial(self._take, measure))
        self._when("torch", self._listen)

    def uninstall(self) -> None:
        """Put torch back as it was."""
        forget(self._waiting)
        self._patches.undo()
        self._telling.close()

    def _when(self, module: str, callback: Callback) -> None:
        self._waiting.append(callback)
        when_imported(module, callback)

    def _take(self, measure: Measure, module: ModuleType) -> None:
        state = self.measures[measure.name] = measure.state(self._patches, module)
        self._telling.measures(self.measures)
        if not state.startswith((ON, NOT_NEEDED)):
            say(f"{measure.name}: {state}. If threads compile, take `with cachekeeper.guard.first_steps():`")

    def _listen(self, torch: ModuleType) -> None:
        self._compiles.install(self._patches)
        Uncompiled(self._alarm.found).install(self._patches, self._when)

    def _around_compiles(self, patches: Patches, module: ModuleType) -> None:
        compiling.around_compiles(patches, module, self._a_compile)

    @contextlib.contextmanager
    def _a_compile(self) -> Iterator[None]:
        self._compiles.listen()  # torch drops its handlers when its logging is set up again
        try:
            yield
        except BaseException:
            self._alarm.compile_raised()
            raise
        self._alarm.compile_ended()

    def _failed(self, function: str, reason: str) -> None:
        self._alarm.found(function, reason, True)

    def _answered(self, graph: Graph) -> None:
        if self._warm is not None and graph.state == "miss":
            self._telling.answered(self._compiles.take())
            self._telling.close()
            self._warm.stop(graph)

    def _ended(self, compiled: Compiled) -> None:
        self._steps.compiled()
        answers = self._compiles.take()
        self._telling.compiled(compiled, answers)
        for answer in answers:  # a graph that was compiled without asking a cache
            self._answered(answer.graph)

    def _settings_differ(self, lines: Sequence[str], carried: bool) -> None:
        done = "carried over" if carried else "set it in each thread too, or let the guard carry it over"
        shown = "; ".join(lines[:_MOST_SETTINGS]) + (" ..." if len(lines) > _MOST_SETTINGS else "")
        text = f"{shown}; {done}"
        self._telling.note(text)
        if text not in self._said:
            self._said.add(text)
            say(f"SETTINGS  {text} (in thread {threading.current_thread().name})")
