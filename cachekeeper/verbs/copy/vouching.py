"""Signatures, carried along with the snapshots and the moves of names that they are of."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from ... import signatures
from ...errors import DamagedStore
from ...repository import Move, Repository
from ...signatures import Claim
from ...signing import short_key
from ...stores import KeyMissing
from ...workers import ordered
from .wanted import Wanted

Places = Mapping[str, Mapping[str, int]]


class Carried(NamedTuple):
    """What was carried along.

    Attributes:
        number: of signatures.
        damaged: signature -> what is wrong with it; it was not carried.
        notes: names that point there by a move of another number, which nobody has signed; a sentence each.
    """

    number: int = 0
    damaged: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()


def carry(ours: Repository, theirs: Repository, wanted: Wanted, available: Set[str], dry_run: bool) -> Carried:
    """Copy the signatures that the destination lacks, of what it has now.

    A signed move has a number: where the destination has another move of that number, nothing signed fits it.

    Args:
        available: full ids of the snapshots that the destination has.
    """
    here = signatures.listed(ours.store)
    if not here:
        return Carried()
    there = signatures.listed(theirs.store) if theirs.exists() else {}
    ids = available if wanted.ids is None else available & wanted.ids
    claims, notes = [Claim(identifier) for identifier in sorted(ids)], []
    for name, moves in _signed_names(ours, wanted, here):
        other = theirs.history(name)
        same = {move.number: move.snapshot for move in other if move.snapshot}
        claims += [Claim(move.snapshot, name, move.number) for move in moves if same.get(move.number) == move.snapshot]
        if other and _lost(name, moves[-1], other[-1], here):
            notes.append(_note(theirs, name))
    jobs = [
        (claim, key)
        for claim in claims
        for key in sorted(here.get(claim.place, {}).keys() - there.get(claim.place, {}).keys())
    ]

    def carried(job: tuple[Claim, str]) -> str | bool:
        """True where a signature was written, what is wrong with it, or False where it was there by then."""
        claim, key = job
        try:
            data = signatures.read(ours, claim, key, here[claim.place][key])
        except (DamagedStore, KeyMissing) as error:
            return error.message
        return dry_run or theirs.store.create(claim.place + key, data)

    done = list(zip(jobs, ordered(carried, jobs, threads=ours.store.parallel), strict=True))
    damaged = {
        f"signature of {claim} by {short_key(key)}": result for (claim, key), result in done if isinstance(result, str)
    }
    return Carried(sum(result is True for _, result in done), damaged, tuple(notes))


def _signed_names(ours: Repository, wanted: Wanted, here: Places) -> Iterator[tuple[str, list[Move]]]:
    """Names of which a move is signed, with their moves."""
    for name in sorted({*wanted.histories, *wanted.pointers}):
        moves = wanted.histories.get(name) or ours.history(name)
        if any(Claim(move.snapshot, name, move.number).place in here for move in moves):
            yield name, moves


def _lost(name: str, ours: Move, theirs: Move, here: Places) -> bool:
    """True where a name points to the same in both, signed in the source, by moves of different numbers."""
    same = ours.snapshot == theirs.snapshot and ours.number != theirs.number
    return same and Claim(ours.snapshot, name, ours.number).place in here


def _note(theirs: Repository, name: str) -> str:
    where = shlex.quote(theirs.store.url)
    return (
        f"{name} has moves of other numbers in {theirs.store.url}, which the signatures do not fit: "
        f"`cachekeeper sign {shlex.quote(name)} --store {where}`"
    )
