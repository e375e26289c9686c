"""Check the bytes of snapshots, a live cache against a snapshot, or the structure of a cache directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..comparison import compare_live
from ..config import setting
from ..delivery import deliver
from ..disk import directory_exists
from ..environment import fingerprint
from ..errors import DamagedStore, EmptyCache, NotFound
from ..fitting import identified
from ..livecache import LiveCache
from ..manifest import FileRow, Manifest
from ..packs import SEGMENT_BYTES
from ..reading import structure_damage
from ..repository import Repository, open_repository, pack_key
from ..stores import KeyMissing, Store
from ..units import short_id
from ..workers import ordered

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class VerifyResult:
    """What a check found.

    Attributes:
        what: "store", "live" or "structure".
        checked: number of files whose bytes were read and compared, in snapshots or in a directory.
        bytes: their length together.
        snapshots: ids of the snapshots checked.
        damaged: path -> what is wrong; an entry, a pack or a manifest of the store, or a file of the directory.
        missing, extra: files that a live directory lacks, or has beyond the snapshot. Extra ones are no damage.
    """

    what: str
    checked: int
    bytes: int
    snapshots: tuple[str, ...]
    damaged: dict[str, str]
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True where nothing is damaged or missing."""
        return not self.damaged and not self.missing


def verify(
    reference: str | None = None,
    *,
    live: str | os.PathLike[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    every: bool = False,
    store: str | os.PathLike[str] | Store | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> VerifyResult:
    """Check bytes. Nothing is unpickled, loaded or imported.

    Args:
        reference: id or name; default as configured, else the newest snapshot.
        live: compare this cache directory with the snapshot.
        directory: check the structure of this directory alone; no snapshot and no store is needed.
        every: check every snapshot of the store.

    Raises:
        NotFound: no such snapshot or directory.
        DamagedStore: the manifest of the snapshot that was asked for is damaged.
    """
    if directory is not None:
        return _verify_structure(_existing(directory), progress)
    # What is checked is the store: a copy of it on this machine says nothing of that.
    repository = Repository(open_repository(store).store.original)
    repository.require()
    if live is not None:
        return _verify_live(repository.manifest(_resolve(repository, reference)), _existing(live), progress)
    if every:
        return _verify_all(repository, progress)
    return _verify_store(repository, [repository.manifest(_resolve(repository, reference))], {}, progress)


def _existing(path: str | os.PathLike[str]) -> Path:
    absolute = Path(os.path.abspath(os.path.expanduser(path)))
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


def _verify_all(repository: Repository, progress: Progress) -> VerifyResult:
    listing = repository.snapshots()
    if not listing.snapshots and not listing.unreadable:
        raise NotFound(f"no snapshot in {repository.store.url}", hint="save one with `cachekeeper snapshot NAME`")
    damaged = {f"snapshot {line.partition(':')[0]}": line.partition(": ")[2] for line in listing.unreadable}
    manifests = []
    for snapshot in listing.snapshots:
        try:
            manifests.append(repository.manifest(snapshot.id))
        except (DamagedStore, KeyMissing) as error:
            damaged[f"snapshot {short_id(snapshot.id)}"] = error.message
    damaged |= dict(_name_damage(repository, {manifest.id for manifest in manifests}))
    return _verify_store(repository, manifests, damaged, progress, repository.pack_sizes())


def _name_damage(repository: Repository, known: set[str]) -> Iterator[tuple[str, str]]:
    for name in repository.names():
        for move in repository.history(name):
            if not move.snapshot:
                yield f"name {name} ({move.number})", "its bytes do not match its checksum"
            elif move.snapshot not in known:
                yield f"name {name} ({move.number})", f"points to {short_id(move.snapshot)}, which cannot be read"


def _verify_store(
    repository: Repository,
    manifests: Sequence[Manifest],
    damaged: dict[str, str],
    progress: Progress,
    every_pack: Mapping[str, int] | None = None,
) -> VerifyResult:
    sizes = dict(every_pack or {}) | {pack.id: pack.size for manifest in manifests for pack in manifest.tables.packs}
    for pack, reason in ordered(lambda pack: (pack[0], _pack_damage(repository.store, *pack)), sizes.items()):
        if reason:
            damaged[f"pack {short_id(pack)}"] = reason
    total = sum(manifest.header.bytes for manifest in manifests)
    done = 0
    verdicts: dict[_Where, str] = {}
    for manifest in manifests:
        report = partial(_report, progress, done, total)
        _check_contents(repository.store, manifest, verdicts, report)
        for file in manifest.tables.files:
            if reason := verdicts[_where(manifest, file)]:
                damaged[f"{short_id(manifest.id)}:{manifest.tables.entries[file.entry].path}"] = reason
        if reason := _telemetry_damage(repository, manifest):
            damaged[f"telemetry of {short_id(manifest.id)}"] = reason
        done += manifest.header.bytes
        report(manifest.header.bytes)
    checked = sum(manifest.header.files for manifest in manifests)
    return VerifyResult("store", checked, done, tuple(manifest.id for manifest in manifests), damaged)


def _telemetry_damage(repository: Repository, manifest: Manifest) -> str:
    """What is wrong with what jobs told of a snapshot's graphs, which a restore does without."""
    try:
        repository.telemetry(manifest)
    except (DamagedStore, KeyMissing) as error:
        return f"{error.message}; a restore does without"
    return ""


def _report(progress: Progress, before: int, total: int, done: int) -> None:
    progress("Verifying", before + done, total)


_Where = tuple[str, int, int, str, int]


def _where(manifest: Manifest, file: FileRow) -> _Where:
    """The place in the store that a file's bytes come from, and what they must be."""
    if not file.size:
        return "", 0, 0, file.sha256, 0
    frame = manifest.tables.frames[file.frame]
    return manifest.tables.packs[frame.pack].id, frame.offset, file.offset, file.sha256, file.size


def _check_contents(
    store: Store, manifest: Manifest, verdicts: dict[_Where, str], progress: Callable[[int], None]
) -> None:
    """Check the bytes of every file, each place in the store once."""
    fresh = {where: file for file in manifest.tables.files if (where := _where(manifest, file)) not in verdicts}
    verdicts.update(dict.fromkeys(fresh, ""))
    for item in deliver(store, manifest, fresh.values(), _read_through, progress):
        verdicts[_where(manifest, item.file)] = item.reason


def _read_through(file: FileRow, chunks: Iterable[object]) -> None:
    for _ in chunks:
        pass


def _pack_damage(store: Store, pack: str, size: int) -> str:
    digest = hashlib.sha256()
    try:
        length = store.size(pack_key(pack))
        if length != size:
            return f"{length:,} bytes instead of {size:,}"
        for start in range(0, size, SEGMENT_BYTES):
            digest.update(store.read(pack_key(pack), start, SEGMENT_BYTES))
    except KeyMissing:
        return "missing from the store"
    return "" if digest.hexdigest() == pack else "its bytes do not match its name"


def _verify_live(manifest: Manifest, directory: Path, progress: Progress) -> VerifyResult:
    with LiveCache(directory) as live:
        files = manifest.tables.files
        total = sum(file.size for file in files)
        with_headers = manifest.header.entries_of("headers") > 0
        found = compare_live(
            manifest, files, live.scan(with_headers).files, lambda done: progress("Comparing", done, total)
        )
    return VerifyResult(
        "live",
        len(files),
        total,
        (manifest.id,),
        dict(sorted(found.changed.items())),
        tuple(sorted(found.missing)),
        tuple(sorted(source.path for source in found.extra)),
    )


def _verify_structure(directory: Path, progress: Progress) -> VerifyResult:
    with LiveCache(directory) as live:
        files = live.scan(with_headers=True).files
        if not files:
            raise EmptyCache(f"{directory} holds no entry of a compile cache")
        damaged = structure_damage(files, lambda done: progress("Checking", done, len(files)))
    return VerifyResult("structure", len(files), sum(file.live.size for file in files), (), damaged)
