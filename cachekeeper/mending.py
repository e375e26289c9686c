"""A snapshot's files -> back into a live cache, where something is missing or wrong.

What is written is staged and checked first, then published with renames (`staging`); what is in the way goes below
`.cachekeeper`, until `cachekeeper clear --empty-trash`. `restore` works through this, and so does all that repairs.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from . import preflight
from .comparison import entry_names
from .delivery import Chunks, damaged_snapshot_error, deliver, placed
from .disk import explained
from .errors import UsageError
from .inductor import Place, names_its_directory, triton_device
from .inductor.layout import cache_of, may_be_at_top
from .inductor.variables import fullest
from .livecache import LiveCache, SourceFile
from .manifest import ALSO, FileRow, Manifest
from .reading import structure_damage
from .repository import Repository
from .restored import MARKER, Restored, encode
from .staging import ASIDE, Stage, rank
from .units import few

# At the top of a filesystem of its own, and empty of meaning.
_LOST_AND_FOUND = "lost+found"
_MOST_SHOWN = 10
Mark = Callable[[tuple[Place, ...]], Restored]


@dataclass(frozen=True)
class Mending:
    """What was put back.

    Attributes:
        files, bytes: what was written: the number of files, and their length together.
        entries: the entries put back.
        left_out: entries whose copy in the store is damaged.
        aside: where what was in the way is now; None where nothing was.
        moved_aside: the number of things moved there: files, and kernels' directories.
    """

    files: int = 0
    bytes: int = 0
    entries: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    aside: Path | None = None
    moved_aside: int = 0


def put_back(
    repository: Repository,
    manifest: Manifest,
    target: Path,
    paths: Collection[str],
    *,
    torn: Collection[str] = (),
    move_away: Collection[str] = (),
    place: str = ASIDE,
    allow_damaged: bool = False,
    drop_damaged: bool = False,
    native: bool = False,
    mark: Mark | None = None,
    evidence: bytes | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Mending:
    """Put files of a snapshot back into a live cache: staged, every SHA-256 checked, published with renames.

    The caller holds `disk.locked(target)` and `repository.reading()`, and made the directory (`preflight.make_target`).

    Args:
        target: absolute path of the cache directory.
        paths: files of the manifest; a kernel's directory goes back whole if any of its files is among them.
        torn: of these directories those that only lack files, as `torn_kernels` says: they get what they lack, and
            what is there stays. Where it has changed meanwhile, the directory goes back whole all the same.
        move_away: paths below `target` that go aside as well, as `unit_of` says.
        place: where what is in the way goes: `.cachekeeper/<place>/<when>/`.
        allow_damaged: leave out the entries that are damaged in the store, rather than refuse.
        drop_damaged: with `allow_damaged`, what is there of these entries' `paths` goes aside.
        native: libraries are there that will be loaded, also where none is among `paths`: noexec is refused.
        mark: from the entries left out, what `.cachekeeper/restored.json` is to say when all is done; None leaves that
            file as it is.
        evidence: the bytes of `evidence.json`, written beside what goes aside before anything moves.
        progress: called with the number of bytes written so far.

    Raises:
        UsageError: the directory holds files, and nothing of a compile cache; nothing is changed.
        DamagedStore: bytes in the store are not right, and `allow_damaged` is False; the cache is as it was.
        LocalDiskError: space, inodes, permission or noexec, checked before the first byte is written.
    """
    refuse_other_than_cache(target)
    files = whole_entries(manifest, paths)
    entries = manifest.tables.entries
    preflight.check(target, files, native=native or any(entries[file.entry].kind == "native" for file in files))
    units = {entry.path for entry in entries if entry.kind == "triton"}
    with explained(target, "use the cache directory"), Stage(target, units.__contains__, place, torn) as stage:
        bad = _stage(stage, repository, manifest, target, files, allow_damaged, progress)
        dropped = {unit_of_row(manifest, file) for file in files if drop_damaged and file.entry in bad}
        _publish(stage, {*move_away, *dropped}, evidence)
        if mark is not None:
            stage.mark(encode(mark(tuple(sorted(Place(*entries[number]) for number in bad)))))
        written = [file for file in files if file.entry not in bad]
        return Mending(
            len(written),
            sum(file.size for file in written),
            _names(manifest, {file.entry for file in written}),
            _names(manifest, bad),
            stage.aside,
            stage.moved,
        )


def refuse_other_than_cache(directory: Path) -> None:
    """Refuse to fill a directory that is something else, as a project's: what goes in could not be told from it again.

    One that is empty, was restored before, or has any entry of a cache where torch puts it is none; nor is one with
    nothing strange but hidden files at its top.

    Raises:
        UsageError: it holds files, and nothing of a compile cache.
        LocalDiskError: it cannot be read.
    """
    with explained(directory, "read the cache directory"):
        names = [name for name in os.listdir(directory) if not name.startswith(".") and name != _LOST_AND_FOUND]
        strange = sorted(name for name in names if not may_be_at_top(name))
        if not strange or os.path.lexists(directory / MARKER):
            return
        with LiveCache(directory) as live:
            files = live.scan(with_headers=True).files
    within = ""
    for place in map(cache_of, (file.path for file in files)):
        if place is None:
            continue
        if place == "" or place.startswith(ALSO):
            return
        within = within or place
    hint = "name an empty directory with --cache-dir, or a cache's own"
    if within:
        hint = f"if it is the cache in it that you mean: `--cache-dir {shlex.quote(str(directory / within))}`"
    raise UsageError(
        f"{directory} holds files and nothing of a compile cache" + (" at its top" if within else ""),
        facts=few(strange, _MOST_SHOWN),
        hint=hint,
    )


def take_away(target: Path, paths: Collection[str], *, place: str, evidence: bytes | None = None) -> Mending:
    """Move things of a live cache aside and put nothing in their place; the arguments are those of `put_back`.

    Raises:
        LocalDiskError: the directory cannot be written.
    """
    preflight.check(target, (), native=False)
    with explained(target, "use the cache directory"), Stage(target, set(paths).__contains__, place) as stage:
        _publish(stage, paths, evidence)
        return Mending(aside=stage.aside, moved_aside=stage.moved)


def whole_entries(manifest: Manifest, paths: Collection[str]) -> list[FileRow]:
    """The files to write for `paths`: these, and of a kernel's directory all."""
    wanted, table = set(paths), manifest.tables
    whole = {file.entry for file in table.files if file.path in wanted and table.entries[file.entry].kind == "triton"}
    return [file for file in table.files if file.path in wanted or file.entry in whole]


