"""Where a page is written."""

from __future__ import annotations

import os
import secrets
import sys

from ..disk import explained
from ..errors import UsageError

# The first line of a file that a command wrote, and that it may write anew.
_MARK = b"<!-- a page of cachekeeper, which writes it anew -->\n"


def write_page(place: str, page: str, force: bool) -> None:
    """Write a page into a file, whole or not at all; "-" is standard output.

    Args:
        force: replace a file that is no page of ours, too.

    Raises:
        UsageError: there is such a file, or a directory.
        LocalDiskError: it cannot be written.
    """
    data = _MARK + page.encode("utf-8", "replace")
    if place == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    target = os.path.realpath(place)
    if os.path.isdir(target):
        raise UsageError(f"{place} is a directory", hint="name a file in it, as `--html report.html`")
    with explained(place, "write the page"):
        if os.path.exists(target) and not os.path.isfile(target):
            with open(target, "wb") as pipe:
                pipe.write(data)
            return
        if not force and os.path.isfile(target) and not _is_ours(target):
            raise UsageError(f"{place} is there, and no page of cachekeeper", hint="name another file, or give --force")
        _replace(target, data)


def _is_ours(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_MARK)) in (_MARK, b"")


def _replace(target: str, data: bytes) -> None:
    directory, name = os.path.split(target)
    aside = os.path.join(directory, f".{name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        with open(aside, "xb") as file:
            file.write(data)
        os.replace(aside, target)
    finally:
        if os.path.lexists(aside):
            os.unlink(aside)
