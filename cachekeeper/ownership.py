"""Whose a directory is, and who could change it or put another in its place: torch runs what lies in a cache.

A way is walked from `/` on by descriptors, links among it one by one, so that what was looked at is what is gone
through. Once it is found safe, only those who are trusted can change it: root, this user, and `trusted_owners`. A group
that may write is trusted as well: whoever owns the directory has let it in.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import shlex
import stat
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, NoReturn

from .config import setting
from .disk import explained
from .errors import UnsafePath, UsageError

EVERYBODY = "*"
# O_DIRECTORY makes automounts happen; O_PATH needs no permission to read what is on the way.
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
_MADE_MODE = 0o700
_ALL_USERS = "0 0 4294967295"


class Kind(NamedTuple):
    """What a directory is to us: its name in messages, the option that chooses another, and why its owner matters."""

    name: str
    option: str
    matter: str


CACHE = Kind("cache directory", "--cache-dir", "torch runs what lies there")
STORE = Kind("store", "--store", "torch runs what is restored from there")


class _Part(NamedTuple):
    """A component of a way; `ours` is False for one of a link's target, which is never made."""

    name: str
    ours: bool


def trusted_owners() -> frozenset[int] | None:
    """The uids whose directories are trusted; None where the setting says that everybody's are.

    Raises:
        UsageError: the setting names a user whom this machine does not know.
    """
    names = [name.strip() for name in (setting("trusted_owners") or "").split(",")]
    if EVERYBODY in names:
        return None
    return frozenset({0, os.geteuid(), *(_uid(name) for name in names if name)})


def _uid(name: str) -> int:
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        hint = "CACHEKEEPER_TRUSTED_OWNERS has names or uids, with commas between; `*` trusts every user"
        raise UsageError(f"trusted_owners: this machine has no user {name!r}", hint=hint) from None


def check(path: Path, kind: Kind) -> Path:
    """The directory itself, which must be there.

    Raises:
        UnsafePath: somebody who is not trusted owns it or something on the way to it, or every user may change it.
        LocalDiskError: it cannot be looked at.
    """
    with explained(path, f"look at the {kind.name}"):
        _walk(path, kind, trusted_owners())
    return path


def make(path: Path, kind: Kind) -> None:
    """Make a directory, and what is missing above it, this user's alone; one that is there is checked.

    Raises:
        UnsafePath: as for `check`; then nothing was made.
        LocalDiskError: it cannot be made, or is no directory.
    """
    with explained(path, f"make the {kind.name}"):
        _walk(path, kind, trusted_owners(), make=True)


def check_store(directories: Iterable[Path]) -> None:
    """Refuse a store into which somebody else could put what is then restored.

    Args:
        directories: those that it takes up on this machine's disk. One that is not there yet is passed over.

    Raises:
        UnsafePath: as for `check`, also for the directories right below: those of packs, of snapshots, of names.
    """
    owners = trusted_owners()
    for directory in filter(os.path.lexists, directories):
        with explained(directory, "look at the store"):
            _walk(directory, STORE, owners)
            with contextlib.suppress(PermissionError):  # that it cannot be read, the store itself says
                for name in sorted(item.name for item in os.scandir(directory) if item.is_dir()):
                    _walk(directory / name, STORE, owners)


def foreign(owners: frozenset[int] | None, uid: int) -> bool:
    """True for the uid of somebody who is not among the trusted owners."""
    return owners is not None and uid not in owners


def _walk(path: Path, kind: Kind, owners: frozenset[int] | None, make: bool = False) -> None:
    with contextlib.ExitStack() as stack:
        _Walk(path, kind, owners, stack).run(make)