def torn_kernels(manifest: Manifest, missing: Collection[str], changed: Collection[str]) -> frozenset[str]:
    """The kernels' directories of which some files are missing, and the others right.

    Args:
        missing, changed: files of the manifest.
    """
    table = manifest.tables
    units: dict[str, list[str]] = {}
    for file in table.files:
        if table.entries[file.entry].kind == "triton":
            units.setdefault(table.entries[file.entry].path, []).append(file.path)
    missing, changed = set(missing), set(changed)
    return frozenset(
        unit
        for unit, files in units.items()
        if changed.isdisjoint(files) and not missing.isdisjoint(files) and not missing.issuperset(files)
    )


def unit_of(source: SourceFile) -> str:
    """What moves as a whole with a file: a kernel's directory, or the file itself."""
    return source.place.entry if source.place.kind == "triton" else source.path


def unit_of_row(manifest: Manifest, file: FileRow) -> str:
    """The same, for a file of a manifest."""
    entry = manifest.tables.entries[file.entry]
    return entry.path if entry.kind == "triton" else file.path


def damaged_units(files: Sequence[SourceFile], known: Collection[str]) -> dict[str, str]:
    """What moves as a whole, with what is structurally wrong with it, for all but what is `known`."""
    units = {source.path: unit_of(source) for source in files}
    found = {units.get(path, path): reason for path, reason in structure_damage(files).items()}
    return {unit: reason for unit, reason in found.items() if unit not in known}


def with_one_kernel_directory(manifest: Manifest) -> Manifest:
    """The manifest with every kernel also in the directory that `TRITON_CACHE_DIR` will name.

    Ranks of one job fill a directory each (`triton/0`, `triton/1`, ...), and a restored job names one for all.
    """
    table = manifest.tables
    main = fullest(manifest.header.triton_dirs)
    prefix_of = {
        number: triton_device(entry.path)
        for number, entry in enumerate(table.entries)
        if entry.kind == "triton" and triton_device(entry.path) not in (None, main)
    }
    taken = {entry.path for entry in table.entries if entry.kind == "triton"}
    entries = list(table.entries)
    added: dict[int, int] = {}
    for number, prefix in prefix_of.items():
        path = main + table.entries[number].path.removeprefix(prefix or "")
        if path not in taken:
            taken.add(path)
            added[number] = len(entries)
            entries.append(table.entries[number]._replace(path=path))
    copies = [
        file._replace(path=main + file.path.removeprefix(prefix_of[file.entry] or ""), entry=added[file.entry])
        for file in table.files
        if file.entry in added
    ]
    return replace(manifest, tables=replace(table, entries=tuple(entries), files=(*table.files, *copies)))


# Steps


def _stage(
    stage: Stage,
    repository: Repository,
    manifest: Manifest,
    target: Path,
    files: Sequence[FileRow],
    allow_damaged: bool,
    progress: Callable[[int], None],
) -> set[int]:
    """Write files into the stage; returns the numbers of the entries that a damaged store made us leave out."""
    entries = manifest.tables.entries
    stage.make_directories((rank(entries[file.entry].kind), file.path) for file in files)
    receive = partial(_receive, stage, manifest, target)
    damaged = deliver(repository.store, manifest, files, receive, progress)
    if damaged and not allow_damaged:
        raise damaged_snapshot_error(manifest, damaged)
    bad = {item.file.entry for item in damaged}
    for file in files:
        if file.entry in bad:
            stage.discard(rank(entries[file.entry].kind), file.path)
    for number in bad:
        if entries[number].kind == "triton":
            stage.discard(rank("triton"), entries[number].path)
    return bad


def _receive(stage: Stage, manifest: Manifest, target: Path, file: FileRow, chunks: Chunks) -> None:
    kind = manifest.tables.entries[file.entry].kind
    if names_its_directory(kind, file.path):
        chunks = (placed(kind, file.path, b"".join(chunks), target),)
    stage.write(rank(kind), file.path, file.mode, chunks)


def _publish(stage: Stage, move_away: Collection[str], evidence: bytes | None) -> None:
    if evidence is not None:
        stage.keep_evidence(evidence)
    for path in sorted(move_away):
        stage.move_aside(path)
    stage.publish()


def _names(manifest: Manifest, numbers: Collection[int]) -> tuple[str, ...]:
    names = entry_names(manifest)
    return tuple(sorted(names[number] for number in numbers))
