"""A few threads for work that releases the interpreter lock: reading, hashing, compressing."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST = 8


def thread_count() -> int:
    """How many threads are worth it here."""
    return max(2, min(_MOST, len(os.sched_getaffinity(0))))


def ordered(
    function: Callable[[Item], Result], items: Iterable[Item], ahead: int = 2, threads: int | None = None
) -> Iterator[Result]:
    """Results in order, with at most `ahead` finished or running items a thread: bounded memory, unlike map().

    Args:
        threads: by default as many as there is work for processors; more for work that waits for others.
    """
    threads = threads or thread_count()
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= threads * ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
