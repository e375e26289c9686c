"""Real misses, each with one thing changed on purpose: `explain` must name that thing, and nothing else.

One process fills the cache; a second one does the same with something else changed for each function.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import runs
from cachekeeper.explaining import Cause, Explanation
from cachekeeper.models import Graph

from .running import REPOSITORY

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("explain")]

# Products of matrices: Inductor has graphs to compile, and g++ has nothing to do.
JOB = """
import contextlib, sys, threading
import cachekeeper.guard
cachekeeper.guard.install()
import torch, torch._functorch.config, torch._inductor.config

second = sys.argv[1] == "second"
count = 0

def function(name, code=None):
    # Each has operations of its own, so that none is near another.
    global count
    count += 1
    names = {"torch": torch}
    exec(f"def {name}(x, w):\\n    return ({code or 'x @ w'}).view({'1, ' * count} -1, 6)", names)
    return names[name]

def call(of, x=None, w=None, **options):
    torch._dynamo.reset()
    x, w = torch.ones(8, 4) if x is None else x, torch.ones(4, 6) if w is None else w
    result = torch.compile(of, **{"dynamic": False, **options})(x, w)
    if result.requires_grad:
        result.sum().backward()

@contextlib.contextmanager
def during(set, to, back):
    set(to)
    yield
    set(back)

def changed(name, within=contextlib.nullcontext(), **options):
    of = function(name)
    with within if second else contextlib.nullcontext():
        call(of, **(options if second else {}))

inductor, functorch, threads = torch._inductor.config.patch, torch._functorch.config.patch, torch.get_num_threads()
half = {"dtype": torch.bfloat16}
changed("same")
changed("gone")
changed("setting", inductor(epilogue_fusion=False))
changed("functorch", functorch(activation_memory_budget=0.5))
changed("stride", x=torch.ones(4, 8).t())
changed("shape", x=torch.ones(9, 4))
changed("dtype", x=torch.ones(8, 4, **half), w=torch.ones(4, 6, **half))
changed("trained", w=torch.ones(4, 6, requires_grad=True))
changed("grad_mode", torch.no_grad())
changed("autocast", torch.autocast("cpu"))
changed("opened", dynamic=True)
changed("deterministic", during(torch.use_deterministic_algorithms, True, False))
changed("threads", during(torch.set_num_threads, threads + 1, threads))
call(function("operations", "x @ w @ w.t() @ w" if second else None))
call(function("guarded", "x @ w if x.shape[0] > 10 else x @ w"), x=torch.ones(12 if second else 8, 4), dynamic=True)
of = function("of_a_thread")
call(of)  # found by the main thread; a thread that sees another value compiles it anew
def other():
    with inductor(prologue_fusion=False):
        call(of)
if second:
    thread = threading.Thread(target=other, name="worker")
    thread.start()
    thread.join()

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x @ torch.ones(4, 4)
    @staticmethod
    def backward(ctx, gradient):
        return gradient @ torch.ones(4, 4)
call(lambda x, w: Twice.apply(x) @ w, x=torch.ones(8, 4, requires_grad=True))
changed("matmul", during(torch.set_float32_matmul_precision, "medium", "highest"))  # stays another than before
torch._dynamo.reset()
if second:
    call(function("unseen"))
    torch._dynamo.config.recompile_limit = 1
    limited = torch.compile(function("limited"), dynamic=False)
    for size in 8, 9:
        limited(torch.ones(size, 4), torch.ones(4, 6))  # unseen, too
