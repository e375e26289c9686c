"""Files of other programs in a cache that name a directory: nobody knows how to rewrite the paths in them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable

from .disk import open_beneath
from .units import count, listed

_FILE_BYTES = 16 << 20
_ALL_BYTES = 256 << 20
_MOST_FILES = 2000
_MOST_NAMED = 3
_IN_A_NAME = rb"(?![A-Za-z0-9_.-])"


def naming(root: int, files: Iterable[tuple[str, int]], directories: Collection[str]) -> tuple[str, ...]:
    """A note where files name one of these directories, or a path below it.

    Args:
        root: descriptor of the cache directory.
        files: path below it and size in bytes, of kind "other". No more than 2,000 files of up to 16 MiB, 256 MiB
            together, are looked into; of the others nothing is said.
        directories: absolute paths.
    """
    names = sorted(name for name in set(directories) if os.path.isabs(name) and name.strip("/"))
    if not names:
        return ()
    pattern = re.compile(
        b"|".join(re.escape(os.fsencode(name)) for name in names[::-1]).join((b"(", b")")) + _IN_A_NAME
    )
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
