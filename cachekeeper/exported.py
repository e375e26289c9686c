"""What an export says of its snapshot, in a file at its top: `.cachekeeper-export.json`. See FORMAT.md.

It is not signed, and anybody can have written it: what makes no sense is an error, and what does is its word alone.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .disk import open_beneath, open_directory
from .environment import intact
from .inductor.layout import EXPORTED
from .manifest import Snapshot, wrong_metric, wrong_new_tag
from .models import Fingerprint
from .units import FULL_ID, is_timestamp

SCHEMA = "cachekeeper.exported/1"
_LONGEST = 16 << 20


@dataclass(frozen=True)
class Exported:
    """What an export says of its snapshot.

    Attributes:
        schema: SCHEMA.
        tool: the version of cachekeeper that wrote it.
        snapshot: the full id in the store that it is from.
        created, name, message, metrics, tags, fingerprint: as in its `Header`.
    """

    schema: str
    tool: str
    snapshot: str
    created: str
    name: str
    message: str
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    fingerprint: Fingerprint


def encode(snapshot: Snapshot) -> bytes:
    """The content of the file: the same for the same snapshot."""
    header = snapshot.header
    said = Exported(
        SCHEMA, header.tool, snapshot.id, header.created, header.name, header.message, header.metrics, header.tags,
        header.fingerprint,
    )  # fmt: skip
    return json.dumps(asdict(said), indent=1, sort_keys=True, allow_nan=False).encode() + b"\n"


def read_in(directory: Path) -> Exported | None:
    """What the file at the top of a directory says; None where there is none.

    Raises:
        ValueError: there is one, and it says nothing that an export says.
    """
    try:
        with open_directory(directory) as root:
            data = _content(root)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None
    return _parsed(data)


def _content(root: int) -> bytes:
    descriptor = open_beneath(root, EXPORTED, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise ValueError("it is no regular file")
        data = file.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise ValueError("it is longer than any")
    return data


def _parsed(data: bytes) -> Exported:
    from .schema import parse

    try:
        schema = json.loads(data).get("schema")
    except (ValueError, AttributeError, RecursionError):
        raise ValueError("it is not JSON") from None
    if schema != SCHEMA:
        raise ValueError(f"its schema is {str(schema)[:80]!r}, not {SCHEMA}")
    try:
        said = parse(Exported, data)
    except ValueError as error:
        raise ValueError(", ".join(line.strip() for line in str(error).splitlines()[1:3])) from None
    assert isinstance(said, Exported)
    if wrong := _wrong(said):
        raise ValueError(wrong)
    return said


def _wrong(said: Exported) -> str:
    """What no snapshot says, in words; "" for nothing."""
    if not FULL_ID.fullmatch(said.snapshot) or not is_timestamp(said.created):
        return "it names no snapshot"
    if "torch" not in said.fingerprint.must:
        return "it says nothing of torch"
    if not intact(said.fingerprint):
        return "the facts of its environment are not those that their id was made of"
    if wrong := wrong_new_tag(said.tags) or next(filter(None, map(wrong_metric, said.metrics)), ""):
        return f"its tags or metrics: {wrong}"
    return ""
