"""What a process said that `--assert-warm` ended, at the first graph that its caches did not have."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models import Graph
from . import RunInfo, write_whole

_LIMIT = 1 << 20
_FILES = "stop-*.json"


@dataclass(frozen=True)
class Stop:
    """The first miss of a run, for which its job was ended.

    Attributes:
        graph: what missed, as "forward of step (train.py:12)", or ""; `thread` is where.
        why: what differs from the nearest graph of the snapshot, a line each; nothing where nothing like it is known.
    """

    graph: str = ""
    thread: str = ""
    why: tuple[str, ...] = ()


def say_why(directory: Path, graph: Graph, thread: str, why: Sequence[str]) -> None:
    """Write down, for whoever began the run, what this process missed.

    Raises:
        OSError: it cannot be written.
    """
    document = {"function": graph.function, "graph": str(graph), "key": graph.key, "thread": thread, "why": [*why]}
    write_whole(directory / _FILES.replace("*", str(os.getpid())), json.dumps(document).encode())


def stopped(run: RunInfo) -> Stop | None:
    """What the first process said that was ended; None for a run where none was. A damaged file is an empty `Stop`."""
    found: list[tuple[int, Path]] = []
    with contextlib.suppress(OSError):
        found = [(path.stat().st_mtime_ns, path) for path in run.directory.glob(_FILES)]
    return _read(min(found)[1]) if found else None


def _read(path: Path) -> Stop:
    try:
        with open(path, "rb") as file:
            document: dict[str, Any] = json.loads(file.read(_LIMIT))
        graph = document.get("graph") or document.get("function") or ""
        return Stop(str(graph), str(document.get("thread", "")), tuple(map(str, document.get("why", ()))))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return Stop()
