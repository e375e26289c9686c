"""Why one graph missed."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..inductor.keys.words import Change
from .known import Book, Near, Parsed, Settings
from .missed import Missed

_GUARD_FAILED = "a guard failed"
_TRIVIAL = re.compile(r"2 <= L\['t\d+'\]")
_OPEN_SIZE = re.compile(r"L\['(t\d+)'\]")


class Because(NamedTuple):
    """Why one graph missed."""

    changes: tuple[Change, ...]
    near: Near | None = None
    wanted: Parsed | None = None
    within: bool = False


class Reasons:
    """Finds why graphs missed, one after the other in the order of time."""

    def __init__(self, settings: Settings, book: Book, cold: bool) -> None:
        self._settings = settings
        self._book = book
        self._cold = cold
        self._of_this_run = Book(settings)
        self._before: dict[tuple[str, str], Because] = {}
        self._compiled: set[tuple[int, str, str]] = set()

    def of(self, item: Missed) -> Because:
        """Why this one missed."""
        found = self._without_comparing(item) or self._against_known(item) or self._within(item) or self._new()
        for answer in filter(None, (item.answer, item.autograd)):
            identifier = answer.graph.cache, answer.graph.key
            self._of_this_run.add(answer.graph, "miss", answer.at)
            self._before.setdefault(identifier, found)
            self._compiled.add((id(item.log), *identifier))
        return found

    def _without_comparing(self, item: Missed) -> Because | None:
        reason = next(
            (answer.graph.reason for answer in (item.autograd, item.answer) if answer and answer.graph.reason), ""
        )
        if reason.startswith(_GUARD_FAILED):
            return _simple("guard", _guard_in_words(reason))
        if reason:
            return _simple("off" if "cache is off" in reason else "other", reason)
        parsed = self._settings.parse(item.answer.graph)
        if parsed.graph.key and (id(item.log), *parsed.identifier) in self._compiled:
            return _simple("unsaved", "compiled before in the same process: torch did not save it")
        # Processes that start together all miss what nobody has; what that is was said of the first.
        before = self._before.get(parsed.identifier) if parsed.graph.key else None
        return before or self._gone(parsed)

    def _gone(self, parsed: Parsed) -> Because | None:
        states = self._book.states(parsed)
        if not states:
            return None
        if states.get("miss", 0) > 1 and not {"hit", "found", "kept"} & states.keys():
            return _simple("unsaved", "earlier runs missed it, too, with the same key: it is not saved, or not kept")
        return _simple("gone", "the entry is gone from the cache: its key is known")

    def _against_known(self, item: Missed) -> Because | None:
        """What the function was given is in AOTAutograd's key; the graphs made of it differ in more."""
        found: list[Because] = []
        for answer in filter(None, (item.autograd, item.answer)):
            wanted = self._settings.parse(answer.graph)
            near = self._book.nearest(wanted)
            if near is not None and near.changes:
                named = tuple(self._with_versions(change, near, item) for change in near.changes)
                found.append(Because(named, near, wanted))
        return min(found, key=_says_little, default=None)

    def _with_versions(self, change: Change, near: Near, item: Missed) -> Change:
        """Of torch, the versions where they differ: otherwise a file of it was changed."""
        if change.kind != "torch":
            return change
        old, new = self._book.torch(near.parsed), item.log.process.torch
        words = f"torch {old} -> {new}" if old and new and old != new else "torch source changed"
        return Change(change.kind, words, words)

    def _within(self, item: Missed) -> Because | None:
        """The same graph was compiled in this run, with other settings: a thread sees other ones."""
        wanted = self._settings.parse(item.answer.graph)
        near = self._of_this_run.settings_apart(wanted)
        return Because(near.changes, near, wanted, within=True) if near and near.changes else None

    def _new(self) -> Because:
        if self._cold:
            return _simple("cold", "new: no graph was known before this run")
        return _simple("new", "new: nothing like it is known")


def _says_little(because: Because) -> bool:
    """Operations that differ may follow from a cause that the other cache's key names."""
    return any(change.kind in ("operations", "arguments") for change in because.changes)


def _simple(kind: str, words: str) -> Because:
    return Because((Change(kind, words, words),))


def _guard_in_words(reason: str) -> str:
    """ "a guard failed: 2 <= L['t0'] and L['t0'] <= 10" -> "a guard failed: t0 <= 10"."""
    parts = reason.removeprefix(_GUARD_FAILED).lstrip(": ").split(" and ")
    said = [_OPEN_SIZE.sub(r"\1", part) for part in parts if part and not _TRIVIAL.fullmatch(part)]
    return ": ".join([_GUARD_FAILED, *([" and ".join(said)] if said else [])])
