"""Makes `torch.compile` safe where several Python threads use it, and tells what it compiles.

    import cachekeeper.guard

    cachekeeper.guard.install()

best before torch is imported; `cachekeeper run` does it in every Python process of its command. Standard library and
torch only, and torch is not imported before the job does so itself.

installed  the guard of this process: which measures, when
tracing    a flag for each thread, one tracer at a time
flags      that a thread compiles or exports is its own affair
compiling  the backward with the forward, autograd on the compiling thread
settings   what a thread sees of torch's configuration
alarm      what runs uncompiled, said loudly or raised
steps      whole first steps, one thread at a time
telling    telemetry and `assert_warm`; recorder: its file
imports, measure   when a module is imported; what became of a measure
startup    what `cachekeeper run` puts on PYTHONPATH
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..system import require_linux
from ..variables import GUARD
from .errors import RanUncompiled

if TYPE_CHECKING:
    from .installed import Guard
    from .steps import FirstSteps

__all__ = ["RanUncompiled", "first_steps", "install", "install_from_environment", "measures", "uninstall"]

VARIABLE = GUARD

_guard: Guard | None = None
_steps: FirstSteps | None = None


def install(
    *,
    fallback: str = "warn",
    carry: bool = False,
    telemetry: bool = True,
    assert_warm: bool = False,
    measures: tuple[str, ...] = (),
) -> None:
    """Guard this process, from now on. A guard that is installed already gives way.

    Under `cachekeeper run` the stricter holds of what its command line and what the script says.

    Args:
        fallback: what to do when a function runs uncompiled that was to be compiled: "warn" (once each, on standard
            error), "error" (raise `RanUncompiled` before it runs, in its thread), "off" (only note it).
        carry: give a thread the settings of `torch._inductor.config` and the like that the thread that started it has
            and that it lacks (torch 2.12 and later). Otherwise the difference is only said.
        telemetry: write what compiles, and what was found, into the directory of runs: `cachekeeper stats`.
        assert_warm: end the job with exit code 3 at the first graph that torch's caches do not have.
        measures: names of the measures to take, as `measures()` gives them; default: all.

    Raises:
        ValueError: an option makes no sense.
        UnsupportedSystem: this is not Linux.
    """
    global _guard
    require_linux()
    from .alarm import MODES
    from .installed import Guard, Options

    if fallback not in MODES:
        raise ValueError(f"fallback={fallback!r}: one of {', '.join(MODES)}")
    run = _from_environment()
    options = Options(
        run.get("fallback", "warn") if fallback == "warn" else fallback,
        carry or run.get("carry", False),
        telemetry and run.get("telemetry", True),
        assert_warm or run.get("assert_warm", False),
        tuple(measures),
    )
    uninstall()
    _guard = Guard(options, _first_steps())
    _guard.install()


def install_from_environment() -> None:
    """Guard this process as `cachekeeper run` says in the variable CACHEKEEPER_GUARD, where the script did not."""
    if _guard is None:
        install()


def _from_environment() -> dict[str, Any]:
    """Arguments of `install`, as a JSON object."""
    found = json.loads(os.environ.get(VARIABLE) or "{}")
    return found if isinstance(found, dict) else {}


def uninstall() -> None:
    """Put torch back as it was. What was compiled stays compiled."""
    global _guard
    if _guard is not None:
        _guard.uninstall()
    _guard = None


def measures() -> Mapping[str, str]:
    """Each measure and what became of it; empty where no guard is installed.

    "on", "not needed: why", "cannot: why", or "waits for torch", which imports some of it with the first compile.
    """
    return dict(_guard.measures) if _guard is not None else {}


@contextlib.contextmanager
def first_steps(timeout: float = 600.0) -> Iterator[None]:
    """Do a whole step, forward and backward, while no other thread does one; without effect once nothing compiles.

    For a torch where a measure cannot be taken. Installs the guard where there is none. Write it around every step of
    every thread:

        with cachekeeper.guard.first_steps():
            loss = step(batch)
            loss.backward()

    Nothing within may wait for another thread's step (a barrier, a collective between threads).

    Raises:
        TimeoutError: other threads did not end their steps in `timeout` seconds.
    """
    if _guard is None:
        install()
    with _first_steps().step(timeout):
        yield


def _first_steps() -> FirstSteps:
    global _steps
    if _steps is None:
        from .steps import FirstSteps

        _steps = FirstSteps()
    return _steps
