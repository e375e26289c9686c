"""What a compile must not wait for, and when a thread begins one.

Dynamo compiles under one lock. A backward that is compiled when it first runs takes that lock on the device's autograd
thread; whoever holds the lock and lets autograd trace waits for that same thread. Two changes, each of which takes away
one side: the backward is compiled with the forward, and autograd runs on the compiling thread itself.
Source: torch/_dynamo/convert_frame.py (`compile_lock`, `CatchErrorsWrapper`), torch/_functorch/_aot_autograd/
graph_compile.py (`_aot_stage2b_bw_compile`), torch/csrc/autograd/engine.cpp (`Engine::ready_queue`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from ..inside.patches import Patches
from .measure import Cannot
from .tracing import CONVERT_FRAME, around_trace

GRAPH_COMPILE = "torch._functorch._aot_autograd.graph_compile"
_log = logging.getLogger(__name__)


def autograd_on_this_thread(patches: Patches, module: ModuleType) -> None:
    """While a thread compiles, what it gives to autograd runs on itself, on no device's thread.

    Raises:
        Cannot: this torch has no such switch, or compiles elsewhere.
    """
    import torch

    if not hasattr(torch._C, "_set_multithreading_enabled"):
        raise Cannot("autograd has no switch for its threads")

    @contextlib.contextmanager
    def own_thread() -> Iterator[None]:
        before = torch._C._is_multithreading_enabled()
        torch._C._set_multithreading_enabled(False)
        try:
            yield
        finally:
            torch._C._set_multithreading_enabled(before)

    around_compiles(patches, module, own_thread)
    around_trace(patches, torch.fx._symbolic_trace, own_thread)


def around_compiles(
    patches: Patches, module: ModuleType, within: Callable[[], contextlib.AbstractContextManager[object]]
) -> None:
    """Do each compile of dynamo's within a context. Calls of what is compiled already do not come here.

    Raises:
        Cannot: this torch compiles elsewhere.
    """
    entry = getattr(module, "CatchErrorsWrapper", None)
    if entry is None:
        raise Cannot(f"{CONVERT_FRAME} has no CatchErrorsWrapper")
    patches.around(entry, "__call__", lambda arguments: within())


def backward_with_forward(patches: Patches, module: ModuleType) -> None:
    """Compile a backward together with its forward. Where that fails, it is compiled when it first runs.

    `torch._functorch.config.force_non_lazy_backward_lowering` would do so too, but it is a part of AOTAutograd's keys:
    a cache that was filled without the guard would miss. The same field of a single compile is in no key.

    Raises:
        Cannot: this torch has no such field or step.
    """
    original = getattr(module, "_aot_stage2b_bw_compile", None)
    signature = inspect.signature(original) if original is not None else None
    if original is None or signature is None or "aot_config" not in signature.parameters:
        raise Cannot("this torch compiles a backward only when it first runs")

    @functools.wraps(original)
    def compile_backward(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options)
        config = bound.arguments["aot_config"]
        try:
            bound.arguments["aot_config"] = dataclasses.replace(config, force_non_lazy_backward_lowering=True)
            return original(*bound.args, **bound.kwargs)
        except Exception as error:
            _log.info("a backward could not be compiled with its forward", exc_info=error)
            return original(*arguments, **options)

    patches.replace(module, "_aot_stage2b_bw_compile", compile_backward)
