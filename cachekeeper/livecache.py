"""A live cache directory, looked at: its files with their places, and whether somebody is writing."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from .config import setting
from .disk import LiveFile, Skipped, directory_times, disk_error, open_directory, walk
from .environment import cache_directory
from .errors import UsageError
from .inductor import Place, classify
from .inductor.layout import HEADERS, WORKSHOP, holds_entries, is_scratch_directory, is_scratch_file
from .manifest import ALSO, also_label, storable
from .masking import without_secrets

QUIET_SECONDS = 1.0
_USED_QUIET_SECONDS = 5.0
COMPILING = "torch is compiling into it"
_LOCKS = "locks"
_COMMAND = 60  # characters of a command that tell it from others


def chosen_cache_dir(given: str | os.PathLike[str] | None) -> Path:
    """The cache directory to work on: as given, as configured, or else the one that torch would use here.

    Raises:
        UsageError: what is given is empty, as of a variable that is not set: another directory is not meant.
    """
    if given is not None and not os.fspath(given):
        raise UsageError("the name of the cache directory is empty", hint="name a directory; is a variable unset?")
    configured = setting("cache_dir", given)
    return Path(os.path.abspath(os.path.expanduser(configured))) if configured else cache_directory().path


class SourceFile(NamedTuple):
    """A file of a live cache.

    Attributes:
        path: as in a manifest; files of a directory saved beside the cache begin with `also/<label>/`.
        root: descriptor of the directory that `live.path` is below.
        base: absolute path of the cache directory, or of the one beside it, that the file belongs to.
        directory: absolute path of the directory that holds it.
        place: its kind and its entry, the entry as in a manifest.
        live: what stat said.
    """

    path: str
    root: int
    base: str
    directory: str
    place: Place
    live: LiveFile


@dataclass(frozen=True)
class Scan:
    """What one look at a live cache saw.

    Attributes:
        files: the files worth keeping.
        skipped: what cannot be kept, and why.
        scratch: number of locks and temporary files, and directories of them, that were passed over.
        headers: True where precompiled headers were passed over.
        directories: manifest path of each directory -> mtime_ns.
        began: time.time_ns() before the first look.
    """

    files: list[SourceFile]
    skipped: list[Skipped]
    scratch: int
    headers: bool
    directories: Mapping[str, int]
    began: int

    @property
    def bytes(self) -> int:
        """Length of all files together."""
        return sum(file.live.size for file in self.files)

    @property
    def in_the_way(self) -> dict[str, str]:
        """Path of a directory of entries -> what is wrong, as "a symbolic link is in the place of a directory"."""
        found = {item.path: item.reason for item in self.skipped if holds_entries(_inner(item.path))}
        return {path: f"{reason} is in the place of a directory" for path, reason in found.items()}

    def written_within(self, seconds: float) -> bool:
        """True where something was written so shortly before the look."""
        newest = max((file.live.mtime_ns for file in self.files), default=0)
        newest = max(newest, *self.directories.values(), 0) if self.directories else newest
        return newest > self.began - seconds * 1e9


class LiveCache:
    """A cache directory and the directories saved beside it, held open by descriptor.

    Args:
        cache_dir: absolute path of the cache directory.
        also: label -> absolute path of a directory to look at as well.
    """

    def __init__(self, cache_dir: Path, also: Mapping[str, Path] | None = None) -> None:
        self.cache_dir = cache_dir
        self.also = dict(also or {})
        self._stack = ExitStack()
        self._roots: list[tuple[str, Path, int]] = []

    def __enter__(self) -> LiveCache:
        for prefix, path in [("", self.cache_dir), *((f"{ALSO}{label}/", path) for label, path in self.also.items())]:
            try:
                self._roots.append((prefix, path, self._stack.enter_context(open_directory(path))))
            except OSError as error:
                self._stack.close()
                raise disk_error(error, path, "read the cache directory") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def root(self) -> int:
        """Descriptor of the cache directory itself."""
        return self._roots[0][2]

    def scan(self, with_headers: bool = False) -> Scan:
        """Look at every directory once; files that vanish meanwhile are not in the result."""
        began = time.time_ns()
        files: list[SourceFile] = []
        skipped: list[Skipped] = []
        directories: dict[str, int] = {}
        passed: Counter[str] = Counter()
        for prefix, path, root in self._roots:
            found, odd, looked_at = walk(root, *_wanted(with_headers, passed))
            for source in _sources(prefix, path, root, found):
                if not storable(source.path):
                    skipped.append(Skipped(source.path, "a name that cannot be kept"))
                elif prefix or also_label(source.path) not in self.also:
                    files.append(source)
            skipped += [item._replace(path=prefix + item.path) for item in odd]
            directories.update((prefix + where, mtime) for where, mtime in looked_at)
        return Scan(files, skipped, passed["scratch"], passed["headers"] > 0, directories, began)

    def moved_since(self, scan: Scan) -> frozenset[str]:
        """The directories, as in a manifest, in which anything appeared, vanished or was renamed since a look."""
        moved: set[str] = set()
        for prefix, _, root in self._roots:
            seen = [path for path in scan.directories if self._root_of(path) == prefix]
            now = directory_times(root, (path.removeprefix(prefix) for path in seen))
            moved.update(path for path, mtime in zip(seen, now, strict=True) if mtime != scan.directories[path])
        return frozenset(moved)

    def _root_of(self, path: str) -> str:
        label = also_label(path + "/x")
        return f"{ALSO}{label}/" if label in self.also else ""

    def lock_held(self) -> bool:
        """True where a process holds one of torch's compile locks right now. Looks without taking any."""
        inodes: set[int] = set()
        for _, path, _ in self._roots:
            try:
                inodes.update(item.inode() for item in os.scandir(path / _LOCKS))
            except OSError:
                continue
        return not inodes.isdisjoint(_locked_inodes())


