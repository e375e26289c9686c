"""What the filesystem below the cache directory can do, and what is left on it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from ...units import format_bytes
from .findings import Finding, Level
from .place import Place, Probe, mount_of, use_another

_LITTLE_SPACE, _TOO_LITTLE_SPACE = 1 << 30, 64 << 20
_FEW_INODES = 10_000
_IN_MEMORY = ("tmpfs", "ramfs")


def writable(place: Place, probe: Probe) -> Iterator[Finding]:
    """Can files be made there, or the directory itself where it is not there yet?"""
    path, another = place.path, use_another(place.path)
    if os.path.islink(path) and not os.path.exists(path):
        yield Finding(
            "writable", "error", f"{path} is a symbolic link to nothing: torch cannot make it", f"rm {_quoted(path)}"
        )
    elif os.path.lexists(path) and not place.exists:
        yield Finding("writable", "error", f"{path} is not a directory", another)
    elif os.path.lexists(place.nearest / path.relative_to(place.nearest).parts[0]) if not place.exists else False:
        blocker = place.nearest / path.relative_to(place.nearest).parts[0]
        yield Finding("writable", "error", f"{blocker} is not a directory: torch cannot make {path}", another)
    elif probe.write:
        owner = os.stat(place.nearest).st_uid
        yield Finding(
            "writable",
            "error",
            f"{place.nearest} cannot be written to: {probe.write} (owner uid {owner}, this process is uid {os.geteuid()})",
            another,
        )
    elif place.exists:
        yield Finding("writable", "ok", "files can be made there")
    else:
        yield Finding("writable", "ok", f"it is not there yet and can be made in {place.nearest}")
