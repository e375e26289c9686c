"""Names, and where they have pointed: each move of a name is an object `names/<name>/<number>` that nobody changes."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple
from urllib.parse import quote, unquote

from ..errors import DamagedStore, NotFound, UsageError
from ..records import checked, with_checksum
from ..stores import KeyMissing, Store
from ..units import FULL_ID, ID, count

PLACE = "names/"
_PART_BYTES = 240
_DIGITS = 8
# What a name's history is numbered with, as far as it ever gets: no part of a name.
_HISTORY_NUMBER = re.compile(r"0[0-9]{7}")


class Move(NamedTuple):
    """One step in the history of a name; `snapshot` is "" where the object that says it is damaged."""

    number: int
    snapshot: str
    when: str
    who: str


def check_name(name: str) -> str:
    """The name itself.

    Raises:
        UsageError: it is not one that a snapshot can have.
    """
    parts = name.split("/")
    wrong = (
        not name.isprintable()
        or any(not part or part != part.strip() or part.startswith((".", "-")) for part in parts)
        or any(_HISTORY_NUMBER.fullmatch(part) for part in parts)
        or any(len(quote(part, safe="")) > _PART_BYTES for part in parts)
        or parts[-1].isdecimal()
        or ID.fullmatch(name) is not None
        or any(character in name for character in "@{}\\:")
        or name == "latest"
    )
    if wrong:
        raise UsageError(
            f"not a name for a snapshot: {name[:80]!r}",
            facts=[f"each part between '/' has 1 to {_PART_BYTES} characters, none of @ {{ }} \\ :"],
            hint="choose a name such as `drafter` or `team/llama8b`; hexadecimal words are ids, `latest` is taken",
        )
    return name


def is_name(name: str) -> bool:
    """True for what a snapshot can be named; see `check_name`."""
    try:
        check_name(name)
    except UsageError:
        return False
    return True


def split_reference(reference: str) -> tuple[str, int]:
    """`drafter@{2}` -> "drafter", 2: a name, and how many moves back; 0 without any."""
    match = re.fullmatch(r"(.+)@\{(\d{1,6})\}", reference)
    return (match[1], int(match[2])) if match else (reference, 0)


def snapshot_of(store: Store, reference: str) -> str:
    """The full id that a name, or `name@{1}`, points to; "" where it is no name in this store.

    Raises:
        NotFound: the name has not been moved so often.
        DamagedStore: nobody can tell where it points.
    """
    name, back = split_reference(reference)
    known = moves(store, name) if is_name(name) else []
    if not known:
        return ""
    # A listing may not show the first moves: beyond those known, where it would be.
    key = known[-1 - back] if back < len(known) else move_key(name, max(0, number_of(known[-1]) - back))
    try:
        move = read_move(store, key)
    except KeyMissing:
        number = count(len(known), "entry")
        raise NotFound(
            f"{name} has only {number} in its history", hint=f"see `cachekeeper ls {shlex.quote(name)}`"
        ) from None
    if move.snapshot:
        return move.snapshot
    raise DamagedStore(
        f"what {name} points to is damaged in {store.url}",
        facts=[f"names/{name}/{key.rpartition('/')[2]}"],
        hint=f"see the snapshots with `cachekeeper ls`; restore one by its id, or `{shlex.quote(name)}@{{1}}`",
    )


# Keys


def last_moves(store: Store) -> dict[str, str]:
    """Every name -> the key of its last move."""
    last: dict[str, str] = {}
    for key, *_ in store.list(PLACE):
        name, _, number = key.removeprefix(PLACE).rpartition("/")
        if number.isdecimal():
            last[unquote(name)] = key
    return last


def moves(store: Store, name: str) -> list[str]:
    """The keys of a name's moves, oldest first; those too that a listing does not show yet."""
    prefix = _prefix(name)
    listed = [key.removeprefix(prefix) for key, *_ in store.list(prefix)]
    numbers = {int(number) for number in listed if number.isdecimal()}
    between = range(min(numbers, default=0), max(numbers, default=0))
    numbers |= {number for number in between if number not in numbers and store.has(move_key(name, number))}
    while store.has(move_key(name, max(numbers, default=0) + 1)):
        numbers.add(max(numbers, default=0) + 1)
    return [move_key(name, number) for number in sorted(numbers)]


def move_key(name: str, number: int) -> str:
    """The key of a move."""
    return f"{_prefix(name)}{number:0{_DIGITS}d}"


def number_of(key: str) -> int:
    """The number of a move, from its key."""
    return int(key.rpartition("/")[2])


def _prefix(name: str) -> str:
    return f"{PLACE}{quote(name, safe='/')}/"


# Objects


def read_move(store: Store, key: str) -> Move:
    """A move, from its key; without its snapshot where it is damaged.

    Raises:
        KeyMissing: there is none.
    """
    try:
        return store.twice(lambda key: _decode(number_of(key), store.read(key)), key)
    except DamagedStore:
        return Move(number_of(key), "", "", "")


def create_move(store: Store, name: str, move: Move) -> bool:
    """Record a move of a name under its number; False where that number is taken."""
    # No other object says what its bytes must be: hence the checksum.
    data = with_checksum({"snapshot": move.snapshot, "when": move.when, "who": move.who})
    return store.create(move_key(check_name(name), move.number), data)


def _decode(number: int, data: bytes) -> Move:
    try:
        document = checked(data)
        move = Move(number, document["snapshot"], document["when"], document["who"])
        right = FULL_ID.fullmatch(move.snapshot)
    except (ValueError, KeyError, TypeError):
        right = None
    if not right:
        raise DamagedStore(f"move {number} of a name is damaged")
    return move
