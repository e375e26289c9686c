"""Can a cache directory take what is to be written? Asked before the first byte."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from . import ownership
from .errors import LocalDiskError
from .manifest import FileRow
from .units import count, format_bytes

_BLOCK = 4096
_MARGIN = 1 << 20
_LONGEST_PATH = 4095  # PATH_MAX without its null byte


def make_target(target: Path) -> None:
    """Make the cache directory, the owner's alone, where it is not there yet.

    Raises:
        UnsafePath: somebody else owns it or something on the way to it, or every user may change it.
        LocalDiskError: it cannot be made, or is no directory.
    """
    ownership.make(target, ownership.CACHE)


def check(target: Path, files: Sequence[FileRow], native: bool) -> None:
    """Refuse before anything is written.

    Args:
        files: what is to be written.
        native: True where libraries are among what will be loaded from there.

    Raises:
        LocalDiskError: not writable, not enough bytes or inodes, mounted noexec, or a path would be too long.
    """
    system = os.statvfs(target)
    if system.f_flag & os.ST_RDONLY:
        raise LocalDiskError(
            f"{target} is on a filesystem mounted read-only", hint="choose another directory with --cache-dir"
        )
    if not os.access(target, os.W_OK | os.X_OK):
        owner = target.stat().st_uid
        raise LocalDiskError(
            f"cannot write into {target}",
            facts=[f"owner  uid {owner}, this process is uid {os.geteuid()}"],
            hint="use a directory of your own with --cache-dir, or have its owner change it",
        )
    if native and system.f_flag & os.ST_NOEXEC:
        raise LocalDiskError(
            f"{target} is on a filesystem mounted noexec, and the snapshot holds libraries",
            hint="torch could not load them from there: choose another directory with --cache-dir",
        )
    _check_lengths(target, files, system.f_namemax)
    needed = sum(-(-file.size // _BLOCK) * _BLOCK for file in files) + _MARGIN
    free = system.f_bavail * system.f_frsize
    if files and needed > free:
        raise LocalDiskError(
            f"not enough space in {target}",
            facts=[f"needed  {format_bytes(needed)}", f"free    {format_bytes(free)}"],
            hint="free some, or choose a directory on another filesystem with --cache-dir",
        )
    inodes = len(files) + len({file.path.rpartition("/")[0] for file in files}) + 8
    if files and system.f_files and inodes > system.f_favail:
        raise LocalDiskError(
            f"not enough inodes in {target}",
            facts=[f"needed  {count(inodes, 'file')}", f"free    {system.f_favail:,}"],
            hint="free some files, or choose a directory on another filesystem with --cache-dir",
        )


def _check_lengths(target: Path, files: Iterable[FileRow], longest_name: int) -> None:
    """Refuse what could be written, through descriptors, and then not be opened: torch goes by absolute paths."""
    base = len(os.fsencode(target)) + 1
    for file in files:
        path = os.fsencode(file.path)
        name = max(map(len, path.split(b"/")))
        if base + len(path) > _LONGEST_PATH:
            fact = f"needed  {base + len(path):,} bytes for the whole path, of {_LONGEST_PATH:,} that the system takes"
        elif longest_name and name > longest_name:
            fact = f"needed  {name} bytes for one name, of {longest_name} that the filesystem takes"
        else:
            continue
        raise LocalDiskError(
            f"a path in {target} would be too long",
            facts=[f"path    {file.path}", fact],
            hint="choose a shorter directory, or one on another filesystem, with --cache-dir",
        )
