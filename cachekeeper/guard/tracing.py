"""Tracing by one thread must not be seen by, nor disturb, another.

Before 2.14 torch notes in one flag of the process that FX is tracing. A compiled function that another thread calls
meanwhile raises "Detected that you are using FX to symbolically trace a dynamo-optimized function", and two tracers
that overlap leave the flag set for ever. In every version two tracers at once break each other on `CURRENT_PATCHER`,
and each replaces `torch.nn.Module.__call__` for the whole process.
Source: torch/fx/_symbolic_trace.py (`Tracer.trace`), torch/_dynamo/eval_frame.py (`compile_wrapper`),
torch/_higher_order_ops/utils.py (`_set_compilation_env`).
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from ..inside.patches import Patches
from .imports import when_imported
from .measure import Cannot, NotNeeded

SYMBOLIC_TRACE = "torch.fx._symbolic_trace"
CONVERT_FRAME = "torch._dynamo.convert_frame"
_HIGHER_ORDER = "torch._higher_order_ops.utils"


class _Local(threading.local):
    tracing = False


cachekeeper_local = _Local()


def flag_of_each_thread(patches: Patches, module: ModuleType) -> None:
    """Only the thread that traces sees that it does.

    The functions that ask get other code, since compiled functions hold them. torch's own flag stays as it is: nobody
    asks for it any more.

    Raises:
        NotNeeded: this torch has a flag for each thread.
        Cannot: this torch has neither flag where it was.
    """
    if not hasattr(module, "_is_fx_tracing_flag"):
        if hasattr(module, "_is_fx_tracing_tls"):
            raise NotNeeded("this torch has a flag for each thread")
        raise Cannot(f"{SYMBOLIC_TRACE} has no flag that is known")
    asked = {"is_fx_symbolic_tracing": _is_fx_symbolic_tracing, "is_fx_tracing": _is_fx_tracing}
    if not hasattr(module, "is_fx_symbolic_tracing"):  # torch 2.6
        asked = {"is_fx_tracing": _is_tracing}
    for name, code in asked.items():
        patches.code(_function(module, name), code, cachekeeper_local=cachekeeper_local)
    around_trace(patches, module, _tracing)
    when_imported(_HIGHER_ORDER, functools.partial(_not_within_compilation_env, patches))


def one_tracer(patches: Patches, module: ModuleType) -> None:
    """One thread traces at a time, under dynamo's own lock: there is no second one to be taken in another order.

    Raises:
        Cannot: this torch has no `Tracer.trace`.
    """
    lock = threading.RLock()
    _methods_of_this_thread(patches, module)
    around_trace(patches, module, lambda: _dynamo_lock(lock))
    # Whoever traces before dynamo is imported takes the lock that becomes dynamo's.
    when_imported(CONVERT_FRAME, lambda dynamo: _share(patches, dynamo, lock))


def _methods_of_this_thread(patches: Patches, module: ModuleType) -> None:
    """While FX traces it has other methods on `torch.nn.Module`: only the thread that traces goes through them."""
    patcher = getattr(module, "_Patcher", None)
    original = getattr(patcher, "patch_method", None)
    if original is None:
        raise Cannot(f"{SYMBOLIC_TRACE} has no _Patcher.patch_method")

    @functools.wraps(original)
    def patch_method(patcher: Any, cls: type, name: str, new: Any, *arguments: Any, **options: Any) -> Any:
        before, tracing = getattr(cls, name), threading.get_ident()

        @functools.wraps(new)
        def method(*arguments: Any, **options: Any) -> Any:
            return (new if threading.get_ident() == tracing else before)(*arguments, **options)

        return original(patcher, cls, name, method, *arguments, **options)

    patches.replace(patcher, "patch_method", patch_method)


def _share(patches: Patches, dynamo: ModuleType, lock: Any) -> None:
    if not hasattr(dynamo, "compile_lock"):
        return
    if not dynamo.compile_lock.acquire(blocking=False):  # installed while something compiles: theirs is taken as it is
        return
    dynamo.compile_lock.release()
    patches.replace(dynamo, "compile_lock", lock)


def _dynamo_lock(lock: Any) -> Any:
    dynamo = sys.modules.get(CONVERT_FRAME)
    return getattr(dynamo, "compile_lock", lock)


def around_trace(
    patches: Patches, module: ModuleType, within: Callable[[], contextlib.AbstractContextManager[object]]
) -> None:
    """Do each trace of FX within a context.

    Raises:
        Cannot: this torch has no `Tracer.trace`.
    """
    tracer = getattr(module, "Tracer", None)
    if not hasattr(tracer, "trace"):
        raise Cannot(f"{SYMBOLIC_TRACE} has no Tracer.trace")
    patches.around(tracer, "trace", lambda arguments: within())


@contextlib.contextmanager
def _tracing() -> Iterator[None]:
    before, cachekeeper_local.tracing = cachekeeper_local.tracing, True
    try:
        yield
    finally:
        cachekeeper_local.tracing = before


def _not_within_compilation_env(patches: Patches, module: ModuleType) -> None:
    """There torch takes the flag away for a while."""
    generator = getattr(getattr(module, "_set_compilation_env", None), "__wrapped__", None)
    if isinstance(generator, FunctionType):
        names = {"cachekeeper_local": cachekeeper_local, "cachekeeper_env": None}
        original = patches.code(generator, _set_compilation_env, **names)
        module.cachekeeper_env = contextlib.contextmanager(original)  # type: ignore[attr-defined]


def _function(module: ModuleType, name: str) -> FunctionType:
    found = getattr(module, name, None)
    if not isinstance(found, FunctionType):
        raise Cannot(f"{module.__name__} has no function {name}")
    return found


# What follows is code for torch's own functions: the names are those of torch's modules.


def _is_fx_symbolic_tracing() -> bool:
    return cachekeeper_local.tracing and not torch.compiler.is_compiling()  # type: ignore[name-defined] # noqa: F821


def _is_fx_tracing() -> bool:
    is_fx_tracing_warning()  # type: ignore[name-defined] # noqa: F821
    return cachekeeper_local.tracing


def _is_tracing() -> bool:
    return cachekeeper_local.tracing


def _set_compilation_env() -> Iterator[None]:
    with cachekeeper_env():  # type: ignore[name-defined] # noqa: F821
        before, cachekeeper_local.tracing = cachekeeper_local.tracing, False
        try:
            yield
        finally:
            cachekeeper_local.tracing = before
