"""A live cache directory against a manifest, file by file."""

from __future__ import annotations

import hashlib
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .disk import Skipped, open_beneath, read_into
from .inductor import Place, names_its_directory, normalise
from .livecache import SourceFile
from .manifest import FileRow, Manifest
from .packs import SEGMENT_BYTES
from .workers import ordered

_READ_LIMIT = 64 << 20


@dataclass(frozen=True)
class LiveComparison:
    """How a live directory stands to a manifest.

    Attributes:
        same, missing: files of the manifest.
        changed: path -> what is different, for files of the manifest.
        extra: files that the manifest does not have.
    """

    same: frozenset[str]
    missing: frozenset[str]
    changed: Mapping[str, str]
    extra: tuple[SourceFile, ...]


def no_files(skipped: Sequence[Skipped], missing: Collection[str]) -> dict[str, str]:
    """Missing file -> what is in its place, as "a symbolic link is in the place of a file"."""
    odd = {item.path: item.reason for item in skipped}
    found = {}
    for path in missing if odd else ():
        parts = path.split("/")
        above = ("/".join(parts[:length]) for length in range(len(parts), 0, -1))
        if (at := next((place for place in above if place in odd), None)) is not None:
            found[path] = f"{odd[at]} is in the place of {'a file' if at == path else 'a directory'}"
    return found


def compare_live(
    manifest: Manifest,
    wanted: Sequence[FileRow],
    sources: Sequence[SourceFile],
    progress: Callable[[int], None] = lambda done: None,
) -> LiveComparison:
    """Read every live file that the manifest names, and compare it.

    Args:
        wanted: the files of the manifest to look for.
        sources: the files of the live directory.
        progress: called with the number of bytes read so far.
    """
    there = {source.path: source for source in sources}
    known = {file.path for file in manifest.tables.files}
    pairs = [(file, there[file.path]) for file in wanted if file.path in there]
    missing = frozenset(file.path for file in wanted if file.path not in there)
    changed: dict[str, str] = {}
    same: set[str] = set()
    done = 0
    for group in ordered(_compare_some, _in_groups(pairs), ahead=4):
        for file, difference in group:
            done += file.size
            if difference:
                changed[file.path] = difference
            else:
                same.add(file.path)
        progress(done)
    progress(sum(file.size for file in wanted))
    vanished = {path for path, difference in changed.items() if difference == _GONE}
    return LiveComparison(
        frozenset(same),
        missing | vanished,
        {path: difference for path, difference in changed.items() if path not in vanished},
        tuple(source for source in sources if source.path not in known),
    )


_GONE = "gone"
_Pair = tuple[FileRow, SourceFile]


def _in_groups(pairs: Sequence[_Pair]) -> list[list[_Pair]]:
    groups: list[list[_Pair]] = []
    size = SEGMENT_BYTES
    for pair in pairs:
        if size >= SEGMENT_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(pair)
        size += pair[0].size + 4096
    return groups


def _compare_some(pairs: Sequence[_Pair]) -> list[tuple[FileRow, str]]:
    return [(file, _difference(file, source)) for file, source in pairs]


def _difference(file: FileRow, source: SourceFile) -> str:
    """What is different, or ""."""
    if file.mode & stat.S_IRUSR and not source.live.mode & stat.S_IRUSR:  # root reads it all the same, a job may not
        return f"its owner may not read it (mode {source.live.mode:03o})"
    try:
        if names_its_directory(source.place.kind, source.path) and source.live.size <= _READ_LIMIT:
            return _relocated_difference(file, source)
        if source.live.size != file.size:
            return f"{source.live.size:,} bytes instead of {file.size:,}"
        digest = digest_of(source)
    except FileNotFoundError:
        return _GONE
    except OSError as error:
        return error.strerror or str(error)
    return "" if digest == file.sha256 else "its bytes are different"


def _relocated_difference(file: FileRow, source: SourceFile) -> str:
    data = bytearray()
    size, _ = read_into(source.root, source.live, data)
    kept, foreign = normalise(source.place.kind, bytes(data[:size]), source.base, source.directory)
    if hashlib.sha256(kept).hexdigest() != file.sha256:
        return "its bytes are different"
    return f"points to another directory: {foreign}" if foreign else ""


def digest_of(source: SourceFile) -> str:
    """The SHA-256 of a live file as it is on disk.

    Raises:
        OSError: it cannot be read.
    """
    if source.live.size <= _READ_LIMIT:
        buffer = bytearray()
        size, _ = read_into(source.root, source.live, buffer)
        return hashlib.sha256(memoryview(buffer)[:size]).hexdigest()
    digest = hashlib.sha256()
    with open(open_beneath(source.root, source.live.path), "rb", buffering=0) as stream:
        while segment := stream.read(SEGMENT_BYTES):
            digest.update(segment)
    return digest.hexdigest()


def naming(places: Collection[Place]) -> Callable[[Place], str]:
    """What an entry is called: by its path, and by its kind too where a module and a library share one."""
    number = Counter(place.entry for place in places)
    return lambda place: place.entry if number[place.entry] == 1 else f"{place.entry} ({place.kind})"


def entry_names(manifest: Manifest) -> list[str]:
    """What the entries of a manifest are called, in their order."""
    places = [Place(*entry) for entry in manifest.tables.entries]
    return list(map(naming(places), places))


def entries_of(manifest: Manifest, paths: Iterable[str]) -> dict[str, list[str]]:
    """Entry -> those of its files that are among `paths`."""
    wanted = set(paths)
    found: dict[str, list[str]] = defaultdict(list)
    names = entry_names(manifest)
    for file in manifest.tables.files:
        if file.path in wanted:
            found[names[file.entry]].append(file.path)
    return dict(found)
