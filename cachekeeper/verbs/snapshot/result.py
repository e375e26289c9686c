"""What a snapshot became."""

from __future__ import annotations

from dataclasses import dataclass

from ...disk import Skipped
from ...manifest import Snapshot


@dataclass(frozen=True)
class SnapshotResult:
    """A saved snapshot.

    Attributes:
        snapshot: its id and header.
        name_moved: True where the name points to it now.
        shrunk_from: number of entries of the snapshot that the name still points to, where this one is much smaller.
        stored: bytes written to the store for it; new_files of its files were not there before.
        skipped: what was in the directory and cannot be kept.
        scratch: number of locks and temporary files passed over.
        notes: what a person should know, a sentence each.
        signed_by: id of the key that signed it, and the move of its name; "" where none did.
    """

    snapshot: Snapshot
    name: str
    name_moved: bool
    shrunk_from: int
    stored: int
    new_files: int
    skipped: tuple[Skipped, ...]
    scratch: int
    notes: tuple[str, ...]
    signed_by: str = ""
