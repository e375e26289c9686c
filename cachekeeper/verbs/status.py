"""A live cache against the snapshot that it should be: for a launch script."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..comparison import LiveComparison, compare_live
from ..config import setting
from ..disk import directory_exists, exists_in
from ..environment import fingerprint
from ..errors import DamagedStore, NotFound, StoreError, UsageError
from ..fitting import fit, identified
from ..inductor import Place, names_its_directory
from ..livecache import LiveCache, Scan, SourceFile, chosen_cache_dir
from ..manifest import FileRow, Manifest, also_label
from ..mending import with_one_kernel_directory
from ..reading import structure_damage
from ..repository import Repository, open_repository
from ..restored import MARKER, Restored, read
from ..stores import KeyMissing, Store, open_store
from ..units import short_id

# Entries that torch writes anew in their place. The bytes of all others follow from their names.
_REWRITTEN = ("aotautograd", "autotune", "precompile", "other")
_NOT_ENTRIES = ("other", "headers")
_MOST_FACTS = 3
_CLOCK_SECONDS = 1.0
# What was written so shortly before may be in the making.
_SETTLED_SECONDS = 60.0
_EXIT_CODES = {"gone": 3, "damaged": 3, "empty": 5, "absent": 5, "unknown": 5}

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class StatusResult:
    """How a live cache stands to a snapshot.

    Attributes:
        state: "damaged", "gone", "changed", "grown" or "intact", the first that is true; "empty" or "absent"; "unknown"
            where there is no snapshot to compare it with: `notes` says why.
        quick: presence and sizes alone were looked at.
        snapshot: full id of what it was compared with, or "".
        name: the name of that, or "".
        against: why that one: "restored" there, "saved" from there, "given" or "name".
        files: number of files of the snapshot that belong there: where only some kinds or a damaged snapshot were
            restored, of what was; entries: of its entries.
        same: files that are as in the snapshot.
        gone: entries of which nothing is left.
        gone_after, gone_by: the last was lost between these, seconds since 1970; None where that is not known.
        damaged: entry -> what is wrong with it: structurally, or bytes that nothing but damage changes.
        changed: entry -> what is different: sound, and of a kind that torch writes anew.
        grown: entries that the snapshot does not have.
        newer: full id of the snapshot that the name points to now, where it is another; else "".
        notes: what a person should know, a sentence each.
    """

    cache_dir: Path
    state: str
    quick: bool = False
    snapshot: str = ""
    name: str = ""
    against: str = ""
    files: int = 0
    entries: int = 0
    same: int = 0
    gone: tuple[str, ...] = ()
    gone_after: float | None = None
    gone_by: float | None = None
    damaged: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)
    grown: tuple[str, ...] = ()
    newer: str = ""
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 intact, grown or changed; 3 gone or damaged; 5 empty, absent, or nothing to compare it with."""
        return _EXIT_CODES.get(self.state, 0)


@dataclass(frozen=True)
class _Reference:
    """The snapshot to compare with; `restored` where the cache was restored from it, or it was saved from there."""

    repository: Repository
    snapshot: str
    against: str
    restored: Restored | None = None
    notes: tuple[str, ...] = ()


def status(
    directory: str | os.PathLike[str] | None = None,
    *,
    against: str | None = None,
    store: str | os.PathLike[str] | Store | None = None,
    quick: bool = False,
    progress: Progress = lambda stage, done, total: None,
) -> StatusResult:
    """Compare a live cache with the snapshot that it was restored from, or else with the configured name's latest.

    Nothing is written, and nothing of the cache unpickled, loaded or imported.

    Args:
        directory: default: as configured, else the one that torch would use here.
        against: id or name of another snapshot.
        store: URL or directory; default: the one that it was restored from, else as configured.
        quick: look at presence and sizes alone, and read no file.

    Raises:
        NotFound: `against` is no snapshot.
        StoreError: the store cannot be reached, or is not there.
        DamagedStore: the snapshot's manifest is damaged.
    """
    path = chosen_cache_dir(directory)
    if not directory_exists(path):
        return StatusResult(path, "absent", quick)
    with LiveCache(path) as live:
        reference = _reference(store, against, live.root)
        if isinstance(reference, str):
            return StatusResult(path, "empty" if _is_empty(live.scan()) else "unknown", quick, notes=(reference,))
        manifest = _as_restored(reference)
        scan = live.scan(with_headers=manifest.header.entries_of("headers") > 0)
        wanted = _wanted(manifest, path, reference)
        if quick:
            comparison = _compare_quickly(manifest, wanted, scan.files)
        else:
            total = sum(file.size for file in wanted)
            comparison = compare_live(manifest, wanted, scan.files, lambda done: progress("Comparing", done, total))
        return _Judging(path, reference, manifest, wanted, scan, comparison, quick).result()


def _is_empty(scan: Scan) -> bool:
    return all(file.place.kind in _NOT_ENTRIES for file in scan.files)


# Which snapshot


def _reference(store: str | os.PathLike[str] | Store | None, against: str | None, root: int) -> _Reference | str:
    """The snapshot to compare with, or why there is none."""
    restored = read(root)
    if against is not None:
        repository = open_repository(store)
        repository.require()
        identifier = identified(repository, against, fingerprint)
        here = restored if restored and restored.snapshot == identifier else None
        return _Reference(repository, identifier, "given", here)
    if restored is None:
        return _named(store, "its restored.json makes no sense" if _is_marked(root) else "")
    repositories = []
    for repository in _repositories(store, restored.store):
        if repository.has(restored.snapshot):
            return _Reference(repository, restored.snapshot, "saved" if restored.saved else "restored", restored)
        repositories.append(repository)
    named = _named(store, _why_not(repositories, restored))
    if isinstance(named, str) and restored.store not in {item.store.url for item in repositories}:
        raise StoreError(
            f"the store {restored.store} of snapshot {short_id(restored.snapshot)} is not there",
            hint="mount it, or name another with --store",
        )
    return named


