"""Which form an export takes."""

from __future__ import annotations

import os

from ...archives import ENDINGS
from ...errors import UsageError

_ENDINGS = {**ENDINGS, "mega-cache": (".mega", ".megacache", ".bin")}
FORMATS = ("tar.zst", "tar.gz", "tar", "directory", "mega-cache")
_WAYS = "a name that ends in .tar.zst, .tar.gz, .tar or .mega, or in nothing for a directory"


def chosen_format(place: str, wanted: str | None) -> str:
    """The format for a destination, where nothing may be yet but an empty directory.

    Raises:
        UsageError: something is there, or it cannot be told what is meant.
    """
    if not place:
        raise UsageError("the destination is empty", hint=f"give {_WAYS}; is a variable unset?")
    if wanted is not None and wanted not in FORMATS:
        raise UsageError(f"no format {wanted!r}", hint="the formats are " + ", ".join(FORMATS))
    kind = wanted or _by_name(place)
    if place == "-":
        if kind == "directory":
            raise UsageError("a directory does not go to standard output", hint="--format tar.zst does")
        return kind
    _refuse_existing(place, kind)
    return kind


def _by_name(place: str) -> str:
    if place == "-":
        return "tar.zst"
    if place.endswith("/") or os.path.isdir(place):
        return "directory"
    name = os.path.basename(place)
    for kind, endings in _ENDINGS.items():
        if name.endswith(endings):
            return kind
    if "." in name.strip("."):
        raise UsageError(f"{name} has an ending that says no format", hint=f"give --format, or {_WAYS}")
    return "directory"


def _refuse_existing(place: str, kind: str) -> None:
    if not os.path.lexists(place):
        return
    if kind == "directory" and os.path.isdir(place) and not os.path.islink(place):
        with os.scandir(place) as found:
            if not any(found):
                return
        raise UsageError(f"{place} is not empty", hint="export into a new directory; `cachekeeper restore` merges")
    raise UsageError(f"{place} is there already", hint="exports overwrite nothing: remove it, or give another name")
