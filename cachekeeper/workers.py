"""Work side by side: threads where it releases the interpreter lock (reading, hashing, compressing), else a process."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST = 8
_READS_AT_ONCE = 8


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


def read_all(read: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What is read of small things, in order: several at once, since each mostly waits."""
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        return list(pool.map(read, items))


def in_child(work: Callable[[], Result]) -> Callable[[], Result]:
    """Begin work in a forked process; the function that is returned waits for what it returns or raises.

    For a program that has no other thread, since a lock that one holds stays locked in the child. Where the child is
    killed, the work is done here. What is returned or raised must be picklable.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_tell, args=(sender, work), daemon=True)
    child.start()
    sender.close()

    def result() -> Result:
        try:
            done, value = receiver.recv()
        except EOFError:
            return work()
        finally:
            receiver.close()
            child.join()
        if not done:
            raise value
        found: Result = value
        return found

    return result


def _tell(sender: Connection, work: Callable[[], object]) -> None:
    try:
        told = True, work()
    except BaseException as error:  # for the parent, interrupts among them
        told = False, error
    sender.send(told)
