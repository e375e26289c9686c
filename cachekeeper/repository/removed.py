"""What says that a snapshot was removed: an object `trash/<id>/<random>` for each time, or `trash/<id>/gone` for good.

Each is a line that says when, by whom and why, and behind it the manifest, as long as that can come back (see `trash`).
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import NotFound, StoreError
from ..records import checked, with_checksum
from ..stores import KeyMissing, Store
from ..units import short_id

PLACE = "trash/"
GRACE_SECONDS = 14 * 24 * 3600.0
_GONE = "gone"
_MOST_OF_A_RECORD = 64 << 10
_KEY = re.compile(r"trash/([0-9a-f]{64})/([0-9a-f]{32}|gone)")


class _Removed(KeyMissing):
    """No manifest, since the snapshot was removed; to whoever asked for that, it is not found."""

    code = NotFound.code


class Removal(NamedTuple):
    """How a snapshot went to the trash.

    Attributes:
        key: of the object.
        snapshot: its id.
        when, who, reason: for people; "" where the object is damaged.
        grace: seconds for which it can come back at least.
        names: the names that pointed to it, each with the number of the move that then took it elsewhere.
        modified: when the store wrote the object, by its clock.
        size: of the object, in bytes.
        gone: True where only this is left of it.
        damage: what is wrong with the object.
    """

    key: str
    snapshot: str
    when: str = ""
    who: str = ""
    reason: str = ""
    grace: float = GRACE_SECONDS
    names: Mapping[str, int] = {}
    modified: float = 0.0
    size: int = 0
    gone: bool = False
    damage: str = ""

    @property
    def until(self) -> float:
        """Until when it can come back at least, by the store's clock."""
        return self.modified + self.grace


def listed(store: Store, identifier: str = "") -> list[Removal]:
    """What a listing tells of all removals, or of those of one snapshot: not who, when and why (see `read`)."""
    found = []
    for key, size, modified in store.list(f"{PLACE}{identifier}/" if identifier else PLACE):
        if match := _KEY.fullmatch(key):
            found.append(Removal(key, match[1], modified=modified, size=size, gone=match[2] == _GONE))
    return found


def ids(store: Store) -> set[str]:
    """The ids of all snapshots that were ever removed, those that came back by another way too, from one listing."""
    return {removal.snapshot for removal in listed(store)}


def read(store: Store, removal: Removal) -> Removal | None:
    """A removal with all that its object says; None for one that went away meanwhile."""
    try:
        document = checked(_record(store, removal.key))
        names = {str(name): int(number) for name, number in document["names"].items()}
        when, who, reason = (str(document[field]) for field in ("when", "who", "reason"))
        return removal._replace(when=when, who=who, reason=reason, grace=float(document["grace"]), names=names)
    except KeyMissing:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return removal._replace(damage="what says how it was removed is damaged")


def _record(store: Store, key: str) -> bytes:
    """The line before the manifest, which may be long."""
    start = store.read(key, 0, _MOST_OF_A_RECORD)
    return _split(start if b"\n" in start else store.read(key))[0]


def manifest_bytes(store: Store, removal: Removal) -> bytes:
    """The bytes of the manifest that a removal keeps.

    Raises:
        KeyMissing: it went away meanwhile.
    """
    return _split(store.read(removal.key))[1]


def _split(data: bytes) -> tuple[bytes, bytes]:
    record, newline, rest = data.partition(b"\n")
    return record + newline, rest


def new_key(identifier: str) -> str:
    """A key for another removal of a snapshot."""
    return f"{PLACE}{identifier}/{secrets.token_hex(16)}"


def gone_key(identifier: str) -> str:
    """The key of the note that a snapshot is gone for good."""
    return f"{PLACE}{identifier}/{_GONE}"


def encode(removal: Removal) -> bytes:
    """The line that says how a snapshot was removed."""
    document: dict[str, Any] = {
        "snapshot": removal.snapshot,
        "when": removal.when,
        "who": removal.who,
        "reason": removal.reason,
        "grace": removal.grace,
        "names": dict(removal.names),
    }
    return with_checksum(document)


def refuse(store: Store, identifier: str) -> None:
    """Say of a snapshot that it was removed; nothing happens where it was not, or nobody can tell.

    Raises:
        KeyMissing: it was; and whether it can come back.
    """
    last: Removal | None = None
    with contextlib.suppress(StoreError, KeyMissing):
        found = sorted(listed(store, identifier), key=lambda removal: removal.modified)
        # Where there is more than the note that it is gone for good, it can come back.
        found = [removal for removal in found if not removal.gone] or found
        last = found[-1] if found else None
        last = last and (read(store, last) or last)
    if last is None:
        return
    short = short_id(identifier)
    told = f" {last.when} by {last.who}" if last.when else ""
    told += f": {last.reason}" if last.reason else ""
    if last.gone:
        raise _Removed(
            f"snapshot {short} was removed{told}",
            facts=["its grace time is over: nothing is left of it"],
            hint="see what there is with `cachekeeper ls`",
        )
    raise _Removed(f"snapshot {short} was removed{told}", hint=f"bring it back with `cachekeeper undo {short}`")
