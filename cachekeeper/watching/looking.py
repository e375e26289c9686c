"""A live cache against the snapshot that it was restored from: what is gone, what is damaged, what is left alone.

Files are told apart by what stat says of them; only one that is new to us is read. Torch writes into the cache
meanwhile, so a file that was touched a moment ago is not judged yet, nor is one while torch holds a compile lock, and
a sound file with other bytes than the snapshot's is torch's own.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..comparison import compare_live, entry_names
from ..disk import disk_error, open_directory
from ..errors import LocalDiskError
from ..inductor.layout import HEADERS
from ..livecache import LiveCache, SourceFile
from ..manifest import FileRow, Manifest
from ..reading import CHANGED, damage, look
from ..workers import ordered

YOUNG_SECONDS = 2.0
_LOCKED_SECONDS = 3.0
_ODD = "a link, or no regular file, is in the place"


class _Stat(NamedTuple):
    """What tells a file from what it was."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int


@dataclass(frozen=True)
class Look:
    """What one look found; paths are those of the snapshot's files.

    Attributes:
        gone: files that are not there.
        damaged: file -> what is wrong with it; also what is no regular file, or behind a link.
        other: sound files with other bytes than the snapshot's, seen for the first time.
        later: seconds until some files can be judged; None where all are.
    """

    gone: frozenset[str] = frozenset()
    damaged: Mapping[str, str] = field(default_factory=dict)
    other: tuple[str, ...] = ()
    later: float | None = None

    @property
    def wrong(self) -> frozenset[str]:
        """The files to put back."""
        return self.gone | self.damaged.keys()


