"""copy: snapshots from one store to another, only what the other lacks, every byte checked on the way.

places      which two stores               transfer    packs and manifests, carried over
wanted      what was asked for             names       histories that go on in the destination
plan        what the destination lacks     vouching    signatures, carried along
                                           damage      what is wrong, in words
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import NotFound
from ...progress import Progress
from ...repository import Repository, removed
from ...stores import Store
from ...units import short_id
from . import names, places, transfer, vouching, wanted
from .places import open_copied
from .plan import Plan, looked_again, make_plan

__all__ = ["CopyResult", "copy", "open_copied"]


@dataclass(frozen=True)
class CopyResult:
    """What was copied, or would be.

    Attributes:
        source, destination: URLs of the stores.
        copied: ids of the snapshots copied, oldest first.
        there: ids of those that the destination had already.
        packs, bytes: number of packs written, and the length of packs and manifests together.
        names: name -> id of the snapshot that it points to now in the destination, for the names that were moved.
        kept: name -> id of what it points to in the destination, where it was moved there later than in the source.
        damaged: snapshot or name -> what is wrong with it, in which store; it was not copied.
        notes: what one of the stores does not keep of its contract, and which names must be signed there, a sentence
            each.
        signatures: number of signatures carried along; with `dry_run` without those of moves that are to be made.
    """

    source: str
    destination: str
    copied: tuple[str, ...]
    there: tuple[str, ...]
    packs: int
    bytes: int
    names: dict[str, str]
    kept: dict[str, str]
    damaged: dict[str, str]
    notes: tuple[str, ...] = ()
    dry_run: bool = False
    signatures: int = 0

    @property
    def ok(self) -> bool:
        """True where nothing was damaged."""
        return not self.damaged


def copy(
    source: str | os.PathLike[str] | Store,
    destination: str | os.PathLike[str] | Store,
    references: Sequence[str] = (),
    *,
    dry_run: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> CopyResult:
    """Copy snapshots from one store to another, oldest first: packs, then the manifest, then names.

    Every pack is checked against its name and every manifest against its id before it is written. What is damaged is
    left out and told in the result; everything else is copied. Ids stay what they are.

    Without references, the history of every name is copied too, each move with its own time and writer. A history only
    grows at its end, so a name never goes back in time: what is appended are the moves after the last one that both
    have, as far as they are no older than the last move in the destination. Where the name was moved later there, it
    stays.

    Signatures are carried along, those of moves where the move has the same number in both stores.

    Args:
        source: URL, directory or Store.
        destination: the same; made where it is not there yet.
        references: names, ids, beginnings of ids, or `name@{1}`; none: everything. A plain name is moved in the
            destination too, now and by this user, whatever it points to there.
        dry_run: find out what would be copied from listings and manifests, and write nothing.
        progress: called with ("Copying", bytes done, bytes in all).

    Raises:
        UsageError: both are the same store, or the destination is no store and not empty.
        NotFound: nothing in the source, or no such snapshot.
        DamagedStore: a name that was asked for points to nobody knows what.
        StoreError: a store cannot be used; what was copied until then stays, and the next copy goes on from there.
    """
    ours, theirs = (
        Repository(place if isinstance(place, Store) else open_copied(place)) for place in (source, destination)
    )
    places.check(ours, theirs)
    # Names before manifests before packs, against the order of writing: what is found has all that it needs.
    asked = wanted.chosen(ours, references) if references else wanted.everything(ours)
    there_already = theirs.refuse_foreign()
    plan = make_plan(ours, theirs, asked.ids)
    if not (plan.items or plan.there or plan.damaged):
        raise NotFound(f"no snapshot in {ours.store.url}", hint="save one with `cachekeeper snapshot NAME`")
    if not dry_run and (plan.items or there_already):  # no empty store where all is damaged
        theirs.prepare()
    done = transfer.expected(plan) if dry_run or not plan.items else _carried_out(plan, progress)
    available = plan.found - done.damaged.keys()
    moved, kept = names.move(theirs, asked, available, dry_run)
    carried = vouching.carry(ours, theirs, asked, available, dry_run)
    known = plan.found | done.damaged.keys() | removed.ids(ours.store.original)
    damaged = {f"snapshot {short_id(identifier)}": reason for identifier, reason in done.damaged.items()}
    return CopyResult(
        ours.store.url,
        theirs.store.url,
        tuple(done.copied),
        tuple(done.there),
        done.packs,
        done.bytes,
        moved,
        kept,
        damaged | names.damage(asked, known) | dict(carried.damaged),
        tuple(dict.fromkeys(ours.store.caveats + theirs.store.caveats + carried.notes)),
        dry_run,
        carried.number,
    )


def _carried_out(plan: Plan, progress: Progress) -> transfer.Done:
    with plan.theirs.writing() as work:
        work.claim(plan.packs)
        return transfer.run(looked_again(plan), work, progress)  # a sweep may have taken packs since the first look