class _Walk:
    """The way to a directory, gone and checked component by component."""

    def __init__(self, path: Path, kind: Kind, owners: frozenset[int] | None, stack: contextlib.ExitStack) -> None:
        self._path, self._kind, self._owners, self._stack = path, kind, owners, stack
        self._waiting = deque(_Part(name, True) for name in path.absolute().parts[1:])
        self._links = 0
        self._go("/", self._opened("/", _DIRECTORY))

    def _go(self, where: str, descriptor: int) -> None:
        self._where, self._here = where, descriptor

    def _opened(self, name: str, flags: int, directory: int | None = None) -> int:
        descriptor = os.open(name, flags, dir_fd=directory)
        self._stack.callback(os.close, descriptor)
        return descriptor

    def run(self, make: bool) -> None:
        """Go to the end."""
        self._check()
        while self._waiting:
            part = self._waiting.popleft()
            where = os.path.normpath(os.path.join(self._where, part.name))
            try:
                self._go(where, self._entered(part, make))
            except NotADirectoryError:
                self._follow(self._opened(part.name, _LINK, self._here), where)
            else:
                self._check()
        self._check()  # a link to `.` or `/` ends at what was passed as one on the way

    def _entered(self, part: _Part, make: bool) -> int:
        try:
            return self._opened(part.name, _DIRECTORY, self._here)
        except FileNotFoundError:
            if not (make and part.ours):
                raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(part.name, _MADE_MODE, dir_fd=self._here)
        return self._opened(part.name, _DIRECTORY, self._here)

    def _follow(self, link: int, where: str) -> None:
        info = os.fstat(link)
        if not stat.S_ISLNK(info.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), where)
        target = os.readlink("", dir_fd=link)
        if not self._trusts(info.st_uid, above=True):
            self._refuse(where, info, f"the way to it leads over another user's link to {target}")
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), where)
        if target.startswith("/"):
            self._go("/", self._opened("/", _DIRECTORY))
        names = [name for name in target.split("/") if name not in ("", ".")]
        self._waiting.extendleft(_Part(name, False) for name in reversed(names))

    def _check(self) -> None:
        """Refuse where we are, on the way or at its end, if somebody else owns or may change it."""
        info, above = os.fstat(self._here), bool(self._waiting)
        if not self._trusts(info.st_uid, above):
            whose = "a directory above it is another user's" if above else "it is another user's"
            self._refuse(self._where, info, whose)
        if self._owners is None or not info.st_mode & stat.S_IWOTH:
            return
        if not above:
            self._refuse(self._where, info, "every user may write into it")
        if not info.st_mode & stat.S_ISVTX:
            self._refuse(self._where, info, "every user may put another directory in its place")

    def _trusts(self, owner: int, above: bool) -> bool:
        return not foreign(self._owners, owner) or (above and owner == _unmapped())

    def _refuse(self, where: str, info: os.stat_result, reason: str) -> NoReturn:
        raise UnsafePath(
            f"the {self._kind.name} {self._path} is not safe: {reason}",
            facts=[
                f"path   {where}",
                f"owner  {_user(info.st_uid)}; this process is {_user(os.geteuid())}",
                f"mode   {stat.filemode(info.st_mode)}",
            ],
            hint=f"{self._kind.matter}: {self._advice(where, info)}",
        )

    def _advice(self, where: str, info: os.stat_result) -> str:
        if not self._trusts(info.st_uid, above=True):
            trust = f"CACHEKEEPER_TRUSTED_OWNERS={_name(info.st_uid)}"
            return f"choose another with {self._kind.option}; or, if that user may choose your code, set {trust}"
        trust = f"where no other user gets in, as in a container, set CACHEKEEPER_TRUSTED_OWNERS='{EVERYBODY}'"
        if info.st_mode & stat.S_ISVTX:  # as /tmp itself: taking away the permission would harm others
            return f"choose a directory of your own below it with {self._kind.option}; {trust}"
        fix = f"chmod {'+t' if self._waiting else 'o-w'} {shlex.quote(where)}"
        return f"`{fix}`, or choose another with {self._kind.option}; {trust}"


def _unmapped() -> int | None:
    """The uid of whom this user namespace does not know, as root of a rootless container's host; else None."""
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            if " ".join(file.read().split()) == _ALL_USERS:
                return None
        with open("/proc/sys/fs/overflowuid", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _user(uid: int) -> str:
    name = _name(uid)
    return f"uid {uid}" if name == str(uid) else f"{name} (uid {uid})"
