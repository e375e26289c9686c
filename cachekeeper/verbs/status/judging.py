"""A comparison of a live cache, judged: what is gone, damaged, changed or new."""

from __future__ import annotations

import functools
import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...comparison import LiveComparison, naming, no_files
from ...environment import fingerprint
from ...errors import NotFound
from ...fitting import fit
from ...inductor import Place, names_its_directory
from ...livecache import Scan, SourceFile
from ...manifest import FileRow, Manifest
from ...reading import structure_damage
from ...stores import KeyMissing
from ...units import short_id
from ..snapshot.generations import differences, left_over
from .reference import Reference
from .result import StatusResult

# Entries that torch writes anew in their place. The bytes of all others follow from their names.
_REWRITTEN = ("aotautograd", "autotune", "precompile", "other")
_NOT_ENTRIES = ("other", "headers")
_CLOCK_SECONDS = 1.0
# What was written so shortly before may be in the making.
_SETTLED_SECONDS = 60.0


def is_empty(scan: Scan) -> bool:
    return all(file.place.kind in _NOT_ENTRIES for file in scan.files)


def compare_quickly(manifest: Manifest, wanted: Sequence[FileRow], sources: Sequence[SourceFile]) -> LiveComparison:
    there = {source.path: source for source in sources}
    known = {file.path for file in manifest.tables.files}
    changed = {
        file.path: reason for file in wanted if file.path in there and (reason := _size_differs(file, there[file.path]))
    }
    missing = frozenset(file.path for file in wanted if file.path not in there)
    same = frozenset(file.path for file in wanted) - missing - changed.keys()
    return LiveComparison(same, missing, changed, tuple(source for source in sources if source.path not in known))


def _size_differs(file: FileRow, source: SourceFile) -> str:
    if names_its_directory(source.place.kind, source.path):
        return "empty" if file.size and not source.live.size else ""
    return f"{source.live.size:,} bytes instead of {file.size:,}" if source.live.size != file.size else ""


