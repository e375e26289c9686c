"""The bytes of snapshots in a store."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ... import doubted
from ...delivery import deliver, pack_of
from ...errors import DamagedStore, NotFound
from ...manifest import EntryRow, FileRow, Manifest
from ...packs import SEGMENT_BYTES
from ...progress import Progress
from ...repository import Repository, pack_key, pack_sizes, removed
from ...stores import KeyMissing, Store
from ...units import short_id
from ...workers import ordered
from .result import PackDamage, VerifyResult

_GONE = "missing from the store"


def verify_every(repository: Repository, progress: Progress) -> VerifyResult:
    """Check every snapshot, every name and every pack of a store."""
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
    wrong, past = _name_damage(repository, {manifest.id for manifest in manifests})
    result = verify_stored(repository, manifests, {**damaged, **wrong}, progress, pack_sizes(repository.store))
    return replace(result, notes=past)


def _name_damage(repository: Repository, known: set[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """What is wrong with names, and a note for each past move to what is gone, where the name has what it points to.

    Bytes that are not as they were written are damage, however old.
    """
    removed_too = known | _removed(repository)
    wrong: dict[str, str] = {}
    past: list[str] = []
    for name in repository.names():
        moves = repository.history(name)
        for back, move in enumerate(reversed(moves)):
            called = f"{name}@{{{back}}}" if back else name
            if move.snapshot in removed_too:
                continue
            lost = f"points to {short_id(move.snapshot)}, which cannot be read"
            reason = lost if move.snapshot else "its bytes do not match its checksum"
            if back and move.snapshot and moves[-1].snapshot in known:
                past.append(f"name {called}: {reason}; {name} itself is whole, and nothing mends its past")
            else:
                wrong[f"name {called}"] = reason
    return wrong, tuple(past)


def _removed(repository: Repository) -> set[str]:
    """Ids of snapshots that were removed on purpose, and are not there."""
    return {identifier for identifier in removed.ids(repository.store.original) if not repository.has(identifier)}


def verify_stored(
    repository: Repository,
    manifests: Sequence[Manifest],
    damaged: dict[str, str],
    progress: Progress,
    every_pack: Mapping[str, int] | None = None,
) -> VerifyResult:
    """Check the packs and the contents of some snapshots; `damaged` is what is known already."""
    sizes = dict(every_pack or {}) | {pack.id: pack.size for manifest in manifests for pack in manifest.tables.packs}
    packs = dict(ordered(lambda pack: (pack[0], _pack_damage(repository.store, *pack)), sizes.items()))
    damaged |= {f"pack {short_id(pack)}": reason for pack, reason in packs.items() if reason}
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
    _remember(repository.store, packs)
    checked = sum(manifest.header.files for manifest in manifests)
    bad = _by_pack(manifests, packs, verdicts)
    return VerifyResult("store", checked, done, tuple(manifest.id for manifest in manifests), damaged, packs=bad)


def _by_pack(
    manifests: Sequence[Manifest], packs: Mapping[str, str], verdicts: Mapping[_Where, str]
) -> tuple[PackDamage, ...]:
    """What each pack that is not right does to the snapshots; an entry of several snapshots counts once."""
    entries: dict[str, set[EntryRow]] = defaultdict(set)
    damaged: dict[str, set[EntryRow]] = defaultdict(set)
    users: dict[str, dict[str, None]] = defaultdict(dict)
    reasons = {pack: reason for pack, reason in packs.items() if reason}
    for manifest in manifests:
        for file in manifest.tables.files:
            pack = pack_of(manifest, file)
            entries[pack].add(manifest.tables.entries[file.entry])
            if reason := verdicts[_where(manifest, file)]:
                reasons.setdefault(pack, reason)
                damaged[pack].add(manifest.tables.entries[file.entry])
                users[pack][manifest.id] = None
    return tuple(
        PackDamage(pack, reason, reason == _GONE, len(damaged[pack]), len(entries[pack]), tuple(users[pack]))
        for pack, reason in reasons.items()
    )


def _remember(store: Store, packs: Mapping[str, str]) -> None:
    """Note which packs nothing new may build on, by what is wrong with each; one that is whole is in no doubt."""
    if bad := [(pack, "") for pack, reason in packs.items() if reason and reason != _GONE]:
        doubted.remember(store, bad)
    doubted.forget(store, [pack for pack, reason in packs.items() if not reason])


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
        return _GONE
    return "" if digest.hexdigest() == pack else "its bytes do not match its name"
