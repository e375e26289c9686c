"""What can be imported -> a directory that can be saved."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ... import archives, megacache
from ...disk import disk_error, explained, open_directory
from ...errors import EmptyCache, NotFound, UsageError
from ...inductor.roots import cache_roots
from ...progress import Progress
from ...units import count, few, harmless

TAKEN = "a directory, a tar file (plain, gzip, bzip2, xz, zstd), a Mega-Cache, or a store of cachekeeper"
_AT_REST = 1_000_000_000
_SOME_ROOTS = 20
_OTHERS = {
    b"PK": "a zip archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a RAR archive",
    b"CKPACK": "a pack of a store",
}


@dataclass(frozen=True)
class Found:
    """A cache directory to be saved.

    Attributes:
        label: the source in words.
        unpacked: True where the directory is ours, and gone afterwards.
        root: the part of the source that the directory is.
        artifacts: type -> number, of a Mega-Cache.
    """

    directory: Path
    label: str
    format: str
    unpacked: bool
    root: str = ""
    artifacts: Mapping[str, int] | None = None
    lacks: tuple[str, ...] = ()
    passed_over: int = 0
    notes: tuple[str, ...] = ()


@contextlib.contextmanager
def opened(place: str, root: str | None, progress: Progress) -> Iterator[Found]:
    """The cache in a source; what it was unpacked into is gone afterwards.

    Raises:
        NotFound: there is none.
        UsageError: it is nothing that can be imported.
    """
    if place != "-" and os.path.isdir(place):
        yield _in_directory(Path(place), root)
        return
    label = "standard input" if place == "-" else os.path.basename(place)
    with _file(place) as (source, size), tempfile.TemporaryDirectory(prefix="cachekeeper-import-") as temporary:
        into = Path(temporary)
        with explained(label, "read what is to be imported"):
            head = source.read(archives.HEAD_BYTES)
        file = _Rejoined(head, source)
        if kind := archives.recognise(head):
            yield _from_archive(file, kind, size, label, into, root, progress)
        elif megacache.looks_like_one(head):
            yield _from_mega_cache(file, label, into, root)
        else:
            raise _not_taken(label, head)


class _Rejoined:
    """A file whose beginning was read already, and standard input cannot be read twice."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int = -1, /) -> bytes:
        head, self._head = self._head, b""
        if 0 <= size < len(head):
            head, self._head = head[:size], head[size:]
        return head or self._rest.read(size) if size >= 0 else head + self._rest.read()


@contextlib.contextmanager
def _file(place: str) -> Iterator[tuple[BinaryIO, int]]:
    """The file and its length in bytes; 0 where that is not known."""
    if place == "-":
        yield sys.stdin.buffer, 0
        return
    if not place or not os.path.lexists(place):
        raise NotFound(f"no file or directory {place!r}", hint=f"give {TAKEN}")
    try:
        file = open(place, "rb")  # noqa: SIM115
    except OSError as error:
        raise disk_error(error, place, "read what is to be imported") from error
    with file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) and not stat.S_ISFIFO(info.st_mode):
            raise UsageError(f"{place} is no file", hint=f"give {TAKEN}")
        yield file, info.st_size


def _not_taken(label: str, head: bytes) -> EmptyCache | UsageError:
    if not head:
        return EmptyCache(f"{label} is empty", hint="make it again where it was made")
    what = next((name for magic, name in _OTHERS.items() if head.startswith(magic)), "nothing that import knows")
    facts = [f"it is        {what}", f"it begins    {harmless(repr(head[:16]))}"]
    return UsageError(f"{label} cannot be imported", facts=facts, hint=f"import takes {TAKEN}")


def _in_directory(directory: Path, root: str | None) -> Found:
    directory = Path(os.path.abspath(directory))
    label = directory.name or "/"
    chosen = _chosen_root(label, cache_roots(_files_below(directory)), root)
    return Found(directory / chosen, label, "directory", False, chosen)


def _files_below(directory: Path) -> Iterator[str]:
    for folder, _, names in os.walk(directory):
        prefix = os.path.relpath(folder, directory) + "/"
        yield from (name if prefix == "./" else prefix + name for name in names)


