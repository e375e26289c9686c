"""A live cache -> packs in a store: read, check, hash, compress, and place what the store does not have."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from queue import Empty, SimpleQueue
from typing import NamedTuple

from .inductor import Place
from .livecache import SourceFile
from .manifest import EntryRow, FileRow, FrameRow, PackRow, Tables
from .masking.tokens import LONGEST, Search
from .packs import (
    FRAME_BYTES,
    LARGE_FILE,
    LEVEL,
    LEVEL_LARGE,
    SEGMENT_BYTES,
    Content,
    Frame,
    PackWriter,
    compress,
    pack_id,
)
from .progress import Progress
from .reading import CHANGED, WHOLE_BYTES, LongFile, Taken, may_hold_secrets, take
from .repository import Location, Repository, pack_key
from .seen import Seen
from .workers import ordered


class _Texts:
    """Contents in a buffer that may hold secrets: their hashes, and where each begins and ends."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.hashes: list[str] = []
        self.spans: list[tuple[int, int]] = []

    def add(self, seen: Seen, start: int) -> None:
        """Note one that is in the buffer."""
        self.hashes.append(seen.sha256)
        self.spans.append((start, start + seen.size))


class _Batch(NamedTuple):
    """What a worker made of some files: the files, the frames to store, and the contents in them."""

    taken: list[Taken]
    frames: list[tuple[bytes, int]]
    contents: list[Content]


@dataclass
class Capture:
    """What was captured: the files, where the content of each lies, and the packs that were written with their sizes.

    `complete` is False where it stopped storing, because it found damage and was not told to keep going.
    """

    taken: list[Taken] = field(default_factory=list)
    places: dict[str, Location] = field(default_factory=dict)
    packs: dict[str, int] = field(default_factory=dict)
    complete: bool = True

    @property
    def written(self) -> int:
        """Bytes written to the store."""
        return sum(self.packs.values())


class Rules(NamedTuple):
    """What stops a capture from storing: the checks go on, so that all there is is found.

    Attributes:
        keep_going: True to go on after damage was found.
        allow_secrets: True to go on after secrets were found; else nothing that holds one is ever stored.
        owners: whose files are taken; None for everybody's.
    """

    keep_going: bool
    allow_secrets: bool
    owners: frozenset[int] | None


