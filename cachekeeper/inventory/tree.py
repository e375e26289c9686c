"""The files of one cache, wherever it is: their listing at once, their bytes when somebody asks."""

from __future__ import annotations

import os
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from ..delivery import Chunks, Damaged, deliver
from ..livecache import LiveCache, SourceFile
from ..manifest import FileRow, Manifest, Tables
from ..reading import WHOLE_BYTES, Taken, take
from ..repository import Repository
from ..workers import ordered

_NAMED_FILES = 3
_TOO_LONG = "too long to look into"


class TreeFile(NamedTuple):
    """A file of a cache.

    Attributes:
        path: as in a manifest.
        kind: one of `inductor.KINDS`.
        entry: path of the entry that it belongs to.
        size: in bytes.
        identity: SHA-256 of its bytes; "" where that is not known without reading them.
    """

    path: str
    kind: str
    entry: str
    size: int
    identity: str = ""


class Tree(Protocol):
    """A cache to look into.

    Attributes:
        label: what people call it.
        files: sorted by path.
    """

    label: str
    files: tuple[TreeFile, ...]

    def read(self, paths: Iterable[str], progress: Callable[[int], None] = ...) -> Mapping[str, bytes]:
        """The bytes of files; what cannot be had is left out, and a note says so.

        Args:
            progress: called with the number of bytes read so far in this call.
        """
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read so far, a sentence each."""
        ...

    @property
    def lost(self) -> frozenset[str]:
        """Paths of files that were asked for and are damaged, or gone."""
        ...


class SnapshotTree:
    """A snapshot in a store. Every file is checked against its SHA-256 as it is read.

    Args:
        label: by default the beginning of the snapshot's id.
    """

    def __init__(self, repository: Repository, manifest: Manifest, label: str = "") -> None:
        self.label = label or manifest.id[:8]
        self._repository, self._manifest = repository, manifest
        self._rows = {row.path: row for row in manifest.tables.files}
        self._lost: dict[str, str] = {}
        self.files = tuple(sorted(_tree_files(manifest.tables)))

    def read(self, paths: Iterable[str], progress: Callable[[int], None] = lambda done: None) -> Mapping[str, bytes]:
        """The bytes of files, as a store keeps them; damaged ones are left out.

        Raises:
            StoreError: the store cannot be read.
        """
        found: dict[str, bytes] = {}

        def receive(row: FileRow, chunks: Chunks) -> None:
            found[row.path] = b"".join(chunks)

        rows = [self._rows[path] for path in dict.fromkeys(paths) if path in self._rows]
        damaged: list[Damaged] = deliver(self._repository.store, self._manifest, rows, receive, progress)
        for item in damaged:
            found.pop(item.file.path, None)
            self._lost[item.file.path] = item.reason
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read so far, a sentence each."""
        return _in_words(self._lost)

    @property
    def lost(self) -> frozenset[str]:
        """Paths of files that were asked for and are damaged, or gone."""
        return frozenset(self._lost)


def _tree_files(tables: Tables) -> Iterator[TreeFile]:
    """Column by column: there may be very many."""
    if not tables.files:
        return iter(())
    paths, _, sizes, hashes, _, _, numbers = zip(*tables.files, strict=True)
    kinds, entries = ([row[field] for row in tables.entries] for field in (0, 1))
    columns = (paths, map(kinds.__getitem__, numbers), map(entries.__getitem__, numbers), sizes, hashes)
    return map(partial(tuple.__new__, TreeFile), zip(*columns, strict=True))


