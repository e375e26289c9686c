"""What a check found, and what a repair did."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class PackDamage:
    """A pack that is damaged, and what it does to the snapshots that were checked.

    Attributes:
        pack: its id.
        reason: what is wrong with it; `missing`: it is not in the store.
        damaged, entries: number of entries that are damaged, of those that lie in it.
        snapshots: full ids of those that have any of the damaged ones.
    """

    pack: str
    reason: str
    missing: bool
    damaged: int
    entries: int
    snapshots: tuple[str, ...]


@dataclass(frozen=True)
class VerifyResult:
    """What a check found, and with `repair` what was done about it.

    Attributes:
        what: "store", "live" or "structure".
        checked: number of files whose bytes were read and compared, in snapshots or in a directory.
        bytes: their length together.
        snapshots: ids of the snapshots checked.
        packs: in a store, the packs that are not right.
        damaged: path -> what is wrong; an entry, a pack or a manifest of the store, or a file of the directory.
        missing, extra: files that a live directory lacks, or has beyond the snapshot. Extra ones are no damage by
            themselves; those that are structurally damaged are in `damaged` too.
        repair: whether it was to be repaired. What follows is empty where not, and what is above is as it was found.
        mended: entry -> what was wrong, of those replaced with the snapshot's.
        put_back: the entries that were missing and are there again.
        dropped: entry or file -> why, of what was taken away and not replaced, so that torch builds it again.
        lost: entry -> why, of what was missing and cannot be put back.
        damaged_in_store: those of both that the snapshot has, and whose copy in the store is damaged.
        unmended: path -> what is wrong still.
        quarantine: where everything is that was replaced or dropped, with evidence.json; None where nothing was.
        notes: what a person should know, a sentence each.
    """

    what: str
    checked: int
    bytes: int
    snapshots: tuple[str, ...]
    damaged: dict[str, str]
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    repair: bool = False
    mended: dict[str, str] = field(default_factory=dict)
    put_back: tuple[str, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    damaged_in_store: tuple[str, ...] = ()
    unmended: dict[str, str] = field(default_factory=dict)
    quarantine: Path | None = None
    packs: tuple[PackDamage, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True where nothing is damaged or missing; after a repair, where nothing of that is left.

        What no snapshot has, and was dropped, is not missed.
        """
        if self.repair:
            return not self.unmended and not self.damaged_in_store
        return not self.damaged and not self.missing