class Looker:
    """Looks at a directory, and remembers what it saw.

    Args:
        manifest: of the snapshot, as it was restored.
        files: those of its files that belong there.
        target: absolute path of the cache directory, there or not.
    """

    def __init__(self, manifest: Manifest, files: Iterable[FileRow], target: Path) -> None:
        self._manifest = manifest
        self._names = entry_names(manifest)
        self._target = target
        self.files = {file.path: file for file in files}
        self._kind = {path: manifest.tables.entries[file.entry].kind for path, file in self.files.items()}
        self._kernels: dict[int, list[str]] = defaultdict(list)
        for path, file in self.files.items():
            if self._kind[path] == "triton":
                self._kernels[file.entry].append(path)
        self._judged: dict[str, _Stat] = {}
        self._broken: dict[str, _Stat] = {}
        self._others: set[str] = set()
        self._has_headers = any(path.startswith(HEADERS) for path in self.files)

    @property
    def others(self) -> frozenset[str]:
        """The sound files with other bytes than the snapshot's, as far as the last looks tell."""
        return frozenset(self._others)

    def entry(self, path: str) -> str:
        """The entry that a file belongs to."""
        return self._names[self.files[path].entry]

    def entries(self, paths: Iterable[str]) -> set[str]:
        """The entries that files belong to."""
        return {self.entry(path) for path in paths}

    def whole(self, paths: Iterable[str]) -> list[FileRow]:
        """The files that are written for `paths`: these, and of a kernel's directory all."""
        wanted = {path: self.files[path] for path in paths}
        for file in list(wanted.values()):
            wanted.update((path, self.files[path]) for path in self._kernels.get(file.entry, ()))
        return list(wanted.values())

    def still_wrong(self, paths: Iterable[str]) -> set[str]:
        """Those of the files to put back that are as they were found, and in whose kernel nobody writes."""
        try:
            with open_directory(self._target) as root:
                stats = {path: _stat(root, path) for path in paths}
                in_work = self._in_work(root, stats)
        except OSError:
            return set(paths)
        return {
            path
            for path, stat in stats.items()
            if (stat is None or self._broken.get(path) == stat) and self.files[path].entry not in in_work
        }

    def look(self, paths: Collection[str] | None = None) -> Look:
        """Look at some of the files, by default at all of them.

        Raises:
            LocalDiskError: the directory is there and cannot be looked at.
        """
        asked = self.files.keys() if paths is None else paths
        try:
            with open_directory(self._target) as root:
                stats = {path: _stat(root, path) for path in self._with_kernels(asked, paths is None)}
                gone = {path for path, stat in stats.items() if stat is None}
                in_work = self._in_work(root, gone)
        except (FileNotFoundError, NotADirectoryError):
            return Look(gone=frozenset(self.files))
        except OSError as error:
            raise disk_error(error, self._target, "look at the cache directory") from error
        there = {path: stat for path, stat in stats.items() if stat is not None}
        torn = self._torn(gone)
        fresh = {path for path, stat in there.items() if self._judged.get(path) != stat or path in torn}
        young = {path: wait for path in fresh if (wait := _young(there[path])) > 0}
        # The files of a kernel belong together: while one of them is written, nothing is said of the others.
        busy = {self.files[path].entry for path in young if self._kind[path] == "triton"} | in_work.keys()
        held_back = {path for path in gone | fresh if path in young or self.files[path].entry in busy}
        try:
            found = self._judge(fresh - held_back, gone - held_back, there)
        except (OSError, LocalDiskError):
            if self._target.is_dir():
                raise
            return Look(gone=frozenset(self.files))  # it went while it was read
        waits = [*young.values(), *in_work.values(), *([found.later] if found.later is not None else [])]
        return Look(found.gone, found.damaged, found.other, min(waits, default=None))

    def _with_kernels(self, paths: Collection[str], all_of_them: bool) -> Collection[str]:
        if all_of_them:
            return paths
        return {row.path for row in self.whole(path for path in paths if path in self.files)}

    def _torn(self, gone: set[str]) -> set[str]:
        """The files of kernels of which some, and not all, are gone."""
        numbers = {self.files[path].entry for path in gone if self._kind[path] == "triton"}
        return {path for number in numbers for path in self._kernels[number] if path not in gone}

    def _gone(self, paths: Iterable[str]) -> set[str]:
        with open_directory(self._target) as root:
            return {path for path in paths if _stat(root, path) is None}

    def _in_work(self, root: int, gone: Iterable[str]) -> dict[int, float]:
        """Kernels that lack files and whose directory was touched a moment ago -> seconds until that is long enough.

        Triton makes temporary names in there, and would fail if the directory were replaced just then.
        """
        numbers = {self.files[path].entry for path in gone if self._kind[path] == "triton"}
        stats = {number: _stat(root, self._manifest.tables.entries[number].path) for number in numbers}
        waits = {number: _young(stat) for number, stat in stats.items() if stat is not None}
        return {number: wait for number, wait in waits.items() if wait > 0}

    # Judging

    def _judge(self, fresh: set[str], gone: set[str], there: Mapping[str, _Stat]) -> Look:
        """Read the files that are new to us."""
        if not fresh:
            return Look(gone=frozenset(gone))
        with LiveCache(self._target) as live:
            locked = live.lock_held()
            sources = {source.path: source for source in live.scan(with_headers=self._has_headers).files}
            here = [self.files[path] for path in sorted(fresh) if path in sources]
            compared = compare_live(self._manifest, here, [sources[file.path] for file in here])
            broken = self._damage(compared.changed.keys(), sources)
        vanished = set(compared.missing)
        vanished |= self._gone(fresh - sources.keys())
        broken |= dict.fromkeys(fresh - sources.keys() - vanished, _ODD)
        others = compared.changed.keys() - broken.keys()
        later = _LOCKED_SECONDS if locked and broken else None
        for path in fresh - broken.keys() - vanished:
            self._judged[path] = there[path]
        self._broken = {path: there[path] for path in broken if path in there}
        lacking = (gone | vanished) - self._rewritten(others, broken)
        known = {self.files[path].entry for path in lacking}
        result = Look(
            frozenset(lacking),
            {} if locked else {path: why for path, why in broken.items() if self.files[path].entry not in known},
            tuple(sorted(others - self._others)),
            later,
        )
        self._others = (self._others - fresh - gone) | others
        return result

    def _damage(self, changed: Collection[str], sources: Mapping[str, SourceFile]) -> dict[str, str]:
        """Those of the files whose bytes are not the snapshot's that torch would load broken, and why."""
        kernels = {self.files[path].entry for path in changed if self._kind[path] == "triton"}
        names = {self._manifest.tables.entries[number].path for number in kernels}
        looked_at = [source for path, source in sources.items() if path in changed or source.place.entry in names]
        taken = list(ordered(look, looked_at, ahead=16))
        found = {item.source.path: item.trouble for item in taken if item.trouble not in ("", CHANGED)}
        found |= damage(taken)
        broken = {path: reason for path, reason in found.items() if path in self.files}
        for number in kernels:
            # What is wrong with a kernel may be told of its directory, or of a file that the snapshot does not have.
            directory = self._manifest.tables.entries[number].path
            reasons = [reason for path, reason in found.items() if f"{path}/".startswith(f"{directory}/")]
            if reasons and not broken.keys() & set(self._kernels[number]):
                broken[self._kernels[number][0]] = reasons[0]
        return broken

    def _rewritten(self, others: Collection[str], broken: Mapping[str, str]) -> set[str]:
        """Files of kernels that torch has made anew, sound and with other bytes: what those lack is torch's affair."""
        damaged = {self.files[path].entry for path in broken}
        numbers = {self.files[path].entry for path in others if self._kind[path] == "triton"} - damaged
        return {path for number in numbers for path in self._kernels[number]}


def _stat(root: int, path: str) -> _Stat | None:
    """None for what is not there."""
    try:
        found = os.stat(path, dir_fd=root, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _Stat(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_mode)


def _young(stat: _Stat) -> float:
    """Seconds until a file has been left alone for long enough to be judged; 0 where it has been."""
    age = time.time() - max(stat.mtime_ns, stat.ctime_ns) / 1e9
    # A time far in the future is another machine's clock, and says nothing.
    return YOUNG_SECONDS - age if -YOUNG_SECONDS < age < YOUNG_SECONDS else 0.0
