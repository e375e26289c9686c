"""One file of a live cache, read and judged; and what is wrong with many of them taken together."""

from __future__ import annotations

import errno
import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from .disk import open_beneath, read_into
from .inductor import check_file, incomplete_groups, is_group, names_its_directory, normalise
from .inductor.layout import CODE, FORMS
from .livecache import SourceFile
from .ownership import foreign
from .packs import SEGMENT_BYTES
from .seen import Seen
from .workers import ordered

CHANGED = "changed or vanished while being read"
FOREIGN = "belongs to uid "
WHOLE_BYTES = 64 << 20
_FILE_LIMIT = 16 << 30
_HEAD_BYTES = 64
# What a compiler made of a source that lies beside it.
_COMPILED = CODE.union(FORMS, ("gch", "pch"))


class Taken(NamedTuple):
    """A file as read.

    Attributes:
        seen: its content, or None where `trouble` says why there is none: CHANGED, FOREIGN and the owner, or why it
            cannot be read.
        misdirected: True for a file that pointed to another directory than its own.
    """

    source: SourceFile
    seen: Seen | None
    trouble: str = ""
    misdirected: bool = False


def take(source: SourceFile, buffer: bytearray, at: int = 0, owners: frozenset[int] | None = None) -> Taken:
    """Read a file; its bytes as a store keeps them are in `buffer` from `at` on, `seen.size` of them.

    Args:
        owners: whose files are taken, as `trusted_owners` gives them; None for everybody's.
    """
    if trouble := _foreign(owners, source.live.owner):
        return Taken(source, None, trouble)
    try:
        size, same = read_into(source.root, source.live, buffer, at)
        trouble = "" if same else _foreign(owners, _owner(source))
    except OSError as error:
        trouble = _trouble(error)
    if trouble:
        return Taken(source, None, trouble)
    if not same and source.place.kind == "triton":
        return Taken(source, None, CHANGED)  # the files of a kernel belong together: old and new must not mix
    size, misdirected = _normalise(source, buffer, at, size)
    with memoryview(buffer)[at : at + size] as data:
        check = check_file(source.place.kind, source.path, data)
        seen = Seen(hashlib.sha256(data).hexdigest(), size, check)
    return Taken(source, seen, misdirected=misdirected)


def _foreign(owners: frozenset[int] | None, uid: int) -> str:
    """FOREIGN and the owner for a file that belongs to nobody of `owners`; else ""."""
    return f"{FOREIGN}{uid}" if foreign(owners, uid) else ""


def _owner(source: SourceFile) -> int:
    return os.stat(source.live.path, dir_fd=source.root, follow_symlinks=False).st_uid


def may_hold_secrets(source: SourceFile) -> bool:
    """True for a file that holds sources and strings of whoever wrote the job."""
    return source.place.kind != "headers" and source.path.rpartition(".")[2] not in _COMPILED


class LongFile:
    """A file too large to hold: iterate over its segments, then ask for what was taken.

    Args:
        owners: as for `take`.
    """

    def __init__(self, source: SourceFile, owners: frozenset[int] | None = None) -> None:
        trouble = _foreign(owners, source.live.owner)
        self.taken = Taken(source, None, trouble or CHANGED)
        self._owners = owners

    def __iter__(self) -> Iterator[bytes]:
        source = self.taken.source
        if self.taken.trouble.startswith(FOREIGN):
            return
        digest, size, head = hashlib.sha256(), 0, b""
        try:
            _check_size(source.live.size)
            with open(open_beneath(source.root, source.live.path), "rb", buffering=0) as file:
                while segment := file.read(SEGMENT_BYTES):
                    digest.update(segment)
                    size += len(segment)
                    head = head or segment[:_HEAD_BYTES]
                    _check_size(size)
                    yield segment
                info = os.fstat(file.fileno())
            if info.st_size != size:
                return
        except OSError as error:
            self.taken = Taken(source, None, _trouble(error))
            return
        if trouble := _foreign(self._owners, info.st_uid):
            self.taken = Taken(source, None, trouble)
            return
        check = check_file(source.place.kind, source.path, head, size)
        self.taken = Taken(source, Seen(digest.hexdigest(), size, check))


def _check_size(size: int) -> None:
    if size > _FILE_LIMIT:
        raise OSError(errno.EFBIG, "larger than any file of a compile cache")


def look(source: SourceFile) -> Taken:
    """Read a file of any size, and judge it."""
    if source.live.size <= WHOLE_BYTES:
        return take(source, bytearray())
    long = LongFile(source)
    for _ in long:
        pass
    return long.taken


def _trouble(error: OSError) -> str:
    if isinstance(error, (FileNotFoundError, BlockingIOError)):
        return CHANGED
    return error.strerror or str(error)


def _normalise(source: SourceFile, buffer: bytearray, at: int, size: int) -> tuple[int, bool]:
    """Put placeholders into a file that names its directory; (new size, True where it named another)."""
    if not names_its_directory(source.place.kind, source.path):
        return size, False
    data = bytes(buffer[at : at + size])
    kept, foreign = normalise(source.place.kind, data, source.base, source.directory)
    if kept is not data:
        buffer[at:] = kept
    return len(kept), bool(foreign)


def damage(taken: Iterable[Taken]) -> dict[str, str]:
    """File -> what is wrong with it: of its own, or because it lists files that are not there."""
    found: dict[str, str] = {}
    names: dict[str, set[str]] = defaultdict(set)
    groups: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for item in taken:
        if item.seen is None:
            continue
        if item.seen.check.damage:
            found[item.source.path] = item.seen.check.damage
        if item.source.place.kind == "triton":
            directory, _, name = item.source.path.rpartition("/")
            if item.seen.size:
                names[directory].add(name)
            if is_group(name):
                groups[directory][name] = item.seen.check.children
    for directory, there in names.items():
        for name, reason in incomplete_groups(there, groups[directory]):
            found.setdefault(f"{directory}/{name}".rstrip("/"), reason)
    return found


def structure_damage(
    files: Sequence[SourceFile], progress: Callable[[int], None] = lambda done: None
) -> dict[str, str]:
    """Path -> what is structurally wrong with it; a group that points to another directory counts too."""
    taken = []
    for item in ordered(look, files, ahead=16):
        taken.append(item)
        progress(len(taken))
    damaged = {item.source.path: item.trouble for item in taken if item.trouble not in ("", CHANGED)}
    damaged = dict(sorted((damaged | damage(taken)).items()))
    for item in sorted(taken, key=lambda item: item.source.path):
        if item.misdirected:
            damaged.setdefault(item.source.path, "points to another directory, which would be read instead")
    return damaged
