"""The processes of a job, and how they are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection

_GRACE = 10.0


def members(child: int, mark: str) -> set[int]:
    """A child, its descendants, and every process of this user with the mark in its environment.

    The group will not do: the shell that started us, and what our output is piped to, may be in it.

    Args:
        mark: "NAME=value", or "" for none.
    """
    parents: dict[int, int] = {}
    found = {child}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (parent := _parent(name)) is not None:
            parents[int(name)] = parent
            if mark and _has(name, mark.encode(errors="surrogateescape")):
                found.add(int(name))
    found &= parents.keys()
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _parent(pid: str) -> int | None:
    """The parent of a process; None where it is gone, or dead and not waited for."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else int(parent)


def _has(pid: str, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


def end(child: int, mark: str, spared: Collection[int], grace: float = _GRACE) -> None:
    """SIGTERM to each process of a job, and SIGKILL to what is left after `grace` seconds."""
    told: set[int] = set()
    deadline = time.monotonic() + grace
    while left := members(child, mark) - set(spared):
        late = time.monotonic() >= deadline
        # A shell goes before what it waits for: else it would begin its next command.
        for pid in sorted(left if late else left - told):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)  # a stopped one could not end
        told |= left
        if late and time.monotonic() > deadline + grace:
            return  # it hangs in the kernel
        time.sleep(0.05)
