"""A watch in a child of the test, and what it tells, as it tells it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from cachekeeper.verbs.watch import watch
from cachekeeper.watching import Event
from cachekeeper.watching.beside import Beside
from tests.verbs.conftest import unplaced

LONG = 60.0


def wait_for(condition: Callable[[], object], what: str = "", seconds: float = LONG) -> None:
    """Wait until it is so; how long that takes is not tested."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what or "it never came to be"
        time.sleep(0.02)


def is_whole(live: Path, cache: Path) -> bool:
    """Everything of the snapshot of `cache` is there, byte for byte; more may be."""
    try:
        now = unplaced(live)
    except FileNotFoundError:
        return False
    return unplaced(cache).items() <= now.items()


class Guard:
    """A watch, from the moment that it has begun until the block ends; its arguments are those of the verb."""

    def __init__(self, **options: object) -> None:
        self._options = options
        self.events: list[Event] = []

    def __enter__(self) -> Guard:
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._text = b""

        def work(until: int, tell: Callable[[Event], None]) -> None:
            path = Path(f"/proc/{os.getppid()}/fd/{writer}")
            line = path.open("wb", buffering=0)  # the watch has closed what it inherited

            def both(event: Event) -> None:
                line.write(f"{event.event}: {event.text}\n".encode())
                tell(event)

            watch(until=until, tell=both, **self._options)  # type: ignore[arg-type]

        self._writer = writer
        self._beside = Beside(work)
        self.pid = self._beside._pid
        wait_for(lambda: self.told("watching") or not self.alive(), "the watch did not begin")
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._writer)
        self.events = self._beside.finish()
        os.close(self._reader)
        print(*self.events, sep="\n")

    def alive(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def told(self, *words: str) -> list[str]:
        """The lines so far that begin with the first of some words, and hold the others."""
        try:
            while part := os.read(self._reader, 1 << 16):
                self._text += part
        except BlockingIOError:
            pass
        lines = self._text.decode().splitlines()
        return [line for line in lines if line.startswith(f"{words[0]}: ") and all(word in line for word in words)]

    def wait_for(self, *words: str, times: int = 1) -> None:
        """Wait until it has told that."""
        wait_for(
            lambda: len(self.told(*words)) >= times, f"not told {words} {times} times; told: {self._text.decode()}"
        )
