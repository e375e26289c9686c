"""The union of manifests, entry by entry: each from one snapshot whole, and never two versions of one.

What can only be right together is decided together, as one *group*: entries of one path (a module and the library of
the same stem); a kernel in the directories of several devices, since a restored job reads them all from one; and
entries that could not lie side by side, because a file of the one is a directory of the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...inductor import KINDS, triton_device
from ...manifest import EntryRow, FileRow, Manifest

# Under the key of a graph torch looks at one file after the other and takes the first whose guards hold
# (GuardedCache.find_guarded_entry in torch/_inductor/codecache.py). Each is whole, and named by its content.
_ALTERNATIVES = ("fxgraph", "aotautograd")


class Part(NamedTuple):
    """An entry of one snapshot, or files that go into an entry: number of the snapshot, the entry, its files."""

    source: int
    entry: EntryRow
    files: tuple[FileRow, ...]


@dataclass(frozen=True)
class Version:
    """One of several versions of an entry: ids of the snapshots that have it, and its files that not all have."""

    snapshots: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class Conflict:
    """An entry that is not the same in every snapshot that has it.

    Attributes:
        taken: id of the snapshot whose version was preferred, or "".
    """

    kind: str
    entry: str
    versions: tuple[Version, ...]
    taken: str = ""


@dataclass(frozen=True)
class Share:
    """Numbers of entries of one kind, of all snapshots together.

    Attributes:
        only: those that one snapshot alone has, for each snapshot in the order given.
        shared: those that are the same in several.
        variants: graphs of which the files of several snapshots were put under their key.
        conflicts: those with two versions or more, settled or not.
    """

    only: tuple[int, ...]
    shared: int = 0
    variants: int = 0
    conflicts: int = 0


@dataclass(frozen=True)
class Union:
    """What the snapshots hold together.

    Attributes:
        parts: whole entries; several parts of one entry only where a graph has variants.
        conflicts: settled ones and others.
        shares: kind -> numbers.
        left: for each snapshot, the paths of entries of which another version was taken.
    """

    parts: tuple[Part, ...]
    conflicts: tuple[Conflict, ...]
    shares: Mapping[str, Share]
    left: tuple[frozenset[str], ...]

    @property
    def open(self) -> tuple[Conflict, ...]:
        """The conflicts that no preference settles."""
        return tuple(conflict for conflict in self.conflicts if not conflict.taken)


_Versions = dict[int, list[Part]]


def unite(sources: Sequence[Manifest], preferred: Sequence[int] = (), *, variants: bool = False) -> Union:
    """The union of manifests.

    Args:
        preferred: numbers of sources: of an entry with several versions the first of these that has it is taken whole.
        variants: keep, under the key of a graph, the files of every source.
    """
    parts: list[Part] = []
    conflicts: list[Conflict] = []
    tally = _Tally(len(sources))
    left: list[set[str]] = [set() for _ in sources]
    for versions in _groups(sources):
        if len(versions) == 1:
            tally.only(versions)
            parts += _flat(versions)
        elif _all_same(versions):
            tally.add("shared", versions)
            parts += _each_place_once(versions)
        elif variants and _are_alternatives(versions):
            tally.add("variants", versions)
            parts += _side_by_side(versions)
        else:
            tally.add("conflicts", versions)
            taken = next((number for number in preferred if number in versions), None)
            conflicts.append(_conflict(sources, versions, taken))
            parts += versions[taken] if taken is not None else ()
            for number in versions.keys() - {taken}:
                left[number] |= {part.entry.path for part in versions[number]}
    conflicts.sort(key=lambda item: (KINDS.index(item.kind), item.entry))
    return Union(tuple(parts), tuple(conflicts), tally.shares(), tuple(map(frozenset, left)))


# What is decided together


def _groups(sources: Sequence[Manifest]) -> Iterator[_Versions]:
    """Each group: number of a source -> the entries that it has of it."""
    parts = [part for number, source in enumerate(sources) for part in _parts(number, source)]
    together = _Together(parts)
    groups: dict[str, _Versions] = defaultdict(dict)
    for part in parts:
        groups[together.name(_unit(part.entry))].setdefault(part.source, []).append(part)
    yield from groups.values()


def _parts(number: int, source: Manifest) -> Iterator[Part]:
    files: dict[int, list[FileRow]] = defaultdict(list)
    for file in source.tables.files:
        files[file.entry].append(file)
    rows: dict[EntryRow, list[FileRow]] = defaultdict(list)  # a manifest of others may name an entry twice
    for entry, of_it in files.items():
        rows[source.tables.entries[entry]] += of_it
    for row, of_it in rows.items():
        yield Part(number, row, tuple(of_it))


def _unit(entry: EntryRow) -> str:
    """A name for what goes together by its path alone."""
    if entry.kind == "triton" and triton_device(entry.path) is not None:
        return "//" + entry.path.rpartition("/")[2]  # no path begins with "//"
    return entry.path


class _Together:
    """Which units are one group: sets that grow together where files overlap."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parents: dict[str, str] = {}
        owners: dict[str, str] = {}
        for part in parts:
            for file in part.files:
                self._join(owners.setdefault(file.path, _unit(part.entry)), _unit(part.entry))
        above: dict[str, str] = {}
        for path, owner in owners.items():
            blocked = _file_above(path.rpartition("/")[0], owners, above)
            if blocked:
                self._join(owners[blocked], owner)

    def name(self, unit: str) -> str:
        """The name of the group that a unit is in."""
        root = unit
        while root in self._parents:
            root = self._parents[root]
        while unit != root:  # so that the next one finds it at once
            self._parents[unit], unit = root, self._parents[unit]
        return root

    def _join(self, one: str, other: str) -> None:
        one, other = self.name(one), self.name(other)
        if one != other:
            self._parents[other] = one


