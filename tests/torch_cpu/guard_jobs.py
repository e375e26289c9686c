"""Jobs of tests/torch_cpu/test_guard.py, each for a fresh process: `python guard_jobs.py NAME`; they print JSON."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cachekeeper.guard as guard

Said = dict[str, Any]


def patched() -> Said:
    """What the guard changes in torch: name -> what is there now."""
    import torch
    from torch._dynamo import convert_frame, eval_frame
    from torch._functorch._aot_autograd import graph_compile
    from torch._higher_order_ops import utils
    from torch.fx import _symbolic_trace

    flex_attention = importlib.import_module("torch._higher_order_ops.flex_attention")
    return {
        "trace": _symbolic_trace.Tracer.trace,
        "is_fx_symbolic_tracing": _symbolic_trace.is_fx_symbolic_tracing.__code__,
        "is_fx_tracing": _symbolic_trace.is_fx_tracing.__code__,
        "compilation_env": utils._set_compilation_env.__wrapped__.__code__,
        "compile": convert_frame.CatchErrorsWrapper.__call__,
        "lock": convert_frame.compile_lock,
        "backward": graph_compile._aot_stage2b_bw_compile,
        "dense": flex_attention.math_attention,
        "context": eval_frame._TorchDynamoContext.__call__,
        "start": threading.Thread.start,
        "trace handlers": tuple(logging.getLogger("torch.__trace").handlers),
        "dynamo handlers": tuple(logging.getLogger("torch._dynamo").handlers),
        "aot level": logging.getLogger("torch._functorch._aot_autograd.autograd_cache").level,
        "patch_method": _symbolic_trace._Patcher.patch_method,
        "is_compiling": torch.compiler.is_compiling.__code__,
        "flags": (type(torch.compiler), "_is_exporting_flag" in vars(torch.compiler)),
        "modes": torch._ops._mode_stack_state_for_pre_dispatch,
        "autograd": torch._C._is_multithreading_enabled(),
    }


def taken_back() -> Said:
    """Installed late, used, uninstalled: torch is as it was, and a function that was compiled still works."""
    import torch

    x = torch.ones(4, requires_grad=True)
    early = torch.compile(lambda x: (x * 2).sin().sum())
    early(x).backward()  # torch itself changes some of it when it first compiles
    before = patched()
    guard.install()
    during = patched()
    torch._dynamo.reset()
    early(x).backward()
    measures = dict(guard.measures())
    guard.uninstall()
    after = patched()
    early(x).backward()
    torch.compile(lambda x: (x * 3).cos().sum())(x).backward()
    return {
        "changed": sorted(name for name in before if before[name] != during[name]),
        "left": sorted(name for name in before if before[name] != after[name]),
        "measures": measures,
        "gone": not guard.measures(),
    }


def limited(compiled: Callable[..., Any], *sizes: int) -> list[str]:
    """Call with each size; what was raised, by name."""
    import torch

    raised = []
    for size in sizes:
        try:
            compiled(torch.ones(size))
            raised.append("")
        except Exception as error:
            raised.append(type(error).__name__)
    return raised


def fallbacks() -> Said:
    """What runs uncompiled, in each mode: past the limit, dense attention, traced by FX."""
    guard.install()
    import torch
    import torch._dynamo
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.config.recompile_limit = 1
    q = torch.ones(1, 2, 16, 8)

    def step(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    def other(x: torch.Tensor) -> torch.Tensor:
        return x.cos()

    warned = limited(torch.compile(step, dynamic=False), 3, 4, 5)
    flex_attention(q, q, q)
    torch._dynamo.config.error_on_nested_fx_trace = False
    inner = torch.compile(lambda x: x + 1)
    make_fx(lambda x: inner(x) * 2)(torch.ones(2))
    torch._dynamo.config.error_on_nested_fx_trace = True
    guard.install(fallback="error")
    raised = limited(torch.compile(other, dynamic=False), 3, 4, 3, 4)
    try:
        flex_attention(q, q, q)
        dense = ""
    except guard.RanUncompiled as error:
        dense = str(error)
    return {"warned": warned, "raised": raised, "dense": dense}


def settings() -> Said:
    """What a worker compiles, without and with the settings of the thread that started it; keys of each."""
    guard.install(carry=sys.argv[2] == "carry")
    import torch
    import torch._inductor.config

    torch._inductor.config.epilogue_fusion = False
    keys: dict[str, list[str]] = {}

    class Keys(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            name = getattr(record, "metadata", {}).get("artifact", {}).get("name", "")
            if name.startswith("fx_graph_cache"):
                keys.setdefault(threading.current_thread().name, []).append(json.loads(record.payload)["key"])

    logging.getLogger("torch.__trace").addHandler(Keys())

    def step() -> None:
        def function(x: torch.Tensor) -> torch.Tensor:
            return (x * 2).sin()

        # Dynamo keeps what it compiled with the code, whoever calls it.
        function.__code__ = function.__code__.replace(co_name=threading.current_thread().name)
        torch.compile(function)(torch.ones(7))

    def own() -> None:
        torch._inductor.config.epilogue_fusion = True
        step()

    step()
    for name, job in (("worker", step), ("own", own)):
        thread = threading.Thread(target=job, name=name)
        thread.start()
        thread.join()
    with ThreadPoolExecutor(1, thread_name_prefix="pool") as pool:
        pool.submit(step).result()
    (main,) = keys["MainThread"]
    return {name: found == [main] for name, found in keys.items()}


def no_backward() -> Said:
    """A backward that cannot be compiled breaks no forward, and raises only where it is called."""
    guard.install()
    import torch
    import torch._inductor.compile_fx as compile_fx

    def broken(*arguments: object, **options: object) -> None:
        raise NotImplementedError("no lowering for a test")

    compile_fx.compile_fx_backward = broken
    x = torch.ones(4, requires_grad=True)
    loss = torch.compile(lambda x: (x * 2).sin().sum())(x)
    try:
        loss.backward()
        raised = ""
    except Exception as error:
        raised = str(error)
    return {"loss": loss.item(), "raised": raised}


def told() -> Said:
    """Compiled after torch's logging was set up anew."""
    guard.install()
    import torch
    import torch._logging

    torch._logging.set_logs(recompiles=False)
    torch.compile(lambda x: (x * 2).sin().sum())(torch.ones(4, requires_grad=True)).backward()
    return {}


def stricter() -> Said:
    """What the script says, what `cachekeeper run` says, and what holds."""
    found = []
    for script, run in (({}, {}), ({"fallback": "error"}, {"carry": True}), ({}, {"fallback": "off"})):
        os.environ[guard.VARIABLE] = json.dumps(run)
        guard.install(**script)
        guard.install_from_environment()  # as at the import of torch: the script was first
        options = guard._guard._options
        found.append([options.fallback, options.carry])
    return {"found": found}


def warm() -> Said:
    """Ends at the first miss."""
    guard.install(assert_warm=True)
    import torch

    torch.compile(lambda x: (x * 2).sin().sum())(torch.ones(4))
    return {}


JOBS = {job.__name__: job for job in (taken_back, fallbacks, settings, no_backward, told, stricter, warm)}

if __name__ == "__main__":
    print(json.dumps(JOBS[sys.argv[1]]()))
