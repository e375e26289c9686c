"""What is damaged in a live cache by itself, whoever may be writing into it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import UsageError
from ...livecache import LiveCache, Scan, SourceFile, users_of, wait_for_quiet
from ...mending import unit_of
from ...reading import structure_damage
from ...units import count

# So long a repair waits for a quiet moment. Without one, what was written this recently may be half done.
_WAIT_SECONDS = 5.0
_SETTLED_SECONDS = 60


@dataclass(frozen=True)
class Judged:
    """What is structurally damaged among files of a cache.

    Attributes:
        damaged: path -> what is wrong; a kernel's directory itself, where it lacks its group.
        being_written: the paths that look damaged and are being written just now; they are not in `damaged`.
        units: path of a file -> what moves as a whole with it.
    """

    damaged: Mapping[str, str]
    being_written: tuple[str, ...]
    units: Mapping[str, str]

    def unit(self, path: str) -> str:
        """What moves as a whole with a damaged path."""
        return self.units.get(path, path)


def judge(
    files: Sequence[SourceFile],
    fresh: Collection[str],
    known: Collection[str] = (),
    progress: Callable[[int], None] = lambda done: None,
) -> Judged:
    """Check the structure of files.

    Args:
        fresh: what may be half written, as `settled` says.
        known: paths that others judge.
    """
    units = {source.path: unit_of(source) for source in files}
    found = {path: reason for path, reason in structure_damage(files, progress).items() if path not in known}
    writing = tuple(path for path in found if units.get(path, path) in fresh)
    return Judged({path: reason for path, reason in found.items() if path not in writing}, writing, units)


def settled(live: LiveCache, repair: bool, with_headers: bool = True) -> tuple[Scan, frozenset[str]]:
    """Look at a cache, for a repair in a quiet moment if there is one.

    Returns:
        The look, and what may be half written: none where nobody is writing.
    """
    scan, writing = wait_for_quiet(live, _WAIT_SECONDS if repair else 0, with_headers)
    newest = scan.began - _SETTLED_SECONDS * 10**9
    fresh = {unit_of(source) for source in scan.files if source.live.mtime_ns > newest} if writing else ()
    return scan, frozenset(fresh)


def refuse_other_directories(directory: Path, files: Sequence[SourceFile]) -> None:
    """Refuse to repair what is no compile cache.

    Raises:
        UsageError: most of its files are of no kind that a compile cache holds.
    """
    others = sum(source.place.kind == "other" for source in files)
    if 2 * others > len(files):
        raise UsageError(
            f"{directory} does not look like a compile cache",
            facts=[f"{others:,} of {count(len(files), 'file')} are of no kind that torch writes into one"],
            hint="repair the directory that TORCHINDUCTOR_CACHE_DIR names; nothing was changed",
        )


def notes_of(directory: Path, being_written: Collection[str], moved: bool) -> tuple[str, ...]:
    """What a person should know after a repair."""
    notes = []
    if being_written:
        looking = f"{count(len(being_written), 'file')} that looked damaged"
        notes.append(f"{looking}: somebody is writing just now, and may not be done; look again later")
    user = next(users_of(directory), None) if moved else None
    if user is not None:
        notes.append(f"process {user} has files of it open: it keeps what it has loaded")
    return tuple(notes)


def still_damaged(directory: Path, units: Mapping[str, str]) -> dict[str, str]:
    """What is damaged again of what was dropped: somebody wrote it meanwhile."""
    if not units:
        return {}
    with LiveCache(directory) as live:
        scan, fresh = settled(live, repair=False)
        return dict(judge([source for source in scan.files if unit_of(source) in units], fresh).damaged)
