"""A live cache against the snapshot that it should be: for a launch script.

reference   which snapshot, and what of it belongs there
judging     what is gone, damaged, changed or new
result      how the cache stands to it
"""

from __future__ import annotations

import os

from ...comparison import compare_live
from ...disk import directory_exists
from ...livecache import LiveCache, chosen_cache_dir
from ...progress import Progress
from ...stores import Store
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
            return StatusResult(path, "empty" if is_empty(live.scan()) else "unknown", quick, notes=(reference,))
        manifest = reference.manifest()
        scan = live.scan(with_headers=manifest.header.entries_of("headers") > 0)
        wanted = reference.wanted(manifest, path)
        if quick:
            comparison = compare_quickly(manifest, wanted, scan.files)
        else:
            total = sum(file.size for file in wanted)
            comparison = compare_live(manifest, wanted, scan.files, lambda done: progress("Comparing", done, total))
        return Judging(path, reference, manifest, wanted, scan, comparison, quick).result()
