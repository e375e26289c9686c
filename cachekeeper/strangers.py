"""Files of other programs in a cache that name a directory: nobody knows how to rewrite the paths in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .disk import open_beneath
from .units import count, listed

_FILE_BYTES = 16 << 20
_ALL_BYTES = 256 << 20
_MOST_FILES = 2000
_MOST_NAMED = 3
_NO_LONGER_NAME = rb"(?![A-Za-z0-9_.-])"


def naming(root: int, files: Sequence[tuple[str, int]], moved: Mapping[str, Path]) -> tuple[str, ...]:
    """A note where files name a directory that is elsewhere now, or a path below it.

    Args:
        root: descriptor of the cache directory.
        files: path below it and size in bytes, of kind "other". No more than 2,000 files of up to 16 MiB, 256 MiB
            together, are looked into; of the others nothing is said.
        moved: absolute path of a directory, as somebody wrote it down -> where what was in it is now.
    """
    names = sorted(name for name, place in moved.items() if _is_another(name, place)) if files else []
    if not names:
        return ()
    longest_first = b"|".join(re.escape(os.fsencode(name)) for name in reversed(names))
    pattern = re.compile(b"(" + longest_first + b")" + _NO_LONGER_NAME)
    found: dict[str, str] = {}
    for path in _bounded(files):
        match = pattern.search(_content(root, path))
        if match:
            found[path] = os.fsdecode(match[1])
    if not found:
        return ()
    old = listed(sorted(set(found.values())), _MOST_NAMED)
    shown = listed(sorted(found), _MOST_NAMED)
    verb = "names" if len(found) == 1 else "name"
    return (f"{count(len(found), 'file')} of other programs {verb} {old} ({shown}): paths in them are not rewritten",)


def _is_another(name: str, place: Path) -> bool:
    try:
        return os.path.isabs(name) and name.strip("/") != "" and os.path.realpath(name) != os.path.realpath(place)
    except ValueError:  # no path at all: a manifest may say anything
        return False


def _bounded(files: Iterable[tuple[str, int]]) -> list[str]:
    chosen: list[str] = []
    left = _ALL_BYTES
    for path, size in files:
        if size > min(_FILE_BYTES, left):
            continue
        left -= size
        chosen.append(path)
        if len(chosen) == _MOST_FILES:
            break
    return chosen


def _content(root: int, path: str) -> bytes:
    """The bytes of a file; none of one that cannot be read."""
    try:
        with open(open_beneath(root, path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            return file.read(_FILE_BYTES)
    except OSError:
        return b""