@dataclass(frozen=True)
class Judging:
    """A comparison, made into words."""

    path: Path
    reference: Reference
    manifest: Manifest
    wanted: Sequence[FileRow]
    scan: Scan
    comparison: LiveComparison
    quick: bool

    def result(self) -> StatusResult:
        entries = self.manifest.tables.entries
        files_of: dict[Place, list[str]] = defaultdict(list)
        for file in self.wanted:
            files_of[Place(*entries[file.entry])].append(file.path)
        odd = no_files(self.scan.skipped, self.comparison.missing)
        gone = [
            place
            for place, files in files_of.items()
            if self.comparison.missing.issuperset(files) and odd.keys().isdisjoint(files)
        ]
        damaged, changed = self._damaged_and_changed(files_of, set(gone), odd)
        grown = {source.place for source in self.comparison.extra}
        damaged |= self._damage_of({source.place for source in self.scan.files} - files_of.keys(), settled=True)
        name = naming({*files_of, *grown, *damaged})
        return StatusResult(
            self.path,
            self._state(gone, damaged, changed, grown),
            self.quick,
            self.reference.snapshot,
            "" if self._refused else self.manifest.header.name,
            self.reference.against,
            files=len(self.wanted),
            entries=len(files_of),
            same=len(self.comparison.same),
            gone=tuple(sorted(map(name, gone))),
            gone_after=self.reference.restored.when if gone and self.reference.restored else None,
            gone_by=self._gone_by(gone),
            damaged={name(place): reason for place, reason in sorted(damaged.items())},
            changed={name(place): reason for place, reason in sorted(changed.items())},
            grown=tuple(sorted(map(name, grown))),
            newer=self._newer(),
            notes=(*self.reference.notes, *self._of_its_name(), *self._of_other_environments()),
        )

    @functools.cached_property
    def _refused(self) -> bool:
        """True where its name has never pointed to it: it was much smaller than what the name points to."""
        name, snapshot, repository = self.manifest.header.name, self.reference.snapshot, self.reference.repository
        return bool(name) and repository.ever_pointed(name, snapshot) is False

    def _of_its_name(self) -> tuple[str, ...]:
        name = self.manifest.header.name
        return (f"it was saved for {name}, which has never pointed to it",) if self._refused else ()

    def _of_other_environments(self) -> tuple[str, ...]:
        here = fingerprint()
        differing = [item for item in fit(self.manifest.header, here).must if item.group != "model"]
        if differing:
            made = f"{short_id(self.reference.snapshot)} was made on another environment"
            return (f"{made}: {differences(differing)}",)
        restored = self.reference.restored
        if restored is None or not restored.older:
            return ()
        places = {source.place for source in self.scan.files}
        left = left_over(self.reference.repository, restored, places, here)
        return tuple(item.in_words(len(places)) for item in left)

    def _state(self, gone: object, damaged: object, changed: object, grown: object) -> str:
        if is_empty(self.scan):
            return "empty"
        found = (("damaged", damaged), ("gone", gone), ("changed", changed), ("grown", grown))
        return next((state for state, what in found if what), "intact")

    def _damaged_and_changed(
        self, files_of: Mapping[Place, list[str]], gone: set[Place], odd: Mapping[str, str]
    ) -> tuple[dict[Place, str], dict[Place, str]]:
        damaged: dict[Place, str] = {}
        changed: dict[Place, str] = {}
        touched = self.comparison.missing | self.comparison.changed.keys()
        affected = {place: files for place, files in files_of.items() if place not in gone and touched & set(files)}
        unsound = self._damage_of(affected)
        written = {source.path: source.live.mtime_ns for source in self.scan.files}
        for place, files in affected.items():
            missing = self.comparison.missing.intersection(files)
            different = [path for path in files if path in self.comparison.changed]
            if in_the_way := [odd[path] for path in files if path in odd]:
                damaged[place] = in_the_way[0]
            elif missing:
                damaged[place] = f"{len(missing)} of {len(files)} files gone"
            elif place in unsound:
                damaged[place] = unsound[place]
            elif self._may_be_rewritten(place.kind, [written.get(path, 0) for path in different]):
                changed[place] = self.comparison.changed[different[0]]
            else:
                damaged[place] = self.comparison.changed[different[0]]
        return damaged, changed

    def _may_be_rewritten(self, kind: str, written: Iterable[int]) -> bool:
        """Is it torch's own doing? In a cache that was never restored, other bytes are another run's."""
        restored = self.reference.restored
        if restored is None:
            return True
        since = restored.when + (0.0 if restored.saved else _CLOCK_SECONDS)
        return kind in _REWRITTEN and all(when > since * 1e9 for when in written)

    def _damage_of(self, places: Collection[Place], settled: bool = False) -> dict[Place, str]:
        """Entry -> what is structurally wrong with it.

        Args:
            settled: leave out what was written in the last minute: it may be in the making.
        """
        if self.quick:
            return {}
        oldest = self.scan.began - _SETTLED_SECONDS * 1e9
        sources = [source for source in self.scan.files if source.place in places]
        young = {source.place for source in sources if settled and source.live.ctime_ns > oldest}
        # What is wrong with a kernel as a whole is told of its directory.
        place_of = {source.place.entry: source.place for source in sources}
        place_of |= {source.path: source.place for source in sources}
        found: dict[Place, str] = {}
        for path, reason in structure_damage([item for item in sources if item.place not in young]).items():
            found.setdefault(place_of[path], reason)
        return found

    def _gone_by(self, gone: Iterable[Place]) -> float | None:
        """When the last of them was lost at the latest: what takes something out of a directory sets its time.

        None where that says nothing: it was not restored here, or the directory is older than the restore.
        """
        restored = self.reference.restored
        if restored is None:
            return None
        times = []
        for place in {self._nearest(lost.entry) for lost in gone}:
            try:
                times.append(os.stat(place).st_mtime)
            except OSError:
                continue
        latest = min(max(times), time.time()) if times else 0.0
        return latest if latest >= restored.when else None

    def _nearest(self, entry: str) -> Path:
        place = (self.path / entry).parent
        while not place.is_dir() and place != self.path:
            place = place.parent
        return place

    def _newer(self) -> str:
        name = self.manifest.header.name
        if not name or self._refused or self.reference.against == "given":
            return ""
        try:
            latest = self.reference.repository.latest(name)
        except (NotFound, KeyMissing):
            return ""
        return latest if latest != self.reference.snapshot else ""
