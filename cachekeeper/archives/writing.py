"""Archives written so that the same files give the same bytes."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable
from typing import BinaryIO, NamedTuple

from .compression import Writable, compressed


class Member(NamedTuple):
    """A file to be written into an archive."""

    path: str
    mode: int
    size: int


def write_tar(out: Writable, kind: str, members: Iterable[Member], read: Callable[[Member], BinaryIO]) -> None:
    """Write files as an archive: with no time, no owner, and in the order given.

    Args:
        kind: one of ENDINGS.
        read: a member -> its bytes; it is read to its end before the next is asked for.

    Raises:
        OSError: as write(2).
    """
    with compressed(out, kind) as stream, tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            info = tarfile.TarInfo(member.path)
            info.size, info.mode, info.mtime = member.size, member.mode, 0
            tar.addfile(info, read(member))
