"""Check the bytes of snapshots, a live cache against a snapshot, or the structure of a cache directory.

stored   what a store holds              live        a directory against a snapshot, and mended from it
result   what was found and done         structure   a directory alone
judging  what is damaged, by itself
"""

from __future__ import annotations

import os
from pathlib import Path

from ... import ownership, preflight, trust
from ...config import setting
from ...disk import directory_exists
from ...environment import fingerprint
from ...errors import NotFound, UsageError
from ...fitting import identified
from ...livecache import chosen_cache_dir
from ...progress import Progress
from ...repository import Repository, open_repository
from ...stores import Store
from .live import repair_live, verify_live
from .result import PackDamage, VerifyResult
from .stored import verify_every, verify_stored
from .structure import repair_structure, verify_structure

__all__ = ["PackDamage", "VerifyResult", "verify"]


def verify(
    reference: str | None = None,
    *,
    live: str | os.PathLike[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    every: bool = False,
    repair: bool = False,
    store: str | os.PathLike[str] | Store | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> VerifyResult:
    """Check bytes. Nothing is unpickled, loaded or imported.

    With `repair`, what is damaged goes to `.cachekeeper/quarantine` in the directory, with the evidence, and is mended
    from the snapshot. Every file that differs from the snapshot is: a flipped bit in a library breaks no structure. So
    is what a job has rightly written anew since, and like all else it is in quarantine, not lost. Entries that the
    snapshot does not have, or that are damaged in the store too, are dropped where they are structurally damaged, so
    that torch builds them again. What somebody is writing just now is left alone. Another cachekeeper at work on the
    directory is waited for.

    Args:
        reference: id or name; default as configured, else the newest snapshot.
        live: compare this cache directory with the snapshot.
        directory: check the structure of this directory alone; no snapshot and no store is needed.
        every: check every snapshot of the store.
        repair: with `live` or `directory`, put right what is wrong.

    Raises:
        NotFound: no such snapshot or directory.
        DamagedStore: the manifest of the snapshot that was asked for is damaged.
        EnvironmentMismatch: with `repair`, nothing of the snapshot is there, and torch would not use it here.
        Untrusted: with `repair`, signatures are required (`CACHEKEEPER_REQUIRE_SIGNATURE`), and no trusted key vouches
            for the snapshot.
        UnsafePath: with `repair`, somebody else owns the directory or the store, or every user may change it.
        LocalDiskError: with `repair`, the directory cannot be written; nothing was changed.
    """
    if repair and live is None and directory is None:
        raise UsageError(
            "only a live cache can be repaired", hint="name its directory with --live DIR, or with --dir DIR"
        )
    if directory is not None:
        return _of_structure(directory, repair, store, progress)
    # What is checked is the store: a copy of it on this machine says nothing of that.
    repository = Repository(open_repository(store).store.original)
    repository.require()
    if live is not None:
        return _of_live(repository, reference, live, repair, progress)
    if every:
        return verify_every(repository, progress)
    return verify_stored(repository, [repository.manifest(_resolve(repository, reference))], {}, progress)


def _of_live(
    repository: Repository, reference: str | None, live: str | os.PathLike[str], repair: bool, progress: Progress
) -> VerifyResult:
    if not repair:
        return verify_live(repository.manifest(_resolve(repository, reference)), _existing(live), progress)
    with repository.reading():
        manifest, target = repository.manifest(_vouched_for(repository, reference)), _existing(live)
        repository.refuse_inside(target)
        preflight.make_target(target)
        return repair_live(repository, manifest, target, lambda: fingerprint(), progress)


def _of_structure(
    directory: str | os.PathLike[str],
    repair: bool,
    store: str | os.PathLike[str] | Store | None,
    progress: Progress,
) -> VerifyResult:
    target = _existing(directory)
    if not repair:
        return verify_structure(target, progress)
    if store is not None:
        open_repository(store).refuse_inside(target)
    preflight.make_target(target)
    return repair_structure(target, progress)


def _existing(path: str | os.PathLike[str]) -> Path:
    absolute = chosen_cache_dir(path)
    if not directory_exists(absolute):
        raise NotFound(f"no directory {absolute}")
    return absolute


def _resolve(repository: Repository, reference: str | None) -> str:
    reference = setting("name", reference)
    if reference is not None:
        return identified(repository, reference, fingerprint)
    listing = repository.snapshots()
    if not listing.snapshots:
        raise NotFound(f"no readable snapshot in {repository.store.url}", facts=listing.unreadable)
    return listing.snapshots[0].id


def _vouched_for(repository: Repository, reference: str | None) -> str:
    """The same, of a snapshot that will be written into a cache: where signatures are required, one that has one."""
    trusted = trust.required(None)
    if trusted is None:  # a signature vouches for a snapshot, whoever owns what it lies in
        ownership.check_store(repository.store.directories)
        return _resolve(repository, reference)
    name = setting("name", reference) or _resolve(repository, None)
    return trust.identified(repository, name, fingerprint, trusted)
