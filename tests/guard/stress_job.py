"""One round of the stress test in a fresh process: `python -m tests.guard.stress_job ROUND.json RESULT.json`.

Threads compile and call functions of their own at the same time, forward and backward. What goes wrong is written down:
errors, calls that ran uncompiled, numbers that are not those of eager, and at the deadline who waits for what.
Only torch, the standard library and cachekeeper are needed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .stacks import cause, in_words, lock_owner, stacks

HUNG = 17
FIRST_STEPS = "first-steps"  # in place of measures: each step within guard.first_steps()
MANY = 1000  # graphs of one function; beyond torch's own limit of 8 it would run uncompiled, by design


@dataclass(frozen=True)
class Round:
    """What is to be done; see `python -m tests.guard.stress --help`."""

    scenario: str
    threads: int
    devices: tuple[str, ...]
    guard: str
    deadline: float
    functions: tuple[str, ...]
    shapes: tuple[int, ...]


@dataclass
class Found:
    """What a round showed; the lists are appended to by all threads."""

    errors: list[dict[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    kept: list[tuple[str, str, int, list[Any]]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    calls: int = 0
    within: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext

    def failed(self, kind: str, text: str) -> None:
        self.errors.append({"thread": threading.current_thread().name, "type": kind, "traceback": text})

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """The thread goes on after an error, as a job that retries its step would."""
        try:
            yield
        except Exception as error:
            text = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            lines = [line[:200] for line in traceback.format_exc().splitlines()]
            self.failed(text[:160], "\n".join(lines[:30] + ["..."] * (len(lines) > 60) + lines[30:][-30:]))


def allow_many_graphs() -> None:
    import torch._dynamo

    torch._dynamo.config.recompile_limit = MANY
    torch._dynamo.config.accumulated_recompile_limit = MANY


class Trainer:
    """The models of one thread on its device, each behind a torch.compile of its own."""

    def __init__(self, round_: Round, number: int, found: Found) -> None:
        import torch

        from . import stress_models

        self.round, self.found, self.number = round_, found, number
        self.device = round_.devices[number % len(round_.devices)]
        self.made = {name: stress_models.make(name, self.device, list(round_.shapes)) for name in round_.functions}
        self.compiled = {name: torch.compile(model, dynamic=False) for name, model in self.made.items()}
        self.batches = {length: stress_models.inputs(self.device, length) for length in round_.shapes}

    def pairs(self) -> list[tuple[str, int]]:
        """Every function with some of the shapes; each thread begins with another one.

        Every other thread has one shape less: it calls what is compiled while its neighbours still compile.
        """
        shapes = self.round.shapes[self.round.threads > 1 and self.number % 2 == 0 :] or self.round.shapes
        pairs = [(name, length) for length in shapes for name in self.made]
        first = self.number % len(pairs)
        return pairs[first:] + pairs[:first]

    def step(self, name: str, length: int, keep: bool = False) -> None:
        self.found.calls += 1
        with self.found.within():
            results = run(self.compiled[name], self.made[name], self.batches[length], name, self.device)
        if keep:
            self.found.kept.append((name, self.device, length, results))

    def all(self, keep: bool = False) -> None:
        for name, length in self.pairs():
            with self.found.caught():
                self.step(name, length, keep)


def run(call: Callable[[Any], Any], model: Any, batch: Any, name: str, device: str) -> list[Any]:
    """One step: [output, gradient of the input, gradient of the first weight]; only the output where nothing trains."""
    import torch

    from . import stress_models

    if not stress_models.trains(name, device):
        with torch.no_grad():
            return [call(batch)]
    x = batch.clone().requires_grad_()
    for parameter in model.parameters():
        parameter.grad = None
    out = call(x)
    out.square().mean().backward()
    return [out.detach(), x.grad, next(model.parameters()).grad]


def compare(found: Found, round_: Round) -> None:
    """What the threads kept against eager, computed here after they are done."""
    from . import stress_models

    references: dict[tuple[str, str, int], list[Any]] = {}
    for name, device, length, results in found.kept:
        key = (name, device, length)
        if key not in references:
            model = stress_models.make(name, device, list(round_.shapes))
            model.plain = True
            references[key] = run(model, model, stress_models.inputs(device, length), name, device)
        pairs = zip(("output", "input gradient", "weight gradient"), results, references[key], strict=False)
        for what, result, expected in pairs:
            off = float((result - expected).abs().max() / expected.abs().max())
            if not off < (1e-3 if device == "cpu" else 2e-2):
                found.wrong.append(f"{name} of length {length} on {device}: {what} is off by {off:.1e}")
    found.facts["compared"] = len(found.kept)


def start(found: Found, jobs: dict[str, Callable[[], None]]) -> None:
    """Run jobs at the same time, each in a thread of that name, to their ends."""
    barrier = threading.Barrier(len(jobs))

    def work(job: Callable[[], None]) -> None:
        barrier.wait()
        with found.caught():
            job()

    threads = [threading.Thread(target=work, args=(job,), name=name, daemon=True) for name, job in jobs.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Training:
    """Threads that train, until each of them has called everything; then once more, and that is compared."""

    def __init__(self, round_: Round, found: Found, threads: int, own_settings: bool = True) -> None:
        self.trainers = [Trainer(round_, number, found) for number in range(threads)]
        self.busy, self.own_settings = threads, own_settings
        self.lock, self.stop = threading.Lock(), threading.Event()

    def work(self, trainer: Trainer) -> None:
        import torch

        if self.own_settings:
            allow_many_graphs()
        if trainer.device != "cpu":
            torch.cuda.set_device(trainer.device)
        try:
            trainer.all(keep=True)
        finally:
            with self.lock:
                self.busy -= 1
                if not self.busy:
                    self.stop.set()
        while not self.stop.is_set():
            trainer.all()
        trainer.all(keep=True)

    def jobs(self) -> dict[str, Callable[[], None]]:
        return {f"trainer {n}": lambda t=trainer: self.work(t) for n, trainer in enumerate(self.trainers)}  # type: ignore[misc]


def train(round_: Round, found: Found) -> None:
    """Every thread trains its own models."""
    training = Training(round_, found, round_.threads)
    start(found, training.jobs())


def sample_gradients(device: str) -> float:
    """Trace the gradient of each sample of a small model, as for influence functions; how far it is from the truth."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    weight, x, y = (torch.arange(n, device=device).remainder(7.0) / 7 for n in (64, 64, 8))
    weight, x, y = weight.view(8, 8), x.view(8, 8), y.view(8, 1)

    def loss(weight: Any, x: Any, y: Any) -> Any:
        return (torch.tanh(x @ weight).sum() - y).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))
    return float((make_fx(each)(weight, x, y)(weight, x, y) - each(weight, x, y)).abs().max())


