"""What is wrong with an object, in words that say in which store."""

from __future__ import annotations

from ...manifest import PackRow
from ...repository import Repository
from ...units import short_id


def damaged_pack(repository: Repository, row: PackRow, reason: str) -> str:
    """A pack whose bytes are wrong."""
    return f"pack {short_id(row.id)} is damaged in {repository.store.url}: {reason}"


def missing_pack(repository: Repository, row: PackRow) -> str:
    """A pack that is not there."""
    return f"pack {short_id(row.id)} is missing from {repository.store.url}"


def wrong_length(size: int, right: int) -> str:
    """An object of another length than it should have."""
    return f"{size:,} bytes instead of {right:,}"
