"""What the tests of `cachekeeper warmup` run, and the same as a plain job: nothing of cachekeeper is in here.

    cachekeeper warmup warm_targets.py:net --mode train --shape 8
    python warm_targets.py net,train,8 net,infer,8      the same steps; prints what torch counts, as job.py does

In a plain job, `threads` as the first argument runs each step in a thread of its own, and MODULE:net,train,8 is a step
of another module.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import torch

CUT = 0.171875
KEPT: list[Any] = []


@torch.compile(dynamic=False)
def _net(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (torch.relu(x @ w) * CUT).square().sum()


@torch.compile(dynamic=False)
def _line(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


def net(device: str, mode: str, shape: int = 8) -> torch.Tensor:
    """A loss: the backward is whoever's who calls it."""
    return _net(torch.ones(shape, 8, device=device), torch.ones(8, 4, requires_grad=True))


def line(device: str, mode: str, shape: int = 8) -> torch.Tensor | None:
    """One product of matrices: nothing for g++ to build."""
    found = _line(torch.ones(shape, 8, device=device), torch.ones(8, 4, requires_grad=True))
    return found.sum() if mode == "train" else None


# What a case compiles with, and what it is called with.


@torch.compile(dynamic=False)
def _autocast(x: torch.Tensor) -> torch.Tensor:
    return x @ x.t()


