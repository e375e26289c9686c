"""Whose the cache directory is: torch runs what lies in it."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...clearing.items import CLEARED
from ...clearing.trash import Trash
from ...disk import locked
from ...errors import Busy
from ...inductor.layout import WORKSHOP
from ...staging import ASIDE, QUARANTINE
from ...units import count, format_bytes
from .findings import Finding
from .place import Place, use, use_another

_SHOWN = 3
_PUT_ASIDE = (ASIDE, QUARANTINE, CLEARED)
# Beyond this many the directory is hardly a cache, and looking on would take long.
_MOST_ENTRIES = 500_000


def owner(place: Place) -> Iterator[Finding]:
    """Does the directory belong to this user?"""
    if not place.exists:
        return
    theirs, ours = os.stat(place.path).st_uid, os.geteuid()
    if theirs == ours:
        yield Finding("owner", "ok", "it belongs to this user")
    elif ours == 0:
        message = f"it belongs to uid {theirs}, and this is root: what root writes there, its owner cannot replace"
        yield Finding("owner", "warning", message, f"sudo -u '#{theirs}' -- COMMAND   # for the job and cachekeeper")
    else:
        message = f"it belongs to uid {theirs}, this is uid {ours}: its owner can change what torch runs"
        yield Finding("owner", "warning", message, use_another(place.path))


@dataclass
class _Survey:
    """The first few of what is not right below a directory, and how many there are."""

    foreign: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    entries: int = 0

    def look(self, item: os.DirEntry[str], path: str, owner: int) -> None:
        info = item.stat(follow_symlinks=False)
        self.entries += 1
        if info.st_uid != owner:
            self.foreign.append(f"{path} (uid {info.st_uid})")
        mine = info.st_uid == os.geteuid()
        wanted = os.R_OK | (os.X_OK if stat.S_ISDIR(info.st_mode) else 0)
        if (mine and info.st_mode & stat.S_IRUSR) or stat.S_ISLNK(info.st_mode):
            return
        if not os.access(item.path, wanted, effective_ids=True):
            (self.closed if mine else self.unreadable).append(path)


def contents(place: Place) -> Iterator[Finding]:
    """Do the files belong to the directory's owner, and can this process read them?"""
    if not place.exists:
        return
    directory_owner = os.stat(place.path).st_uid
    survey = _survey(place.path, directory_owner)
    if survey.foreign:
        message = f"{_some(survey.foreign)} of another user than the directory: torch runs what is in them"
        yield Finding("files", "warning", message, _chown(place, directory_owner))
    if survey.unreadable:
        message = f"{_some(survey.unreadable)} cannot be read: torch fails there, and no snapshot can be taken"
        yield Finding("files", "error", message, _chown(place, os.geteuid()))
    if survey.closed:
        message = f"{_some(survey.closed)} of this user cannot be read: torch fails there, and no snapshot can be taken"
        yield Finding("files", "error", message, f"chmod -R u+rwX {shlex.quote(str(place.real))}")
    if survey.entries >= _MOST_ENTRIES:
        yield Finding("files", "note", f"only the first {survey.entries:,} files were looked at")
    elif not (survey.foreign or survey.unreadable or survey.closed):
        message = f"{survey.entries:,} files and directories, all of one owner and readable"
        yield Finding("files", "ok", message)


def _survey(root: Path, owner: int) -> _Survey:
    survey = _Survey()
    waiting = [""]
    while waiting and survey.entries < _MOST_ENTRIES:
        where = waiting.pop()
        try:
            found = list(os.scandir(root / where))
        except FileNotFoundError:
            continue
        except PermissionError:
            if not where:
                survey.unreadable.append(".")
            continue
        for item in found:
            path = f"{where}/{item.name}" if where else item.name
            with contextlib.suppress(FileNotFoundError):
                survey.look(item, path, owner)
                if item.is_dir(follow_symlinks=False):
                    waiting.append(path)
    return survey


