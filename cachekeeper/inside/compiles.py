"""What torch's caches say of each graph, taken from its structured trace without writing one.

torch hands every event of a compile to the handlers of one logger: key, hit or miss, reason, components, and the
thread. It is semi-public and lasting: tlparse reads the same. What an event lacks in some version stays empty.
Source: torch/_logging/_internal.py (`trace_structured`), torch/_inductor/codecache.py, torch/_dynamo/convert_frame.py.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..inductor.keys import device, direction
from ..models import Graph

_LOGGER = "torch.__trace"
_AOT_LOGGER = "torch._functorch._aot_autograd.autograd_cache"
_CACHE_EVENT = re.compile(r"(fx_graph|aotautograd)(?:_bundled)?_cache_(hit|miss|bypass)")
_CACHES = {"fx_graph": "fx", "aotautograd": "aot"}
_INDUCTOR = "before_post_grad_graph"  # told of a graph that Inductor compiles, and of none that it finds
_COMPONENT_LIMIT = 2000
_Compile = tuple[object, object]


class Compiles(logging.Handler):
    """Gathers what was compiled, from all threads, until it is taken.

    Args:
        compiling: called with the name of a function when its compile begins.
        failed: called with a function that torch gave up, as "step (train.py:12)", and why.
    """

    def __init__(
        self,
        compiling: Callable[[str], None] = lambda what: None,
        failed: Callable[[str, str], None] = lambda function, reason: None,
    ) -> None:
        super().__init__(logging.DEBUG)
        self._compiling = compiling
        self._failed = failed
        self._strings: dict[int, str] = {}
        self._functions: dict[_Compile, str] = {}
        self._of_frame: dict[object, str] = {}
        self.clear()

    def clear(self) -> None:
        """Forget what was gathered."""
        self._answers: list[Graph] = []
        self._unasked: list[tuple[_Compile, str]] = []
        self.recompiles: list[str] = []
        self.graph_breaks: list[str] = []

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """What the caches said; a graph that Inductor compiled without asking its cache missed, whatever they said."""
        unasked = [Graph("fx", "miss", "", "torch did not ask: the cache is off", name) for _, name in self._unasked]
        return (*self._answers, *unasked)

    def install(self) -> None:
        """Listen, from now on."""
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG)
        # torch lists the components of an AOTAutograd key only where this logger is at DEBUG; its lines are not wanted.
        aot = logging.getLogger(_AOT_LOGGER)
        level = aot.getEffectiveLevel()
        aot.setLevel(logging.DEBUG)
        aot.addFilter(lambda record: record.levelno >= level)

    def emit(self, record: logging.LogRecord) -> None:
        """Take one event. Whatever is wrong with it, the compile goes on."""
        metadata = getattr(record, "metadata", None)
        if not isinstance(metadata, Mapping):
            return
        try:
            self._take(metadata, getattr(record, "payload", None))
        except (AttributeError, KeyError, TypeError, ValueError, IndexError):
            return

    def _take(self, metadata: Mapping[str, Any], payload: object) -> None:
        compile_id = metadata.get("frame_id"), metadata.get("frame_compile_id")
        if "str" in metadata:
            text, number = metadata["str"]
            self._strings[number] = text
        elif "dynamo_start" in metadata:
            self._began(compile_id, metadata["dynamo_start"]["stack"])
        elif "compilation_metrics" in metadata:
            self._ended(compile_id, metadata["compilation_metrics"])
        elif _INDUCTOR in metadata:
            self._artifact(_INDUCTOR, compile_id, "")
        elif "artifact" in metadata and isinstance(payload, str):
            self._artifact(metadata["artifact"]["name"], compile_id, payload)

    def _began(self, compile_id: _Compile, stack: Sequence[Mapping[str, Any]]) -> None:
        files = [self._strings.get(frame["filename"], "?") for frame in stack]
        # For a module it is torch's own wrapper that is compiled: who called it says more.
        own = (number for number in reversed(range(len(stack))) if "/torch/" not in files[number])
        number = next(own, -1)
        name, line = stack[number]["name"], stack[number]["line"]
        self._functions[compile_id] = f"{name} ({files[number].rpartition('/')[2]}:{line})"
        self._of_frame[compile_id[0]] = self._functions[compile_id]
        self._compiling(self._functions[compile_id])

    def _ended(self, compile_id: _Compile, metrics: Mapping[str, Any]) -> None:
        """A frame that torch gives up runs as plain Python, for good: after a break in a loop or a `try`, too."""
        if metrics.get("fail_type"):
            name, path, line = (metrics.get(f"co_{word}") for word in ("name", "filename", "firstlineno"))
            # At the limit of recompiles torch has not yet noted what it was about to compile.
            known = self._of_frame.get(compile_id[0], "a function")
            function = f"{name} ({path.rpartition('/')[2]}:{line})" if name and path else known
            self._failed(function, _first_words(str(metrics.get("fail_reason") or metrics["fail_type"])))

    def _artifact(self, name: str, compile_id: _Compile, payload: str) -> None:
        function = self._functions.get(compile_id) or self._of_frame.get(compile_id[0], "")
        if match := _CACHE_EVENT.fullmatch(name):
            self._answers.append(_graph(_CACHES[match[1]], match[2], function, json.loads(payload)))
            # It is said after the graph was compiled.
            if match[1] == "fx_graph" and (compile_id, function) in self._unasked:
                self._unasked.remove((compile_id, function))
        elif name == _INDUCTOR:
            self._unasked.append((compile_id, function))
        elif name == "recompile_reasons":
            self.recompiles.append(_reason_of_recompile(payload, function))
        elif name == "dynamo_graph_break_reason":
            self.graph_breaks.append(_reason_of_break(payload, function))


def _graph(cache: str, state: str, function: str, event: Mapping[str, Any]) -> Graph:
    lines = tuple(line[:_COMPONENT_LIMIT] for line in event.get("components") or () if isinstance(line, str))
    detail = str(event.get("cache_status_detailed") or "")
    reason = str(event.get("cache_bypass_reason") or ("a guard failed" if detail == "guard_miss" else ""))
    reason, key = " ".join(reason.split()), str(event.get("key") or "")
    return Graph(cache, state, key, reason, function, direction(lines), device(lines), lines)


def _first_words(text: str) -> str:
    """The first two lines of a reason, in one."""
    return " ".join([line.strip() for line in text.splitlines() if line.strip()][:2])


def _reason_of_recompile(payload: str, function: str) -> str:
    """The guard that failed for what was compiled last; the others failed for what was compiled before."""
    try:
        reasons = json.loads(payload)
    except ValueError:
        reasons = payload
    first = reasons[0] if isinstance(reasons, list) and reasons else reasons
    said = " ".join(str(first).split())
    return f"{function}: {said}" if function else said


def _reason_of_break(payload: str, function: str) -> str:
    """The line that says why; the rest is a traceback."""
    lines = [line.strip() for line in payload.splitlines() if line.strip()]
    known = ("Explanation:", "Reason:", "Graph Break Reason:")
    said = next((line.partition(":")[2].strip() for start in known for line in lines if line.startswith(start)), "")
    said = said or (lines[-1] if lines else "no reason given")
    return f"{function}: {said}" if function else said