def _wanted(with_headers: bool, passed: Counter[str]) -> tuple[Callable[[str], bool], Callable[[str], bool]]:
    """Which directories to enter and which files to take; counts what is passed over."""

    def enter(path: str) -> bool:
        if path == HEADERS and not with_headers:
            passed["headers"] += 1
            return False
        name = path.rpartition("/")[2]
        scratch = is_scratch_directory(name)
        passed["scratch"] += scratch and name != WORKSHOP
        return not scratch

    def take(name: str) -> bool:
        scratch = is_scratch_file(name)
        passed["scratch"] += scratch
        return not scratch

    return enter, take


def _sources(prefix: str, directory: Path, root: int, found: Iterable[LiveFile]) -> Iterable[SourceFile]:
    top = str(directory)
    for live in found:
        inner, place = _place(live.path)
        if place is None:
            continue
        parent = live.path.rpartition("/")[0]
        where = f"{top}/{parent}" if parent else top
        base = f"{top}/{inner}" if inner else top
        yield SourceFile(prefix + live.path, root, base, where, Place(place.kind, prefix + place.entry), live)


def _place(path: str) -> tuple[str, Place | None]:
    """The root inside the cache directory that a file belongs to, or "", and its place.

    A cache restored with directories beside it holds them as also/<label>/: each is a root of its own.
    """
    label = also_label(path)
    if not label:
        return "", classify(path)
    place = classify(_inner(path))
    return ALSO + label, place and Place(place.kind, f"{ALSO}{label}/{place.entry}")


def _inner(path: str) -> str:
    """A path below the root inside the cache directory that it belongs to."""
    label = also_label(path)
    return path[len(ALSO) + len(label) + 1 :] if label else path


def _locked_inodes() -> set[int]:
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            return {int(match[1]) for match in re.finditer(r"[0-9a-f]+:[0-9a-f]+:(\d+) ", file.read())}
    except OSError:
        return set()


def _writing(cache: LiveCache, scan: Scan) -> str:
    """Why a cache without a lock is not quiet, or ""."""
    if scan.written_within(QUIET_SECONDS):
        return "files were written in the last second"
    # Between two graphs a job traces for seconds and writes nothing.
    if scan.written_within(_USED_QUIET_SECONDS) and any(users_of(cache.cache_dir)):
        return "a job has it open and wrote into it in the last seconds"
    return ""


def wait_for_quiet(cache: LiveCache, seconds: float, with_headers: bool = False) -> tuple[Scan, str]:
    """Look until nothing is being written, for at most `seconds`.

    Returns:
        The last look, and why the cache is not quiet, or "".
    """
    deadline = time.monotonic() + seconds
    while True:
        held = cache.lock_held()
        scan = cache.scan(with_headers)
        reason = COMPILING if held else _writing(cache, scan)
        if not reason or time.monotonic() >= deadline:
            return scan, reason
        time.sleep(0.2)


def users_of(target: Path) -> Iterator[int]:
    """Processes other than this one that hold files of a directory open or mapped, as far as /proc shows them."""
    prefix = f"{os.path.realpath(target)}/"
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid() and _holds(process, prefix):
            yield int(process.name)


def _holds(process: Path, prefix: str) -> bool:
    with suppress(OSError):
        if prefix in (process / "maps").read_text(errors="replace"):
            return True
        return any(os.readlink(link).startswith(prefix) for link in (process / "fd").iterdir())
    return False


def command_of(pid: int) -> str:
    """How a process was started, as far as /proc shows it: without secrets, the beginning; "" where it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return " ".join(without_secrets(word.decode("utf-8", "replace") for word in words)).strip()[:_COMMAND]