"""


EXPECTED = {
    "setting": "inductor config epilogue_fusion: True -> False",
    "functorch": "a setting of torch._functorch.config (torch does not say which)",
    "stride": "input 0: stride (4, 1) -> (1, 8)",
    "shape": "input 0: shape (8, 4) -> (9, 4)",
    "dtype": "inputs 0, 1: dtype float32 -> bfloat16",
    "trained": "input 1: requires_grad False -> True",
    "grad_mode": "grad mode: on -> off",
    "autocast": "autocast of cpu: off -> bfloat16",
    "opened": "sizes: fixed -> dynamic, as (8, 4) -> (s77, s27)",
    "matmul": "float32 matmul precision: none -> tf32",
    "deterministic": "deterministic algorithms: off -> on",
    "operations": "the graph's operations differ: more 2 @, t",
    "of_a_thread": "inductor config prologue_fusion: True -> False",
    "unseen": "new: nothing like it is known",
    "gone": "the entry is gone from the cache: its key is known",
}
TRACED = {"functorch", "grad_mode"}


@pytest.fixture(scope="module")
def work(clean_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory in which the job ran twice; the graph of `gone` was deleted in between."""
    work = tmp_path_factory.mktemp("explain")
    (work / "job.py").write_text(JOB)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CACHEKEEPER_RUNS", str(work / "runs"))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(work / "inductor"))
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        first = run(work, "first")
        [key] = {graph.key for graph in graphs(first, "gone") if graph.cache == "fx"}
        shutil.rmtree(work / "inductor" / "fxgraph" / key[1:3] / key)
        run(work, "second")
    yield work


def run(work: Path, word: str) -> runs.RunInfo:
    done = subprocess.run([sys.executable, "job.py", word], cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return runs.find()


def graphs(info: runs.RunInfo, function: str) -> list[Graph]:
    answers = (answer.graph for log in runs.logs(info) for answer in log.compiled)
    return [graph for graph in answers if graph.function.startswith(f"{function} (")]


@pytest.fixture
def found(work: Path, monkeypatch: pytest.MonkeyPatch) -> Explanation:
    """Of the second run; its misses are those that it made on purpose."""
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(work / "runs"))
    result = cachekeeper.explain()
    assert len(result.earlier) == 1 and not result.going and not result.crashed
    return result.explanation


def cause_of(found: Explanation, function: str) -> Cause:
    [cause] = [cause for cause in found.misses if any(f"{function} (" in name for name in cause.functions)]
    return cause


@pytest.mark.parametrize("function", EXPECTED)
def test_what_was_changed_is_named_alone(found: Explanation, function: str):
    cause = cause_of(found, function)
    assert cause.words == (EXPECTED[function],)
    assert cause.number == (2 if function in ("trained", "unseen") else 1), cause.functions
    assert cause.autograd_only == (function in TRACED)
    assert cause.seconds > 0


def test_the_number_of_threads_is_named(found: Explanation):
    [words] = cause_of(found, "threads").words
    assert re.fullmatch(r"number of CPU threads: (\d+) -> (\d+)", words)


def test_what_did_not_change_is_found(found: Explanation):
    assert not [cause for cause in found.misses if any("same (" in name for name in cause.functions)]
    # That one, the main thread's where the worker missed, both of `custom`, and those whose autograd part alone missed.
    assert found.found == 4 + len(TRACED) and found.traced == len(TRACED)


def test_a_guard_that_failed_is_told_apart(found: Explanation):
    cause = cause_of(found, "guarded")
    assert cause.kinds == ("guard",) and cause.words[0].startswith("a guard failed")


def test_a_thread_that_sees_other_settings_is_told_apart(found: Explanation):
    cause = cause_of(found, "of_a_thread")
    assert cause.threads == ("worker",)
    assert cause.advice.startswith("thread worker sees another value than thread MainThread")


def test_what_is_never_cached_and_what_ran_uncompiled(found: Explanation):
    [bypass] = found.bypasses
    assert "autograd_function_apply" in bypass.words[0] and "torch.autograd.Function" in bypass.advice
    [fallback] = found.fallbacks
    assert fallback.words[0].startswith("recompile_limit (1) reached") and "recompile_limit" in fallback.advice
    assert fallback.functions[0].startswith("limited (")
