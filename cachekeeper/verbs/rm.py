"""Take snapshots away, into a trash from which they can come back."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .. import signatures, trash
from ..errors import CheckFailed, DamagedStore, FromLaterVersion, NotFound, Pinned, UsageError
from ..pins import pinned
from ..progress import Progress
from ..records import writer
from ..repository import GRACE_SECONDS, Move, Removal, Repository, is_name, open_repository, removed
from ..signatures import Claim
from ..stores import KeyMissing, Store
from ..units import ID, count, now_utc, short_id

_TAKEN = re.compile(r".* \(rm ([0-9a-f]{8})\)")


@dataclass(frozen=True)
class RmResult:
    """Snapshots that were removed, or would be.

    Attributes:
        store: URL of the store.
        snapshots: full ids of those removed, in the order asked for.
        already: ids of those that had been removed before.
        names: names that pointed to them -> what they point to now, "" where nothing of their history is left.
        unsigned: those of the names that were signed, and are not where they point now.
        removals: how each went to the trash; empty with `dry_run`.
        grace: seconds for which they can come back at least.
        dry_run: True where nothing was changed.
    """

    store: str
    snapshots: tuple[str, ...]
    already: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    unsigned: tuple[str, ...] = ()
    removals: tuple[Removal, ...] = ()
    grace: float = GRACE_SECONDS
    dry_run: bool = False


def rm(
    references: str | Sequence[str],
    *,
    reason: str = "",
    grace: float = GRACE_SECONDS,
    force: bool = False,
    dry_run: bool = False,
    store: str | os.PathLike[str] | Store | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> RmResult:
    """Move snapshots to the trash. A name that points to one goes back to the newest of its history that is there.

    Nothing happens to one that was removed before.

    Args:
        references: one or several of id, name or `name@{1}`; what is removed is the snapshot.
        reason: for people.
        grace: seconds for which `undo` brings it back at least; then a sweep may drop it for good.
        force: also where it is the last of a name, which then points to nothing.
        dry_run: change nothing.

    Raises:
        Pinned: one is pinned; nothing is removed, whatever `force` says.
        CheckFailed: one is the last of a name; nothing is removed.
        NotFound: no such snapshot; nothing is removed.
        StoreError: the store cannot be written, or may not be deleted from. Repeating it finishes what was begun.
    """
    references = [references] if isinstance(references, str) else references
    if not references:
        raise UsageError("nothing to remove", hint="name a snapshot: `cachekeeper rm ID|NAME`")
    repository = Repository(open_repository(store).store.original)
    repository.require()
    asked = list(dict.fromkeys(_resolve(repository, reference) for reference in references))
    already = tuple(identifier for identifier in asked if _was_removed(repository, identifier))
    identifiers = [identifier for identifier in asked if identifier not in already]
    _refuse_pinned(repository, identifiers)
    retreats = _retreats(repository, identifiers)
    if not force:
        _refuse_last(retreats)
    names = {retreat.name: retreat.to for retreat in retreats}
    signed = [retreat for retreat in retreats if retreat.to and is_signed(repository, retreat.name, retreat.last)]
    unsigned = tuple(retreat.name for retreat in signed)
    removals: tuple[Removal, ...] = ()
    if not dry_run:
        removals, names = remove(repository, identifiers, reason, grace, progress)
    return RmResult(repository.store.url, tuple(identifiers), already, names, unsigned, removals, grace, dry_run)


# Checked first


def _resolve(repository: Repository, reference: str) -> str:
    refuse_latest(reference, "remove one by its id or a name of its own: see `cachekeeper ls`")
    moves = repository.history(reference) if is_name(reference) else []
    taken = taken_from(moves)
    if taken and repository.has(taken):
        one, other = short_id(taken), short_id(moves[-1].snapshot)
        raise UsageError(
            f"cannot tell which snapshot of {reference} is meant: removing {one} was interrupted",
            facts=[f"{reference} was taken from {one} to {other} {moves[-1].when}; {one} is still there"],
            hint=f"finish that with `cachekeeper rm {one}`, or take it back with `cachekeeper undo {one}`",
        )
    try:
        return repository.resolve(reference)
    except NotFound:
        found = {each for each in removed.ids(repository.store.original) if each.startswith(reference)}
        if len(found) != 1 or not ID.fullmatch(reference):
            raise
        return found.pop()


def refuse_latest(reference: str, hint: str) -> None:
    """Refuse `latest` where a command changes what it is given: only what reads can take what fits here.

    Raises:
        UsageError: it is that.
    """
    if reference == "latest":
        raise UsageError("`latest` is another snapshot on another machine", hint=hint)


def _was_removed(repository: Repository, identifier: str) -> bool:
    if repository.has(identifier):
        return False
    if not trash.look(repository, identifier).away:
        repository.header(identifier)  # says that it is not there
    return True


def _refuse_pinned(repository: Repository, identifiers: Sequence[str]) -> None:
    pins = pinned(repository)
    found = [pins[identifier] for identifier in identifiers if identifier in pins]
    if found:
        shorts = " ".join(short_id(pin.snapshot) for pin in found)
        raise Pinned(
            f"{count(len(found), 'snapshot')} to be removed {'is' if len(found) == 1 else 'are'} pinned",
            facts=[
                f"{short_id(pin.snapshot)}  "
                + (pin.damage or f"{pin.when} by {pin.who}" + (f": {pin.reason}" if pin.reason else ""))
                for pin in found
            ],
            hint=f"nothing takes a pinned snapshot away; let it go first with `cachekeeper unpin {shorts}`",
        )


def _refuse_last(retreats: Iterable[Retreat]) -> None:
    last = [retreat for retreat in retreats if not retreat.to]
    if last:
        raise CheckFailed(
            f"nothing else is left of {', '.join(retreat.name for retreat in last)}",
            facts=[f"{retreat.name} points to {short_id(retreat.last.snapshot)}" for retreat in last],
            hint="--force removes it all the same; the name then points to nothing until `undo`, or the next snapshot",
        )


# Names


class Retreat(NamedTuple):
    """A name that points to what is removed: the move by which it does, and where it can go back to, "" for nowhere."""

    name: str
    last: Move
    to: str


def _retreats(repository: Repository, going: Collection[str]) -> list[Retreat]:
    """The names that point to snapshots that go, or are gone."""
    found = []
    for name in sorted(name for name, to in repository.names().items() if to in going and is_name(name)):
        moves = repository.history(name)
        if moves[-1].snapshot in going:
            found.append(Retreat(name, moves[-1], _older(repository, moves, going)))
    return found


def _older(repository: Repository, moves: Sequence[Move], going: Collection[str]) -> str:
    """The newest snapshot in a history that is there, whole and not going; "" where there is none."""
    earlier = dict.fromkeys(move.snapshot for move in reversed(moves[:-1]))
    wanted = (each for each in earlier if each and each not in going)
    return next((each for each in wanted if _is_readable(repository, each)), "")


def _is_readable(repository: Repository, identifier: str) -> bool:
    try:
        return repository.has(identifier) and bool(repository.header(identifier))
    except (DamagedStore, FromLaterVersion, KeyMissing):
        return False


def taken_from(moves: Sequence[Move]) -> str:
    """The snapshot from which a removal took a name away with its last move; "" where that was something else."""
    match = _TAKEN.fullmatch(str(moves[-1].who)) if len(moves) > 1 else None
    return moves[-2].snapshot if match and moves[-2].snapshot.startswith(match[1]) else ""


def names_of(repository: Repository, identifiers: Collection[str]) -> dict[str, dict[str, int]]:
    """Id -> the names that point to it, or were taken from it by a removal, each with the number of its last move."""
    found: dict[str, dict[str, int]] = {identifier: {} for identifier in identifiers}
    for name in filter(is_name, repository.names()):
        moves = repository.history(name)
        last = moves[-1].snapshot if moves else ""
        for identifier in {last, taken_from(moves)} & found.keys():
            found[identifier][name] = moves[-1].number
    return found


def point_again(repository: Repository, identifier: str, names: Mapping[str, int]) -> list[str]:
    """Point names to a snapshot again that were taken from it.

    Args:
        names: as `names_of`; one that was moved since stays where it is.

    Returns:
        Those that point to it now.
    """
    there = []
    for name, number in names.items():
        move = Move(number + 1, identifier, now_utc(), writer())
        points = repository.history(name)[-1].snapshot == identifier
        if points or repository.append_move(name, move):
            there.append(name)
    return there


def is_signed(repository: Repository, name: str, move: Move) -> bool:
    """True where somebody has signed that a name points there: the next move has to be signed anew."""
    return bool(signatures.found(repository, Claim(move.snapshot, name, move.number)))


def _take_names(repository: Repository, identifiers: Iterable[str]) -> None:
    """Move names back from what goes, as far as there is something to go back to."""
    going = set(identifiers)
    while found := [retreat for retreat in _retreats(repository, going) if retreat.to]:
        for name, last, to in found:
            who = f"{writer()} (rm {short_id(last.snapshot)})"
            repository.append_move(name, Move(last.number + 1, to, now_utc(), who))
            if not repository.has(to):  # somebody removed that at the same moment
                going.add(to)


# Removing


def remove(
    repository: Repository, identifiers: Sequence[str], reason: str, grace: float, progress: Progress
) -> tuple[tuple[Removal, ...], dict[str, str]]:
    """Move snapshots to the trash, and before that the names away that point to them.

    Returns:
        How each went to the trash; and the names that pointed to them -> what they point to now, or "".

    Raises:
        Pinned: somebody pinned one meanwhile. It stays, and so do those after it; its names point to it again.
    """
    _take_names(repository, identifiers)
    names = names_of(repository, identifiers)
    removals = []
    for number, identifier in enumerate(identifiers, start=1):
        try:
            removals.append(trash.remove(repository, identifier, reason=reason, names=names[identifier], grace=grace))
        except Pinned:
            for each in identifiers[number - 1 :]:
                point_again(repository, each, names[each])
            raise
        progress("Removing", number, len(identifiers))
    _take_names(repository, identifiers)  # one that somebody pointed here at the same moment
    known = repository.names()
    taken = sorted({name for each in names.values() for name in each})
    return tuple(removals), {name: "" if known[name] in identifiers else known[name] for name in taken}
