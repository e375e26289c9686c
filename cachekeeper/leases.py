"""Who is at work in a store: each an object `leases/<random>`, which is there for as long as the work takes.

A sweep must not take away what somebody at work is about to use. No clock decides that: a lease says which list of
condemned packs (see `condemned`) its holder had seen when the work began. What was condemned later, the holder may not
know of, and it stays; what was condemned before, the holder passes over. Only who needs packs that are condemned
already (`Kind.EXCLUSIVE`) and who deletes (`Kind.SWEEP`) exclude each other: both write their lease first and look for
the other's then, so that one of them sees it.

A lease that counts no longer is deleted before anything else is: a writer that finds its lease gone, once its manifest
is written, knows that the manifest may have come too late (`Writing.confirm`).
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from .errors import Busy, LocalDiskError, StoreError
from .records import checked, with_checksum, writer
from .stores import KeyMissing, Store
from .units import now_utc

PLACE = "leases/"
# A holder that lasts longer gives up by itself (`Lease.fresh`); its lease counts for a while after that.
WORK_SECONDS = 5 * 3600
SWEEP_SECONDS = 10 * 60
_LIFE = {"sweep": 30 * 60}
_LONGEST_LIFE = 6 * 3600


class Kind(str, Enum):
    """What somebody does: write a snapshot, read one, adopt condemned packs, or delete; UNKNOWN: it is damaged."""

    WRITE = "write"
    READ = "read"
    EXCLUSIVE = "exclusive"
    SWEEP = "sweep"
    UNKNOWN = "unknown"


class Lease(NamedTuple):
    """Somebody at work.

    Attributes:
        key: of the object.
        kind: what they do.
        generation: of the list of condemned packs that they had seen.
        who, when: for people.
        process: boot, namespace, number and start of the process, by which its own machine knows that it is gone.
        modified: when the store wrote the lease, by its clock; 0 for one that was just made.
    """

    key: str
    kind: Kind
    generation: int
    who: str
    when: str
    process: tuple[str, ...]
    modified: float = 0.0

    def is_live(self, now: float) -> bool:
        """False once its holder must have given up, or is known to be gone.

        Args:
            now: by the store's clock.
        """
        return now - self.modified < _LIFE.get(self.kind.value, _LONGEST_LIFE) and not _is_gone(self.process)

    def blocks(self, generation: int) -> bool:
        """True where the holder may use a pack that was condemned in this generation."""
        if self.kind in (Kind.EXCLUSIVE, Kind.UNKNOWN):
            return True
        return self.kind is not Kind.SWEEP and self.generation < generation

    @property
    def may_delete(self) -> bool:
        """True where the holder deletes packs, or nobody can tell that it does not."""
        return self.kind in (Kind.SWEEP, Kind.UNKNOWN)


class Held:
    """A lease of this process, and how long it has been held."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store, self.lease = store, lease
        self._began = _seconds_of_this_boot()

    @property
    def fresh(self) -> bool:
        """False where the holder has been at work for so long that others may take it for dead."""
        limit = SWEEP_SECONDS if self.lease.kind is Kind.SWEEP else WORK_SECONDS
        return _seconds_of_this_boot() - self._began < limit

    @property
    def there(self) -> bool:
        """False where somebody took the lease away: nobody keeps off any more."""
        return self._store.has(self.lease.key)

    def others(self) -> tuple[list[Lease], float]:
        """Everybody else who is at work, and what time it was by the store's clock when this work began.

        Raises:
            Busy: somebody took this lease away.
        """
        leases = listed(self._store)
        now = self._now(leases)
        return [lease for lease in leases if lease.key != self.lease.key and lease.is_live(now)], now

    def bury(self) -> None:
        """Take away the leases of those who are gone, or must have given up."""
        leases = listed(self._store)
        now = self._now(leases)
        for lease in leases:
            if not lease.is_live(now):
                self._store.delete(lease.key)

    def _now(self, leases: Iterable[Lease]) -> float:
        for lease in leases:
            if lease.key == self.lease.key:
                return lease.modified
        raise Busy(
            f"somebody took away {self.lease.key} from {self._store.url}, by which others know that this is at work",
            hint="run the command again; leases end by themselves, and are not to be deleted by hand",
        )


@contextmanager
def hold(store: Store, kind: Kind, generation: int) -> Iterator[Held]:
    """Be at work.

    Args:
        generation: of the list of condemned packs, as it was before this call.

    Raises:
        StoreError: the store cannot be written.
    """
    lease = Lease(f"{PLACE}{secrets.token_hex(16)}", kind, generation, writer(), now_utc(), _this_process())
    store.create(lease.key, _encode(lease))
    try:
        yield Held(store, lease)
    finally:
        with suppress(StoreError, LocalDiskError):  # it ends by itself, later
            store.delete(lease.key)


@contextmanager
def hold_to_read(store: Store, generation: int) -> Iterator[None]:
    """Be at work reading, where this process may write to the store; elsewhere nothing is done."""
    with ExitStack() as stack:
        with suppress(StoreError, LocalDiskError):
            stack.enter_context(hold(store, Kind.READ, generation))
        yield


def listed(store: Store) -> list[Lease]:
    """Every lease, also those of holders that are gone. One that cannot be read blocks everything while it counts."""
    found = []
    for key, _, modified in store.list(PLACE):
        with suppress(KeyMissing):  # its work ended
            found.append(_read(store, key)._replace(modified=modified))
    return found


def _read(store: Store, key: str) -> Lease:
    try:
        document = checked(store.read(key))
        kind, generation, process = Kind(document["kind"]), int(document["generation"]), document["process"]
        return Lease(key, kind, generation, str(document["who"]), str(document["when"]), tuple(map(str, process)))
    except (ValueError, KeyError, TypeError, OverflowError):
        return Lease(key, Kind.UNKNOWN, 0, "nobody knows who", "", ())


def _encode(lease: Lease) -> bytes:
    document: dict[str, Any] = {**lease._asdict(), "kind": lease.kind.value, "process": list(lease.process)}
    del document["key"], document["modified"]
    return with_checksum(document)


# Processes


def _seconds_of_this_boot() -> float:
    """A clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _this_process() -> tuple[str, ...]:
    return (*_this_machine(), str(os.getpid()), _started(os.getpid()))


@cache
def _this_machine() -> tuple[str, str]:
    """The boot and the namespace in which numbers of processes mean something; "" where the kernel does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip(), os.readlink("/proc/self/ns/pid")
    except OSError:
        return "", ""


def _started(pid: int) -> str:
    """When a process began, in the kernel's units; "" for one that there is not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_gone(process: tuple[str, ...]) -> bool:
    """True for a process of this machine that has ended; of another machine's nobody can tell here."""
    if len(process) != 4 or not all(process) or process[:2] != _this_machine():
        return False
    try:
        pid = int(process[2])
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        return False  # another user's, which the kernel may hide
    return _started(pid) not in ("", process[3])
