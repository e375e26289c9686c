"""doctor: is this machine ready to make, keep and use a compile cache?

findings      what checks say                  place       the directory, and what can be done in it
filesystem    kind, space, exec, lifetime      ownership   whose it is, who can change it, leftovers
cleaners      of temporary directories         remedies    what to do about it all, for --fix
job           directories, switches, torch     snapshots   the store
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from ...config import setting, store_url
from ...environment import CacheDirectory, cache_directory, fingerprint
from ...errors import CachekeeperError
from ...models import Fingerprint
from ...repository import Repository, open_repository
from ...stores import Store
from . import filesystem, job, ownership, snapshots
from .findings import DoctorResult, Finding, Remedy, run
from .place import Place, probe
from .remedies import remedies

__all__ = ["DoctorResult", "Finding", "Remedy", "doctor", "remedies"]

_Checks = Mapping[str, Callable[[], Iterable[Finding]]]
_GIVEN = "given"


def doctor(
    *, cache_dir: str | os.PathLike[str] | None = None, store: str | os.PathLike[str] | Store | None = None
) -> DoctorResult:
    """Look for what would make a cache or a store fail, be missed, be lost or be tampered with.

    Nothing that lasts is changed: one probe file is written into the cache directory and one into the store's,
    without a name where the filesystem can, and removed.

    Args:
        cache_dir: default: the directory that torch would use here.
        store: URL or directory; default as configured.

    Raises:
        UsageError: a setting makes no sense.
    """
    torchs = _torchs_directory()
    path, source = _looked_at(cache_dir, torchs)
    here = fingerprint()
    found = run("cache-dir", partial(job.directory, path, torchs))
    if torchs is not None or source == _GIVEN:
        found += _place_findings(path)
    found += _job_findings(path, here)
    url, more = _store_findings(store, path, here)
    return DoctorResult(path, source, url, (*found, *more))


def _run_all(checks: _Checks) -> list[Finding]:
    return [finding for check, look in checks.items() for finding in run(check, look)]


def _torchs_directory() -> CacheDirectory | None:
    try:
        return cache_directory()
    except OSError:
        return None


def _looked_at(given: str | os.PathLike[str] | None, torchs: CacheDirectory | None) -> tuple[Path, str]:
    configured = setting("cache_dir", given)
    if configured:
        return Path(os.path.abspath(os.path.expanduser(configured))), _GIVEN
    if torchs is None:
        return Path(os.path.abspath(os.environ.get("TMPDIR") or "/tmp")), "none"
    return torchs.path, torchs.source


def _place_findings(path: Path) -> list[Finding]:
    place = Place.at(path)
    tried = probe(place.nearest)
    checks: _Checks = {
        "writable": partial(filesystem.writable, place, tried),
        "exec": partial(filesystem.executable, place, tried),
        "filesystem": partial(filesystem.kind, place),
        "locks": partial(filesystem.locks, place, tried),
        "space": partial(filesystem.space, "space", place.nearest),
        "tmp": partial(filesystem.lifetime, place),
        "owner": partial(ownership.owner, place),
        "files": partial(ownership.contents, place),
        "exposure": partial(ownership.exposure, place),
        "leftovers": partial(ownership.leftovers, place),
    }
    return _run_all(checks)


def _job_findings(path: Path, here: Fingerprint) -> list[Finding]:
    checks: _Checks = {
        "triton": partial(job.triton, path, here),
        "switches": job.switches,
        "torch": partial(job.torch, here),
        "fingerprint": partial(job.unknown_facts, here),
        "variables": job.variables,
    }
    return _run_all(checks)


def _store_findings(
    store: str | os.PathLike[str] | Store | None, cache_dir: Path, here: Fingerprint
) -> tuple[str, list[Finding]]:
    try:
        # The store itself: what this machine keeps of it would answer in its place.
        repository = Repository(open_repository(store).store.original)
    except CachekeeperError as error:
        url = "" if isinstance(store, Store) else store_url(store)
        return url, [Finding("store", "error", error.message, error.hint)]
    found = run("store", partial(snapshots.store_place, repository, cache_dir))
    found += run("snapshots", partial(snapshots.snapshots, repository, here))
    if not any(finding.level == "error" for finding in found):
        found += run("writers", partial(snapshots.writers, repository))
    return repository.store.url, found