class LiveTree:
    """A cache directory, looked at once. No link in it is followed; it may change meanwhile.

    Args:
        directory: of the cache.
        label: by default the directory itself.

    Raises:
        LocalDiskError: the directory cannot be read.
    """

    def __init__(self, directory: str | os.PathLike[str], label: str = "") -> None:
        self._directory = Path(os.path.abspath(os.path.expanduser(directory)))
        self.label = label or str(self._directory)
        with LiveCache(self._directory) as cache:
            scan = cache.scan()
        self._sources = {source.path: source for source in scan.files}
        self._passed = {item.path: item.reason for item in scan.skipped}
        self._lost: dict[str, str] = {}
        self.files = tuple(
            TreeFile(path, source.place.kind, source.place.entry, source.live.size)
            for path, source in sorted(self._sources.items())
        )

    def read(self, paths: Iterable[str], progress: Callable[[int], None] = lambda done: None) -> Mapping[str, bytes]:
        """The bytes of files, as a store would keep them; what vanished or changed meanwhile is left out.

        Raises:
            LocalDiskError: the directory cannot be read any more.
        """
        found: dict[str, bytes] = {}
        done = 0
        with LiveCache(self._directory) as cache:
            wanted = [self._sources[path] for path in dict.fromkeys(paths) if path in self._sources]
            for taken, data in ordered(_taken, (source._replace(root=cache.root) for source in wanted), ahead=16):
                done += taken.source.live.size
                progress(done)
                if taken.seen is None:
                    kept = self._passed if taken.trouble == _TOO_LONG else self._lost
                    kept[taken.source.path] = taken.trouble
                else:
                    found[taken.source.path] = data
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read so far, a sentence each."""
        return _in_words({**self._passed, **self._lost})

    @property
    def lost(self) -> frozenset[str]:
        """Paths of files that were asked for and are damaged, or gone."""
        return frozenset(self._lost)


def _taken(source: SourceFile) -> tuple[Taken, bytes]:
    if source.live.size > WHOLE_BYTES:
        return Taken(source, None, _TOO_LONG), b""
    buffer = bytearray()
    taken = take(source, buffer)
    return taken, bytes(memoryview(buffer)[: taken.seen.size]) if taken.seen else b""


def _in_words(lost: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence a reason, with the names of some files."""
    by_reason: dict[str, list[str]] = {}
    for path, reason in sorted(lost.items()):
        by_reason.setdefault(reason, []).append(path)
    notes = []
    for reason, paths in sorted(by_reason.items()):
        shown = ", ".join(paths[:_NAMED_FILES]) + (", ..." if len(paths) > _NAMED_FILES else "")
        notes.append(f"{len(paths):,} not read ({reason}): {shown}")
    return tuple(notes)


def alike(a: Tree, b: Tree) -> frozenset[str]:
    """The paths of files that are on both sides with the same bytes, for `inventory(..., skip=...)`.

    Files that are judged together stay together: those of a directory of Triton's cache; all such directories of a
    kernel's name where one is on one side only; modules and choices of autotuning that are in one directory.
    """
    same = {path for path, identity in _identities(a) & _identities(b) if identity}
    if not same:
        return frozenset()
    both = {file.entry for file in a.files} & {file.entry for file in b.files}
    spoiled: set[str] = set()
    for side in (a, b):
        unlike = [file for file in side.files if file.path not in same]
        spoiled |= {file.entry for file in unlike if file.kind == "triton" and file.entry in both}
        spoiled |= _groups(file for file in unlike if file.kind != "triton" or file.entry not in both)
    return frozenset(
        file.path
        for file in a.files
        if file.path in same and not (file.kind == "triton" and file.entry in spoiled) and group_of(file) not in spoiled
    )


def _identities(tree: Tree) -> ItemsView[str, str]:
    return {path: identity for path, _, _, _, identity in tree.files}.items()


def _groups(files: Iterable[TreeFile]) -> set[str]:
    """The groups of files in the order of their paths; most of one directory have one name, which is told once."""
    found: set[str] = set()
    beginning = "/"
    for file in files:
        if file.kind != "triton" or not file.path.startswith(beginning):
            found.add(group_of(file))
            directory, _, name = file.path.rpartition("/")
            beginning = f"{directory}/{name.partition('.')[0]}."
    return found


def group_of(file: TreeFile) -> str:
    """What a file is judged together with: a name of kernels, a directory of modules; or it alone."""
    directory, _, name = file.path.rpartition("/")
    if file.kind == "triton":
        return "triton " + name.removeprefix("__grp__").partition(".")[0]
    together = file.kind == "module" or name.endswith(".best_config")
    return f"module {directory}" if together else file.path
