"""What torch's caches say of each graph, taken from its structured trace without writing one.

torch hands every event of a compile to the handlers of one logger: key, hit or miss, reason, components, and the
thread. It is semi-public and lasting: tlparse reads the same. What an event lacks in some version stays empty.
Source: torch/_logging/_internal.py (`trace_structured`), torch/_inductor/codecache.py, torch/_dynamo/convert_frame.py.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..inductor.keys.components import device, direction
from ..models import Graph
from ..units import without_addresses
from .patches import Patches

_LOGGER = "torch.__trace"
_AOT_LOGGER = "torch._functorch._aot_autograd.autograd_cache"
_CACHE_EVENT = re.compile(r"(fx_graph|aotautograd)(?:_bundled)?_cache_(hit|miss|bypass)")
_CACHES = {"fx_graph": "fx", "aotautograd": "aot"}
_INDUCTOR = "before_post_grad_graph"  # told of a graph that Inductor compiles, and of none that it finds
_COMPONENT_LIMIT = 2000
UNASKED = "torch did not ask: the cache is off"
_Compile = tuple[object, object]
# torch sends the name of each file once in a process, whoever listens by then.
_STRINGS: dict[int, str] = {}


class Answer(NamedTuple):
    """What a cache said, to which thread (its number), and the seconds that compiling took, where torch says."""

    graph: Graph
    thread: int
    seconds: float | None = None


class Compiled(NamedTuple):
    """A function, or its backward, that was compiled; `failed` is why torch gave it up."""

    function: str
    seconds: float
    failed: str
    backward: bool


class Compiles(logging.Handler):
    """Gathers what was compiled, from all threads, until it is taken. What is called is called in the thread itself.

    Args:
        compiling: called with the name of a function when its compile begins.
        failed: called with a function that torch gave up, as "step (train.py:12)", and why.
        answered: called when a cache has said something.
        ended: called when a compile is over.
    """

    def __init__(
        self,
        compiling: Callable[[str], None] = lambda what: None,
        failed: Callable[[str, str], None] = lambda function, reason: None,
        answered: Callable[[Graph], None] = lambda graph: None,
        ended: Callable[[Compiled], None] = lambda compiled: None,
    ) -> None:
        super().__init__(logging.DEBUG)
        self._compiling = compiling
        self._failed = failed
        self._answered = answered
        self._compile_ended = ended
        self._functions: dict[_Compile, str] = {}
        self._of_frame: dict[object, str] = {}
        self.clear()

    def clear(self) -> None:
        """Forget what was gathered."""
        self._answers: list[Answer] = []
        self._unasked: list[tuple[_Compile, str, int]] = []
        self.recompiles: list[str] = []
        self.graph_breaks: list[str] = []

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """What the caches said; a graph that Inductor compiled without asking its cache missed, whatever they said."""
        return tuple(answer.graph for answer in self._all())

    def _all(self) -> list[Answer]:
        missed = [Answer(Graph("fx", "miss", "", UNASKED, name), thread) for _, name, thread in self._unasked]
        return [*self._answers, *missed]

    def take(self) -> list[Answer]:
        """What the caches said to this thread, once."""
        here = threading.get_ident()
        taken = [answer for answer in self._all() if answer.thread == here]
        self._answers = [answer for answer in self._answers if answer.thread != here]
        self._unasked = [item for item in self._unasked if item[2] != here]
        return taken

    def install(self, patches: Patches | None = None) -> None:
        """Listen, from now on, until the patches are taken back."""
        self.listen()
        # torch lists the components of an AOTAutograd key only where this logger is at DEBUG; its lines are not wanted.
        aot = logging.getLogger(_AOT_LOGGER)
        before, level = aot.level, aot.getEffectiveLevel()
        unwanted = _Above(level)
        aot.setLevel(logging.DEBUG)
        aot.addFilter(unwanted)
        if patches is not None:
            patches.then(lambda: logging.getLogger(_LOGGER).removeHandler(self))
            patches.then(lambda: aot.setLevel(before))
            patches.then(lambda: aot.removeFilter(unwanted))

    def listen(self) -> None:
        """Be among torch's handlers, which are all dropped when torch's logging is set up again."""
        logger = logging.getLogger(_LOGGER)
        if self not in logger.handlers:
            logger.addHandler(self)
            logger.setLevel(logging.DEBUG)

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
            _STRINGS[number] = text
        elif "dynamo_start" in metadata:
            self._began(compile_id, metadata["dynamo_start"]["stack"])
        elif "compilation_metrics" in metadata:
            self._ended(compile_id, metadata["compilation_metrics"])
        elif "bwd_compilation_metrics" in metadata:
            self._ended(compile_id, metadata["bwd_compilation_metrics"], backward=True)
        elif _INDUCTOR in metadata:
            self._artifact(_INDUCTOR, compile_id, "")
        elif "artifact" in metadata and isinstance(payload, str):
            self._artifact(metadata["artifact"]["name"], compile_id, payload)

    def _began(self, compile_id: _Compile, stack: Sequence[Mapping[str, Any]]) -> None:
        files = [_STRINGS.get(frame["filename"], "?") for frame in stack]
        # For a module it is torch's own wrapper that is compiled: who called it says more.
        own = (number for number in reversed(range(len(stack))) if "/torch/" not in files[number])
        number = next(own, -1)
        name, line = stack[number]["name"], stack[number]["line"]
        self._functions[compile_id] = f"{name} ({files[number].rpartition('/')[2]}:{line})"
        self._of_frame[compile_id[0]] = self._functions[compile_id]
        self._compiling(self._functions[compile_id])

    def _ended(self, compile_id: _Compile, metrics: Mapping[str, Any], backward: bool = False) -> None:
        """A frame that torch gives up runs as plain Python, for good: after a break in a loop or a `try`, too."""
        name, path, line = (metrics.get(f"co_{word}") for word in ("name", "filename", "firstlineno"))
        # At the limit of recompiles torch has not yet noted what it was about to compile.
        known = self._function(compile_id) or "a function"
        why = ""
        if metrics.get("fail_type"):
            function = f"{name} ({path.rpartition('/')[2]}:{line})" if name and path else known
            why = _first_words(str(metrics.get("fail_reason") or metrics["fail_type"]))
            self._failed(function, why)
        self._compile_ended(Compiled(known, _seconds(metrics), why, backward))

    def _function(self, compile_id: _Compile) -> str:
        return self._functions.get(compile_id) or self._of_frame.get(compile_id[0], "")

    def _artifact(self, name: str, compile_id: _Compile, payload: str) -> None:
        function, thread = self._function(compile_id), threading.get_ident()
        if match := _CACHE_EVENT.fullmatch(name):
            event = json.loads(payload)
            answer = Answer(_graph(_CACHES[match[1]], match[2], function, event), thread, _taken(event))
            self._answers.append(answer)
            # It is said after the graph was compiled.
            if match[1] == "fx_graph" and (compile_id, function, thread) in self._unasked:
                self._unasked.remove((compile_id, function, thread))
            self._answered(answer.graph)
        elif name == _INDUCTOR:
            self._unasked.append((compile_id, function, thread))
        elif name == "recompile_reasons":
            self.recompiles.append(_reason_of_recompile(payload, function))
        elif name == "dynamo_graph_break_reason":
            self.graph_breaks.append(_reason_of_break(payload, function))


class _Above(logging.Filter):
    """Lets through what would have come without us."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= self._level


