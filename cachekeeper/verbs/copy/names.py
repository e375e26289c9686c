"""Names in the destination: moved forward only, whoever else moves them meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from functools import partial

from ...records import writer
from ...repository import Move, Repository
from ...units import now_utc, short_id
from .wanted import Wanted


def move(
    theirs: Repository, wanted: Wanted, available: Set[str], dry_run: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Go on with the histories of names, as far as their snapshots are `available` in the destination.

    Returns:
        (names that were moved, names that were moved later there and stay), each -> what it points to then.
    """
    moved: dict[str, str] = {}
    kept: dict[str, str] = {}
    for name, identifier in wanted.pointers.items():
        if identifier in available and _extend(theirs, name, partial(_pointing_to, identifier), dry_run)[0]:
            moved[name] = identifier
    for name, moves in wanted.histories.items():
        good = [move for move in moves if move.snapshot in available]
        if not good:
            continue
        made, current = _extend(theirs, name, partial(_missing, good), dry_run)
        if made:
            moved[name] = current
        if current != good[-1].snapshot:
            kept[name] = current
    return moved, kept


def damage(wanted: Wanted, known: Set[str]) -> dict[str, str]:
    """Names that no snapshot can have, moves that are damaged, and names that point to a snapshot that is nowhere."""
    found = {f"name {name[:80]}": "no snapshot can have this name" for name in wanted.impossible}
    for name, moves in wanted.histories.items():
        for number, snapshot, *_ in moves:
            if not snapshot:
                found[f"name {name} ({number})"] = "its bytes do not match its checksum"
        if moves and moves[-1].snapshot not in {"", *known}:
            last = moves[-1]
            found[f"name {name} ({last.number})"] = f"points to {short_id(last.snapshot)}, which is not there"
    return found


def _pointing_to(identifier: str, theirs: list[Move]) -> list[Move]:
    return [] if theirs and theirs[-1].snapshot == identifier else [Move(0, identifier, now_utc(), writer())]


def _missing(ours: list[Move], theirs: list[Move]) -> list[Move]:
    """Our moves after the last that they have too, as far as they are no older than their last."""
    # Counted, since within one second a name can be moved there, back, and there again.
    there = Counter(move[1:] for move in theirs)
    first = 0
    for number, move in enumerate(ours, start=1):
        if there[move[1:]]:
            there[move[1:]] -= 1
            first = number
    latest = max((move.when for move in theirs if move.snapshot), default="")
    return [move for move in ours[first:] if move.when >= latest]


def _extend(
    repository: Repository, name: str, missing: Callable[[list[Move]], list[Move]], dry_run: bool
) -> tuple[bool, str]:
    """Append what is missing in a history, decided anew whenever somebody else was quicker.

    Returns:
        (was anything appended, what the name points to then).
    """
    made, number = False, 0
    while True:
        history = repository.history(name)
        moves = missing(history)
        # A number that was taken is not tried again, whether or not the history shows who took it.
        number = max(number, history[-1].number if history else 0)
        for move in moves:
            number += 1
            if not dry_run and not repository.append_move(name, move._replace(number=number)):
                break
            made = True
        else:
            return made, [*history, *moves][-1].snapshot