class Capturer:
    """Reads files into a store.

    Args:
        repository: where to.
        known: SHA-256 -> where that content lies already.
        rules: what stops it.
        progress: called with ("Packing", bytes done, bytes in all).
    """

    def __init__(self, repository: Repository, known: Mapping[str, Location], rules: Rules, progress: Progress) -> None:
        self._repository = repository
        self._known = known
        self._rules = rules
        self._progress = progress
        self._search = Search(os.environ)
        self._secrets: dict[str, tuple[str, ...]] = {}
        self._claimed: set[str] = set()
        self._claiming = threading.Lock()
        self._buffers: SimpleQueue[bytearray] = SimpleQueue()
        self._doomed = False

    def run(self, sources: list[SourceFile], seen: Callable[[SourceFile], Seen | None]) -> Capture:
        """Take every file, reading only what is new."""
        capture = Capture(places=dict(self._known))
        to_read: list[SourceFile] = []
        for source in sources:
            known = seen(source)
            if known is not None and known.sha256 in self._known:
                capture.taken.append(Taken(source, known))
            else:
                to_read.append(source)
        self._store(capture, to_read)
        if self._secrets:
            capture.taken = [self._with_secrets(item) for item in capture.taken]
        return capture

    def _with_secrets(self, item: Taken) -> Taken:
        if item.seen is None or item.seen.sha256 not in self._secrets:
            return item
        return item._replace(seen=item.seen._replace(secrets=self._secrets[item.seen.sha256]))

    def _store(self, capture: Capture, sources: list[SourceFile]) -> None:
        total = sum(source.live.size for source in sources)
        done = 0
        placed: list[tuple[int, int, _Batch]] = []
        with _Uploader(self._repository) as uploader:
            writer = PackWriter(uploader.put)
            for batch in ordered(lambda job: job(), self._jobs(sources), ahead=4):
                if batch.frames and not self._doomed:
                    number, first = writer.add(batch.frames, batch.contents)
                    placed.append((number, first, batch))
                capture.taken += batch.taken
                done += sum(item.source.live.size for item in batch.taken)
                self._progress("Packing", done, total)
            if not self._doomed:
                writer.close()
            names = uploader.results()
        for number, first, batch in placed:
            if number in names:
                pack, frames = names[number]
                _locate(capture, pack, frames[first : first + len(batch.frames)], batch)
        capture.packs = uploader.sizes
        capture.complete = not self._doomed

    def _jobs(self, sources: list[SourceFile]) -> Iterator[Callable[[], _Batch]]:
        """What the workers have to do, one after the other.

        Small files are read here, in one thread: they take many short calls, and threads that make these side by side
        mostly wait for each other. Workers compress, and do all there is to do for large files.
        """
        for group in _batches(sources):
            if group[0].live.size > WHOLE_BYTES:
                yield partial(self._take_long, group[0])
            elif group[0].live.size >= LARGE_FILE:
                yield partial(self._take_large, group[0])
            else:
                yield partial(self._finish, *self._read(group), LEVEL)

    def _read(self, sources: list[SourceFile]) -> tuple[_Batch, bytearray, int, list[_Texts]]:
        """The files, the buffer that holds what is to be stored of them, its length, and what may hold secrets."""
        batch = _Batch([], [], [])
        buffer, end = self._buffer(), 0
        new, stored = _Texts(buffer), _Texts(bytearray())
        for source in sources:
            taken = take(source, buffer, end, self._rules.owners)
            self._note(batch, taken)
            if not taken.seen or not taken.seen.size:
                continue
            text = may_hold_secrets(source)
            if self._claim(taken.seen):
                batch.contents.append(_content(taken, end))
                if text:
                    new.add(taken.seen, end)
                end += taken.seen.size
            elif text and taken.seen.sha256 in self._known:
                stored.add(taken.seen, len(stored.data))
                stored.data += memoryview(buffer)[end : end + taken.seen.size]
        return batch, buffer, end, [new, stored]

    def _take_large(self, source: SourceFile) -> _Batch:
        return self._finish(*self._read([source]), LEVEL_LARGE)

    def _finish(self, batch: _Batch, buffer: bytearray, end: int, texts: list[_Texts], level: int) -> _Batch:
        for text in texts:
            for number, kinds in self._search.kinds(text.data, text.spans).items():
                self._found(text.hashes[number], kinds)
        if not self._doomed:
            with memoryview(buffer)[:end] as raw:
                segments = (raw[start : start + SEGMENT_BYTES] for start in range(0, end, SEGMENT_BYTES))
                batch.frames.extend((compress(segment, level), len(segment)) for segment in segments)
        self._buffers.put(buffer)
        return batch

    def _found(self, sha256: str, kinds: Sequence[str]) -> None:
        self._secrets[sha256] = tuple(kinds)
        self._doomed |= not self._rules.allow_secrets

    def _buffer(self) -> bytearray:
        # Used again and again: to make and free buffers of megabytes costs more than to hash what is in them.
        try:
            return self._buffers.get_nowait()
        except Empty:
            return bytearray(FRAME_BYTES + LARGE_FILE)

    def _take_long(self, source: SourceFile) -> _Batch:
        batch = _Batch([], [], [])
        long = LongFile(source, self._rules.owners)
        frames: list[tuple[bytes, int]] = []
        kinds: dict[str, None] = {}
        before = b""
        for segment in long:
            frames.append((compress(segment, LEVEL_LARGE), len(segment)))
            if may_hold_secrets(source):
                text = bytearray(before + segment)
                kinds.update(dict.fromkeys(self._search.kinds(text, [(0, len(text))]).get(0, ())))
                before = segment[-LONGEST:]
        self._note(batch, long.taken)
        if long.taken.seen and kinds:
            self._found(long.taken.seen.sha256, list(kinds))
        if long.taken.seen and self._claim(long.taken.seen):
            batch.contents.append(_content(long.taken, 0))
            batch.frames.extend(frames)
        return batch

    def _note(self, batch: _Batch, taken: Taken) -> None:
        batch.taken.append(taken)
        if taken.seen is None:
            self._doomed |= taken.trouble != CHANGED
        elif taken.seen.check.damage and not self._rules.keep_going:
            self._doomed = True

    def _claim(self, seen: Seen) -> bool:
        """True for the one who is to store this content."""
        with self._claiming:
            if seen.sha256 in self._known or seen.sha256 in self._claimed:
                return False
            self._claimed.add(seen.sha256)
            return True


def _content(taken: Taken, offset: int) -> Content:
    assert taken.seen is not None
    return Content(taken.seen.sha256, taken.seen.size, 0, offset, taken.source.path, taken.source.live.mode)


