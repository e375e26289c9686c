"""The paths that a manifest can have, and those of directories beside the cache."""

from __future__ import annotations

import re
from collections.abc import Collection

from ..disk import portable
from ..errors import DamagedStore
from ..inductor.layout import WORKSHOP

ALSO = "also/"
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PATH_LIMIT = 4000
_PART_LIMIT = 255
# What nearly every path looks like, so that the slow check is for the odd ones.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,254}(?:/[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,254})*")


def also_label(path: str) -> str:
    """The label of the directory beside the cache that a file belongs to, or ""."""
    if not path.startswith(ALSO):
        return ""
    label, _, rest = path[len(ALSO) :].partition("/")
    return label if rest and LABEL.fullmatch(label) else ""


def all_plain(paths: Collection[str]) -> bool:
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
