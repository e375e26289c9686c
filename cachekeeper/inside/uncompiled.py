"""What runs uncompiled though it was to be compiled, as it happens.

torch goes back to running a function as plain Python when it was recompiled too often, a compile failed, or the graph
breaks in a loop or a `try`, and when FX traces it and an error is not wanted. flex_attention without a compiled graph
computes the dense matrix of scores.
Source: torch/_dynamo/convert_frame.py, torch/_dynamo/eval_frame.py, torch/_higher_order_ops/flex_attention.py.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import re
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .patches import Patches, attribute

_DYNAMO = "torch._dynamo"
_FUNCTION = re.compile(r"'(.*)' \((?:.*/)?")
_LIMIT = "torch._dynamo hit config."
_CALLER = "_dynamo/eval_frame.py"
_CALLERS = 8
DENSE = "flex_attention"

Found = Callable[[str, str, bool], None]
When = Callable[[str, Callable[[ModuleType], None]], None]


class Uncompiled(logging.Handler):
    """Tells what runs uncompiled, in the thread where it does.

    Args:
        found: called with the function, the reason, and True where it stays so for good. Where that is False, the
            function has not begun yet, and what `found` raises is raised in its place.
    """

    def __init__(self, found: Found) -> None:
        super().__init__(logging.WARNING)
        self._found = found
        self._codes: dict[CodeType, str] = {}

    def install(self, patches: Patches, when: When | None = None) -> None:
        """Watch, from now on, until the patches are taken back.

        Args:
            when: calls a function with a module once it is imported; default: import it now.
        """
        when = when or now
        logger = logging.getLogger(_DYNAMO)
        logger.addHandler(self)
        patches.then(lambda: logger.removeHandler(self))
        when(
            "torch._higher_order_ops.flex_attention", lambda flex: before(patches, flex, "math_attention", self._dense)
        )
        when("torch.fx._symbolic_trace", lambda fx: self._watch_nested(patches, fx))
        if sys.version_info >= (3, 12):
            when("torch._dynamo.eval_frame", lambda dynamo: self._watch_compiled_functions(patches, dynamo))

    def emit(self, record: logging.LogRecord) -> None:
        """Take one line of dynamo's log: it says more of a limit than the event of the failed compile."""
        text = record.getMessage()
        lines = [line.strip() for line in text.splitlines()]
        if text.startswith(_LIMIT):
            said = dict(line.partition(": ")[::2] for line in lines if ": " in line)
            limit = lines[0].removeprefix(_LIMIT)
            function = _FUNCTION.sub(r"\1 (", said.get("function", "a function"))
            self._found(function, f"{limit} reached; {said.get('last reason', '')}", True)

    def _dense(self, arguments: tuple[Any, ...]) -> None:
        # While it traces, torch computes with tensors that have no data.
        if type(arguments[0]).__name__ in ("Tensor", "Parameter"):
            self._found(DENSE, f"dense, the whole matrix of scores{_scores(arguments)}", False)

    def _watch_nested(self, patches: Patches, module: ModuleType) -> None:
        """A compiled function that FX traces is run as it is, where torch is told to raise no error."""
        asked = getattr(module, "is_fx_symbolic_tracing", None)
        if isinstance(asked, FunctionType):
            names = {"cachekeeper_nested": self._nested, "cachekeeper_is_tracing": None}
            original = patches.code(asked, _is_fx_symbolic_tracing, **names)
            asked.__globals__["cachekeeper_is_tracing"] = original

    def _nested(self) -> None:
        caller = sys._getframe(2)
        config = attribute(sys.modules.get(_DYNAMO), ("config",))
        if caller.f_code.co_filename.endswith(_CALLER) and not getattr(config, "error_on_nested_fx_trace", True):
            self._found(_name(_code_of(caller.f_locals.get("fn"))), "called while FX traces it", False)

    def _watch_compiled_functions(self, patches: Patches, module: ModuleType) -> None:
        """From Python 3.12 on: notice when the body of a compiled function itself runs.

        Compiled, other bytecode runs in its place. A monitored code object costs nothing until it is run.
        """
        monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        tool = next((number for number in (3, 4) if monitoring.get_tool(number) is None), None)
        if tool is None:
            return
        monitoring.use_tool_id(tool, "cachekeeper")
        patches.then(lambda: monitoring.free_tool_id(tool))
        event = monitoring.events.PY_START

        def started(code: CodeType, offset: int) -> None:
            if code in self._codes and _called_compiled():
                self._found(self._codes[code], "its own code runs", False)

        monitoring.register_callback(tool, event, started)

        def note(arguments: tuple[Any, ...]) -> None:
            code = _code_of(arguments[1]) if len(arguments) > 1 else None
            if code is not None and code not in self._codes:
                self._codes[code] = _name(code)
                monitoring.set_local_events(tool, code, event)

        before(patches, module, "_TorchDynamoContext.__call__", note)
        for item in gc.get_objects():  # those that were compiled before
            if type(item) is FunctionType and "_torchdynamo_orig_callable" in vars(item):
                note((None, vars(item)["_torchdynamo_orig_callable"]))


def now(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Import a module and call `callback` with it; leave out what this torch has not."""
    with contextlib.suppress(ImportError):
        callback(importlib.import_module(name))


def before(patches: Patches, module: ModuleType, path: str, note: Callable[[tuple[Any, ...]], object]) -> None:
    """Call `note` before each call of something in torch; leave out what this torch has not."""
    *outer, name = path.split(".")
    owner = attribute(module, outer)
    if hasattr(owner, name):
        patches.before(owner, name, note)


def _called_compiled() -> bool:
    """True where the function that starts was called as a compiled one, and not by its own name."""
    frame = sys._getframe(2).f_back
    for _ in range(_CALLERS):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith(_CALLER):
            return True
        frame = frame.f_back
    return False


def _code_of(compiled: Any) -> CodeType | None:
    """The code of a function, or of a module's own `forward`, also where the module's `__call__` is given."""
    owner = getattr(compiled, "__self__", compiled)
    function = getattr(type(owner), "forward", None) if hasattr(owner, "_parameters") else compiled
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) and "/torch/" not in code.co_filename else None


def _name(code: CodeType | None) -> str:
    """As torch's own events name it: "step (train.py:12)"."""
    if code is None:
        return "a function"
    return f"{code.co_name} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"


def _scores(arguments: tuple[Any, ...]) -> str:
    """The size of the matrix that is about to be computed, as ", (1, 8, 4096, 4096)"."""
    try:
        query, key = arguments[0].shape, arguments[1].shape
        return f", {(*tuple(query[:-1]), key[-2])}"
    except (AttributeError, IndexError, TypeError):
        return ""


def _is_fx_symbolic_tracing() -> bool:
    """Code for torch's own function of that name."""
    if cachekeeper_is_tracing():  # type: ignore[name-defined] # noqa: F821
        cachekeeper_nested()  # type: ignore[name-defined] # noqa: F821
        return True
    return False
