"""Torch's Mega-Cache bytes, read and written without torch: nothing is unpickled.

    4 bytes           CRC-32 of the rest, big endian
    8 bytes           version, 1
    chunk, chunk ...  str type, u64 count, count x (str key, bytes content)

where `bytes` is a u64 length and the bytes, and `str` is `bytes` of base64 of UTF-8. Numbers are big endian.
Sources: torch/utils/_appending_byte_serializer.py and torch/compiler/_cache.py (`CacheArtifactManager`); where each
type goes: `populate_cache` of its class, in torch/_inductor/codecache.py and runtime/autotune_cache.py there, in
torch/_functorch/_aot_autograd/autograd_cache.py, torch/_dynamo/pgo.py and torch/_dynamo/package.py. As of torch 2.13.

A process that saves twice writes two chunks of a type, and torch loads only the last of each; here all are read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote

from .errors import DamagedCache, EmptyCache, UsageError
from .manifest import storable
from .units import count, harmless

VERSION = 1
# What a Mega-Cache never has, in words.
LACKS = (
    "C++ libraries: torch builds those of graphs for CPUs again",
    "max-autotune timings (cache/<hash>): torch measures again",
    "Triton kernels that are in no graph's bundle",
    "CUDA's own cache",
)
_SUM_BYTES = 4
_START = 12
_LENGTH = 8
_SMALLEST_ARTIFACT = 2 * _LENGTH
_KEPT = "mega-cache"
_PIECE = 200
_TYPE_LIMIT = 100
_KEY_LIMIT = 2000
_PICKLE_KEY = "[a-z2-7]{51}"
# type -> the keys that torch gives it
_KEYS = {
    "inductor": re.compile(f"f{_PICKLE_KEY}"),
    "aot_autograd": re.compile(f"a{_PICKLE_KEY}"),
    "autotune": re.compile(r"[a-z0-9]{2}/[0-9a-f]{64}\.best_config"),
    "pgo": re.compile(r"[ -~]{1,200}|.{1,50}"),
    "precompile": re.compile(r"[0-9a-f]{64}"),
}
# The same in a cache directory, and the key in it. The last part of a graph's path is the hash of its content (older:
# "entry"), and torch takes whatever is there.
_PLACES = {
    "inductor": re.compile(rf"fxgraph/[a-z0-9]{{2}}/(f{_PICKLE_KEY})/[a-z0-9]+"),
    "aot_autograd": re.compile(rf"aotautograd/(a{_PICKLE_KEY})/[a-z0-9]+"),
    "autotune": re.compile(r"([a-z0-9]{2}/[0-9a-f]{64}\.best_config)"),
    "pgo": re.compile(r"dynamo/code_state_(.+)\.pkl"),
    "precompile": re.compile(r"dynamo/([0-9a-f]{64})/entry"),
}
KNOWN_TYPES = tuple(_KEYS)
_NO_FILE_NAME = re.compile(r'[<>:"/\\|?*]')


class Artifact(NamedTuple):
    """One thing in a Mega-Cache."""

    type: str
    key: str
    content: bytes


@dataclass(frozen=True)
class MegaCache:
    """What a Mega-Cache holds.

    Attributes:
        artifacts: all of them, in the order in which they are there.
        lost_by_torch: number of artifacts that torch's loader would pass over: it takes the last chunk of each type.
    """

    artifacts: tuple[Artifact, ...]
    lost_by_torch: int = 0

    @property
    def types(self) -> dict[str, int]:
        """Type -> number of artifacts."""
        return dict(Counter(artifact.type for artifact in self.artifacts))

    @property
    def unknown_types(self) -> dict[str, int]:
        """The same, of those that torch 2.13 does not know; it refuses a Mega-Cache that holds one."""
        return {kind: number for kind, number in self.types.items() if kind not in _KEYS}


def looks_like_one(head: bytes) -> bool:
    """True for the first 12 bytes or more of a Mega-Cache, of whatever version below 256."""
    return len(head) >= _START and not any(head[_SUM_BYTES : _START - 1]) and head[_START - 1] > 0


def parse(data: bytes) -> MegaCache:
    """Read a Mega-Cache, and check every byte and every key.

    Raises:
        DamagedCache: cut, changed, or never sane.
        UsageError: another version, or a key that would leave the cache directory.
        EmptyCache: there is nothing in it.
    """
    if len(data) < _START:
        raise DamagedCache("the Mega-Cache is cut", facts=[f"{count(len(data), 'byte')}: not even a beginning"])
    version = int.from_bytes(data[_SUM_BYTES:_START], "big")
    expected, actual = int.from_bytes(data[:_SUM_BYTES], "big"), zlib.crc32(memoryview(data)[_SUM_BYTES:])
    if expected != actual:
        facts = [f"CRC-32   {expected:08x} in the file, {actual:08x} of its {len(data):,} bytes"]
        raise DamagedCache(
            "the Mega-Cache is damaged: its checksum does not match",
            facts=[*facts, f"reason   {_reason(data) if version == VERSION else 'bytes were changed'}"],
            hint="copy it again from where it was made; torch would load nothing of it, and go on cold",
        )
    if version != VERSION:
        raise UsageError(
            f"a Mega-Cache of version {version}; this cachekeeper reads version {VERSION}",
            hint="upgrade cachekeeper, or import the cache directory instead",
        )
    found = _read(data)
    if not found.artifacts:
        raise EmptyCache("the Mega-Cache holds no artifact", hint="save it after the job has compiled something")
    for artifact in found.artifacts:
        check_key(artifact.type, artifact.key)
    return found


def _reason(data: bytes) -> str:
    """Why a checksum may not match."""
    try:
        _read(data)
    except DamagedCache as error:
        return error.facts[0] if error.facts else error.message
    return "bytes were changed"


def _read(data: bytes) -> MegaCache:
    reader = _Reader(data)
    artifacts: list[Artifact] = []
    last: dict[str, int] = {}
    while not reader.at_end:
        kind = reader.text()
        number = reader.number()
        if number > reader.left // _SMALLEST_ARTIFACT:
            raise _insane(f"{number:,} artifacts of type {harmless(kind[:80])!r} in {reader.left:,} bytes")
        artifacts += [Artifact(kind, reader.text(), reader.bytes()) for _ in range(number)]
        last[kind] = number
    return MegaCache(tuple(artifacts), len(artifacts) - sum(last.values()))


class _Reader:
    """Numbers, bytes and texts, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = _START

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    @property
    def at_end(self) -> bool:
        return self.left == 0

    def number(self) -> int:
        if self.left < _LENGTH:
            raise _insane(f"cut: a number goes on beyond the end at {len(self._data):,} bytes")
        self._at += _LENGTH
        return int.from_bytes(self._data[self._at - _LENGTH : self._at], "big")

    def bytes(self) -> bytes:
        length = self.number()
        if length > self.left:
            raise _insane(f"cut: {length:,} bytes from {self._at:,} on, and it ends at {len(self._data):,}")
        self._at += length
        return self._data[self._at - length : self._at]

    def text(self) -> str:
        start = self._at
        try:
            return base64.b64decode(self.bytes(), validate=True).decode()
        except (binascii.Error, ValueError):
            raise _insane(f"no text at {start:,} bytes") from None


