"""What every thread of this process does, and in words why none of them gets on."""

from __future__ import annotations

import linecache
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

Stack = Mapping[str, Any]


def stacks() -> list[dict[str, Any]]:
    """A row a thread: its id, name, and frames, the innermost first, as (file, line, function, text of the line)."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = []
    for ident, frame in sys._current_frames().items():
        frames, at = [], frame
        while at is not None:
            code = at.f_code
            line = linecache.getline(code.co_filename, at.f_lineno).strip()
            frames.append((code.co_filename, at.f_lineno, code.co_name, line))
            at = at.f_back
        # Autograd's threads are not Python's, and have no name.
        found.append({"id": ident, "name": names.get(ident, f"autograd's thread {ident}"), "frames": frames})
    return found


def lock_owner() -> int | None:
    """The id of the thread that holds Dynamo's compile lock; None where nobody does, or it is not torch's own lock."""
    convert_frame = sys.modules.get("torch._dynamo.convert_frame")
    found = re.search(r"owner=(\d+) count=[1-9]", repr(getattr(convert_frame, "compile_lock", "")))
    return int(found[1]) if found else None


def doing(stack: Stack, owner: int | None) -> str:
    """What one thread does, for somebody who knows that a hang is a circle of waiting."""
    frames = stack["frames"]
    functions = {function for _, _, function, _ in frames}
    holds = "holds Dynamo's compile lock and " if stack["id"] == owner else ""
    _, _, innermost, line = frames[0]
    backward = any("backward" in function for function in functions)
    if "lock" in line and not holds:
        return f"waits for a lock ({line}) to " + ("compile a backward" if backward else "compile")
    if innermost == "_engine_run_backward":
        tracing = functions & {"create_joint", "aot_dispatch_autograd_graph", "aot_stage1_graph_capture"}
        return f"{holds}waits for autograd's thread" + (" while it traces a backward" if tracing else "")
    return f"{holds}is in {innermost}: {line}"


def cause(found: Sequence[Stack], owner: int | None) -> str:
    """The threads that have to do with torch, and what each waits for: the reason of a hang in one line."""
    of_torch = [stack for stack in found if any("/torch/" in str(file) for file, *_ in stack["frames"])]
    return "; ".join(f"{stack['name']} {doing(stack, owner)}" for stack in of_torch) or "no thread is in torch"


def in_words(found: Sequence[Stack]) -> str:
    """The stacks as text, for people."""
    lines = []
    for stack in found:
        lines.append(f"thread {stack['name']} (innermost first)")
        lines += [f"  {file}:{number} in {function}: {line}" for file, number, function, line in stack["frames"]]
    return "\n".join(lines)
