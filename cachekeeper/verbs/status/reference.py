"""Which snapshot a live cache is to be compared with, and what of it belongs there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...config import setting
from ...disk import exists_in
from ...environment import fingerprint
from ...errors import DamagedStore, NotFound, StoreError, UsageError
from ...fitting import identified
from ...manifest import FileRow, Manifest, also_label
from ...mending import with_one_kernel_directory
from ...repository import Repository, open_repository
from ...restored import MARKER, Restored, read
from ...stores import KeyMissing, Store, open_store
from ...units import short_id


@dataclass(frozen=True)
class Reference:
    """The snapshot to compare with; `restored` where the cache was restored from it, or it was saved from there."""

    repository: Repository
    snapshot: str
    against: str
    restored: Restored | None = None
    notes: tuple[str, ...] = ()

    def manifest(self) -> Manifest:
        """The snapshot's, with the places to which a restore would bring its files."""
        manifest = self.repository.manifest(self.snapshot)
        return with_one_kernel_directory(manifest) if self.restored else manifest

    def wanted(self, manifest: Manifest, path: Path) -> list[FileRow]:
        """What must be there: of directories saved beside a cache that was never restored, nothing."""
        if self.restored:
            return self.restored.files(manifest)
        return [
            file
            for file in manifest.tables.files
            if not (label := also_label(file.path)) or os.path.isdir(path / "also" / label)
        ]


def reference_of(store: str | os.PathLike[str] | Store | None, against: str | None, root: int) -> Reference | str:
    """The snapshot to compare with, or why there is none."""
    restored = read(root)
    if against is not None:
        repository = open_repository(store)
        repository.require()
        identifier = identified(repository, against, fingerprint)
        here = restored if restored and restored.snapshot == identifier else None
        return Reference(repository, identifier, "given", here)
    if restored is None:
        return _named(store, "its restored.json makes no sense" if _is_marked(root) else "")
    repositories = []
    for repository in _repositories(store, restored.store):
        if repository.has(restored.snapshot):
            return Reference(repository, restored.snapshot, "saved" if restored.saved else "restored", restored)
        repositories.append(repository)
    named = _named(store, _why_not(repositories, restored))
    if isinstance(named, str) and restored.store not in {item.store.url for item in repositories}:
        raise StoreError(
            f"the store {restored.store} of snapshot {short_id(restored.snapshot)} is not there",
            hint="mount it, or name another with --store",
        )
    return named


def _is_marked(root: int) -> bool:
    with contextlib.suppress(OSError):
        return exists_in(root, MARKER)
    return False


def _named(store: str | os.PathLike[str] | Store | None, reason: str) -> Reference | str:
    """The latest of the configured name; `reason`: why it is not what the marker says."""
    name = setting("name")
    if name is None:
        return reason or "it was never restored or saved, and no snapshot is named to compare it with"
    repository = open_repository(store)
    latest = ""
    with contextlib.suppress(NotFound, KeyMissing):
        latest = repository.latest(name) if repository.exists() else ""
    if latest:
        return Reference(repository, latest, "name", notes=(reason,) if reason else ())
    missing = f"there is no snapshot {name!r} in {repository.store.url}"
    return f"{reason}; {missing}" if reason else missing


def _why_not(repositories: Sequence[Repository], restored: Restored) -> str:
    """Why the snapshot that the marker names is not found."""
    for repository in repositories:
        try:
            repository.header(restored.snapshot)
        except NotFound as error:
            return "; ".join(filter(None, (error.message, error.hint)))
        except (KeyMissing, StoreError, DamagedStore):
            continue
    return f"snapshot {short_id(restored.snapshot)} of its restored.json is not in {restored.store}"


def _repositories(store: str | os.PathLike[str] | Store | None, marked: str) -> Iterator[Repository]:
    """Where the snapshot may be, by its id the same one in each; those of this machine first."""
    candidates: list[Store] = [open_repository(store).store]
    if marked != candidates[0].url:
        try:
            other = open_store(marked, read_only=True)
        except UsageError:
            pass
        else:
            candidates.insert(len(candidates) if other.far else 0, other)
    trouble: StoreError | None = None
    for candidate in candidates:
        try:
            if Repository(candidate).exists():
                yield Repository(candidate)
        except StoreError as error:
            trouble = trouble or error
    if trouble is not None:
        raise trouble