def _is_marked(root: int) -> bool:
    with contextlib.suppress(OSError):
        return exists_in(root, MARKER)
    return False


def _named(store: str | os.PathLike[str] | Store | None, reason: str) -> _Reference | str:
    """The latest of the configured name; `reason`: why it is not what the marker says."""
    name = setting("name")
    if name is None:
        return reason or "it was never restored or saved, and no snapshot is named to compare it with"
    repository = open_repository(store)
    latest = ""
    with contextlib.suppress(NotFound, KeyMissing):
        latest = repository.latest(name) if repository.exists() else ""
    if latest:
        return _Reference(repository, latest, "name", notes=(reason,) if reason else ())
    missing = f"there is no snapshot {name!r} in {repository.store.url}"
    return f"{reason}; {missing}" if reason else missing


def _why_not(repositories: Sequence[Repository], restored: Restored) -> str:
    """Why the snapshot that the marker names is not found."""
    for repository in repositories:
        try:
            repository.header(restored.snapshot)
        except NotFound as error:
            return "; ".join(filter(None, (error.message, error.hint)))
        except (KeyMissing, StoreError, DamagedStore):
            continue
    return f"snapshot {short_id(restored.snapshot)} of its restored.json is not in {restored.store}"


def _repositories(store: str | os.PathLike[str] | Store | None, marked: str) -> Iterator[Repository]:
    """Where the snapshot may be, by its id the same one in each; those of this machine first."""
    candidates: list[Store] = [open_repository(store).store]
    if marked != candidates[0].url:
        try:
            other = open_store(marked, read_only=True)
        except UsageError:
            pass
        else:
            candidates.insert(len(candidates) if other.far else 0, other)
    trouble: StoreError | None = None
    for candidate in candidates:
        try:
            if Repository(candidate).exists():
                yield Repository(candidate)
        except StoreError as error:
            trouble = trouble or error
    if trouble is not None:
        raise trouble


def _as_restored(reference: _Reference) -> Manifest:
    manifest = reference.repository.manifest(reference.snapshot)
    return with_one_kernel_directory(manifest) if reference.restored else manifest


def _wanted(manifest: Manifest, path: Path, reference: _Reference) -> list[FileRow]:
    """What must be there: of directories saved beside a cache that was never restored, nothing."""
    if reference.restored:
        return reference.restored.files(manifest)
    return [
        file
        for file in manifest.tables.files
        if not (label := also_label(file.path)) or os.path.isdir(path / "also" / label)
    ]


# How it stands


def _compare_quickly(manifest: Manifest, wanted: Sequence[FileRow], sources: Sequence[SourceFile]) -> LiveComparison:
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


def _naming(places: Collection[Place]) -> Callable[[Place], str]:
    """What an entry is called: by its path, and by its kind too where a module and a library share one."""
    number = Counter(place.entry for place in places)
    return lambda place: place.entry if number[place.entry] == 1 else f"{place.entry} ({place.kind})"


@dataclass(frozen=True)
class _Judging:
    """A comparison, made into words."""

    path: Path
    reference: _Reference
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
        odd = self._in_the_way()
        gone = [
            place
            for place, files in files_of.items()
            if self.comparison.missing.issuperset(files) and odd.keys().isdisjoint(files)
        ]
        damaged, changed = self._damaged_and_changed(files_of, set(gone), odd)
        grown = {source.place for source in self.comparison.extra}
        damaged |= self._damage_of({source.place for source in self.scan.files} - files_of.keys(), settled=True)
        name = _naming({*files_of, *grown, *damaged})
        return StatusResult(
            self.path,
            self._state(gone, damaged, changed, grown),
            self.quick,
            self.reference.snapshot,
            self.manifest.header.name,
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
            notes=(*self.reference.notes, *self._of_another_environment()),
        )

    def _of_another_environment(self) -> tuple[str, ...]:
        differing = [item for item in fit(self.manifest.header, fingerprint()).must if item.group != "model"]
        if not differing:
            return ()
        facts = ", ".join(f"{item.name} {item.theirs} -> {item.ours}" for item in differing[:_MOST_FACTS])
        more = ", ..." if len(differing) > _MOST_FACTS else ""
        return (f"{short_id(self.reference.snapshot)} was made on another environment: {facts}{more}",)

    def _state(self, gone: object, damaged: object, changed: object, grown: object) -> str:
        if _is_empty(self.scan):
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

    def _in_the_way(self) -> dict[str, str]:
        """Missing file -> what is in its place, as "a symbolic link is in the place of a file"."""
        odd = {item.path: item.reason for item in self.scan.skipped}
        found = {}
        for path in self.comparison.missing if odd else ():
            parts = path.split("/")
            above = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
            if (at := next((place for place in above if place in odd), None)) is not None:
                found[path] = f"{odd[at]} is in the place of {'a file' if at == path else 'a directory'}"
        return found

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
        if not name or self.reference.against == "given":
            return ""
        try:
            latest = self.reference.repository.latest(name)
        except (NotFound, KeyMissing):
            return ""
        return latest if latest != self.reference.snapshot else ""
