"""What is written down of everything that goes to quarantine, before it does: `evidence.json`."""

from __future__ import annotations

import json
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .comparison import digest_of
from .disk import Skipped
from .livecache import SourceFile
from .manifest import FileRow
from .reading import structure_damage
from .units import now_utc
from .version import __version__

_SCHEMA = "cachekeeper.quarantine/1"


def moving(files: Sequence[SourceFile], units: Collection[str], written: Collection[str]) -> list[SourceFile]:
    """The files of a cache that will move.

    Args:
        units: what moves as a whole.
        written: paths that something will be put at: a file where one of their directories must be moves, too.
    """
    units, above = set(units), _directories(written)
    return [
        source
        for source in files
        if source.path in above or not units.isdisjoint({source.path, *_directories([source.path])})
    ]


def in_the_way(skipped: Sequence[Skipped], written: Collection[str]) -> list[Skipped]:
    """The links and the like where something will be put."""
    places = {*written, *_directories(written)}
    return [item for item in skipped if item.path in places]


def _directories(paths: Collection[str]) -> set[str]:
    """Every directory above some paths."""
    found: set[str] = set()
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return found


def evidence(
    directory: Path,
    sources: Sequence[SourceFile],
    odd: Sequence[Skipped],
    wrong: Mapping[str, str],
    expected: Mapping[str, FileRow],
    snapshot: str | None = None,
    store: str | None = None,
) -> bytes | None:
    """The content of evidence.json; None where nothing moves.

    Args:
        sources: the files that will move.
        odd: what will move and is no file.
        wrong: path -> what is wrong; a file that is in none moves with its kernel.
        expected: path -> the file of the snapshot.
    """
    if not sources and not odd:
        return None
    document = {
        "schema": _SCHEMA,
        "when": now_utc(),
        "host": socket.gethostname(),
        "directory": str(directory),
        "snapshot": snapshot,
        "store": store,
        "cachekeeper": __version__,
        "files": [*_files(sources, wrong, expected), *_odd(odd, expected)],
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def _files(
    sources: Sequence[SourceFile], wrong: Mapping[str, str], expected: Mapping[str, FileRow]
) -> Iterator[dict[str, Any]]:
    structure = structure_damage(sources)
    for source in sorted(sources, key=lambda source: source.path):
        reason = wrong.get(source.path) or structure.get(source.path)
        yield {
            "path": source.path,
            "kind": source.place.kind,
            "entry": source.place.entry,
            "wrong": reason or "nothing: it moves with its kernel",
            "structure": structure.get(source.path, "sound"),
            "expected": _expected(expected.get(source.path)),
            "found": {"size": source.live.size, "sha256": _digest(source), "mtime": _time(source.live.mtime_ns)},
        }


def _odd(odd: Sequence[Skipped], expected: Mapping[str, FileRow]) -> Iterator[dict[str, Any]]:
    for item in odd:
        yield {"path": item.path, "wrong": item.reason, "expected": _expected(expected.get(item.path)), "found": None}


def _expected(file: FileRow | None) -> dict[str, Any] | None:
    """As the snapshot keeps it: a file that names its directory has a placeholder there."""
    return {"size": file.size, "sha256": file.sha256} if file else None


def _digest(source: SourceFile) -> str | None:
    try:
        return digest_of(source)
    except OSError:
        return None


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
