"""The directory of a snapshot, told that it was saved: what is looked at next is compared with that."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from ...disk import explained, locked, open_directory
from ...errors import Busy, LocalDiskError
from ...inductor import Place
from ...inductor.layout import WORKSHOP
from ...manifest import Header, Manifest, also_label
from ...mending import with_one_kernel_directory
from ...naming import header_of, is_much_smaller
from ...repository import Repository
from ...restored import Restored, encode, read_in
from ...staging import Stage
from ...units import count, short_id
from .generations import Left


def mark(
    directory: Path,
    before: Restored | None,
    manifest: Manifest,
    store: str,
    began: int,
    also: Collection[str],
    left: Collection[Left] = (),
) -> str:
    """Let the marker of a directory name the snapshot that was taken of it.

    Args:
        before: what the marker said when the directory was looked at.
        store: URL of where it was saved.
        began: time.time_ns() before the directory was looked at.
        also: the labels of the directories beside it that were saved too.
        left: what other environments left in it.

    Returns:
        Why that could not be, or "".
    """
    marker = Restored(
        manifest.id,
        store,
        float(began // 1_000_000_000),
        left_out=_elsewhere(manifest, also),
        saved=True,
        older=tuple(item.snapshot for item in left),
    )
    try:
        with explained(directory, "write the cache directory"):
            with open_directory(directory) as root:
                if os.fstat(root).st_uid != os.geteuid():
                    return "it belongs to another user"
            with locked(directory):
                if read_in(directory) != before:
                    return "another snapshot was restored or saved there meanwhile"
                _make_workshop(directory)
                with Stage(directory, lambda path: False) as stage:
                    stage.mark(encode(marker))
    except (LocalDiskError, Busy) as error:
        return error.message
    return ""


def why_less(repository: Repository, before: Restored | None, saved: Header) -> str:
    """Why the marker of a directory stays: the snapshot is much smaller than what belongs there as it says; or ""."""
    header = header_of(repository, before.snapshot) if before else None
    if before is None or header is None:
        return ""
    counted = {kind: number for kind, number in header.counts.items() if not before.only or kind in before.only}
    absent = Counter(place.kind for place in before.left_out)
    left = {kind: replace(number, entries=number.entries - absent[kind]) for kind, number in counted.items()}
    belongs = replace(header, counts=left)
    if not is_much_smaller(saved, belongs):
        return ""
    known = f"{short_id(before.snapshot)} has {belongs.entries:,}"
    return f"it has {count(saved.entries, 'entry')}, {known}; if that is right, `cachekeeper snapshot --force`"


def _make_workshop(directory: Path) -> None:
    """Make `.cachekeeper`, and leave the directory's own time: else the next snapshot takes that for a job at work."""
    with open_directory(directory) as root:
        before = os.fstat(root)
        with contextlib.suppress(FileExistsError):
            os.mkdir(WORKSHOP, 0o700, dir_fd=root)
            os.utime(root, ns=(before.st_atime_ns, before.st_mtime_ns))


def _elsewhere(manifest: Manifest, also: Collection[str]) -> tuple[Place, ...]:
    """What a restore of it would put into the directory, and is not there: what lies beside it, and kernels' copies."""
    own = {Place(*entry) for entry in manifest.tables.entries}
    whole = {Place(*entry) for entry in with_one_kernel_directory(manifest).tables.entries}
    beside = {place for place in whole if also_label(f"{place.entry}/x") in also}
    return tuple(sorted((whole - own) | beside))
