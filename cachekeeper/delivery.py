"""Packs in a store -> the bytes of files, each checked against its SHA-256 before anybody uses it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from .errors import DamagedStore
from .manifest import FileRow, Manifest
from .packs import decompress
from .repository import pack_key
from .stores import KeyMissing, Store
from .units import count, short_id
from .workers import ordered

Chunks = Iterable[bytes | memoryview]
Receive = Callable[[FileRow, Chunks], None]


class Damaged(NamedTuple):
    """A file of a snapshot whose bytes are not those that the manifest names."""

    file: FileRow
    reason: str


class _Job(NamedTuple):
    """Files that are read together: many in one frame, or one that runs over several."""

    frames: range
    files: list[FileRow]


def deliver(
    store: Store,
    manifest: Manifest,
    files: Iterable[FileRow],
    receive: Receive,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Damaged]:
    """Fetch files and hand each to `receive`, from several threads.

    Args:
        receive: called with a file and its bytes in pieces. A file in a single frame was checked before; a longer one
            is checked while it is passed, and is among the damaged ones if it was wrong.
        progress: called with the number of bytes delivered so far.

    Returns:
        The files whose bytes are damaged or missing.

    Raises:
        StoreError: the store cannot be read.
    """
    damaged: list[Damaged] = []
    done = 0
    for job, bad in ordered(lambda job: (job, _run(store, manifest, job, receive)), _jobs(manifest, files), ahead=4):
        damaged += bad
        done += sum(file.size for file in job.files)
        progress(done)
    return damaged


def _jobs(manifest: Manifest, files: Iterable[FileRow]) -> Iterator[_Job]:
    raws = [frame.raw for frame in manifest.tables.frames]
    together: dict[int, list[FileRow]] = defaultdict(list)
    alone: list[_Job] = []
    for file in files:
        if file.size and file.offset + file.size > raws[file.frame]:
            alone.append(_Job(_span(file, raws), [file]))
        else:
            together[file.frame].append(file)
    yield from alone
    for frame, members in sorted(together.items()):
        yield _Job(range(frame, frame + 1), members)


def _span(file: FileRow, raws: list[int]) -> range:
    number, end = file.frame, file.offset + file.size
    while end > 0:
        end -= raws[number]
        number += 1
    return range(file.frame, number)


def _run(store: Store, manifest: Manifest, job: _Job, receive: Receive) -> list[Damaged]:
    if len(job.frames) > 1:
        return _run_long(store, manifest, job, receive)
    try:
        needed = any(file.size for file in job.files)
        raw = memoryview(_frame(store, manifest, job.frames[0]) if needed else b"")
    except (DamagedStore, KeyMissing) as error:
        return [Damaged(file, error.message) for file in job.files]
    damaged: list[Damaged] = []
    for file in job.files:
        data = raw[file.offset : file.offset + file.size]
        if hashlib.sha256(data).hexdigest() == file.sha256:
            receive(file, (data,))
        else:
            damaged.append(Damaged(file, "its bytes do not match its SHA-256"))
    return damaged


def _run_long(store: Store, manifest: Manifest, job: _Job, receive: Receive) -> list[Damaged]:
    (file,) = job.files
    digest = hashlib.sha256()

    def chunks() -> Iterator[memoryview]:
        skip, left = file.offset, file.size
        for number in job.frames:
            piece = memoryview(_frame(store, manifest, number))[skip : skip + left]
            skip, left = 0, left - len(piece)
            digest.update(piece)
            yield piece

    try:
        receive(file, chunks())
    except (DamagedStore, KeyMissing) as error:
        return [Damaged(file, error.message)]
    return [] if digest.hexdigest() == file.sha256 else [Damaged(file, "its bytes do not match its SHA-256")]


def _frame(store: Store, manifest: Manifest, number: int) -> bytes:
    row = manifest.tables.frames[number]
    stored = store.read(pack_key(manifest.tables.packs[row.pack].id), row.offset, row.stored)
    if len(stored) != row.stored:
        raise DamagedStore("its pack is cut")
    return decompress(stored, row.raw)


def damaged_snapshot_error(manifest: Manifest, damaged: Sequence[Damaged]) -> DamagedStore:
    """The error that names the damaged entries of a snapshot."""
    entries = sorted({manifest.tables.entries[item.file.entry].path: item.reason for item in damaged}.items())
    facts = [f"{path}  {reason}" for path, reason in entries[:50]]
    if len(entries) > 50:
        facts.append(f"and {len(entries) - 50} more")
    return DamagedStore(
        f"snapshot {short_id(manifest.id)} is damaged in the store: {count(len(entries), 'entry')}",
        facts=facts,
        hint="nothing was changed. Restore another (`cachekeeper ls`), or --allow-damaged to restore all but these; "
        "from a good cache, `cachekeeper snapshot --full` stores every file again",
    )