def exported(device: str) -> float:
    """Export a model for evaluation; how far its results are from the model's."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).to(device).eval()
    x = torch.ones(4, 8, device=device)
    return float((torch.export.export(model, (x,)).module()(x) - model(x)).abs().max())


def symbolic(device: str) -> float:
    """Trace a model with torch.fx, as quantisation and feature extraction do."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).to(device).eval()
    x = torch.ones(4, 8, device=device)
    return float((torch.fx.symbolic_trace(model)(x) - model(x)).abs().max())


def trace(found: Found, device: str, kinds: tuple[Callable[[str], float], ...], until: Callable[[], bool]) -> None:
    while True:
        for kind in kinds:
            with found.caught():
                off = kind(device)
                found.facts[kind.__name__] = found.facts.get(kind.__name__, 0) + 1
                if not off < 1e-4:
                    found.wrong.append(f"{kind.__name__}: off by {off:.1e}")
        if until():
            return


def beside(round_: Round, found: Found, name: str, kind: Callable[[str], float]) -> None:
    """Threads train while another one traces."""
    training = Training(round_, found, round_.threads - 1)
    jobs = training.jobs()
    jobs[name] = lambda: trace(found, round_.devices[0], (kind,), training.stop.is_set)
    start(found, jobs)


def beside_tracer(round_: Round, found: Found) -> None:
    """Threads train while another one traces with make_fx (per-sample gradients)."""
    beside(round_, found, "tracer", sample_gradients)


def beside_export(round_: Round, found: Found) -> None:
    """Threads train while another one exports a model."""
    beside(round_, found, "exporter", exported)


def beside_symbolic(round_: Round, found: Found) -> None:
    """Threads train while another one traces a model with torch.fx.symbolic_trace."""
    beside(round_, found, "tracer", symbolic)