def _seconds(metrics: Mapping[str, Any]) -> float:
    """What a compile took; older versions have the one or the other."""
    micro = metrics.get("duration_us")
    return micro / 1e6 if micro else float(metrics.get("entire_frame_compile_time_s") or 0.0)


def _taken(event: Mapping[str, Any]) -> float | None:
    """What compiling a graph took; torch does not say it of one that was found."""
    nano = event.get("time_taken_ns")
    return nano / 1e9 if isinstance(nano, (int, float)) else None


def _graph(cache: str, state: str, function: str, event: Mapping[str, Any]) -> Graph:
    lines = tuple(line[:_COMPONENT_LIMIT] for line in event.get("components") or () if isinstance(line, str))
    guard = ": ".join(filter(None, ("a guard failed", str(event.get("cache_status_guard_expr") or ""))))
    failed = guard if event.get("cache_status_detailed") == "guard_miss" else ""
    reason = str(event.get("cache_bypass_reason") or failed)
    reason, key = without_addresses(" ".join(reason.split())), str(event.get("key") or "")
    return Graph(cache, state, key, reason, function, direction(lines), device(lines), lines)


def _first_words(text: str) -> str:
    """The first two lines of a reason, in one."""
    return without_addresses(" ".join([line.strip() for line in text.splitlines() if line.strip()][:2]))


def _reason_of_recompile(payload: str, function: str) -> str:
    """The guard that failed for what was compiled last; the others failed for what was compiled before."""
    try:
        reasons = json.loads(payload)
    except ValueError:
        reasons = payload
    first = reasons[0] if isinstance(reasons, list) and reasons else reasons
    said = without_addresses(" ".join(str(first).split()))
    return f"{function}: {said}" if function else said


def _reason_of_break(payload: str, function: str) -> str:
    """The line that says why; the rest is a traceback."""
    lines = [line.strip() for line in payload.splitlines() if line.strip()]
    known = ("Explanation:", "Reason:", "Graph Break Reason:")
    said = next((line.partition(":")[2].strip() for start in known for line in lines if line.startswith(start)), "")
    said = without_addresses(said or (lines[-1] if lines else "no reason given"))
    return f"{function}: {said}" if function else said