def _insane(reason: str) -> DamagedCache:
    return DamagedCache("the Mega-Cache is damaged", facts=[reason], hint="copy it again from where it was made")


def check_key(kind: str, key: str) -> None:
    """Refuse what could be put anywhere but in its own place.

    Raises:
        UsageError: not a type or a key that torch writes.
    """
    if _is_key(kind, key):
        return
    raise UsageError(
        "the Mega-Cache has a key that torch does not write; nothing was imported",
        facts=[f"type   {harmless(kind[:80])}", f"key    {harmless(key[:200])}"],
        hint="it may be made to write outside the cache directory: do not load it with torch either",
    )


def _is_key(kind: str, key: str) -> bool:
    """True for a key that cannot lead out of a cache directory, and that is one of its type as far as that is known."""
    sane = (
        key.isprintable()
        and "\\" not in key
        and not any(part in (".", "..") for part in key.split("/"))
        and not key.startswith("/")
        and 0 < len(key.encode(errors="replace")) <= _KEY_LIMIT
    )
    if kind in _KEYS:
        return sane and _KEYS[kind].fullmatch(key) is not None
    return sane and kind.isprintable() and 0 < len(_quoted(kind)) <= _TYPE_LIMIT


def path_of(artifact: Artifact) -> str:
    """Where torch puts an artifact in its cache directory; below `mega-cache/` for a type that is not known.

    The colons of a profile's key become `_` in its path, as torch does it, so that they cannot be told from that.

    Raises:
        UsageError: as `check_key`.
    """
    kind, key, content = artifact
    check_key(kind, key)
    path = {
        "inductor": f"fxgraph/{key[1:3]}/{key}/{_hash(content)}",
        "aot_autograd": f"aotautograd/{key}/{_hash(content)}",
        "autotune": key,
        "pgo": f"dynamo/code_state_{_NO_FILE_NAME.sub('_', key)}.pkl",
        "precompile": f"dynamo/{key}/entry",
    }.get(kind) or _kept_path(kind, key)
    assert storable(path), path
    return path


