"""How much of a cache is read: the most telling files first, and no more bytes than allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..progress import Progress
from ..workers import ordered
from .tree import Tree, TreeFile

LIMIT = 192 << 20
_BATCH_BYTES = 8 << 20
_NAMED = 3


class Reader:
    """Reads files of a tree as far as the budget goes, and keeps account of what was left out.

    Args:
        limit: bytes that may be read in all; None: as many as there are.
        progress: called with "Reading", the number of bytes read so far, and that of bytes that may be read.
    """

    def __init__(self, tree: Tree, limit: int | None, progress: Progress = lambda stage, done, total: None) -> None:
        self._tree, self._progress = tree, progress
        total = sum(file.size for file in tree.files)
        self._total = total if limit is None else min(total, limit)
        self._left = limit
        self._done = 0
        self._skipped: Counter[str] = Counter()
        self._damaged: dict[str, list[str]] = {}

    @property
    def left(self) -> int | None:
        """Bytes that may still be read; None: no limit."""
        return self._left

    def each(self, files: Iterable[TreeFile], what: str, share: int | None = None) -> Iterator[tuple[TreeFile, bytes]]:
        """Files with their bytes, in the order given, as far as the budget goes; some at a time.

        Args:
            what: as "wrappers", for the note on those left out; "": nothing is lacking without them.
            share: no more bytes than this, where there is a budget.
        """
        # The next ones are read while somebody looks into these.
        batches = _batches(self._allowed(files, what, share))
        for batch, found in ordered(self._read, batches, ahead=2, threads=1):
            for file in batch:
                if file.path in found:
                    yield file, found[file.path]

    def _allowed(self, files: Iterable[TreeFile], what: str, share: int | None) -> Iterator[TreeFile]:
        for file in files:
            if self._left is not None:
                allowed = self._left if share is None else min(self._left, share)
                if file.size > allowed:
                    self._skipped[what] += 1
                    continue
                self._left -= file.size
                share = None if share is None else share - file.size
            yield file

    def _read(self, batch: Sequence[TreeFile]) -> tuple[Sequence[TreeFile], Mapping[str, bytes]]:
        found = self._tree.read((file.path for file in batch), self._tell)
        self._done += sum(file.size for file in batch)
        return batch, found

    def pass_over(self, number: int, what: str) -> None:
        """Things that are not looked into at all."""
        if number:
            self._skipped[what] += number

    def reject(self, file: TreeFile, what: str) -> None:
        """A file that is not what its name says: it cannot be parsed.

        Args:
            what: as for `each`.
        """
        self._damaged.setdefault(what, []).append(file.path)

    @property
    def unread(self) -> int:
        """Number of files that could not be read or parsed."""
        return len(self._tree.lost.union(*self._damaged.values()))

    def _tell(self, done: int) -> None:
        self._progress("Reading", min(self._done + done, self._total), self._total)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, and what could not be read."""
        left = [f"{number:,} {what} not read, to be quick" for what, number in sorted(self._skipped.items()) if what]
        damaged = [
            f"{len(paths):,} {what} cannot be parsed: {', '.join(paths[:_NAMED])}{', ...' * (len(paths) > _NAMED)}"
            for what, paths in sorted((what, sorted(set(paths))) for what, paths in self._damaged.items())
        ]
        return (*left, *damaged, *self._tree.notes)


def _batches(files: Iterable[TreeFile]) -> Iterator[list[TreeFile]]:
    batch: list[TreeFile] = []
    size = 0
    for file in files:
        batch.append(file)
        size += file.size
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