def tracers(round_: Round, found: Found) -> None:
    """Every thread traces with make_fx, nobody compiles; afterwards a compiled function is called."""
    ends = time.monotonic() + 3
    device = round_.devices[0]
    jobs = {
        f"tracer {n}": lambda: trace(found, device, (sample_gradients,), lambda: time.monotonic() > ends)
        for n in range(round_.threads)
    }
    start(found, jobs)
    call_once(round_, found)


def interleaved(round_: Round, found: Found) -> None:
    """Two tracers of which the first one to begin is the first one to end; afterwards a compiled function is called."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        def body(x: Any) -> Any:
            first_in.set()
            second_in.wait(2)  # in vain where one waits for the other
            return x.sin()

        make_fx(body)(torch.ones(3))
        first_out.set()

    def second() -> None:
        def body(x: Any) -> Any:
            second_in.set()
            first_out.wait(2)
            return x.sin()

        first_in.wait()
        make_fx(body)(torch.ones(3))

    start(found, {"first": first, "second": second})
    call_once(round_, found)


def call_once(round_: Round, found: Found) -> None:
    """A compiled function called when all is quiet: it must work."""
    import torch

    found.facts["flag_left_set"] = torch.fx._symbolic_trace.is_fx_symbolic_tracing()
    with found.caught():
        Trainer(round_, 0, found).step(round_.functions[0], round_.shapes[0])


# A new function each time: what two functions of the same code compile, they share.
_SOURCE = """
def function(x):
    if not torch.compiler.is_dynamo_compiling():
        probe("function")
    return (x.sin() * 2).cos().sum(0)
