"""How a live cache stands to a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_EXIT_CODES = {"gone": 3, "damaged": 3, "empty": 5, "absent": 5, "unknown": 5}


@dataclass(frozen=True)
class StatusResult:
    """How a live cache stands to a snapshot.

    Attributes:
        state: "damaged", "gone", "changed", "grown" or "intact", the first that is true; "empty" or "absent"; "unknown"
            where there is no snapshot to compare it with: `notes` says why.
        quick: presence and sizes alone were looked at.
        snapshot: full id of what it was compared with, or "".
        name: the name of that, or "": it has none, or one that has never pointed to it.
        against: why that one: "restored" there, "saved" from there, "given" or "name".
        files: number of files of the snapshot that belong there: where only some kinds or a damaged snapshot were
            restored, of what was; entries: of its entries.
        same: files that are as in the snapshot.
        gone: entries of which nothing is left.
        gone_after, gone_by: the last was lost between these, seconds since 1970; None where that is not known.
        damaged: entry -> what is wrong with it: structurally, or bytes that nothing but damage changes.
        changed: entry -> what is different: sound, and of a kind that torch writes anew.
        grown: entries that the snapshot does not have.
        newer: full id of the snapshot that the name points to now, where it is another; else "".
        notes: what a person should know, a sentence each.
    """

    cache_dir: Path
    state: str
    quick: bool = False
    snapshot: str = ""
    name: str = ""
    against: str = ""
    files: int = 0
    entries: int = 0
    same: int = 0
    gone: tuple[str, ...] = ()
    gone_after: float | None = None
    gone_by: float | None = None
    damaged: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)
    grown: tuple[str, ...] = ()
    newer: str = ""
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 intact, grown or changed; 3 gone or damaged; 5 empty, absent, or nothing to compare it with."""
        return _EXIT_CODES.get(self.state, 0)
