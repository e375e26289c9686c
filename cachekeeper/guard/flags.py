"""That one thread compiles or exports must not be seen by another.

torch notes both in flags of the process: from 2.13 on `torch.compiler.is_compiling()` is True in every thread while one
compiles, and code that runs uncompiled there takes another branch. An export also pushes its modes on a stack of the
process, into which the operators of other threads then run.
Source: torch/compiler/__init__.py, torch/_export/utils.py (`_compiling_state_context`), torch/_ops.py
(`_ModeStackStateForPreDispatch`).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from ..inside.patches import Patches
from .measure import Cannot, NotNeeded

if TYPE_CHECKING:
    import torch

COMPILER = "torch.compiler"
_OPS, _STACK = "torch._ops", "_mode_stack_state_for_pre_dispatch"
_FLAGS = {"_is_compiling_flag": "compiling", "_is_exporting_flag": "exporting"}


class _Flags(threading.local):
    compiling = False
    exporting = False


cachekeeper_flags = _Flags()


def flags_of_each_thread(patches: Patches, module: ModuleType) -> None:
    """Only the thread that compiles or exports sees that it does, and only its operators see its modes.

    Raises:
        NotNeeded: torch has no such flags.
        Cannot: other functions than are known use them, or something is being exported right now.
    """
    there = {name: attribute for name, attribute in _FLAGS.items() if name in vars(module)}
    if not there:
        raise NotNeeded("torch has no such flags")
    users = {name: function for name, function in _functions(module).items() if there.keys() & _names(function)}
    if unknown := users.keys() - _CODES.keys():
        raise Cannot(f"{', '.join(sorted(unknown))} of {COMPILER} is not known")
    if any(vars(module)[name] for name in there):
        raise Cannot("something is compiled or exported right now")
    _stack_of_each_thread(patches)
    for name, function in users.items():
        patches.code(function, _CODES[name], cachekeeper_flags=cachekeeper_flags)
    _as_properties(patches, module, there)


def _as_properties(patches: Patches, module: ModuleType, flags: dict[str, str]) -> None:
    """Others read and write the flags as attributes of the module."""
    kind = type(module)
    properties = {name: _property(attribute) for name, attribute in flags.items()}
    for name in flags:
        del vars(module)[name]
    module.__class__ = type("Module", (kind,), properties)

    def undo() -> None:
        module.__class__ = kind
        vars(module).update(dict.fromkeys(flags, False))

    patches.then(undo)


def _property(attribute: str) -> property:
    return property(
        lambda module: getattr(cachekeeper_flags, attribute),
        lambda module, value: setattr(cachekeeper_flags, attribute, value),
    )


def _stack_of_each_thread(patches: Patches) -> None:
    """Replace the stack of modes by one for each thread; leave it where this torch has none."""
    ops: Any = sys.modules.get(_OPS)
    stack = getattr(ops, _STACK, None)
    if stack is None:
        return
    if stack.count():
        raise Cannot("something is exported right now")
    kind = type(stack)

    def begin(self: Any) -> None:
        kind.__init__(self)

    # threading.local calls the initialiser in each thread.
    patches.replace(ops, _STACK, type(kind.__name__, (threading.local, kind), {"__init__": begin})())


def _functions(module: ModuleType) -> dict[str, FunctionType]:
    """The module's own functions, and what is within its context managers."""
    found = {name: getattr(value, "__wrapped__", value) for name, value in vars(module).items()}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, FunctionType) and value.__globals__ is vars(module)
    }


def _names(function: FunctionType) -> set[str]:
    return set(function.__code__.co_names)


# What follows is code for torch's own functions. TorchScript reads its source, too: in a script the
# first branch is all of it, and a comment about types on its line would be an error.


def _is_compiling() -> bool:
    if torch.jit.is_scripting():
        return False
    else:
        return cachekeeper_flags.compiling


def _is_exporting() -> bool:
    return cachekeeper_flags.exporting


def _compile_session_context() -> Iterator[None]:
    before, cachekeeper_flags.compiling = cachekeeper_flags.compiling, True
    try:
        yield
    finally:
        cachekeeper_flags.compiling = before


_CODES: dict[str, Callable[..., object]] = {
    "is_compiling": _is_compiling,
    "is_exporting": _is_exporting,
    "_compile_session_context": _compile_session_context,
}
