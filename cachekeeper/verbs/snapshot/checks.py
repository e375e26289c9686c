"""What keeps a cache from being saved: each an error that says which files, and what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ... import reading
from ...disk import directory_exists, hint_for
from ...environment import cache_directory
from ...errors import DamagedCache, EmptyCache, LocalDiskError, SecretsFound, UnsafePath
from ...livecache import LiveCache, Scan
from ...units import count, few
from .notes import GRAPHS, NOT_ENTRIES

_MOST_FACTS = 200
_DENIED = (os.strerror(errno.EACCES), os.strerror(errno.EPERM))
_UNREADABLE = (*_DENIED, *map(os.strerror, (errno.EIO, errno.ESTALE, errno.EBUSY)))


def check_there(directory: Path) -> None:
    """Refuse a directory that is not there.

    Raises:
        EmptyCache: it is not.
    """
    if not directory_exists(directory):
        raise _empty_error(directory)


def check_scan(scan: Scan, directory: Path) -> None:
    """Refuse a directory that cannot be looked into everywhere, or holds no entry.

    Raises:
        LocalDiskError, EmptyCache: it is one of these.
    """
    denied = [item for item in scan.skipped if item.reason in _UNREADABLE]
    if denied:
        facts = [f"{item.path or '.'}  {item.reason}" for item in denied[:_MOST_FACTS]]
        hint = _hint(denied[0].reason, denied[0].path, directory)
        raise LocalDiskError(f"{count(len(denied), 'directory')} of the cache cannot be read", facts=facts, hint=hint)
    if not any(file.place.kind not in NOT_ENTRIES for file in scan.files):
        raise _empty_error(directory)


def _hint(reason: str, path: str, directory: Path) -> str:
    """What to do about what cannot be read, by the first of it."""
    if reason not in _DENIED:
        return hint_for(reason)
    with contextlib.suppress(OSError):
        if os.lstat(directory / path).st_uid == os.geteuid():
            return f"these are this user's own: `chmod -R u+rwX {shlex.quote(str(directory))}`"
    return f"run as the owner of the files (`ls -l`), or `chown -R` them: {directory}"


def _empty_error(directory: Path) -> EmptyCache:
    """The error that says where the entries may be instead."""
    what = "holds no entry of a compile cache" if os.path.isdir(directory) else "is not there"
    if os.path.lexists(directory) and not os.path.isdir(directory):
        what = "is no directory"
    places = _caches_elsewhere(directory)
    if not places:
        hint = "run the job once with this directory as TORCHINDUCTOR_CACHE_DIR, then try again"
        return EmptyCache(f"nothing to save: {directory} {what}", hint=hint)
    best = max(places, key=lambda place: places[place])
    return EmptyCache(
        f"nothing to save: {directory} {what}",
        facts=[f"{place}  {count(number, 'entry')}" for place, number in places.items()],
        hint=f"if it is that one: `cachekeeper snapshot --cache-dir {shlex.quote(str(best))}`",
    )


def _caches_elsewhere(directory: Path) -> dict[Path, int]:
    """Other directories that torch uses by default, and the number of entries in each that has graphs or kernels."""
    default = cache_directory({name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"})
    candidates = [cache_directory().path, Path(os.path.expanduser("~/.triton/cache"))]
    candidates += sorted(default.path.parent.glob("torchinductor_*"))
    places: dict[Path, int] = {}
    for place in dict.fromkeys(candidates):
        if place == directory or not os.path.isdir(place):
            continue
        try:
            with LiveCache(place) as other:
                found = [file for file in other.scan().files if file.place.kind not in NOT_ENTRIES]
        except LocalDiskError:
            continue
        if any(file.place.kind in GRAPHS for file in found):
            places[place] = len({file.place for file in found})
    return places


def check_readable(taken: Sequence[reading.Taken], directory: Path) -> None:
    """Refuse files of other users, and files that cannot be read.

    Raises:
        UnsafePath, LocalDiskError: there are such.
    """
    denied = [item for item in taken if item.trouble and item.trouble != reading.CHANGED]
    foreign = [item for item in denied if item.trouble.startswith(reading.FOREIGN)]
    if foreign:
        raise UnsafePath(
            f"{count(len(foreign), 'file')} of the cache {directory} {'is' if len(foreign) == 1 else 'are'} "
            "another user's, so nothing was saved",
            facts=[f"{item.source.path}  {item.trouble}" for item in foreign[:_MOST_FACTS]],
            hint="what is saved is code wherever it is restored: if you know whose they are, `chown` them or set "
            "CACHEKEEPER_TRUSTED_OWNERS; else delete them, and run the job again",
        )
    if denied:
        facts = [f"{item.source.path}  {item.trouble}" for item in denied[:_MOST_FACTS]]
        hint = _hint(denied[0].trouble, denied[0].source.path, directory)
        raise LocalDiskError(f"{count(len(denied), 'file')} of the cache cannot be read", facts=facts, hint=hint)


def check_secrets(secrets: Sequence[str], directory: Path, command: Sequence[str]) -> None:
    """Refuse files with what looks like secrets.

    Args:
        secrets: "path  kind" of each.
        command: what saves this directory, or empty where that is no `cachekeeper snapshot`.

    Raises:
        SecretsFound: there are such.
    """
    if not secrets:
        return
    allowing = shlex.join([*command, "--allow-secrets"])
    raise SecretsFound(
        f"{directory} holds what looks like secrets, so nothing was saved",
        facts=secrets[:_MOST_FACTS],
        hint="whoever can read the store could read them: take them out of the code that is compiled, delete these "
        f"files and run the job again; or save them all the same, with `{allowing}`",
    )


def check_damage(damaged: Mapping[str, str], directory: Path) -> None:
    """Refuse files that are structurally damaged.

    Args:
        damaged: path -> what is wrong.

    Raises:
        DamagedCache: there are such.
    """
    if not damaged:
        return
    raise DamagedCache(
        f"{directory} is damaged, so nothing was saved",
        facts=few([f"{path}  {reason}" for path, reason in damaged.items()], _MOST_FACTS),
        hint="mend it from an earlier snapshot with `cachekeeper restore NAME`, or delete these and run the job again; "
        "--allow-damaged saves them as they are",
    )
