"""Where a name has pointed, with the headers of the snapshots."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from .errors import DamagedStore, FromLaterVersion, NotFound
from .manifest import Snapshot
from .repository import Move, Repository
from .stores import KeyMissing
from .workers import read_all

_GONE = "its manifest is not in the store"


class Past(NamedTuple):
    """One step in the history of a name.

    Attributes:
        reference: what the snapshot can be called by now, as "drafter@{1}".
        snapshot: None where it cannot be read.
        trouble: why not, or "".
    """

    move: Move
    reference: str
    snapshot: Snapshot | None
    trouble: str = ""


def history(repository: Repository, name: str, most: int | None = None) -> list[Past]:
    """The history of a name, oldest first; empty for an unknown name. Only headers are read, each once.

    Args:
        most: no more than so many, the last ones; None: all.
    """
    moves = repository.history(name)
    references = [f"{name}@{{{back}}}" if back else name for back in reversed(range(len(moves)))]
    first = max(0, len(moves) - most) if most is not None else 0
    wanted = moves[first:]
    found = _headers(repository, list(dict.fromkeys(move.snapshot for move in wanted)))
    return [
        Past(move, reference, *found[move.snapshot]) for move, reference in zip(wanted, references[first:], strict=True)
    ]


def _headers(repository: Repository, identifiers: Sequence[str]) -> dict[str, tuple[Snapshot | None, str]]:
    headers = read_all(lambda identifier: _header(repository, identifier), identifiers)
    return dict(zip(identifiers, headers, strict=True))


def _header(repository: Repository, identifier: str) -> tuple[Snapshot | None, str]:
    if not identifier:
        return None, "what the name pointed to is damaged"
    try:
        return repository.header(identifier), ""
    except KeyMissing as error:
        return None, error.message if error.hint else _GONE  # where it was removed, that says when
    except (DamagedStore, FromLaterVersion) as error:
        return None, error.message


def require_history(repository: Repository, name: str) -> list[Past]:
    """The whole history of a name.

    Raises:
        NotFound: there is no such store or name; with what was perhaps meant.
    """
    repository.require()
    found = history(repository, name)
    if not found:
        repository.resolve(name)  # says what was perhaps meant
        raise NotFound(f"{name} is no name", hint=f"see one snapshot with `cachekeeper show {shlex.quote(name)}`")
    return found
