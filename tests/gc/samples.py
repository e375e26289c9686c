"""Packs of one content each and manifests over them, made once, however often they are needed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from cachekeeper.manifest import Count, FileRow, FrameRow, PackRow, Tables
from cachekeeper.packs import MAGIC, Content, Frame, PackWriter, compress, pack_id
from tests import samples

CONTENTS = 3


class Pack(NamedTuple):
    """A pack: its name, its bytes, its only frame, and which content it holds."""

    id: str
    data: bytes
    frame: Frame
    content: int


_packs: dict[str, Pack] = {}


def data_of(content: int) -> bytes:
    """The bytes of a content."""
    return b"content number %d" % content


@cache
def sha_of(content: int) -> str:
    """The SHA-256 of a content."""
    return hashlib.sha256(data_of(content)).hexdigest()


@cache
def pack(content: int, number: int) -> Pack:
    """A pack that holds a content; each number gives another nonce, and so another name."""
    made: list[tuple[list[bytes], list[Frame]]] = []
    writer = PackWriter(lambda _, parts, frames: made.append((parts, frames)))
    data = data_of(content)
    row = Content(sha_of(content), len(data), 0, 0, f"fxgraph/ab/fx/y{content}", 0o644)
    writer.add([(compress(data), len(data))], [row])
    writer.close()
    [(parts, [frame])] = made
    parts[0] = MAGIC + number.to_bytes(16, "big")
    found = Pack(pack_id(parts), b"".join(parts), frame, content)
    _packs[found.id] = found
    return found


def pack_named(name: str) -> Pack:
    """A pack that was made before."""
    return _packs[name]


def tables(packs: Mapping[int, Pack]) -> Tables:
    """The tables of a snapshot: for each content, the pack that it lies in."""
    chosen = [packs[content] for content in sorted(packs)]
    files = [
        FileRow(f"fxgraph/ab/fx/y{each.content}", 0o644, each.frame.raw, sha_of(each.content), number, 0, 0)
        for number, each in enumerate(chosen)
    ]
    return replace(
        samples.tables(),
        packs=tuple(PackRow(each.id, len(each.data)) for each in chosen),
        frames=tuple(FrameRow(number, *each.frame) for number, each in enumerate(chosen)),
        files=tuple(files),
    )


def header(message: str, made: Tables):
    """A header that fits tables."""
    counts = {"fxgraph": Count(1, len(made.files), sum(file.size for file in made.files))}
    return replace(samples.header(message=message), counts=counts, stored=sum(frame.stored for frame in made.frames))