def _file_above(directory: str, files: Mapping[str, str], known: dict[str, str]) -> str:
    """The file that a directory, or one above it, is somewhere else; "" for none."""
    passed = []
    while directory and directory not in known and directory not in files:
        passed.append(directory)
        directory = directory.rpartition("/")[0]
    found = directory if directory in files else known.get(directory, "")
    known.update(dict.fromkeys(passed, found))
    return found


# Versions


def _all_same(versions: _Versions) -> bool:
    same = len({_signature(parts) for parts in versions.values()}) == 1
    return same and _no_path_twice(versions) and _no_kernel_twice(versions)


def _no_path_twice(versions: _Versions) -> bool:
    """True where no path stands for two contents."""
    contents: dict[str, str] = {}
    files = (file for part in _flat(versions) for file in part.files)
    return all(contents.setdefault(file.path, file.sha256) == file.sha256 for file in files)


def _no_kernel_twice(versions: _Versions) -> bool:
    """True where no kernel's directory stands for two sets of files."""
    files: dict[str, frozenset[str]] = {}
    kernels = (part for part in _flat(versions) if _unit(part.entry) != part.entry.path)
    return all(
        files.setdefault(part.entry.path, paths) == paths
        for part in kernels
        if (paths := frozenset(file.path for file in part.files))
    )


def _signature(parts: Iterable[Part]) -> frozenset[object]:
    """What is equal for equal versions: all files; of a kernel wherever it lies."""
    found: set[object] = set()
    for part in parts:
        rows = frozenset(_facts(part))
        found |= {rows} if _unit(part.entry) != part.entry.path else rows
    return frozenset(found)


def _facts(part: Part) -> Iterator[tuple[str, str, int]]:
    """(path, SHA-256, length) of each file, in a kernel with the path below its directory."""
    below = f"{part.entry.path}/" if _unit(part.entry) != part.entry.path else ""
    for file in part.files:
        yield file.path.removeprefix(below), file.sha256, file.size


def _flat(versions: _Versions) -> Iterator[Part]:
    for number in sorted(versions):
        yield from versions[number]


def _each_place_once(versions: _Versions) -> Iterator[Part]:
    """The entries of the first source; of a kernel also those in the directories of other devices."""
    seen: set[str] = set()
    for number in sorted(versions):
        new = [part for part in versions[number] if seen.isdisjoint(file.path for file in part.files)]
        yield from new
        seen |= {file.path for part in new for file in part.files}


def _are_alternatives(versions: _Versions) -> bool:
    return all(part.entry.kind in _ALTERNATIVES for part in _flat(versions)) and _no_path_twice(versions)


def _side_by_side(versions: _Versions) -> Iterator[Part]:
    seen: set[str] = set()
    for part in _flat(versions):
        new = tuple(file for file in part.files if file.path not in seen)
        seen |= {file.path for file in new}
        if new:
            yield part._replace(files=new)


def _conflict(sources: Sequence[Manifest], versions: _Versions, taken: int | None) -> Conflict:
    alike: dict[object, list[int]] = defaultdict(list)
    for number in sorted(versions):
        alike[_signature(versions[number])].append(number)
    if len(alike) == 1:  # one kernel in several builds, which change places from snapshot to snapshot
        alike = {number: [number] for number in sorted(versions)}
    facts = [{fact for part in versions[numbers[0]] for fact in _facts(part)} for numbers in alike.values()]
    common = set.intersection(*facts)
    found = [
        Version(tuple(sources[number].id for number in numbers), _differing(versions[numbers[0]], common))
        for numbers in alike.values()
    ]
    first = min(_flat(versions), key=lambda part: (KINDS.index(part.entry.kind), part.entry.path)).entry
    return Conflict(first.kind, first.path, tuple(found), sources[taken].id if taken is not None else "")


def _differing(parts: Iterable[Part], common: set[tuple[str, str, int]]) -> tuple[str, ...]:
    pairs = ((file, fact) for part in parts for file, fact in zip(part.files, _facts(part), strict=True))
    return tuple(sorted(file.path for file, fact in pairs if fact not in common))


class _Tally:
    """Counts entries by kind and by what became of them."""

    def __init__(self, sources: int) -> None:
        self._only: dict[str, list[int]] = defaultdict(lambda: [0] * sources)
        self._several: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))

    def only(self, versions: _Versions) -> None:
        """Note entries that one source alone has."""
        for part in _flat(versions):
            self._only[part.entry.kind][part.source] += 1

    def add(self, what: str, versions: _Versions) -> None:
        """Note entries that several sources have."""
        for entry in {part.entry for part in _flat(versions)}:
            self._several[entry.kind][what] += 1

    def shares(self) -> dict[str, Share]:
        """Kind -> numbers, in the order of the kinds."""
        there = self._only.keys() | self._several.keys()
        return {kind: Share(tuple(self._only[kind]), **self._several[kind]) for kind in KINDS if kind in there}
