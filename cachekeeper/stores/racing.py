"""Does a place create an object only where there is none? Found out by racing: servers claim it and do not do it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

PREFIX = "probes/"

Create = Callable[[str, bytes], bool]
Read = Callable[[str], bytes]


def one_wins(create: Create, read: Read, racers: int, rounds: int) -> bool:
    """True where of several writers of one key exactly one won, and what it wrote is what is there.

    Args:
        create: (key, data) -> did it win? Called from `racers` threads.
        read: key -> data.
    """
    return _in_a_row(create, read) and all(_at_once(create, read, racers) for _ in range(rounds))


def _in_a_row(create: Create, read: Read) -> bool:
    key = _new_key()
    return [create(key, b"first"), create(key, b"second")] == [True, False] and read(key) == b"first"


def _at_once(create: Create, read: Read, racers: int) -> bool:
    key = _new_key()
    start = threading.Barrier(racers)

    def race(number: int) -> bool:
        start.wait()
        return create(key, b"%d" % number)

    with ThreadPoolExecutor(racers) as pool:
        won = list(pool.map(race, range(racers)))
    return won.count(True) == 1 and read(key) == b"%d" % won.index(True)


def _new_key() -> str:
    return f"{PREFIX}{secrets.token_hex(16)}"