"""


def new_function() -> Callable[[Any], Any]:
    import torch

    from .stress_models import probe

    names = {"torch": torch, "probe": probe}
    exec(_SOURCE, names)
    return torch.compile(names["function"], dynamic=False)


def settings(round_: Round, found: Found) -> None:
    """The main thread sets how graphs are made and compiles one; the same in threads must not be another graph."""
    import torch
    import torch._inductor.config
    from torch._dynamo.utils import counters

    torch._inductor.config.epilogue_fusion = False
    x = torch.ones(16, 16)
    new_function()(x)
    before = counters["inductor"]["fxgraph_cache_miss"]

    def job() -> None:
        new_function()(x)

    start(found, {f"worker {n}": job for n in range(round_.threads)})
    missed = counters["inductor"]["fxgraph_cache_miss"] - before
    if missed:
        found.failed("SettingsDiffer", f"{missed} of {round_.threads} workers missed the graph of the main thread")


def limit(round_: Round, found: Found) -> None:
    """The main thread allows many graphs; in threads a function of 12 shapes must not run uncompiled."""
    import torch

    allow_many_graphs()

    def job() -> None:
        call = new_function()
        for length in range(1, 13):
            call(torch.ones(length, 16))

    start(found, {f"worker {n}": job for n in range(round_.threads)})


def branching(round_: Round, found: Found) -> None:
    """Eager code that asks whether it is being compiled, while others compile."""
    import torch

    training = Training(round_, found, round_.threads - 1)
    said = Counter[bool]()

    def ask() -> None:
        while not training.stop.is_set():
            said[torch.compiler.is_compiling()] += 1
            time.sleep(0.0002)

    start(found, {**training.jobs(), "eager": ask})
    if said[True]:
        found.failed("SaysCompiling", f"is_compiling() was true in {said[True]} of {said.total()} calls of eager code")


def mixed(round_: Round, found: Found) -> None:
    """All of it: the main thread sets the limit, threads train, one makes per-sample gradients and exports."""
    allow_many_graphs()
    training = Training(round_, found, round_.threads - 1, own_settings=False)
    kinds = (sample_gradients, exported)
    jobs = training.jobs()
    jobs["tracer"] = lambda: trace(found, round_.devices[0], kinds, training.stop.is_set)
    start(found, jobs)
    call_once(round_, found)


SCENARIOS: dict[str, Callable[[Round, Found], None]] = {
    "train": train,
    "beside-tracer": beside_tracer,
    "beside-export": beside_export,
    "beside-symbolic": beside_symbolic,
    "tracers": tracers,
    "interleaved": interleaved,
    "settings": settings,
    "limit": limit,
    "branching": branching,
    "mixed": mixed,
}


def steady_cuda_guard() -> None:
    """Spare a CUDA build without a GPU a crash of its own: torch 2.11 gives the process an object of one thread.

    Once the first thread that traced has ended, the next one that traces dies in `_ensureCUDADeviceGuardSet`.
    """
    import torch

    if torch.version.cuda and not torch.cuda.is_available() and hasattr(torch._C, "_ensureCUDADeviceGuardSet"):
        torch._C._ensureCUDADeviceGuardSet()
        torch._C._ensureCUDADeviceGuardSet = lambda: None


# Those that set something in the main thread for the others.
SETTING = ("settings", "limit", "mixed")


def install(round_: Round, found: Found) -> None:
    """The one line that a job has in its script."""
    if round_.guard == "off":
        return
    import cachekeeper.guard

    measures = () if round_.guard == "on" else tuple(round_.guard.split(","))
    if round_.guard == FIRST_STEPS:
        measures, found.within = ("fallbacks noticed",), cachekeeper.guard.first_steps
    cachekeeper.guard.install(carry=round_.scenario in SETTING, telemetry=False, measures=measures)
    found.facts["guard"] = True


def report(found: Found, began: float, outcome: str, **more: Any) -> dict[str, Any]:
    modules = sys.modules
    uncompiled = modules["tests.guard.stress_models"].ran_uncompiled if "tests.guard.stress_models" in modules else []
    counters = modules["torch._dynamo.utils"].counters if "torch._dynamo.utils" in modules else {}
    inductor, autograd = dict(counters.get("inductor", {})), dict(counters.get("aot_autograd", {}))
    guard = modules.get("cachekeeper.guard")
    return {
        "outcome": outcome,
        "torch": modules["torch"].__version__ if "torch" in modules else "",
        "seconds": round(time.monotonic() - began, 2),
        "cpu_seconds": round(time.process_time(), 2),
        "calls": found.calls,
        "errors": list(found.errors),
        "uncompiled": Counter(f"{thread}: {name}" for thread, name in list(uncompiled)),
        "wrong": list(found.wrong),
        "facts": dict(found.facts),
        "graphs": {kind: inductor.get(f"fxgraph_cache_{kind}", 0) for kind in ("hit", "miss", "bypass")},
        "autograd": {kind: autograd.get(f"autograd_cache_{kind}", 0) for kind in ("hit", "miss", "bypass")},
        "measures": dict(guard.measures()) if "guard" in found.facts else {},
        **more,
    }


def watch(done: threading.Event, deadline: float, write: Callable[..., None]) -> None:
    """At the deadline write who waits for what, and end the process."""
    if not done.wait(deadline):
        seen, owner = stacks(), lock_owner()
        write("hung", cause=cause(seen, owner), stacks=in_words(seen))
        os._exit(HUNG)


def main() -> None:
    said = json.loads(Path(sys.argv[1]).read_text())
    round_ = Round(**{name: tuple(value) if isinstance(value, list) else value for name, value in said.items()})
    found, began, result = Found(), time.monotonic(), Path(sys.argv[2])

    def write(outcome: str, **more: Any) -> None:
        result.write_text(json.dumps(report(found, began, outcome, **more)))

    done = threading.Event()
    # Where even the watching thread does not get on, Python's own watchdog says so without the interpreter's lock.
    faulthandler.enable()
    faulthandler.dump_traceback_later(round_.deadline + 5, exit=True)
    threading.Thread(target=watch, args=(done, round_.deadline, write), name="watch", daemon=True).start()
    install(round_, found)
    import torch

    steady_cuda_guard()
    SCENARIOS[round_.scenario](round_, found)
    began_comparing = time.monotonic()
    found.facts["threads_seconds"] = round(began_comparing - began, 2)
    models = sys.modules.get("tests.guard.stress_models")
    uncompiled = list(models.ran_uncompiled) if models else []
    with found.caught():
        compare(found, round_)
    if models:
        models.ran_uncompiled[:] = uncompiled
    for device in round_.devices:
        if device != "cpu":
            torch.cuda.synchronize(device)
    done.set()
    write("finished")
    sys.stdout.flush()
    os._exit(0)  # threads that still hang must not keep the process


if __name__ == "__main__":
    main()
