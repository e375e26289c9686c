"""The manifest of a snapshot: zstd frames of a short header, the tables of files, and perhaps telemetry. See FORMAT.md.

The snapshot's id is the SHA-256 of the header, and the header holds the SHA-256 of the other frames, so that an id is a
root of trust for every byte of the snapshot; and a listing reads only the headers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import zstandard

from . import inductor
from .disk import portable
from .errors import DamagedStore, FromLaterVersion
from .inductor import KINDS
from .inductor.layout import WORKSHOP
from .masking import is_secret, without_secret_values, without_secrets
from .models import Fact, Fingerprint, Proof
from .packs import compress
from .units import is_timestamp
from .version import STORE_FORMAT

FORMAT = STORE_FORMAT
HEADER_GUESS = 64 << 10
_HEADER_LIMIT = 16 << 20
_TABLES_LIMIT = 256 << 20
_TELEMETRY_LIMIT = 16 << 20
_NUMBER_LIMIT = 1 << 53
_FILE_LIMIT = 1_000_000
_BYTES_LIMIT = 1 << 44
_HEX = re.compile(r"[0-9a-f]{64}")
_MOST_TAGS = 100
_TAG_LIMIT = 1000
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
ALSO = "also/"
_PATH_LIMIT = 4000
_PART_LIMIT = 255
# What nearly every path looks like, so that the slow check is for the odd ones.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,254}(?:/[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,254})*")


class PackRow(NamedTuple):
    """A pack: its name (SHA-256) and its length in bytes."""

    id: str
    size: int


class FrameRow(NamedTuple):
    """A frame: number of its pack, and where it lies there."""

    pack: int
    offset: int
    stored: int
    raw: int


class EntryRow(NamedTuple):
    """An entry: its kind and its path."""

    kind: str
    path: str


class FileRow(NamedTuple):
    """A file: `size` bytes from `offset` in frame number `frame`, on into the next ones; number of its entry."""

    path: str
    mode: int
    size: int
    sha256: str
    frame: int
    offset: int
    entry: int


@dataclass(frozen=True)
class Tables:
    """The long part of a manifest."""

    packs: tuple[PackRow, ...]
    frames: tuple[FrameRow, ...]
    entries: tuple[EntryRow, ...]
    files: tuple[FileRow, ...]


@dataclass(frozen=True)
class TablesInfo:
    """SHA-256 of the tables' JSON, or of the telemetry's lines, and its length in bytes."""

    sha256: str
    raw: int


@dataclass(frozen=True)
class RunSummary:
    """The run that a snapshot was saved after, in numbers: those of `runs.totals.Totals` and `verbs.stats.RunStats`.

    Attributes:
        id: of the run, on the machine where it was.
        command: without its secrets.
        began: UTC, as "2026-01-31T08:15:00Z".
        seconds: how long it took; None where nobody saw its end.
        compiling: seconds in which at least one thread compiled.
    """

    id: str
    command: tuple[str, ...]
    began: str
    seconds: float | None
    compiling: float
    hits: int
    misses: int
    bypasses: int
    recompiles: int
    fallbacks: int
    processes: int
    crashed: int


@dataclass(frozen=True)
class Count:
    """How much of one kind."""

    entries: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Header:
    """The short part of a manifest.

    Attributes:
        created: UTC, as "2026-01-31T08:15:00Z".
        name: the name that it was saved under, or "".
        parent: id of the snapshot that the name pointed to before, or "".
        metrics: numbers of the run, as {"tok_s": 21500.0}.
        live: why this may be a snapshot of a moving target; empty where the cache was quiet.
        damaged: "entry: reason" of what was saved damaged on request.
        cache_dir: where the cache was, for people.
        also: label -> where the directory saved under `also/<label>/` was, for people; a restore never writes there.
            A label that is the name of an environment variable is exported under that name.
        counts: kind -> how much.
        triton_dirs: directory of kernels -> number of entries, as {"triton/0": 285}.
        stored: bytes that its frames take in the store, shared ones included.
        targets: what Triton's kernels were built for, as ["cuda:90"].
        origin: how it came to be, where no cache directory of this machine was saved: "imported from cache.tar.zst".
        proof: the certificate that a fresh process hits, or None.
        telemetry: what jobs told of the graphs in it is kept with it; None: it is not.
        run: the run that it was saved after, or None.
        tags: what the work was, as {"dataset": "pile-v2", "batch": "8"}.
        secrets: "path  kind" of what was saved on request though it looks like secrets; no secret stands in it.
    """

    format: int
    tool: str
    created: str
    name: str
    parent: str
    message: str
    metrics: Mapping[str, float]
    live: tuple[str, ...]
    damaged: tuple[str, ...]
    cache_dir: str
    also: Mapping[str, str]
    fingerprint: Fingerprint
    counts: Mapping[str, Count]
    triton_dirs: Mapping[str, int]
    stored: int
    targets: tuple[str, ...]
    tables: TablesInfo = field(default=TablesInfo("", 0))
    origin: str = ""
    proof: Proof | None = None
    telemetry: TablesInfo | None = None
    run: RunSummary | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        """Number of files."""
        return sum(count.files for count in self.counts.values())

    @property
    def bytes(self) -> int:
        """Length of all files together."""
        return sum(count.bytes for count in self.counts.values())

    @property
    def entries(self) -> int:
        """Number of entries."""
        return sum(count.entries for count in self.counts.values())

    def entries_of(self, kind: str) -> int:
        """Number of entries of a kind."""
        return self.counts[kind].entries if kind in self.counts else 0


@dataclass(frozen=True)
class Snapshot:
    """A snapshot as listed: its id and its header."""

    id: str
    header: Header


@dataclass(frozen=True)
class Manifest(Snapshot):
    """A snapshot with its tables."""

    tables: Tables


def counts(tables: Tables) -> Mapping[str, Count]:
    """Kind -> how much of it there is."""
    kinds = [tables.entries[file.entry].kind for file in tables.files]
    files = Counter(kinds)
    sizes: Counter[str] = Counter()
    for kind, file in zip(kinds, tables.files, strict=True):
        sizes[kind] += file.size
    entries = Counter(entry.kind for entry in tables.entries)
    return {kind: Count(entries[kind], files[kind], sizes[kind]) for kind in KINDS if files[kind]}


def triton_dirs(tables: Tables) -> Mapping[str, int]:
    """Directory of kernels -> number of entries."""
    return inductor.triton_dirs(entry.path for entry in tables.entries if entry.kind == "triton")


def encode(header: Header, tables: Tables, telemetry: bytes = b"") -> tuple[Snapshot, bytes]:
    """The snapshot and the bytes of its manifest; `header.tables` and `header.telemetry` are filled in, secrets masked.

    Args:
        telemetry: lines of JSON, or b"" for none.
    """
    raw_tables = _json([tables.packs, tables.frames, tables.entries, tables.files])
    told = _info(telemetry) if telemetry else None
    header = replace(_without_secrets(header), tables=_info(raw_tables), telemetry=told)
    raw_header = _json({key: value for key, value in asdict(header).items() if value or key not in _LATER})
    data = compress(raw_header) + compress(raw_tables) + (compress(telemetry) if telemetry else b"")
    return Snapshot(hashlib.sha256(raw_header).hexdigest(), header), data


def _without_secrets(header: Header) -> Header:
    """A header whose commands and tags tell no secret."""
    made_on = header.fingerprint
    command = made_on.recorded.get("command")
    if command is not None and isinstance(command.value, (list, tuple)):
        shown = without_secrets(map(str, command.value))
        if shown != tuple(command.value):
            made_on = replace(made_on, recorded={**made_on.recorded, "command": Fact(list(shown))})
    run = replace(header.run, command=without_secrets(header.run.command)) if header.run else None
    return replace(header, fingerprint=made_on, run=run, tags=without_secret_values(header.tags))


# A header without these is as it was before there were any.
_LATER = ("telemetry", "run", "tags", "secrets")


def _info(raw: bytes) -> TablesInfo:
    return TablesInfo(hashlib.sha256(raw).hexdigest(), len(raw))


def _json(value: object) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # A directory's name or a variable may have bytes that are no UTF-8: for people, "?" will do.
    return text.encode(errors="replace")


def decode_header(identifier: str, data: bytes) -> tuple[Snapshot, int]:
    """The snapshot from the beginning of its manifest, and where its tables begin.

    Raises:
        EOFError: the header goes on after `data`.
        DamagedStore: these are not the bytes of this snapshot.
        FromLaterVersion: a later version of cachekeeper wrote it.
    """
    raw, end = _first_frame(data, _HEADER_LIMIT)
    if hashlib.sha256(raw).hexdigest() != identifier:
        raise DamagedStore(f"the manifest of {identifier[:8]} is not what its id says")
    _check_format(raw)
    header = _parsed(Header, raw)
    _check_header(header)
    return Snapshot(identifier, _without_secrets(header)), end  # an earlier version kept more


def decode(identifier: str, data: bytes) -> Manifest:
    """A manifest, checked: nothing in it can make a restore write outside its directory.

    Its telemetry is not looked at: a restore does without. See `decode_telemetry`.

    Raises:
        DamagedStore: it is damaged, or says what no snapshot says.
        FromLaterVersion: a later version of cachekeeper wrote it.
    """
    snapshot, raw, end = _header_and_tables(identifier, data)
    if end != len(data) and snapshot.header.telemetry is None:
        raise DamagedStore(f"the manifest of {identifier[:8]} goes on after its end")
    if _info(raw) != snapshot.header.tables:
        raise DamagedStore(f"the file table of {identifier[:8]} is not what its header says")
    tables = _tables(_parsed(_TABLES, raw))
    _check_tables(tables, snapshot.header)
    return Manifest(identifier, snapshot.header, tables)


def decode_telemetry(identifier: str, data: bytes) -> bytes:
    """The lines of telemetry in a whole manifest, which may be any bytes of that SHA-256; b"" where it has none.

    Raises:
        DamagedStore: they are not what its header says, or the header is damaged.
        FromLaterVersion: a later version of cachekeeper wrote it.
    """
    snapshot, _, end = _header_and_tables(identifier, data)
    if snapshot.header.telemetry is None:
        return b""
    try:
        raw, rest = _first_frame(data[end:], _TELEMETRY_LIMIT)
        if end + rest == len(data) and _info(raw) == snapshot.header.telemetry:
            return raw
    except (DamagedStore, EOFError):
        pass
    raise DamagedStore(f"the telemetry of {identifier[:8]} is not what its header says")


def _header_and_tables(identifier: str, data: bytes) -> tuple[Snapshot, bytes, int]:
    """The snapshot, the JSON of its tables, and where they end."""
    try:
        snapshot, end = decode_header(identifier, data)
        raw, rest = _first_frame(data[end:], _TABLES_LIMIT)
    except EOFError:
        raise DamagedStore(f"the manifest of {identifier[:8]} is cut") from None
    return snapshot, raw, end + rest


def _first_frame(data: bytes, limit: int) -> tuple[bytes, int]:
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    try:
        parameters = zstandard.get_frame_parameters(data)
        if not 0 < parameters.content_size <= limit:
            raise DamagedStore("a manifest has no sane length")
        raw = decompressor.decompress(data)
    except zstandard.ZstdError as error:
        raise DamagedStore(f"a manifest does not decompress: {error}") from None
    if not decompressor.eof:
        raise EOFError
    return raw, len(data) - len(decompressor.unused_data)


def _check_format(raw: bytes) -> None:
    try:
        version = json.loads(raw).get("format")
    except (ValueError, AttributeError, RecursionError):
        raise DamagedStore("a manifest is not JSON") from None
    if isinstance(version, int) and version > FORMAT:
        raise FromLaterVersion(
            f"this snapshot has format {version}; this cachekeeper reads up to {FORMAT}",
            hint="upgrade cachekeeper: `pip install -U cachekeeper`",
        )
    if version != FORMAT:
        raise DamagedStore(f"a manifest has no format that there is: {str(version)[:80]}")


def _parsed(kind: Any, raw: bytes) -> Any:
    from .schema import parse

    try:
        return parse(kind, raw)
    except ValueError as error:
        first = str(error).splitlines()[:3]
        raise DamagedStore("a manifest does not have the form of one", facts=first) from None


_Row = TypeVar("_Row", bound=tuple[Any, ...])
_TABLES = tuple[tuple[PackRow, ...], tuple[FrameRow, ...], tuple[EntryRow, ...], tuple[FileRow, ...]]


def _tables(lists: Any) -> Tables:
    packs, frames, entries, files = lists
    return Tables(_made(PackRow, packs), _made(FrameRow, frames), _made(EntryRow, entries), _made(FileRow, files))


def _made(kind: type[_Row], rows: Iterable[tuple[Any, ...]]) -> tuple[_Row, ...]:
    """Rows of a NamedTuple from tuples of the right length: `_make` would count them once more, row by row."""
    return tuple(map(partial(tuple.__new__, kind), rows))


def check(header: Header, tables: Tables) -> None:
    """Refuse what no reader would take.

    Raises:
        DamagedStore: the first thing that is wrong.
    """
    _check_header(header)
    _check_tables(tables, header)


def _check_header(header: Header) -> None:
    """Refuse a header that no snapshot has."""
    for label in header.also:
        if not _LABEL.fullmatch(label):
            raise DamagedStore(f"a manifest names a directory {label[:200]!r}")
    for directory in header.triton_dirs:
        check_path(directory)
    if header.parent and not _HEX.fullmatch(header.parent):
        raise DamagedStore("a manifest has a parent that is no id")
    if not is_timestamp(header.created):
        raise DamagedStore(f"a manifest has no time: {header.created[:80]!r}")
    counts = [(count.entries, count.files, count.bytes) for count in header.counts.values()]
    numbers = [*(number for row in counts for number in row), header.stored, *header.triton_dirs.values()]
    if not header.counts.keys() <= set(KINDS) or any(not 0 <= number <= _BYTES_LIMIT for number in numbers):
        raise DamagedStore("a manifest has counts that no cache has")
    told = header.telemetry
    if told is not None and not (_HEX.fullmatch(told.sha256) and 0 < told.raw <= _TELEMETRY_LIMIT):
        raise DamagedStore("a manifest has telemetry that no job told")
    if header.run is not None:
        _check_run(header.run)
    if wrong := wrong_tag(header.tags):
        raise DamagedStore(f"a manifest has tags that nobody gave: {wrong}")


# What a new snapshot is given; `check` takes what earlier versions took.
_KEY = re.compile(r"\w[\w./-]{0,99}")
_KEY_OF_METRIC = re.compile(r"\w[\w./%-]{0,99}")


def wrong_new_tag(tags: Mapping[str, str]) -> str:
    """What is wrong with tags that a new snapshot is to have, in words; "" for nothing. No secret is in the words."""
    for key, value in tags.items():
        if not _KEY.fullmatch(key):
            return f"the key {key[:80]!r}: a key has 1 to 100 letters, digits, and . _ - /"
        if not value.isprintable():
            return f"the value of {key!r} has control characters"
        if is_secret(key, value):
            return f"{key!r} looks like a secret, and a snapshot is for others to read"
    return wrong_tag(tags)


def wrong_metric(key: str) -> str:
    """What is wrong with the name of a metric, in words; "" for nothing."""
    return "" if _KEY_OF_METRIC.fullmatch(key) else "a key has 1 to 100 letters, digits, and . _ - / %"


def wrong_tag(tags: Mapping[str, str]) -> str:
    """What is wrong with the tags of a snapshot, in words; "" for nothing."""
    if len(tags) > _MOST_TAGS:
        return f"{len(tags):,} tags, and {_MOST_TAGS} is the most"
    for key, value in tags.items():
        if not key or "=" in key or key != key.strip():
            return f"the key {key[:80]!r}"
        if len(key) + len(value) > _TAG_LIMIT:
            return f"{key[:80]!r} is longer than {_TAG_LIMIT:,} characters"
    return ""


def _check_run(run: RunSummary) -> None:
    numbers = [number for number in vars(run).values() if isinstance(number, (int, float))]
    if not is_timestamp(run.began) or any(not 0 <= number <= _NUMBER_LIMIT for number in numbers):
        raise DamagedStore("a manifest has a run that nobody ran")


def _check_tables(tables: Tables, header: Header) -> None:
    """Refuse tables that no snapshot has.

    Raises:
        DamagedStore: the first thing that is wrong.
    """
    if len(tables.files) > _FILE_LIMIT or sum(size for _, _, size, *_ in tables.files) > _BYTES_LIMIT:
        raise DamagedStore("a manifest claims more files or bytes than any cache has")
    _check_packs(tables)
    for kind in {entry.kind for entry in tables.entries}:
        if kind not in KINDS:
            raise DamagedStore(f"a manifest has an entry of unknown kind {kind!r}")
    paths = [entry.path for entry in tables.entries]
    for path in () if _all_plain(paths) else paths:
        check_path(path)
    _check_files(tables)
    if header.files != len(tables.files):
        raise DamagedStore(f"a manifest counts {header.files:,} files and lists {len(tables.files):,}")
    beside = [path for path, *_ in tables.files if path.startswith(ALSO)]
    if not set(map(also_label, beside)) <= {"", *header.also}:
        raise DamagedStore("a manifest has files of a directory that it does not name")


def _check_packs(tables: Tables) -> None:
    for pack in tables.packs:
        if not _HEX.fullmatch(pack.id) or pack.size < 0:
            raise DamagedStore(f"a manifest names a pack {pack.id[:80]!r}")
    for frame in tables.frames:
        if not 0 <= frame.pack < len(tables.packs) or min(frame) < 0 or frame.raw > _HEADER_LIMIT:
            raise DamagedStore("a manifest has a frame that no pack can hold")
        if frame.offset + frame.stored > tables.packs[frame.pack].size:
            raise DamagedStore("a manifest has a frame beyond the end of its pack")


def _check_files(tables: Tables) -> None:
    """Column by column, which takes a third of the time; where something is wrong, the row is looked for."""
    ends = list(accumulate((frame.raw for frame in tables.frames), initial=0))
    paths, modes, _, hashes, _, _, entries = _columns(tables)
    seen = set(paths)
    plain = (
        len(seen) == len(paths)
        and _all_plain(paths)
        and set(map(len, hashes)) <= {64}
        and not "".join(hashes).encode(errors="replace").translate(None, b"0123456789abcdef")
        and not any(mode & ~0o777 for mode in set(modes))
        and all(0 <= entry < len(tables.entries) for entry in set(entries))
        and _all_within_frames(tables, ends)
    )
    if not plain:
        _check_rows(tables, ends)
    _check_no_file_is_a_directory(seen, {path.rpartition("/")[0] for path in paths})


def _columns(tables: Tables) -> Sequence[tuple[Any, ...]]:
    return list(zip(*tables.files, strict=True)) if tables.files else [()] * len(FileRow._fields)


def _check_rows(tables: Tables, ends: Sequence[int]) -> None:
    seen: set[str] = set()
    for file in tables.files:
        check_path(file.path)
        if file.path in seen:
            raise DamagedStore(f"a manifest names a file twice: {file.path!r}")
        seen.add(file.path)
        if not 0 <= file.entry < len(tables.entries) or not _HEX.fullmatch(file.sha256) or file.mode & ~0o777:
            raise DamagedStore(f"a manifest has an impossible row for {file.path!r}")
        if not _within_frames(file, ends):
            raise DamagedStore(f"a manifest has a file beyond its frames: {file.path!r}")


def _within_frames(file: FileRow, ends: Sequence[int]) -> bool:
    """Whether a file is in its frames.

    Args:
        ends: 0, and where each frame ends if all are laid one after the other.
    """
    if file.size < 0 or file.offset < 0 or file.frame < 0:
        return False
    if file.size == 0:
        return True
    number, start = file.frame, file.offset
    if number >= len(ends) - 1 or ends[number] + start > ends[number + 1]:
        return False
    return ends[number] + start + file.size <= ends[-1]


def _all_within_frames(tables: Tables, ends: Sequence[int]) -> bool:
    """The same of all files at once."""
    _, _, sizes, _, frames, offsets, _ = _columns(tables)
    if min(min(column, default=0) for column in (sizes, frames, offsets)) < 0:
        return False
    number, end = len(ends) - 1, ends[-1]
    return all(
        frame < number and (start := ends[frame] + offset) <= ends[frame + 1] and start + size <= end
        for size, frame, offset in zip(sizes, frames, offsets, strict=True)
        if size
    )


def _check_no_file_is_a_directory(files: set[str], parents: set[str]) -> None:
    done: set[str] = set()
    for parent in parents:
        while parent and parent not in done:
            if parent in files:
                raise DamagedStore(f"a manifest names {parent!r} as a file and as a directory")
            done.add(parent)
            parent = parent.rpartition("/")[0]


def also_label(path: str) -> str:
    """The label of the directory beside the cache that a file belongs to, or ""."""
    if not path.startswith(ALSO):
        return ""
    label, _, rest = path[len(ALSO) :].partition("/")
    return label if rest and _LABEL.fullmatch(label) else ""


def _all_plain(paths: Collection[str]) -> bool:
    """True where a look at all of them finds nothing that `storable` would have to look at."""
    return max(map(len, paths), default=0) <= _PATH_LIMIT and all(map(_PLAIN_PATH.fullmatch, paths))


def check_path(path: str) -> None:
    """Refuse a path that is not `storable`.

    Raises:
        DamagedStore: it is not.
    """
    if not storable(path):
        raise DamagedStore(f"a manifest names a path that no cache has: {path[:200]!r}")


def storable(path: str) -> bool:
    """True for a path that is relative, printable, of parts that a filesystem takes, and stays below its root."""
    if _PLAIN_PATH.fullmatch(path) and len(path) <= _PATH_LIMIT:
        return True
    parts = path.split("/")
    return (
        portable(path)
        and len(path.encode()) <= _PATH_LIMIT
        and not any(part in ("", ".", "..") or len(part.encode()) > _PART_LIMIT for part in parts)
        and parts[0] != WORKSHOP
    )
