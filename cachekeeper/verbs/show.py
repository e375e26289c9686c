"""Show one snapshot."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from ..environment import fingerprint
from ..errors import Unreachable
from ..fitting import choose, fit
from ..manifest import Snapshot
from ..models import Comparison
from ..pins import Pin, find
from ..repository import open_repository
from ..stores import Store


@dataclass(frozen=True)
class ShowResult:
    """A snapshot, what it can be called by, whether torch would use it here, and what keeps it from going away."""

    snapshot: Snapshot
    names: tuple[str, ...]
    here: Comparison
    pin: Pin | None = None
    notes: tuple[str, ...] = ()


def show(reference: str, *, store: str | os.PathLike[str] | Store | None = None) -> ShowResult:
    """Look at one snapshot.

    Args:
        reference: id, name, `name@{1}` or "latest".

    Raises:
        NotFound: no such snapshot.
        DamagedStore: its manifest is damaged.
    """
    repository = open_repository(store)
    repository.require()
    here = fingerprint()
    snapshot = choose(repository, reference, here)
    names = tuple(sorted(name for name, identifier in repository.names().items() if identifier == snapshot.id))
    pin = None
    with contextlib.suppress(Unreachable):  # `caveats` says it, where all else was known here
        pin = find(repository, snapshot.id)
    return ShowResult(snapshot, names, fit(snapshot.header, here), pin, repository.store.caveats)