class _Uploader:
    """Writes packs beside the work that makes the next ones."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._writers = repository.store.writers
        self._pool = ThreadPoolExecutor(self._writers)
        self._packs: list[Future[tuple[int, str]]] = []
        self._frames: dict[int, list[Frame]] = {}
        self.sizes: dict[str, int] = {}

    def __enter__(self) -> _Uploader:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def put(self, number: int, parts: list[bytes], frames: list[Frame]) -> None:
        """Queue a pack; waits while every writer has one, so that only one more is in memory."""
        if len(self._packs) >= self._writers:
            self._packs[-self._writers].result()
        self._frames[number] = frames
        self._packs.append(self._pool.submit(self._write, number, parts))

    def _write(self, number: int, parts: list[bytes]) -> tuple[int, str]:
        name = pack_id(parts)
        self._repository.store.create(pack_key(name), *parts)
        self.sizes[name] = sum(map(len, parts))
        return number, name

    def results(self) -> dict[int, tuple[str, list[Frame]]]:
        """Pack number -> its name and frames, once all are written."""
        return {number: (name, self._frames[number]) for number, name in (pack.result() for pack in self._packs)}


def _locate(capture: Capture, pack: str, frames: list[Frame], batch: _Batch) -> None:
    """Note where the contents of a batch lie; `frames` are those of the batch."""
    ends = list(accumulate(frame.raw for frame in frames))
    for content in batch.contents:
        first = bisect_right(ends, content.offset)
        last = bisect_left(ends, content.offset + content.size)
        offset = content.offset - (ends[first - 1] if first else 0)
        capture.places[content.sha256] = Location(pack, tuple(frames[first : last + 1]), offset)


def _batches(sources: list[SourceFile]) -> list[list[SourceFile]]:
    """Large files alone; small ones by extension and path, so that like lies beside like, about a frame at a time.

    Both are mixed: one thread compresses a large file while another is held up by the many calls for small ones.
    """
    large = [[source] for source in sources if source.live.size >= LARGE_FILE]
    small = [source for source in sources if source.live.size < LARGE_FILE]
    small.sort(key=lambda source: (source.path.rpartition(".")[2], source.path))
    frames: list[list[SourceFile]] = []
    size = FRAME_BYTES
    for source in small:
        if size >= FRAME_BYTES:
            frames.append([])
            size = 0
        frames[-1].append(source)
        size += source.live.size
    return _mixed(large, frames)


def _mixed(one: list[list[SourceFile]], other: list[list[SourceFile]]) -> list[list[SourceFile]]:
    spread = [(number / len(batches), batch) for batches in (one, other) for number, batch in enumerate(batches)]
    return [batch for _, batch in sorted(spread, key=lambda item: item[0])]


class _TableBuilder:
    """Gathers the packs and frames that a manifest needs."""

    def __init__(self, places: Mapping[str, Location]) -> None:
        self._places = places
        self.packs: dict[str, int] = {}
        self.frames: list[FrameRow] = []
        self._runs: dict[tuple[str, int, int], int] = {}

    def place(self, seen: Seen) -> tuple[int, int]:
        """(first frame, offset in it) of a content."""
        if not seen.size:
            return 0, 0
        location = self._places[seen.sha256]
        key = location.pack, location.frames[0].offset, len(location.frames)
        if key not in self._runs:
            number = self.packs.setdefault(location.pack, len(self.packs))
            self._runs[key] = len(self.frames)
            self.frames += [FrameRow(number, *frame) for frame in location.frames]
        return self._runs[key], location.offset


def tables(taken: Iterable[Taken], capture: Capture, pack_sizes: Mapping[str, int]) -> Tables:
    """The tables of a manifest for files that were all taken."""
    builder = _TableBuilder(capture.places)
    entries: dict[Place, int] = {}
    rows: list[FileRow] = []
    for source, seen, *_ in sorted(taken, key=lambda item: item.source.path):
        assert seen is not None
        frame, offset = builder.place(seen)
        entry = entries.setdefault(source.place, len(entries))
        rows.append(FileRow(source.path, source.live.mode, seen.size, seen.sha256, frame, offset, entry))
    return Tables(
        tuple(PackRow(pack, pack_sizes[pack]) for pack in builder.packs),
        tuple(builder.frames),
        tuple(EntryRow(*entry) for entry in entries),
        tuple(rows),
    )
