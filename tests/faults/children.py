"""Work in forked children that end, or are killed, at a chosen moment.

A fork takes a millisecond and a fresh interpreter 200, so that a test can afford hundreds of deaths.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from cachekeeper import disk

DIED = 137
_FAILED = 70
Work = Callable[[], object]

_MUTATING = ("fsync", "link", "rename", "replace", "unlink", "mkdir", "rmdir", "symlink", "truncate", "ftruncate")


def start(work: Work) -> int:
    """Run `work` in a child; its process id."""
    pid = os.fork()
    if pid == 0:
        _run(work)
    return pid


def _run(work: Work) -> NoReturn:
    code = _FAILED
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def kill(pid: int) -> None:
    """End a child at once, as with kill -9."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def finish(pid: int) -> int:
    """The exit code of a child; minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(work: Work) -> int:
    """The exit code of `work` in a child: 0, or 70 where it raised."""
    return finish(start(work))


def dies_at(step: int, work: Work) -> bool:
    """Run `work` in a child that ends just before its `step`-th storage operation; a write is half done.

    Returns:
        True where it died, False where it was done before.
    """

    def doomed() -> None:
        _count_operations(step)
        work()

    code = run(doomed)
    assert code in (0, DIED), f"the child failed with {code} before step {step}"
    return code == DIED


def killed_after(seconds: float, work: Work) -> bool:
    """Kill a child that does `work` after some time; False where it was done before."""
    pid = start(work)
    time.sleep(seconds)
    kill(pid)
    code = finish(pid)
    assert code in (0, -signal.SIGKILL), f"the child failed with {code}"
    return code != 0


def duration(work: Work) -> float:
    """Seconds that `work` takes in a child."""
    began = time.perf_counter()
    assert run(work) == 0
    return time.perf_counter() - began


def _count_operations(last: int) -> None:
    """Make this process end at its `last`-th storage operation."""
    counter = itertools.count(1)

    def here(*_: object) -> None:
        if next(counter) >= last:
            os._exit(DIED)

    for name in _MUTATING:
        setattr(os, name, _preceded(here, getattr(os, name)))
    _patch_opening(here)
    _patch_writing(counter, last)
    disk._renameat2 = _preceded(here, disk._renameat2)  # type: ignore[assignment]


def _preceded(first: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        first()
        return function(*args, **kwargs)

    return call


def _patch_opening(here: Callable[[], None]) -> None:
    real_open, real_how = os.open, disk._open_how

    def counted_open(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT:
            here()
        return real_open(path, flags, *args, **kwargs)

    def counted_how(flags: int, mode: int) -> Any:
        if flags & os.O_CREAT:
            here()
        return real_how(flags, mode)

    os.open = counted_open
    disk._open_how = counted_how  # type: ignore[assignment]


def _patch_writing(counter: itertools.count[int], last: int) -> None:
    real_write = os.write

    def counted_write(descriptor: int, data: Any) -> int:
        if next(counter) >= last:
            real_write(descriptor, memoryview(data)[: len(data) // 2])
            os._exit(DIED)
        return real_write(descriptor, data)

    os.write = counted_write
