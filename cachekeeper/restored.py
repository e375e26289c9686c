"""What a cache directory was restored from, or saved as: the marker in it, `.cachekeeper/restored.json`.

It names the snapshot, its store and when; of a restore of some kinds also these (`only`), and of one from a damaged
store the entries that it had to leave out (`left_out`). After a snapshot of the directory it names that one (`saved`).
It lies where others may write: what makes no sense is none.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .disk import open_beneath, open_directory
from .inductor import Place
from .inductor.layout import WORKSHOP
from .manifest import FileRow, Manifest
from .units import FULL_ID, seconds_of, timestamp_of

MARKER = f"{WORKSHOP}/restored.json"
_LONGEST = 4 << 20


@dataclass(frozen=True)
class Restored:
    """What a cache was restored from, or saved as.

    Attributes:
        snapshot: its full id.
        store: URL of its store.
        when: seconds since 1970.
        only: the kinds that were restored; none where all were.
        left_out: entries of these kinds that were not, since the store's copy is damaged; of a snapshot that was saved
            here, those that lay beside the cache.
        saved: it was not restored, but taken from this directory.
        older: full ids of snapshots of other environments, of which there was something left when it was saved.
    """

    snapshot: str
    store: str
    when: float
    only: tuple[str, ...] = ()
    left_out: tuple[Place, ...] = ()
    saved: bool = False
    older: tuple[str, ...] = ()

    def files(self, manifest: Manifest) -> list[FileRow]:
        """The files of its snapshot that belong into the cache since.

        Args:
            manifest: of that snapshot, as it was restored (`mending.with_one_kernel_directory`).
        """
        out, table = set(self.left_out), manifest.tables
        belongs = [self._has(entry.kind) and Place(*entry) not in out for entry in table.entries]
        return [file for file in table.files if belongs[file.entry]]

    def _has(self, kind: str) -> bool:
        return not self.only or kind in self.only

    def after(self, before: Restored | None) -> Restored:
        """What is to be written over what was there: a restore leaves what is not of its snapshot, and of some kinds
        alone the others that are.
        """
        if before is None:
            return self
        if before.snapshot != self.snapshot or not self.only:
            return replace(self, older=before.older)
        only = tuple(sorted({*before.only, *self.only})) if before.only else ()
        kept = [place for place in before.left_out if place.kind not in self.only]
        # What was there has its time from the first: by it is told what torch wrote anew.
        return replace(self, when=before.when, only=only, left_out=(*kept, *self.left_out), older=before.older)


def now(snapshot: str, store: str, only: Collection[str] = (), left_out: Collection[Place] = ()) -> Restored:
    """What is restored at this moment; the arguments are those of `Restored`."""
    return Restored(snapshot, store, float(int(time.time())), tuple(sorted(only)), tuple(sorted(left_out)))


def encode(restored: Restored) -> bytes:
    """The content of the marker."""
    document: dict[str, Any] = {
        "snapshot": restored.snapshot,
        "store": restored.store,
        "when": timestamp_of(restored.when),
    }
    if restored.only:
        document["only"] = list(restored.only)
    if restored.saved:
        document["saved"] = True
    if restored.older:
        document["older"] = list(restored.older)
    if restored.left_out:
        document["left_out"] = [place._asdict() for place in restored.left_out]
    return json.dumps(document, indent=1).encode() + b"\n"


def read(root: int) -> Restored | None:
    """What the marker of a cache says; None where there is none that makes sense.

    Args:
        root: descriptor of the cache directory.
    """
    return _parsed(_content(root))


def read_in(directory: Path) -> Restored | None:
    """The same, for the path of a directory, there or not."""
    try:
        with open_directory(directory) as root:
            return read(root)
    except OSError:
        return None


def carried(root: int) -> bytes | None:
    """The marker as it is, for another place; None as for `read`."""
    data = _content(root)
    return data if _parsed(data) else None


def _content(root: int) -> bytes:
    """What is in the file; nothing where it is no regular file, or longer than any marker."""
    try:
        descriptor = open_beneath(root, MARKER, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _LONGEST:
            return b""
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(_LONGEST)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _parsed(data: bytes) -> Restored | None:
    try:
        document = json.loads(data)
        snapshot, store, when = (document[key] for key in ("snapshot", "store", "when"))
        if not FULL_ID.fullmatch(snapshot) or not isinstance(store, str) or "\0" in store:
            return None
        seconds = seconds_of(_text(when))
        only = tuple(map(_text, _list(document, "only")))
        left_out = tuple(Place(_text(item["kind"]), _text(item["entry"])) for item in _list(document, "left_out"))
        older = tuple(map(_text, _list(document, "older")))
        if not all(map(FULL_ID.fullmatch, older)):
            return None
        return Restored(snapshot, store, seconds, only, left_out, document.get("saved") is True, older)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _list(document: Mapping[str, Any], key: str) -> list[Any]:
    value = document.get(key, [])
    if not isinstance(value, list):
        raise TypeError(f"{key} is a list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("names are text")
    return value
