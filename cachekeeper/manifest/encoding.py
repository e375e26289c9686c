"""The manifest of a snapshot: zstd frames of a short header, the tables of files, and perhaps telemetry. See FORMAT.md.

The snapshot's id is the SHA-256 of the header, and the header holds the SHA-256 of the other frames, so that an id is a
root of trust for every byte of the snapshot; and a listing reads only the headers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

import zstandard

from ..errors import DamagedStore, FromLaterVersion
from ..masking import without_secret_values, without_secrets
from ..models import Fact
from ..packs import compress
from ..version import STORE_FORMAT
from .checking import TELEMETRY_LIMIT, check_header, check_tables
from .models import EntryRow, FileRow, FrameRow, Header, Manifest, PackRow, Snapshot, Tables, TablesInfo

FORMAT = STORE_FORMAT
HEADER_GUESS = 64 << 10
_HEADER_LIMIT = 16 << 20
_TABLES_LIMIT = 256 << 20


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
    check_header(header)
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
    check_tables(tables, snapshot.header)
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
        raw, rest = _first_frame(data[end:], TELEMETRY_LIMIT)
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
    from ..schema import parse

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
