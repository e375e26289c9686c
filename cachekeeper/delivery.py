"""Packs in a store -> the bytes of files, each checked against its SHA-256 before anybody uses it.

    spans of packs ──fetched ahead──> frames ──decompressed, checked──> files ──> whoever receives them

Both arrows run side by side, and hold a bounded number of spans in memory. What arrives damaged is fetched once more: a
byte may have been changed on the way.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from . import doubted
from .errors import DamagedStore
from .inductor import expand
from .manifest import ALSO, FileRow, FrameRow, Manifest
from .packs import decompress
from .repository import pack_key
from .stores import KeyMissing, Store
from .units import count, few, short_id
from .workers import ordered

# A request for so much at once, and for a gap between two frames rather than two requests.
_SPAN_BYTES = 4 << 20
_GAP_BYTES = 128 << 10
_MOST_NAMED = 3
_WRONG = "its bytes do not match its SHA-256"

Chunks = Iterable[bytes | memoryview]
Receive = Callable[[FileRow, Chunks], None]


class Damaged(NamedTuple):
    """A file of a snapshot whose bytes are not those that the manifest names; `missing`: its pack is not there."""

    file: FileRow
    reason: str
    missing: bool = False


class _Job(NamedTuple):
    """Files that are read together: many in one frame, or one that runs over several."""

    frames: range
    files: list[FileRow]


class _Span(NamedTuple):
    """Frames that lie next to each other in a pack, and what is in them."""

    pack: str
    start: int
    end: int
    jobs: list[_Job]


class _Fetched(NamedTuple):
    """A job with the bytes of its span, or what kept them from coming."""

    job: _Job
    start: int
    data: bytes
    trouble: str


def deliver(
    store: Store,
    manifest: Manifest,
    files: Iterable[FileRow],
    receive: Receive,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Damaged]:
    """Fetch files and hand each to `receive`, from several threads. Damage is remembered (`doubted`).

    Args:
        receive: called with a file and its bytes in pieces. A file in a single frame was checked before; a longer one
            is checked while it is passed, handed on a second time if it was wrong, and then among the damaged ones.
        progress: called with the number of bytes delivered so far.

    Returns:
        The files whose bytes are damaged or missing.

    Raises:
        StoreError: the store cannot be read.
    """
    damaged = _Delivery(store, manifest, receive).run(files, progress)
    if met := [(pack_of(manifest, item.file), item.file.sha256) for item in damaged if not item.missing]:
        doubted.remember(store, met)
    return damaged


def pack_of(manifest: Manifest, file: FileRow) -> str:
    """Id of the pack that a file begins in; "" for an empty one, which is in none."""
    return manifest.tables.packs[manifest.tables.frames[file.frame].pack].id if file.size else ""


class _Delivery:
    def __init__(self, store: Store, manifest: Manifest, receive: Receive) -> None:
        self._store, self._receive = store, receive
        self._packs, self._frames = manifest.tables.packs, manifest.tables.frames

    def run(self, files: Iterable[FileRow], progress: Callable[[int], None]) -> list[Damaged]:
        damaged: list[Damaged] = []
        done = 0
        for job, bad in ordered(lambda work: work(), self._work(_jobs(self._frames, files)), ahead=4):
            damaged += bad
            done += sum(file.size for file in job.files)
            progress(done)
        return damaged

    def _work(self, jobs: Iterable[_Job]) -> Iterator[Callable[[], tuple[_Job, list[Damaged]]]]:
        alone = [job for job in jobs if len(job.frames) > 1]
        together = [job for job in jobs if len(job.frames) == 1]
        for job in alone:
            yield partial(self._deliver_long, job)
        for fetched in ordered(self._fetch, self._spans(together), threads=self._store.parallel):
            for item in fetched:
                yield partial(self._deliver, item)

    # Fetching

    def _spans(self, jobs: Iterable[_Job]) -> Iterator[_Span]:
        def place(job: _Job) -> FrameRow:
            return self._frames[job.frames[0]]

        span: _Span | None = None
        for job in sorted(jobs, key=lambda job: place(job)[:2]):
            frame = place(job)
            pack, end = self._packs[frame.pack].id, frame.offset + frame.stored
            near = span and span.pack == pack and frame.offset <= span.end + _GAP_BYTES
            if span and near and end - span.start <= _SPAN_BYTES:
                span.jobs.append(job)
                span = span._replace(end=max(end, span.end))
                continue
            if span:
                yield span
            span = _Span(pack, frame.offset, end, [job])
        if span:
            yield span

    def _fetch(self, span: _Span) -> list[_Fetched]:
        data, trouble = b"", ""
        if any(file.size for job in span.jobs for file in job.files):
            try:
                self._store.fetch(pack_key(span.pack))
                data = self._store.read(pack_key(span.pack), span.start, span.end - span.start)
            except KeyMissing as error:
                trouble = error.message
        return [_Fetched(job, span.start, data, trouble) for job in span.jobs]

    # Checking and handing on

    def _deliver(self, item: _Fetched) -> tuple[_Job, list[Damaged]]:
        if item.trouble:
            return item.job, [Damaged(file, item.trouble, missing=True) for file in item.job.files]
        row = self._frames[item.job.frames[0]]
        offset = row.offset - item.start
        wrong = self._receive_right(item.job.files, memoryview(item.data)[offset : offset + row.stored], row)
        return item.job, self._once_more([bad.file for bad in wrong], row) if wrong else []

    def _once_more(self, files: Sequence[FileRow], row: FrameRow) -> list[Damaged]:
        self._store.distrust(self._key(row))
        try:
            stored = self._store.read(self._key(row), row.offset, row.stored)
        except KeyMissing as error:
            return [Damaged(file, error.message, missing=True) for file in files]
        return self._receive_right(files, memoryview(stored), row)

    def _receive_right(self, files: Iterable[FileRow], stored: memoryview, row: FrameRow) -> list[Damaged]:
        """Hand on what is right in a frame; returns the rest."""
        try:
            raw = memoryview(_decompress(stored, row) if any(file.size for file in files) else b"")
        except DamagedStore as error:
            return [Damaged(file, error.message) for file in files]
        damaged: list[Damaged] = []
        for file in files:
            data = raw[file.offset : file.offset + file.size]
            if hashlib.sha256(data).hexdigest() == file.sha256:
                self._receive(file, (data,))
            else:
                damaged.append(Damaged(file, _WRONG))
        return damaged

    def _deliver_long(self, job: _Job) -> tuple[_Job, list[Damaged]]:
        wrong = self._pass_on(job)
        if wrong:
            self._store.distrust(self._key(self._frames[job.frames[0]]))
            wrong = self._pass_on(job)
        return job, [wrong] if wrong else []

    def _pass_on(self, job: _Job) -> Damaged | None:
        """Hand a long file on, frame by frame; returns what is wrong with it."""
        (file,) = job.files
        digest = hashlib.sha256()

        def chunks() -> Iterator[memoryview]:
            skip, left = file.offset, file.size
            for number in job.frames:
                piece = memoryview(self._frame(number))[skip : skip + left]
                skip, left = 0, left - len(piece)
                digest.update(piece)
                yield piece

        try:
            self._receive(file, chunks())
        except (DamagedStore, KeyMissing) as error:
            return Damaged(file, error.message, isinstance(error, KeyMissing))
        return None if digest.hexdigest() == file.sha256 else Damaged(file, _WRONG)

    def _frame(self, number: int) -> bytes:
        row = self._frames[number]
        return _decompress(memoryview(self._store.read(self._key(row), row.offset, row.stored)), row)

    def _key(self, row: FrameRow) -> str:
        return pack_key(self._packs[row.pack].id)


def _decompress(stored: memoryview, row: FrameRow) -> bytes:
    if len(stored) != row.stored:
        raise DamagedStore("its pack is cut")
    return decompress(stored, row.raw)


def _jobs(frames: Sequence[FrameRow], files: Iterable[FileRow]) -> list[_Job]:
    raws = [frame.raw for frame in frames]
    together: dict[int, list[FileRow]] = defaultdict(list)
    jobs: list[_Job] = []
    for file in files:
        if file.size and file.offset + file.size > raws[file.frame]:
            jobs.append(_Job(_span(file, raws), [file]))
        else:
            together[file.frame].append(file)
    return [*jobs, *(_Job(range(frame, frame + 1), members) for frame, members in together.items())]


def _span(file: FileRow, raws: list[int]) -> range:
    number, end = file.frame, file.offset + file.size
    while end > 0:
        end -= raws[number]
        number += 1
    return range(file.frame, number)


def placed(kind: str, path: str, kept: bytes, root: Path) -> bytes:
    """The bytes of a file for which `names_its_directory` says so, for a cache at `root`, an absolute path.

    Args:
        path: as in a manifest; files below `also/<label>/` take that for their cache directory.
    """
    inner = "/".join(path.split("/")[:2]) if path.startswith(ALSO) else ""
    return expand(kind, kept, str(root / inner), str((root / path).parent))


def damaged_snapshot_error(manifest: Manifest, damaged: Sequence[Damaged]) -> DamagedStore:
    """The error that names the damaged entries of a snapshot."""
    entries = sorted({manifest.tables.entries[item.file.entry].path: item.reason for item in damaged}.items())
    numbers = {item.file.entry for item in damaged}
    packs: dict[tuple[str, bool], set[int]] = defaultdict(set)
    for item in damaged:
        packs[pack_of(manifest, item.file), item.missing].add(item.file.entry)
    return DamagedStore(
        f"snapshot {short_id(manifest.id)} is damaged in the store: {count(len(numbers), 'entry')}",
        facts=[
            *(
                f"pack {short_id(pack)} is {'missing' if missing else 'damaged'}: {count(len(each), 'entry')}"
                for (pack, missing), each in packs.items()
            ),
            *few([f"{path}  {reason}" for path, reason in entries], _MOST_NAMED),
        ],
        hint="nothing was changed. Restore another (`cachekeeper ls`), or all but these with `cachekeeper restore "
        f"{short_id(manifest.id)} --allow-damaged`; "
        "from a good cache, `cachekeeper snapshot --full` stores every file again",
    )
