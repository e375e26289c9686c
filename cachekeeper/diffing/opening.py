"""What a person names, opened: a snapshot of a store, or a live directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..errors import EmptyCache, NotFound
from ..fitting import identified
from ..inductor import is_telling
from ..inventory.tree import LiveTree, SnapshotTree, Tree
from ..manifest import Snapshot
from ..models import Fingerprint
from ..repository import Repository, is_name
from ..telemetry import Log
from .models import Side
from .sides import side_of, side_of_directory


class Opened(NamedTuple):
    """One cache: what is known of it, its files, and what a job told of its graphs; no snapshot of a directory."""

    side: Side
    tree: Tree
    told: Log | None = None
    snapshot: Snapshot | None = None


def opened(repository: Repository, reference: str, here: Callable[[], Fingerprint]) -> Opened:
    """Open an id, a name, `name@{1}`, "latest", or a live directory.

    A directory has a slash in it, as "./cache"; of a name and a directory that are written alike it is the name.

    Args:
        here: this machine's fingerprint; asked for with a directory and with "latest" alone.

    Raises:
        NotFound: no such snapshot or directory.
        EmptyCache: a directory without an entry of a compile cache.
        DamagedStore: the manifest is damaged.
        LocalDiskError: the directory cannot be read.
    """
    if _is_path(reference) and not _is_known(repository, reference):
        return _directory(reference, here)
    try:
        repository.require()
        snapshot = repository.manifest(identified(repository, reference, here))
    except NotFound as error:
        raise _or_directory(error, reference) from None
    told = repository.telemetry(snapshot)
    return Opened(side_of(reference, snapshot, told), SnapshotTree(repository, snapshot), told, snapshot)


def _is_path(reference: str) -> bool:
    return os.sep in reference or reference in (".", "..", "~")


def _is_known(repository: Repository, reference: str) -> bool:
    """True for a name with a slash, which looks like a directory."""
    name = reference.partition("@{")[0]
    return is_name(name) and repository.exists() and bool(repository.latest(name))


def _directory(reference: str, here: Callable[[], Fingerprint]) -> Opened:
    path = Path(os.path.expanduser(reference))
    if not path.is_dir():
        what = "is a file, and no directory" if path.exists() else "is no directory, and no name of a snapshot"
        raise NotFound(f"{reference} {what}", hint="see the snapshots with `cachekeeper ls`")
    tree = LiveTree(path)
    if not any(is_telling(file.kind, file.path) for file in tree.files):
        hint = "the cache of a job is where its TORCHINDUCTOR_CACHE_DIR points: `cachekeeper fingerprint` tells"
        raise EmptyCache(f"{reference} holds no entry of a compile cache", hint=hint)
    machine = here()
    # Of a Python without torch nothing follows for a job that has it.
    known = None if machine.must["torch"].unknown else machine
    return Opened(side_of_directory(reference, path, known), tree)


def _or_directory(error: NotFound, reference: str) -> NotFound:
    """The error, with what to write for a directory of that name."""
    if not os.path.isdir(reference):
        return error
    return NotFound(error.message, facts=error.facts, hint=f"for the directory of that name write ./{reference}")
