"""That something may have happened to files of the snapshot: from the kernel, or by the clock alone."""

from __future__ import annotations

import contextlib
import errno
import select
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import inotify
from .inotify import Happened, Inotify

_WHOLE_DIRECTORY = inotify.DELETE_SELF | inotify.MOVE_SELF | inotify.UNMOUNT | inotify.IGNORED
_OF_FILES = inotify.DELETE | inotify.MOVED_FROM | inotify.MOVED_TO | inotify.CLOSE_WRITE
_REASONS = {
    errno.ENOSPC: "this user has as many inotify watches as fs.inotify.max_user_watches allows",
    errno.EMFILE: "this user has as many inotify instances as fs.inotify.max_user_instances allows",
    errno.ENOSYS: "this kernel has no inotify",
}


@dataclass
class Noticed:
    """What has happened.

    Attributes:
        paths: files of the snapshot that something happened to.
        everything: a directory came, went or moved, or the kernel lost count: look at every file.
        ended: whoever the watch works for is gone.
    """

    paths: set[str] = field(default_factory=set)
    everything: bool = False
    ended: bool = False

    def add(self, other: Noticed) -> None:
        """Join what has happened since."""
        self.paths |= other.paths
        self.everything |= other.everything
        self.ended |= other.ended

    def __bool__(self) -> bool:
        return self.everything or self.ended or bool(self.paths)


class Noticer:
    """Waits for what happens to some files below a directory.

    Args:
        target: the cache directory, there or not.
        files: paths below it.
        poll: why to ask by the clock alone, or "" to ask the kernel.
        until: a descriptor; when it can be read, or has no other end any more, the watch is to end.
    """

    def __init__(self, target: Path, files: Iterable[str], poll: str = "", until: int | None = None) -> None:
        self._target = str(target)
        self._files = frozenset(files)
        self._directories = frozenset(_parents(self._files))
        # A directory before those in it: whatever is made while they are armed is told of.
        self._in_order = sorted(self._directories)
        self._until = until
        self._watches: dict[int, str] = {}
        self._inotify: Inotify | None = None
        self.polling = poll

    def __enter__(self) -> Noticer:
        return self

    def __exit__(self, *error: object) -> None:
        self._disarm()

    @property
    def directories(self) -> int:
        """The number of directories that the kernel watches for us."""
        return len(self._watches)

    @property
    def complete(self) -> bool:
        """True where no directory that files of the snapshot are in is without a watch."""
        return bool(self.polling) or len(self._watches) == len(self._directories)

    def ended(self) -> bool:
        """True where whoever the watch works for is gone."""
        return self._until is not None and bool(select.select([self._until], [], [], 0)[0])

    def arm(self) -> None:
        """Watch every directory that is there now; what is made later is told of by the one above it."""
        self._disarm()
        if self.polling:
            return
        try:
            self._inotify = Inotify()
            for directory in self._in_order:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                    self._watches[self._inotify.add(f"{self._target}/{directory}")] = directory
        except OSError as error:
            self._disarm()
            self.polling = _REASONS.get(error.errno or 0, f"inotify does not work here ({error.strerror or error})")

    def _disarm(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
        self._inotify = None
        self._watches = {}

    def wait(self, seconds: float) -> Noticed:
        """Wait for something to happen, for so long at most."""
        poll = select.poll()
        if self._inotify is not None:
            poll.register(self._inotify, select.POLLIN)
        if self._until is not None:
            poll.register(self._until, select.POLLIN)
        deadline = time.monotonic() + max(0.0, seconds)
        while True:
            left = deadline - time.monotonic()
            ready = {descriptor for descriptor, _ in poll.poll(max(0, int(left * 1000) + 1))}
            noticed = self._read()
            noticed.ended = self._until in ready
            if noticed or left <= 0:
                return noticed

    def _read(self) -> Noticed:
        noticed = Noticed()
        for event in self._inotify.read() if self._inotify is not None else ():
            self._note(event, noticed)
        return noticed

    def _note(self, event: Happened, noticed: Noticed) -> None:
        if event.mask & (inotify.OVERFLOW | _WHOLE_DIRECTORY):
            noticed.everything = True
            return
        directory = self._watches.get(event.watch)
        if directory is None:
            return
        path = f"{directory}/{event.name}".lstrip("/")
        if event.mask & inotify.IS_DIRECTORY:
            noticed.everything |= path in self._directories
        elif event.mask & _OF_FILES and path in self._files:
            noticed.paths.add(path)


def _parents(paths: Iterable[str]) -> Iterator[str]:
    """Every directory on the way to the files, "" for the one that all are below."""
    yield ""
    seen: set[str] = set()
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in seen:
            seen.add(path)
            yield path