def _chosen_root(label: str, roots: Mapping[str, int], wanted: str | None) -> str:
    """The root to take.

    Raises:
        EmptyCache: there is none.
        UsageError: there are several and none was chosen, or the chosen one is none.
    """
    if wanted is not None:
        chosen = os.path.normpath(wanted).strip("/").removeprefix("./") if wanted else ""
        chosen = "" if chosen == "." else chosen
        if chosen in roots:
            return chosen
        raise UsageError(
            f"{label} has no cache at {wanted!r}", facts=_shown(roots), hint="choose one of these with --root"
        )
    if not roots:
        hint = "a cache directory has fxgraph/, aotautograd/, triton/<device>/ or two-letter directories of c*.py in it"
        raise EmptyCache(f"there is no compile cache in {label}", hint=hint)
    if len(roots) > 1:
        best = max(roots, key=lambda root: roots[root])
        raise UsageError(
            f"{label} holds {len(roots)} caches",
            facts=_shown(roots),
            hint=f"import one after the other, as `--root {best}`",
        )
    return next(iter(roots))


def _shown(roots: Mapping[str, int]) -> tuple[str, ...]:
    lines = [f"{harmless(root or '.')}   {count(number, 'file')}" for root, number in roots.items()]
    return few(lines, _SOME_ROOTS)


def _from_archive(
    file: archives.Readable, kind: str, size: int, label: str, into: Path, root: str | None, progress: Progress
) -> Found:
    with open_directory(into) as descriptor:
        unpacked = archives.unpack(file, kind, descriptor, progress=lambda done: progress("Unpacking", done, size))
    progress("Unpacking", size, size)
    roots = cache_roots(unpacked.files)
    chosen = _chosen_root(label, roots, root)
    notes = []
    if outside := len(unpacked.files) - roots[chosen]:
        notes.append(f"{count(outside, 'file')} of the archive outside {chosen}: left out")
    if unpacked.headers:
        notes.append("precompiled headers were left out: torch makes them again (CPU only)")
    return Found(into / chosen, label, kind, True, chosen, passed_over=unpacked.scratch, notes=tuple(notes))


def _from_mega_cache(file: archives.Readable, label: str, into: Path, root: str | None) -> Found:
    if root:
        raise UsageError(f"{label} is a Mega-Cache, which has no directories: leave out --root")
    with explained(label, "read what is to be imported"):
        mega = megacache.parse(file.read())
    types = mega.types
    if types.keys() == mega.unknown_types.keys():
        facts = [f"{harmless(kind)}   {count(number, 'artifact')}" for kind, number in types.items()]
        raise EmptyCache(f"there is nothing in {label} that torch's compile cache holds", facts=facts)
    files = megacache.files_of(mega)
    with explained(into, "unpack the Mega-Cache"):
        _write_all(into, files)
    return Found(
        into,
        label,
        "mega-cache",
        True,
        artifacts=types,
        lacks=megacache.LACKS,
        notes=tuple(_mega_notes(mega, len(files))),
    )


def _mega_notes(mega: megacache.MegaCache, files: int) -> Iterable[str]:
    total = len(mega.artifacts)
    if mega.lost_by_torch:
        yield (
            f"it was saved more than once by one process: of such bytes torch itself loads the last part of each type, "
            f"and would lose {mega.lost_by_torch:,} of {count(total, 'artifact')}; all are taken"
        )
    if total > files:
        yield f"{count(total - files, 'artifact')} came again, and the last of each counts"
    for kind, number in mega.unknown_types.items():
        yield f"{count(number, 'artifact')} of type {harmless(kind)}, which is not known, kept below mega-cache/"


def _write_all(into: Path, files: Mapping[str, bytes]) -> None:
    """Write files whose paths are known to stay below `into`; none of them looks as if it was just written."""
    for path, data in files.items():
        target = into / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(target, "xb") as file:
            file.write(data)
        os.utime(target, (_AT_REST, _AT_REST))
    for folder, _, _ in os.walk(into):
        os.utime(folder, (_AT_REST, _AT_REST))
