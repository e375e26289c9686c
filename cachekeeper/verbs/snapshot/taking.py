"""What of a live cache can be saved: read into the store, checked, and without what is in the making."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ... import reading
from ...capture import Capture, Capturer, Rules
from ...errors import Busy
from ...livecache import COMPILING, LiveCache, Scan, SourceFile
from ...progress import Progress
from ...repository import Location, Repository
from ...seen import Seen, SeenFiles
from ...units import count
from .checks import check_damage, check_readable, check_secrets
from .notes import NOT_ENTRIES

_SETTLED_NS = 60_000_000_000


@dataclass(frozen=True)
class Whole:
    """What was read and can be saved.

    Attributes:
        captured: all that was read, and where it lies in the store.
        kept: the files of whole entries.
        new_files: number of files whose contents the store did not have.
        left_out: number of entries that were in the making.
        live, damaged, secrets: as in `Header`; `damaged` as path -> reason.
    """

    captured: Capture
    kept: list[reading.Taken]
    new_files: int
    live: tuple[str, ...]
    damaged: Mapping[str, str]
    secrets: tuple[str, ...]
    left_out: int

    def remember(self, memory: SeenFiles, began: int) -> None:
        """Note what was seen, for the next snapshot; see `SeenFiles.save`."""
        memory.save([(item.source.path, item.source.live, item.seen) for item in self.kept if item.seen], began)


@dataclass(frozen=True)
class Taking:
    """Takes what a look at a live cache found.

    Attributes:
        command: what saves this directory, for hints; see `check_secrets`.
        busy: why the cache is not quiet, or "".
        known: SHA-256 -> where the store has that content already.
    """

    repository: Repository
    live: LiveCache
    command: Sequence[str]
    scan: Scan
    busy: str
    memory: SeenFiles
    known: Mapping[str, Location]
    rules: Rules
    progress: Progress

    def run(self) -> Whole:
        """Read what is new, and refuse what must not be saved.

        Raises:
            UnsafePath, LocalDiskError, SecretsFound, DamagedCache: see `snapshot`.
            Busy: nothing in it is whole yet.
        """
        directory = self.live.cache_dir
        captured = self._capture(self.scan.files, self.rules)
        check_readable(captured.taken, directory)
        if not self.rules.allow_secrets:
            check_secrets(_secrets(captured.taken), directory, self.command)
        changed = self.live.moved_since(self.scan)
        since = self.scan.began if changed or self.busy == COMPILING else None
        kept, moving = _whole_entries(captured.taken, changed, since)
        damaged = reading.damage(kept) | self.scan.in_the_way
        if not self.rules.keep_going:
            check_damage(damaged, directory)
        _check_entries(kept, directory, self.busy)
        if not captured.complete:  # it stopped at damage that turned out to be in the making
            captured = self._capture([item.source for item in kept], self.rules._replace(keep_going=True))
            kept, _ = _whole_entries(captured.taken, changed, None)
        reasons = _live_reasons(self.busy, moving, bool(changed))
        return Whole(captured, kept, self._number_of_new(captured), reasons, damaged, _secrets(kept), moving)

    def _capture(self, sources: list[SourceFile], rules: Rules) -> Capture:
        def seen(source: SourceFile) -> Seen | None:
            return self.memory.get(source.path, source.live)

        return Capturer(self.repository, self.known, rules, self.progress).run(sources, seen)

    def _number_of_new(self, captured: Capture) -> int:
        return sum(1 for item in captured.taken if item.seen and item.seen.sha256 not in self.known)


def _secrets(taken: Sequence[reading.Taken]) -> tuple[str, ...]:
    """The "path  kind" of each file with what looks like secrets."""
    found = {item.source.path: item.seen.secrets for item in taken if item.seen and item.seen.secrets}
    return tuple(f"{path}  {', '.join(kinds)}" for path, kinds in sorted(found.items()))


def _check_entries(kept: Sequence[reading.Taken], directory: Path, busy: str) -> None:
    if not any(item.source.place.kind not in NOT_ENTRIES for item in kept):
        raise Busy(f"{directory} holds no whole entry yet", facts=[busy or "it changes"], hint="try again in a moment")


def _whole_entries(
    taken: Sequence[reading.Taken], changed: frozenset[str], live_since: int | None
) -> tuple[list[reading.Taken], int]:
    """What can be kept, and the number of entries that are left out.

    Left out is what changed or vanished while it was read, kernels whose directory did, and in a cache that is being
    written (`live_since`: when the look at it began, in ns) what is damaged and was touched in the last minute: it is
    in the making.
    """
    moving = {
        item.source.place
        for item in taken
        if item.seen is None or (item.source.place.kind == "triton" and item.source.place.entry in changed)
    }
    if live_since is not None:
        damaged = reading.damage(taken)
        recent = {item.source.place for item in taken if item.source.live.ctime_ns > live_since - _SETTLED_NS}
        broken = {item.source.place for item in taken if {item.source.path, item.source.place.entry} & damaged.keys()}
        moving |= broken & recent
    return [item for item in taken if item.source.place not in moving], len(moving)


def _live_reasons(busy: str, moving: int, changed: bool) -> tuple[str, ...]:
    reasons = [busy] if busy else []
    if moving:
        reasons.append(f"{count(moving, 'entry')} left out: changed while being read")
    if changed:
        reasons.append("entries appeared or vanished while it was being saved")
    return tuple(reasons)
