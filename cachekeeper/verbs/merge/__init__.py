"""merge: one snapshot that holds what several hold, entry by entry.

union       which entries, from which snapshot; what has two versions
tables      the manifest's tables for them: no file is read or stored again
words       errors and notes
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from ... import doubted
from ...config import setting
from ...environment import compare
from ...errors import UsageError
from ...manifest import FORMAT, Header, Manifest, Snapshot, Tables, counts, triton_dirs
from ...naming import move_name_unless_smaller
from ...repository import Repository, check_name, open_repository, sizes_of
from ...runs.merging import kept
from ...stores import Store
from ...units import now_utc, short_id
from ...version import __version__
from ...workers import read_all
from . import words
from .tables import united
from .union import Conflict, Share, Union, Version, unite

__all__ = ["Conflict", "MergeResult", "Share", "Version", "merge"]

FIRST, NEWEST = "first", "newest"


@dataclass(frozen=True)
class MergeResult:
    """What was merged, or with `dry_run` would be.

    Attributes:
        snapshot: id and header of the union; None with `dry_run`.
        sources: the snapshots that were merged, in the order given.
        name_moved: True where the name points to it now.
        shrunk_from: number of entries of the snapshot that the name still points to, where this one is much smaller.
        shares: kind -> number of entries from each, shared, and with several versions.
        conflicts: the entries with several versions, and whose was taken.
        notes: what a person should know, a sentence each.
    """

    snapshot: Snapshot | None
    sources: tuple[Snapshot, ...]
    name: str
    name_moved: bool
    shrunk_from: int
    shares: Mapping[str, Share]
    conflicts: tuple[Conflict, ...]
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def ok(self) -> bool:
        """True where every conflict is settled, and the name was not kept from moving."""
        return not self.shrunk_from and all(conflict.taken for conflict in self.conflicts)


def merge(
    references: Sequence[str],
    *,
    name: str | None = None,
    store: str | os.PathLike[str] | Store | None = None,
    prefer: str = "",
    variants: bool = False,
    message: str = "",
    force: bool = False,
    dry_run: bool = False,
) -> MergeResult:
    """Save the union of snapshots of one store as a new snapshot, and point `name` to it.

    An entry (a kernel's directory, a graph, a module with its library) is taken whole from one snapshot. No file is
    read or stored again.

    Args:
        references: two or more of id, name or `name@{1}`.
        name: default as configured; without one it is saved under its id alone.
        prefer: whose version is taken of an entry that is not the same in all: a reference among `references`, "first"
            (the first of them that has the entry) or "newest" (the one saved last; of the same second, given last).
        variants: keep the files of every snapshot under the key of an FX graph or AOTAutograd entry. Each is a whole
            graph, and torch takes the first whose guards hold. Without it, one version with all its files is taken.
        force: move the name even to a much smaller snapshot.
        dry_run: say what would be done and write nothing; conflicts are in the result, and not an error.

    Raises:
        UsageError: fewer than two snapshots, one twice, or one is preferred that is not merged.
        NotFound: no such snapshot.
        EnvironmentMismatch: they were made on different environments.
        CheckFailed: an entry has several versions and none is preferred; nothing is saved.
        DamagedStore: a manifest is damaged, or a pack that they need is not there; nothing is saved.
    """
    name = setting("name", name)
    if name is not None:
        check_name(name)
    references = [references] if isinstance(references, str) else references
    repository = open_repository(store)
    repository.require()
    sources = _sources(repository, references)
    order = _order(repository, sources, references, prefer)
    notes = words.should_notes(sources, _check_environments(sources))
    union = unite(sources, order, variants=variants)
    if union.open and not dry_run:
        command = ["cachekeeper", "merge", *references, *(["--name", name] if name else [])]
        raise words.conflict_error(union.open, command + ["--variants"] * variants, prefer, variants)
    table = united(sources, union.parts)
    _check_packs(repository, sources, table)
    damaged = _damaged(sources, union)
    listed = tuple(Snapshot(source.id, source.header) for source in sources)
    notes = (*notes, *words.union_notes(sources, union, len(damaged)), *repository.store.caveats)
    result = MergeResult(None, listed, name or "", False, 0, union.shares, union.conflicts, notes, dry_run)
    if dry_run:
        return result
    repository.prepare()
    secrets = _secrets(sources, union)
    header = _header(repository, sources, damaged, secrets, table, name or "", message)
    with repository.writing() as work:
        work.require(pack.id for pack in table.packs)
        saved = repository.commit(header, table, _telemetry(repository, listed), work=work)
    moved, shrunk_from = move_name_unless_smaller(repository, name, saved, force=force)
    return replace(result, snapshot=saved, name_moved=moved, shrunk_from=shrunk_from)


def _telemetry(repository: Repository, sources: Sequence[Snapshot]) -> bytes:
    """What is known of the graphs of all sources; b"" for nothing."""
    logs = [log for source in sources if (log := repository.telemetry(source))]
    return kept(logs, None, ())


def _sources(repository: Repository, references: Sequence[str]) -> list[Manifest]:
    identifiers: dict[str, str] = {}
    for reference in references:
        identifier = repository.resolve(reference)
        if identifier in identifiers:
            raise UsageError(
                f"{identifiers[identifier]} and {reference} are the same snapshot, {short_id(identifier)}",
                hint="name each once; see them with `cachekeeper ls`",
            )
        identifiers[identifier] = reference
    if len(identifiers) < 2:
        raise UsageError("a merge takes two snapshots or more", hint="`cachekeeper merge rank0 rank1 --name job`")
    return read_all(repository.manifest, identifiers)


def _order(
    repository: Repository, sources: Sequence[Manifest], references: Sequence[str], prefer: str
) -> Sequence[int]:
    """Numbers of the sources whose version is to be taken, the best first."""
    numbers = range(len(sources))
    if prefer in ("", FIRST):
        return numbers if prefer else ()
    if prefer == NEWEST:
        return sorted(numbers, key=lambda number: (sources[number].header.created, number), reverse=True)
    identifier = repository.resolve(prefer)
    found = [number for number in numbers if sources[number].id == identifier]
    if not found:
        raise UsageError(
            f"{prefer} is not among the snapshots that are merged",
            hint="prefer one of " + ", ".join([*references, FIRST, NEWEST]),
        )
    return found


def _check_environments(sources: Sequence[Manifest]) -> list[tuple[int, words.Differences]]:
    """Refuse what was made on different environments; returns what else differs from the first."""
    libraries = any(source.header.entries_of("native") for source in sources)
    lesser: list[tuple[int, words.Differences]] = []
    for (one, left), (other, right) in combinations(enumerate(sources), 2):
        found = compare(left.header.fingerprint, right.header.fingerprint, cpu_code=libraries)
        if not found.fits:
            raise words.mismatch_error(left, right, found.must)
        if one == 0 and found.should:
            lesser.append((other, found.should))
    return lesser


def _check_packs(repository: Repository, sources: Sequence[Manifest], table: Tables) -> None:
    sizes = sizes_of(repository.store, (pack.id for pack in table.packs), {})
    damaged = doubted.damaged_of(repository.store, table)
    wrong = [pack for pack in table.packs if sizes.get(pack.id) != pack.size or pack.id in damaged]
    if wrong:
        raise words.packs_error(sources, wrong, sizes)


def _header(
    repository: Repository,
    sources: Sequence[Manifest],
    damaged: Sequence[str],
    secrets: Sequence[str],
    table: Tables,
    name: str,
    message: str,
) -> Header:
    headers = [source.header for source in sources]
    return Header(
        format=FORMAT,
        tool=__version__,
        created=now_utc(),
        name=name,
        parent=repository.latest(name) if name else "",
        message=message,
        metrics={},
        live=tuple(f"{short_id(source.id)}: {reason}" for source in sources for reason in source.header.live),
        damaged=tuple(damaged),
        secrets=tuple(secrets),
        cache_dir="",
        also={label: path for header in reversed(headers) for label, path in header.also.items()},
        fingerprint=headers[0].fingerprint,
        counts=counts(table),
        triton_dirs=triton_dirs(table),
        stored=sum(frame.stored for frame in table.frames),
        targets=tuple(sorted({target for header in headers for target in header.targets})),
        origin="merge of " + ", ".join(short_id(source.id) for source in sources),
    )


def _damaged(sources: Sequence[Manifest], union: Union) -> list[str]:
    """What was saved damaged, without the entries of which another version was taken."""
    found = []
    for source, left in zip(sources, union.left, strict=True):
        gone = {
            path
            for file in source.tables.files
            if (path := file.path) and source.tables.entries[file.entry].path in left
        }
        for line in source.header.damaged:
            if not any(line.startswith(f"{path}: ") for path in gone | left):
                found.append(f"{short_id(source.id)}: {line}")
    return found


def _secrets(sources: Sequence[Manifest], union: Union) -> list[str]:
    """What was saved though it looks like secrets, without the entries of which another version was taken."""
    found: dict[str, None] = {}
    for source, left in zip(sources, union.left, strict=True):
        table = source.tables
        gone = {file.path for file in table.files if table.entries[file.entry].path in left}
        found |= dict.fromkeys(line for line in source.header.secrets if line.partition("  ")[0] not in gone)
    return list(found)