@torch.compile(dynamic=False)
def _autocast_inside(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x.t()


@torch.compile(dynamic=False)
def _checkpointed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(lambda y: (y @ w) @ w.t(), x, use_reentrant=False) @ w


@torch.compile(dynamic=False)
def _of_subclass(x: torch.Tensor) -> torch.Tensor:
    return x @ x.t()


@torch.compile(dynamic=True)
def _dynamic(x: torch.Tensor) -> torch.Tensor:
    return x @ x.t()


@torch.compile(dynamic=False)
def _broken_graph(x: torch.Tensor) -> torch.Tensor:
    y = x @ x.t()
    torch._dynamo.graph_break(msg="for a test")
    return y @ y


@torch.library.custom_op("cachekeeper_tests::doubled", mutates_args=())
def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@_doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


_doubled.register_autograd(lambda ctx, gradient: gradient * 2)


@torch.compile(dynamic=False)
def _with_custom_op(x: torch.Tensor) -> torch.Tensor:
    return _doubled(x) @ x.t()


class _Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x @ x.t()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient[:, :1].expand(-1, 8)


@torch.compile(dynamic=False)
def _with_custom_function(x: torch.Tensor) -> Any:
    return _Straight.apply(x)


@torch.compile(dynamic=False, options={"post_grad_custom_post_pass": lambda graph: None})
def _with_custom_pass(x: torch.Tensor) -> torch.Tensor:
    return x @ x.t()


@torch.compile(dynamic=False)
def _forgotten(x: torch.Tensor) -> torch.Tensor:
    return x @ x.t() @ x


def autocast(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return _autocast(x)


def without_autocast(x: torch.Tensor) -> Any:
    return _autocast(x)


def subclass(x: torch.Tensor) -> Any:
    from torch.testing._internal.two_tensor import TwoTensor

    y = _of_subclass(TwoTensor(x.detach(), x.detach()).requires_grad_(x.requires_grad))
    return y.a if not x.requires_grad else y


CASES = {
    "autocast": autocast,
    "without-autocast": without_autocast,
    "autocast-inside": lambda x: _autocast_inside(x),
    "checkpoint": lambda x: _checkpointed(x, x.t()),
    "subclass": subclass,
    "custom-op": lambda x: _with_custom_op(x),
    "custom-function": lambda x: _with_custom_function(x),
    "custom-pass": lambda x: _with_custom_pass(x),
    "dynamic-5": lambda x: _dynamic(x[:5]),
    "dynamic-7": lambda x: _dynamic(torch.cat([x, x])[:7]),
    "graph-break": lambda x: _broken_graph(x),
    "forward-only": lambda x: _forgotten(x),
}


def case(mode: str, shape: str) -> torch.Tensor | None:
    """One of CASES; a step of training takes the sum for its loss, and `forward-only` forgets it."""
    found = CASES[shape](torch.ones(6, 8, requires_grad=mode == "train"))
    return found.sum() if mode == "train" and shape != "forward-only" else None


# What goes wrong.


@torch.compile(dynamic=False)
def _often_recompiled(x: torch.Tensor) -> torch.Tensor:
    return x @ x.t()


@torch.compile(dynamic=False)
def _recompiled_quietly(x: torch.Tensor) -> torch.Tensor:
    return x @ x.t()


def limited(x: torch.Tensor) -> None:
    torch._dynamo.config.recompile_limit = 1
    for size in (4, 5, 6):
        _often_recompiled(x[:size])


def quietly(x: torch.Tensor) -> None:
    """At the limit, while torch's log is off; see `quiet`."""
    for size in (4, 5):
        _recompiled_quietly(x[:size])


@torch.compile(dynamic=False)
def _breaking_in_a_loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = x @ x.t()
        torch._dynamo.graph_break(msg="for a test of loops")
    return x


def looping(x: torch.Tensor) -> None:
    """torch breaks a graph in a loop nowhere: the whole function runs uncompiled, and no word of it is logged."""
    _line(x, x.t().contiguous())
    _breaking_in_a_loop(x[:5])


def dense(x: torch.Tensor) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    _line(x, x.t().contiguous())
    q = torch.linspace(-1, 1, 16 * 16).reshape(1, 1, 16, 16)
    flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: torch.where(i >= j, score, -float("inf")))


def _failing(graph: Any, inputs: Any) -> Any:
    raise ValueError("this backend never works")


@torch.compile(backend=_failing)
def _never_compiled(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def suppressed(x: torch.Tensor) -> None:
    _line(x, x.t().contiguous())
    with torch._dynamo.config.patch(suppress_errors=True):
        _never_compiled(x)


def quiet(x: torch.Tensor) -> None:
    """A job may set up torch's logs anew."""
    torch._logging.set_logs(dynamo=logging.ERROR)
    _line(x, x.t().contiguous())


def keeps(x: torch.Tensor) -> None:
    _line(x, x.t().contiguous())
    KEPT.append(torch.ones(300 << 18))


def passing(x: torch.Tensor) -> None:
    _line(x, x.t().contiguous())
    held = torch.ones(300 << 18)
    del held


def raises(x: torch.Tensor) -> None:
    try:
        _line(x, x.t().contiguous())[99]
    except IndexError as error:
        raise ValueError("no such row") from error


TROUBLES = {
    "fine": lambda x: _line(x, x.t().contiguous()),
    "again": lambda x: _line(x, x.t().contiguous()),
    "limited": limited,
    "looping": looping,
    "dense": dense,
    "suppressed": suppressed,
    "quiet": quiet,
    "quietly": quietly,
    "keeps": keeps,
    "passing": passing,
    "raises": raises,
    "exits": lambda x: sys.exit(7),
    "interrupts": lambda x: (_ for _ in ()).throw(KeyboardInterrupt("by the target")),
    "killed": lambda x: os.kill(os.getpid(), 9),
}


def trouble(shape: str) -> None:
    """One of TROUBLES."""
    TROUBLES[shape](torch.ones(6, 8))


# The same as a plain job.


def _function(step: str) -> Any:
    """Found in the main thread, where a job imports what it needs."""
    module, _, name = step.partition(",")[0].rpartition(":")
    return getattr(importlib.import_module(module), name) if module else globals()[name]


def _run(function: Any, step: str) -> None:
    _, mode, *shape = step.split(",")
    arguments: dict[str, Any] = {"mode": mode}
    if function.__name__ in ("net", "line"):
        arguments["device"] = "cpu"
    if shape:
        arguments["shape"] = int(shape[0]) if shape[0].isdigit() else shape[0]
    with contextlib.ExitStack() as stack:
        if mode == "infer":
            stack.enter_context(torch.no_grad())
        found = function(**arguments)
        if mode == "train":
            found.backward()


def main(steps: list[str]) -> None:
    sys.path.insert(0, os.path.dirname(__file__))
    from job import files_in, measured

    cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    before = files_in(cache)
    began = time.perf_counter()
    threaded = steps[0] == "threads"
    for step in steps[threaded:]:
        if threaded:
            thread = Thread(target=_run, args=(_function(step), step))
            thread.start()
            thread.join()
        else:
            _run(_function(step), step)
    print(json.dumps(measured(cache, before, time.perf_counter() - began)))


if __name__ == "__main__":
    main(sys.argv[1:])
