"""The store: can it be used, is it in a good place, and is there something in it for this machine?"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...errors import AccessDenied, CachekeeperError
from ...fitting import JOBS_PYTHON, fit, newest_fitting
from ...models import Fingerprint
from ...repository import Listing, Repository
from ...stores import NOT_EXCLUSIVE, LocalStore
from ...units import age_seconds, count, format_duration, short_id
from ..ls import named
from .filesystem import space
from .findings import Finding
from .place import Place, inside, mount_of, probe

_SHOWN = 5
_ONE_WRITER = "let one job at a time move a name, or use a server that keeps to it"
_SAVE = "cachekeeper snapshot NAME"
_SHORT_LIVED = (Path("/tmp"), Path("/var/tmp"))
_IN_MEMORY = ("tmpfs", "ramfs")


def store_place(repository: Repository, cache_dir: Path | None) -> Iterator[Finding]:
    """Is a local store in a good place?"""
    if not isinstance(repository.store, LocalStore):
        return
    place = Place.at(repository.store.root)
    if cache_dir is not None:
        yield from _overlap(place.real, Path(os.path.realpath(cache_dir)))
    yield from _short_life(place)
    yield from _writable(place)
    yield from space("store", place.nearest, worst="warning")


def _overlap(store: Path, cache_dir: Path) -> Iterator[Finding]:
    if inside(store, cache_dir):
        message = (
            f"the store is inside the cache directory {cache_dir}: what clears the cache takes the snapshots along"
        )
    elif inside(cache_dir, store):
        message = f"the cache directory {cache_dir} is inside the store"
    else:
        return
    yield Finding("store", "error", message, _elsewhere(store))


def _short_life(place: Place) -> Iterator[Finding]:
    mount = mount_of(place.nearest)
    in_memory = mount is not None and mount.type in _IN_MEMORY
    roots = [root for root in _SHORT_LIVED if inside(place.path, root) or inside(place.real, root)]
    if in_memory or roots:
        where = f"on {mount.type}" if mount and in_memory else f"under {roots[0]}"
        message = f"the store is {where}: a reboot or a cleaner may take the snapshots away with the cache"
        yield Finding("store", "warning", message, _elsewhere(place.real))


def _elsewhere(than: Path) -> str:
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    place = f"{home}/cachekeeper"
    if os.path.realpath(place) == os.path.realpath(than):
        place = "/another/disk/cachekeeper"
    return f"export CACHEKEEPER_STORE={shlex.quote(place)}   # or --store, on another disk"


def _writable(place: Place) -> Iterator[Finding]:
    parts = [place.nearest / part for part in ("packs", "snapshots", "names")] if place.exists else []
    denied = [
        part for part in parts if os.path.isdir(part) and not os.access(part, os.W_OK | os.X_OK, effective_ids=True)
    ]
    # Nothing with a name is written into a store; where there are no unnamed files, permissions have to do.
    trouble = probe(place.nearest, named=False).write
    if not trouble and not os.access(place.nearest, os.W_OK | os.X_OK, effective_ids=True):
        trouble = "Permission denied"
    if denied or trouble:
        where = denied[0] if denied else place.nearest
        message = f"cannot write into {where}: {trouble or 'Permission denied'}; snapshots can be restored, not saved"
        yield Finding("store", "warning", message, f"ls -ld {shlex.quote(str(where))}")


def writers(repository: Repository) -> Iterator[Finding]:
    """Does a bucket create a key only once?"""
    try:
        answer = repository.store.creates_once()
    except AccessDenied as error:
        message = f"{_in_a_line(error)}; snapshots can be restored, not saved"
        yield Finding("writers", "warning", message, error.hint)
        return
    except CachekeeperError as error:
        yield Finding("writers", "error", _in_a_line(error), error.hint)
        return
    if answer is not None:
        kept = "of several writers of one key exactly one wins (raced)"
        yield Finding("writers", "ok", kept) if answer else Finding("writers", "warning", NOT_EXCLUSIVE, _ONE_WRITER)


def snapshots(repository: Repository, here: Fingerprint) -> Iterator[Finding]:
    """Is the store one, and does its newest snapshot fit this machine?"""
    try:
        there = repository.exists()
    except CachekeeperError as error:
        yield Finding("store", "error", _in_a_line(error), error.hint)
        return
    if not there:
        yield _no_store(repository)
        return
    yield Finding("store", "ok", f"{repository.store.url} can be read")
    listing = repository.snapshots()
    for line in listing.unreadable[:_SHOWN]:
        yield Finding("snapshots", "warning", f"unreadable: {line}", "cachekeeper verify --all")
    if len(listing.unreadable) > _SHOWN:
        message = f"{count(len(listing.unreadable), 'snapshot')} unreadable in all"
        yield Finding("snapshots", "warning", message, "cachekeeper verify --all")
    if listing.snapshots:
        yield _newest(listing, here, named(repository).get(listing.snapshots[0].id, ()))
    else:
        yield Finding("snapshots", "note", "the store holds no snapshot yet", _SAVE)


def _in_a_line(error: CachekeeperError) -> str:
    return "; ".join([error.message, *(" ".join(fact.split()) for fact in error.facts)])


def _no_store(repository: Repository) -> Finding:
    url = repository.store.url
    if isinstance(repository.store, LocalStore) and os.path.lexists(repository.store.root):
        root = repository.store.root
        if not os.path.isdir(root):
            return Finding("store", "error", f"{root} is not a directory", _elsewhere(root))
        if os.listdir(root):
            return Finding("store", "error", f"{root} holds files and is not a cachekeeper store", _elsewhere(root))
    return Finding("store", "note", f"nothing is saved in {url} yet", _SAVE)


def _newest(listing: Listing, here: Fingerprint, names: Sequence[str]) -> Finding:
    newest = listing.snapshots[0]
    name = f" ({', '.join(names)})" if names else ""
    when = format_duration(age_seconds(newest.header.created))
    start = f"the newest of {count(len(listing.snapshots), 'snapshot')}, {short_id(newest.id)}{name}, {when} old,"
    if without := here.must["torch"].unknown:
        return Finding("snapshots", "note", f"{start} may fit or not: {without}", JOBS_PYTHON)
    comparison = fit(newest.header, here)
    if comparison.fits:
        return Finding("snapshots", "ok", f"{start} fits this machine")
    differing = ", ".join(dict.fromkeys(item.name for item in comparison.must))
    other = newest_fitting(listing.snapshots, here)
    if other is None:
        return Finding(
            "snapshots", "note", f"{start} does not fit this machine ({differing}), nor does any other", _SAVE
        )
    message = f"{start} does not fit this machine ({differing}); {short_id(other.id)} does"
    return Finding("snapshots", "note", message, f"cachekeeper restore {short_id(other.id)}")