def _some(paths: list[str]) -> str:
    """As "3 files (a, b, c)"."""
    shown = ", ".join(sorted(paths)[:_SHOWN])
    return f"{count(len(paths), 'file')} ({shown}{', ...' if len(paths) > _SHOWN else ''})"


def _chown(place: Place, owner: int) -> str:
    # In a directory that is not only a cache, changing every owner would do harm.
    if not place.looks_like_cache():
        return use_another(place.path)
    return f"sudo chown -R {owner} {shlex.quote(str(place.real))}"


def exposure(place: Place) -> Iterator[Finding]:
    """Can another user put something there, or put another directory in its place?"""
    found = [*_link(place), *_open_to_all(place), *_open_parents(place)]
    yield from found or [Finding("exposure", "ok", "no other user can put something there or swap the directory")]


def _link(place: Place) -> Iterator[Finding]:
    if not os.path.islink(place.path) or not place.exists:
        return
    theirs = os.lstat(place.path).st_uid
    if theirs in (0, os.geteuid()):
        yield Finding("symlink", "note", f"{place.path} is a symbolic link to {place.real}", use(place.real))
    else:
        message = f"{place.path} is a symbolic link of uid {theirs} to {place.real}: they choose what torch runs"
        yield Finding("symlink", "warning", message, use(place.real))


def _open_to_all(place: Place) -> Iterator[Finding]:
    mode = os.stat(place.path).st_mode if place.exists else 0
    if not mode & stat.S_IWOTH:
        return
    path = shlex.quote(str(place.path))
    shared = mode & stat.S_ISVTX  # as /tmp itself: taking away the permission would harm others
    fix = use(place.path / f"torchinductor_{os.geteuid()}") if shared else f"chmod go-w {path}"
    yield Finding("world-writable", "warning", "every user can write into it, and torch runs what is there", fix)


def _open_parents(place: Place) -> Iterator[Finding]:
    for parent in dict.fromkeys([*place.path.parents, *place.real.parents]):
        mode = os.stat(parent).st_mode if os.path.isdir(parent) else 0
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            message = f"every user can rename what is in {parent} (no sticky bit), and put another cache in its place"
            yield Finding("world-writable-parent", "warning", message, f"sudo chmod +t {shlex.quote(str(parent))}")


def leftovers(place: Place) -> Iterator[Finding]:
    """What restores have left in the directory, and clears beside it."""
    if size := _size(Trash(place.path).beside):
        message = f"{format_bytes(size)} cleared (locks, headers and all), in {Trash(place.path).beside}"
        yield Finding("leftovers", "note", message, _empty_trash(place))
    workshop = place.path / WORKSHOP
    if not place.exists or not os.path.lexists(workshop):
        return
    info = os.lstat(workshop)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        message = f"{workshop} is not a directory of this user: no restore will work (owner uid {info.st_uid})"
        yield Finding("leftovers", "error", message, f"ls -la {shlex.quote(str(workshop))}   # look, then move it away")
        return
    if size := sum(_size(workshop / name) for name in _PUT_ASIDE):
        message = f"{format_bytes(size)} put aside by restores, repairs and clears, in {workshop}"
        yield Finding("leftovers", "note", message, _empty_trash(place))
    unfinished = [item for item in sorted(workshop.iterdir()) if item.name.startswith(("stage-", "publishing-"))]
    if unfinished and not _at_work(place.path):
        size = sum(map(_size, unfinished))
        message = f"{count(len(unfinished), 'unfinished restore')}, {format_bytes(size)}; the next restore clears up"
        yield Finding(
            "leftovers", "note", message, f"cachekeeper restore NAME --cache-dir {shlex.quote(str(place.path))}"
        )


def _empty_trash(place: Place) -> str:
    command = f"cachekeeper clear {shlex.quote(str(place.path))} --empty-trash --dry-run"
    return f"{command}   # look; without --dry-run it deletes for good"


def _at_work(cache_dir: Path) -> bool:
    try:
        with locked(cache_dir, wait=False):
            return False
    except Busy:
        return True


def _size(directory: Path) -> int:
    total = 0
    for where, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(where, name)).st_size
    return total
