"""Everything that is watched while one step runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..livecache import LiveCache
from ..models import StepReport
from ..units import count
from .compiles import Compiles
from .fallbacks import Fallbacks
from .launches import Launches
from .memory import Memory

# path -> (inode, mtime in ns, size), and the entries that the paths belong to
_Look = tuple[dict[str, tuple[int, int, int]], set[object]]


class Watch:
    """Watches this process and the cache.

    Args:
        directories: label -> directory; "" is the cache directory, which is there.
        compiling: called with the name of a function when its compile begins.
    """

    def __init__(self, directories: Mapping[str, str], compiling: Callable[[str], None]) -> None:
        self._cache = Path(directories[""])
        self._also = {label: Path(path) for label, path in directories.items() if label}
        for directory in self._also.values():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._launches = Launches()
        self._fallbacks = Fallbacks()
        self._compiles = Compiles(compiling, self._fallbacks.failed)
        self._seen: _Look = {}, set()

    def before_torch(self) -> None:
        """Watch for compilers and files: what importing the target builds counts for the first step."""
        self._launches.install()
        self._seen = self._look()

    def after_torch(self) -> str:
        """Watch torch. Returns what importing the target built, in words; "" for nothing."""
        files = sum(self._seen[0].get(path) != now for path, now in self._look()[0].items())
        compilers = len(self._launches.compilers)
        self._compiles.install()
        self._fallbacks.install()
        self._launches.listen_to_triton()
        if not files and not compilers:
            return ""
        built = f"importing the target wrote {count(files, 'file')} and started {count(compilers, 'compiler')}"
        return f"{built}, which count for this step; what is compiled then is not told graph by graph"

    @contextlib.contextmanager
    def step(self, report: StepReport, errors: Sequence[str]) -> Iterator[list[StepReport]]:
        """Watch what is done in the block, which fills the errors; the report is in the list afterwards, filled in."""
        filled = [report]
        memory = Memory(report.device)
        memory.begin()
        began = time.perf_counter()
        try:
            yield filled
        finally:
            seconds = time.perf_counter() - began
            peak, left, elsewhere = memory.end()
            before, self._seen = self._seen, self._look()
            files, entries = self._seen
            if errors:
                self._fallbacks.raised()
            launches = self._launches
            filled[0] = replace(
                filled[0],
                seconds=seconds,
                new_entries=len(entries - before[1]),
                new_files=tuple(sorted(path for path, now in files.items() if before[0].get(path) != now)),
                graphs=self._compiles.graphs,
                calls=self._fallbacks.calls,
                triton_hits=launches.triton_hits if launches.triton_listens else None,
                triton_built=launches.triton_built if launches.triton_listens else None,
                compilers=tuple(launches.compilers),
                recompiles=tuple(self._compiles.recompiles),
                graph_breaks=tuple(self._compiles.graph_breaks),
                fallbacks=self._fallbacks.found,
                peak_memory=peak,
                left_memory=left,
                elsewhere=elsewhere,
            )
            for watcher in (self._compiles, self._launches, self._fallbacks):
                watcher.clear()

    def _look(self) -> _Look:
        with LiveCache(self._cache, self._also) as live:
            files = live.scan().files
        return (
            {file.path: (file.live.inode, file.live.mtime_ns, file.live.size) for file in files},
            {file.place for file in files},
        )
