"""Writing a snapshot beside sweeps: what a writer needs stays until its manifest says so."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from . import condemned, leases
from .condemned import Condemned
from .errors import Busy, DamagedStore
from .leases import Held, Kind
from .stores import Store
from .units import count

PATIENCE = 60.0
_LOOK_AGAIN = 0.5


class Writing:
    """A writer at work.

    Attributes:
        condemned: packs that it passes over, as if they were not there.
    """

    def __init__(self, store: Store, held: Held, seen: Condemned, stack: ExitStack, patience: float) -> None:
        self._store, self._held, self.condemned = store, held, seen
        self._stack, self._patience = stack, patience
        self._adopting: Held | None = None

    def claim(self, packs: Iterable[str]) -> bool:
        """Keep packs that are in the store already from being deleted until this work ends.

        Returns:
            True where some of them were condemned: those may be gone by now, so look again (`require`).

        Raises:
            Busy: a sweep is deleting, and does not end.
        """
        if not self._held.fresh:
            raise Busy("this took so long that a sweep may have taken what it needs", hint="run the command again")
        if not self.condemned.among(packs):
            return False
        if not self._adopting:
            held = self._stack.enter_context(leases.hold(self._store, Kind.EXCLUSIVE, self.condemned.generation))
            self._wait_for_sweeps(held)
            self._adopting = held
        return True

    def _wait_for_sweeps(self, held: Held) -> None:
        deadline = time.monotonic() + self._patience
        while sweeps := [lease for lease in held.others()[0] if lease.may_delete]:
            if time.monotonic() >= deadline:
                raise Busy(
                    f"a sweep is deleting from {self._store.url}",
                    facts=[f"since {sweep.when} by {sweep.who}" for sweep in sweeps],
                    hint="try again when it has ended; that of a machine that died counts for half an hour",
                )
            time.sleep(_LOOK_AGAIN)

    def require(self, packs: Iterable[str]) -> None:
        """Refuse where packs are not in the store.

        Raises:
            DamagedStore: some are not.
        """
        there = {key.removeprefix("packs/") for key, *_ in self._store.list("packs/")}
        if missing := set(packs) - there:
            raise DamagedStore(
                f"{count(len(missing), 'pack')} vanished from {self._store.url} meanwhile",
                facts=sorted(missing)[:10],
                hint="run the command again; `cachekeeper snapshot --full` stores every file anew",
            )

    def confirm(self, packs: Iterable[str]) -> None:
        """Look, once the manifest is written, whether it came in time.

        Raises:
            DamagedStore: it did not: packs are gone, or may be going.
        """
        if self._held.fresh and self._held.there and (self._adopting is None or self._adopting.there):
            return
        # A sweep may have taken this for dead, and have looked at the manifests before this one was written.
        with leases.hold(self._store, Kind.EXCLUSIVE, self.condemned.generation) as held:
            try:
                self._wait_for_sweeps(held)
            except Busy as error:
                raise DamagedStore(error.message, facts=error.facts, hint=error.hint) from None
            self.require(packs)


@contextmanager
def at_work(store: Store, patience: float = PATIENCE) -> Iterator[Writing]:
    """Write to a store that is one already; whatever is looked at within is seen by every sweep.

    Args:
        patience: seconds to wait at most for a sweep, where condemned packs are needed.

    Raises:
        StoreError: the store cannot be written.
    """
    store = store.original
    with ExitStack() as stack:
        held = stack.enter_context(leases.hold(store, Kind.WRITE, condemned.generation(store)))
        # Read after the lease was written: what is condemned later, the lease keeps.
        yield Writing(store, held, condemned.read(store), stack, patience)
