"""A live cache against the snapshot that it should be: for a launch script.

reference   which snapshot, and what of it belongs there
judging     what is gone, damaged, changed or new
result      how the cache stands to it
"""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import replace
from pathlib import Path

from ...clearing.trash import Trash
from ...comparison import compare_live
from ...disk import directory_exists
from ...errors import LocalDiskError, UnsafePath
from ...livecache import LiveCache, chosen_cache_dir
from ...progress import Progress
from ...restored import read_in
from ...stores import Store
from ...units import short_id, timestamp_of
from .judging import Judging, compare_quickly, is_empty
from .reference import reference_of
from .result import StatusResult

__all__ = ["StatusResult", "status"]


def status(
    directory: str | os.PathLike[str] | None = None,
    *,
    against: str | None = None,
    store: str | os.PathLike[str] | Store | None = None,
    quick: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> StatusResult:
    """Compare a live cache with the snapshot that it was restored from, or else with the configured name's latest.

    Nothing is written, and nothing of the cache unpickled, loaded or imported.

    Args:
        directory: default: as configured, else the one that torch would use here.
        against: id or name of another snapshot.
        store: URL or directory; default: the one that it was restored from, else as configured.
        quick: look at presence and sizes alone, and read no file.

    Raises:
        NotFound: `against` is no snapshot.
        StoreError: the store cannot be reached, or is not there.
        DamagedStore: the snapshot's manifest is damaged.
    """
    path = chosen_cache_dir(directory)
    if not directory_exists(path):
        return StatusResult(path, "absent", quick)
    with LiveCache(path) as live:
        reference = reference_of(store, against, live.root)
        if isinstance(reference, str):
            empty = is_empty(live.scan())
            notes = (_cleared(path) if empty else ()) or (reference,)
            return StatusResult(path, "empty" if empty else "unknown", quick, notes=notes)
        manifest = reference.manifest()
        scan = live.scan(with_headers=manifest.header.entries_of("headers") > 0)
        wanted = reference.wanted(manifest, path)
        if quick:
            comparison = compare_quickly(manifest, wanted, scan.files)
        else:
            total = sum(file.size for file in wanted)
            comparison = compare_live(manifest, wanted, scan.files, lambda done: progress("Comparing", done, total))
        result = Judging(path, reference, manifest, wanted, scan, comparison, quick).result()
        return replace(result, notes=(*result.notes, *_cleared(path))) if result.state == "empty" else result


def _cleared(path: Path) -> tuple[str, ...]:
    """That a `clear` emptied the directory, and how what it held comes back."""
    with contextlib.suppress(LocalDiskError, UnsafePath):
        for item in Trash(path).items():
            before = read_in(item.path)
            where = shlex.quote(str(path))
            back = f"`cachekeeper clear {where} --undo` brings it back"
            if before:
                back += f", or `cachekeeper restore {short_id(before.snapshot)} --cache-dir {where}`"
            return (f"it was cleared at {timestamp_of(item.when)}: {back}",)
    return ()
