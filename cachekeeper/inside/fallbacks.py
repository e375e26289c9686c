"""What ran uncompiled though it was to be compiled, and how often compiled graphs were called.

torch goes back to running a function as plain Python when it was recompiled too often, a compile failed, or the graph
breaks in a loop or a `try`, and tells of it once. flex_attention without a compiled graph computes the dense matrix of
scores.
Source: torch/_dynamo/convert_frame.py, torch/_higher_order_ops/flex_attention.py, torch/_inductor/output_code.py.
"""

from __future__ import annotations

import functools
import gc
import importlib
import logging
import re
import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

_DYNAMO = "torch._dynamo"
_FUNCTION = re.compile(r"'(.*)' \((?:.*/)?")
_LIMIT = "torch._dynamo hit config."
_DENSE = "flex_attention ran dense: the whole matrix of scores, uncompiled"


class Fallbacks(logging.Handler):
    """Gathers fallbacks until they are cleared; a function that stays uncompiled is told again for every step."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._for_good: dict[str, str] = {}
        self._codes: dict[CodeType, str] = {}
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
        logging.getLogger(_DYNAMO).addHandler(self)
        _wrap("torch._inductor.output_code", "CompiledFxGraph.__call__", self._count_call)
        _wrap("torch._higher_order_ops.flex_attention", "math_attention", self._note_dense)
        if sys.version_info >= (3, 12):
            self._watch_compiled_functions()

    def emit(self, record: logging.LogRecord) -> None:
        """Take one line of dynamo's log: it says more of a limit than `failed` is told."""
        text = record.getMessage()
        lines = [line.strip() for line in text.splitlines()]
        if text.startswith(_LIMIT):
            said = dict(line.partition(": ")[::2] for line in lines if ": " in line)
            limit = lines[0].removeprefix(_LIMIT)
            function = _FUNCTION.sub(r"\1 (", said.get("function", "a function"))
            self.failed(function, f"{limit} reached; {said.get('last reason', '')}")

    def _count_call(self, arguments: tuple[Any, ...]) -> None:
        self.calls += 1

    def _note_dense(self, arguments: tuple[Any, ...]) -> None:
        # While it traces, torch computes with tensors that have no data.
        if type(arguments[0]).__name__ in ("Tensor", "Parameter"):
            self._found.append(_DENSE)

    def _watch_compiled_functions(self) -> None:
        """From Python 3.12 on: notice when the body of a compiled function itself runs.

        Compiled, other bytecode runs in its place. A monitored code object costs nothing until it is run.
        """
        monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        tool = next((number for number in (3, 4) if monitoring.get_tool(number) is None), None)
        if tool is None:
            return
        monitoring.use_tool_id(tool, "cachekeeper")
        event = monitoring.events.PY_START

        def started(code: CodeType, offset: int) -> None:
            if code in self._codes:
                self._found.append(f"{self._codes[code]} runs uncompiled")

        monitoring.register_callback(tool, event, started)

        def note(arguments: tuple[Any, ...]) -> None:
            code = _code_of(arguments[1]) if len(arguments) > 1 else None
            if code is not None and code not in self._codes:
                self._codes[code] = f"'{code.co_name}' ({code.co_filename}:{code.co_firstlineno})"
                monitoring.set_local_events(tool, code, event)

        _wrap("torch._dynamo.eval_frame", "_TorchDynamoContext.__call__", note)
        for item in gc.get_objects():  # those that importing the target compiled
            if type(item) is FunctionType and "_torchdynamo_orig_callable" in vars(item):
                note((None, vars(item)["_torchdynamo_orig_callable"]))


def _code_of(compiled: Any) -> CodeType | None:
    """The code of a function, or of a module's own `forward`, also where the module's `__call__` is given."""
    owner = getattr(compiled, "__self__", compiled)
    function = getattr(type(owner), "forward", None) if hasattr(owner, "_parameters") else compiled
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) and "/torch/" not in code.co_filename else None


def _wrap(module: str, path: str, note: Callable[[tuple[Any, ...]], None]) -> None:
    """Call `note` with the arguments before each call of something in torch; leave out what this torch has not."""
    try:
        owner: Any = importlib.import_module(module)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        original = getattr(owner, name)
    except (ImportError, AttributeError):
        return

    @functools.wraps(original)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        note(arguments)
        return original(*arguments, **options)

    setattr(owner, name, wrapper)
