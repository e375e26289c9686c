"""Show one snapshot."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from ..environment import fingerprint
from ..errors import Unreachable
from ..fitting import choose, fit, left_out
from ..manifest import Snapshot
from ..models import Comparison, Fingerprint, Proof
from ..pins import Pin, find
from ..repository import Repository, open_repository
from ..signatures import Claim, found
from ..stores import Store

_OTHER = "it is of another snapshot"


@dataclass(frozen=True)
class Signed:
    """A signature as it says of itself: only `restore --require-signature` asks a key whether it is good.

    Attributes:
        key: id of the key that it is said to be by.
        when, who: of the signing.
        damage: what is wrong with it; it vouches for nothing then.
    """

    key: str
    when: str
    who: str
    damage: str


@dataclass(frozen=True)
class ShowResult:
    """A snapshot, what it can be called by, whether torch would use it here, what keeps it, and who has signed it."""

    snapshot: Snapshot
    names: tuple[str, ...]
    here: Comparison
    pin: Pin | None = None
    notes: tuple[str, ...] = ()
    signatures: tuple[Signed, ...] = ()


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
    pin: Pin | None = None
    signatures: tuple[Signed, ...] = ()
    with contextlib.suppress(Unreachable):  # `caveats` says it, where all else was known here
        pin = find(repository, snapshot.id)
        signatures = _signatures(repository, snapshot.id)
    notes = (*_unproved(snapshot.header.proof, here), *repository.store.caveats)
    return ShowResult(snapshot, names, fit(snapshot.header, here), pin, notes, signatures)


def _unproved(proof: Proof | None, here: Fingerprint) -> tuple[str, ...]:
    """What a certificate does not say, and a job may need. What the cache itself holds is in no header."""
    if proof is None:
        return ()
    notes = []
    if all(step.mode == "infer" for step in proof.steps):
        notes.append(
            "its proof is of inference alone: it says nothing of backward graphs, and a job that trains may miss "
            "(`cachekeeper report` counts them)"
        )
    if lacking := left_out((step.device for step in proof.steps), {"here": here}):
        notes.append(f"its proof says nothing of {lacking} (`cachekeeper report` counts their graphs)")
    return tuple(notes)


def _signatures(repository: Repository, identifier: str) -> tuple[Signed, ...]:
    told = found(repository, Claim(identifier))
    return tuple(
        Signed(each.key, each.when, each.who, each.damage or ("" if each.claim.snapshot == identifier else _OTHER))
        for each in told
    )