def files_of(mega: MegaCache) -> dict[str, bytes]:
    """Path below the cache directory -> bytes; of artifacts for one path the last, as torch would leave it."""
    return {path_of(artifact): artifact.content for artifact in mega.artifacts}


def type_and_key(path: str) -> tuple[str, str] | None:
    """The artifact that a file of a cache directory is; None for one that a Mega-Cache does not carry."""
    for kind, place in _PLACES.items():
        match = place.fullmatch(path)
        if match and _is_key(kind, match[1]):
            return kind, match[1]
    if path.startswith(f"{_KEPT}/"):
        return _kept_key(path)
    return None


def build(artifacts: Iterable[Artifact]) -> bytes:
    """The Mega-Cache of artifacts: one chunk a type, so that torch loads every one; sorted, so that it is reproducible.

    Raises:
        UsageError: as `check_key`.
    """
    chunks: dict[str, list[Artifact]] = {}
    for artifact in sorted(artifacts):
        check_key(artifact.type, artifact.key)
        chunks.setdefault(artifact.type, []).append(artifact)
    parts = [_number(VERSION)]
    for kind, members in chunks.items():
        parts += [_text(kind), _number(len(members))]
        for member in members:
            parts += [_text(member.key), _number(len(member.content)), member.content]
    body = b"".join(parts)
    return zlib.crc32(body).to_bytes(_SUM_BYTES, "big") + body


def unknown_types(types: Mapping[str, int]) -> dict[str, int]:
    """Those of the types that torch 2.13 does not know."""
    return {kind: number for kind, number in types.items() if kind not in _KEYS}


def _number(value: int) -> bytes:
    return value.to_bytes(_LENGTH, "big")


def _text(text: str) -> bytes:
    raw = base64.b64encode(text.encode())
    return _number(len(raw)) + raw


def _hash(content: bytes) -> str:
    """The name of an entry's file: `sha256_hash` in torch/_inductor/codecache.py."""
    return base64.b32encode(hashlib.sha256(content).digest()).decode().lower()[:51]


# Artifacts of types that are not known are kept below mega-cache/<type>.artifacts/ as <key>.bin, both percent-encoded,
# a long key in pieces: <piece>.part/<piece>.bin. No such name is scratch, or a kernel's directory.


def _kept_path(kind: str, key: str) -> str:
    text = _quoted(key)
    *pieces, last = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return "/".join([_KEPT, f"{_quoted(kind)}.artifacts", *(f"{piece}.part" for piece in pieces), f"{last}.bin"])


def _kept_key(path: str) -> tuple[str, str] | None:
    _, kind, *pieces = path.split("/")
    if not pieces or not kind.endswith(".artifacts") or not pieces[-1].endswith(".bin"):
        return None
    key = "".join(piece.removesuffix(".part") for piece in [*pieces[:-1], pieces[-1].removesuffix(".bin")])
    found = unquote(kind.removesuffix(".artifacts")), unquote(key)
    return found if found[0] not in _KEYS and _is_key(*found) and _kept_path(*found) == path else None


def _quoted(text: str) -> str:
    return quote(text, safe="", errors="replace").replace(".", "%2E")
