"""The tables of a manifest for entries of several others: they point into the packs that there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...manifest import EntryRow, FileRow, FrameRow, Manifest, PackRow, Tables
from .union import Part

_Run = tuple[tuple[str, int, int, int], ...]


class _Frames:
    """Gathers packs and frames: files of one run of frames share its rows."""

    def __init__(self, sources: Sequence[Manifest]) -> None:
        self._sources = sources
        self.packs: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self.rows: list[FrameRow] = []
        self._runs: dict[_Run, int] = {}

    def place(self, source: int, file: FileRow) -> int:
        """Number of the first frame of a file."""
        if not file.size:
            return 0
        run = tuple(self._run(source, file))
        if run not in self._runs:
            self._runs[run] = len(self.rows)
            self.rows += [FrameRow(self.packs.setdefault(pack, len(self.packs)), *frame) for pack, *frame in run]
        return self._runs[run]

    def _run(self, source: int, file: FileRow) -> Iterator[tuple[str, int, int, int]]:
        tables = self._sources[source].tables
        number, left = file.frame, file.offset + file.size
        while left > 0:
            frame = tables.frames[number]
            pack = tables.packs[frame.pack]
            self.sizes.setdefault(pack.id, pack.size)
            yield pack.id, frame.offset, frame.stored, frame.raw
            number, left = number + 1, left - frame.raw


def united(sources: Sequence[Manifest], parts: Sequence[Part]) -> Tables:
    """The tables for parts of several manifests, in the order of their paths."""
    frames = _Frames(sources)
    entries: dict[EntryRow, int] = {}
    rows: list[FileRow] = []
    files = [(file, part) for part in parts for file in part.files]
    for file, part in sorted(files, key=lambda item: item[0].path):
        frame = frames.place(part.source, file)
        offset = file.offset if file.size else 0
        entry = entries.setdefault(part.entry, len(entries))
        rows.append(file._replace(frame=frame, offset=offset, entry=entry))
    packs = tuple(PackRow(pack, frames.sizes[pack]) for pack in frames.packs)
    return Tables(packs, tuple(frames.rows), tuple(entries), tuple(rows))
