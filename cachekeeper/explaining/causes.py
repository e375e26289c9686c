"""What missed -> causes, each once however many graphs it kills."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..inductor.keys.words import Change
from ..telemetry import Compiled, Fallback, Log
from ..units import listed
from .advice import OF_A_THREAD, advise, advise_bypass, advise_fallback
from .known import Book, Near, Parsed, Settings
from .missed import Missed, missed

GUARD_FAILED = "a guard failed"
_TRIVIAL = re.compile(r"2 <= L\['t\d+'\]")
_OPEN_SIZE = re.compile(r"L\['(t\d+)'\]")
_SIZE = re.compile(r"size (\S+) -> (\S+)")
_MOST = 6


@dataclass(frozen=True)
class Cause:
    """Why graphs missed, a cache was bypassed, or something ran uncompiled.

    Attributes:
        kinds: of what differs, as "setting", "device"; "gone", "new", "guard" and so on where nothing does.
        words: what differs from the nearest known graph, a line each.
        advice: what to do.
        number: of graphs that missed, counted in every process and thread; of times for what ran uncompiled.
        distinct: of keys.
        seconds: that were spent on them.
        autograd_only: Inductor's cache had them: they were traced again, and not compiled.
        within: the nearest known graph was compiled in this very run.
        details: where the words are those of all graphs together, the words of a few.
        functions, devices, threads, ranks: where, the most frequent first.
        graphs: what the caches said, without components.
    """

    kinds: tuple[str, ...]
    words: tuple[str, ...]
    advice: str
    number: int
    distinct: int = 0
    seconds: float = 0.0
    autograd_only: bool = False
    within: bool = False
    details: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    graphs: tuple[Compiled, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """What a run found and what not.

    Attributes:
        misses, bypasses, fallbacks: causes, most graphs first.
        found: number of graphs that Inductor's cache had.
        missed: number of graphs that it had not, and of those that it was not asked for any more.
        traced: number of graphs that it had, and that AOTAutograd's had not: they were traced again.
        bypassed: number of answers in `bypasses`.
        seconds: that were spent on compiling, in all threads together.
        lost: of them those spent on what missed.
        processes: number of processes that told.
        known: number of graphs of Inductor's cache that were known before the run, of the snapshot or of earlier runs.
        notes: what a person should know, a sentence each.
    """

    misses: tuple[Cause, ...] = ()
    bypasses: tuple[Cause, ...] = ()
    fallbacks: tuple[Cause, ...] = ()
    found: int = 0
    missed: int = 0
    traced: int = 0
    bypassed: int = 0
    seconds: float = 0.0
    lost: float = 0.0
    processes: int = 0
    known: int = 0
    notes: tuple[str, ...] = ()


class _Because(NamedTuple):
    """Why one graph missed."""

    changes: tuple[Change, ...]
    near: Near | None = None
    wanted: Parsed | None = None
    within: bool = False


def explain_run(logs: Sequence[Log], known: Log | None = None, earlier: Iterable[Log] = ()) -> Explanation:
    """Why graphs of a run missed.

    Args:
        logs: what the processes of the run told.
        known: what the snapshot tells that was restored for it.
        earlier: what processes of earlier runs of the same job told.
    """
    settings = Settings()
    book = Book(settings)
    for log, state in [*([(known, "kept")] if known else []), *((log, "") for log in earlier)]:
        for answer in log.compiled:
            book.add(answer.graph, state or answer.graph.state, answer.at, log.process.torch)
    number = book.graphs
    misses = sorted((item for log in logs for item in missed(log)), key=lambda item: item.answer.at)
    found = _found(logs)
    for answer in found:
        book.add(answer.graph, "found", answer.at)
    reasons = _Reasons(settings, book, cold=not book)
    groups: dict[object, list[tuple[Missed, _Because]]] = defaultdict(list)
    for item in misses:
        because = reasons.of(item)
        groups[_group(item, because)].append((item, because))
    threads = _Threads(settings, logs)
    traced = sum(item.traced for item in misses)
    bypasses = _bypasses(logs)
    return Explanation(
        _ranked(_cause(group, threads) for group in groups.values()),
        bypasses,
        _fallbacks(logs),
        found=sum(_is_hit(answer) and answer.graph.cache == "fx" for log in logs for answer in log.compiled),
        missed=len(misses) - traced,
        traced=traced,
        bypassed=sum(cause.number for cause in bypasses),
        seconds=_compiling(logs),
        lost=sum(item.seconds for item in misses),
        processes=len(logs),
        known=number,
        notes=_notes(logs),
    )


def _is_hit(answer: Compiled) -> bool:
    return answer.graph.state == "hit"


def _found(logs: Sequence[Log]) -> list[Compiled]:
    """Hits, but for those of what the run itself had compiled before."""
    answers = sorted((answer for log in logs for answer in log.compiled), key=lambda answer: answer.at)
    compiled: set[tuple[str, str]] = set()
    found = []
    for answer in answers:
        identifier = answer.graph.cache, answer.graph.key
        if answer.graph.state == "miss":
            compiled.add(identifier)
        elif _is_hit(answer) and identifier not in compiled:
            found.append(answer)
    return found


def _compiling(logs: Iterable[Log]) -> float:
    total = 0.0
    for log in logs:
        total += sum(frame.seconds for frame in log.frames) or sum(answer.seconds or 0.0 for answer in log.compiled)
    return total


# Why one graph missed


class _Reasons:
    """Finds why graphs missed, one after the other in the order of time."""

    def __init__(self, settings: Settings, book: Book, cold: bool) -> None:
        self._settings = settings
        self._book = book
        self._cold = cold
        self._of_this_run = Book(settings)
        self._before: dict[tuple[str, str], _Because] = {}
        self._compiled: set[tuple[int, str, str]] = set()

    def of(self, item: Missed) -> _Because:
        """Why this one missed."""
        found = self._without_comparing(item) or self._against_known(item) or self._within(item) or self._new()
        for answer in filter(None, (item.answer, item.autograd)):
            identifier = answer.graph.cache, answer.graph.key
            self._of_this_run.add(answer.graph, "miss", answer.at)
            self._before.setdefault(identifier, found)
            self._compiled.add((id(item.log), *identifier))
        return found

    def _without_comparing(self, item: Missed) -> _Because | None:
        reason = next(
            (answer.graph.reason for answer in (item.autograd, item.answer) if answer and answer.graph.reason), ""
        )
        if reason.startswith(GUARD_FAILED):
            return _simple("guard", _guard_in_words(reason))
        if reason:
            return _simple("off" if "cache is off" in reason else "other", reason)
        parsed = self._settings.parse(item.answer.graph)
        if parsed.graph.key and (id(item.log), *parsed.identifier) in self._compiled:
            return _simple("unsaved", "compiled before in the same process: torch did not save it")
        # Processes that start together all miss what nobody has; what that is was said of the first.
        before = self._before.get(parsed.identifier) if parsed.graph.key else None
        return before or self._gone(parsed)

    def _gone(self, parsed: Parsed) -> _Because | None:
        states = self._book.states(parsed)
        if not states:
            return None
        if states.get("miss", 0) > 1 and not {"hit", "found", "kept"} & states.keys():
            return _simple("unsaved", "earlier runs missed it, too, with the same key: it is not saved, or not kept")
        return _simple("gone", "the entry is gone from the cache: its key is known")

    def _against_known(self, item: Missed) -> _Because | None:
        """What the function was given is in AOTAutograd's key; the graphs made of it differ in more."""
        found: list[_Because] = []
        for answer in filter(None, (item.autograd, item.answer)):
            wanted = self._settings.parse(answer.graph)
            near = self._book.nearest(wanted)
            if near is not None and near.changes:
                named = tuple(self._with_versions(change, near, item) for change in near.changes)
                found.append(_Because(named, near, wanted))
        return min(found, key=_says_little, default=None)

    def _with_versions(self, change: Change, near: Near, item: Missed) -> Change:
        """Of torch, the versions where they differ: otherwise a file of it was changed."""
        if change.kind != "torch":
            return change
        old, new = self._book.torch(near.parsed), item.log.process.torch
        words = f"torch {old} -> {new}" if old and new and old != new else "torch source changed"
        return Change(change.kind, words, words)

    def _within(self, item: Missed) -> _Because | None:
        """The same graph was compiled in this run, with other settings: a thread sees other ones."""
        wanted = self._settings.parse(item.answer.graph)
        near = self._of_this_run.settings_apart(wanted)
        return _Because(near.changes, near, wanted, within=True) if near and near.changes else None

    def _new(self) -> _Because:
        if self._cold:
            return _simple("cold", "new: no graph was known before this run")
        return _simple("new", "new: nothing like it is known")


def _says_little(because: _Because) -> bool:
    """Operations that differ may follow from a cause that the other cache's key names."""
    return any(change.kind in ("operations", "arguments") for change in because.changes)


def _simple(kind: str, words: str) -> _Because:
    return _Because((Change(kind, words, words),))


def _guard_in_words(reason: str) -> str:
    """ "a guard failed: 2 <= L['t0'] and L['t0'] <= 10" -> "a guard failed: t0 <= 10"."""
    parts = reason.removeprefix(GUARD_FAILED).lstrip(": ").split(" and ")
    said = [_OPEN_SIZE.sub(r"\1", part) for part in parts if part and not _TRIVIAL.fullmatch(part)]
    return ": ".join([GUARD_FAILED, *([" and ".join(said)] if said else [])])


# One cause


def _group(item: Missed, because: _Because) -> object:
    generals = sorted({_SIZE.sub(r"size \1", change.general) for change in because.changes})
    return because.within, item.traced, *generals


def _cause(group: Sequence[tuple[Missed, _Because]], threads: _Threads) -> Cause:
    items = [item for item, _ in group]
    kinds = tuple(dict.fromkeys(change.kind for _, because in group for change in because.changes))
    words, details = _in_words([because for _, because in group])
    devices = _frequent(
        item.answer.graph.device or (item.autograd.graph.device if item.autograd else "") for item in items
    )
    here, there = threads.apart(group)
    return Cause(
        kinds,
        words,
        advise(kinds, devices, here, there),
        len(items),
        len({(item.answer.graph.cache, item.answer.graph.key) for item in items}),
        sum(item.seconds for item in items),
        items[0].traced,
        group[0][1].within,
        details,
        _frequent(str(replace(item.answer.graph, device="")) for item in items),
        devices,
        _frequent(item.answer.thread for item in items),
        _frequent(_rank(item.log) for item in items),
        tuple(_told(item.answer) for item in items),
    )


def _in_words(because: Sequence[_Because]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What all graphs of a cause have in common, and where that is not all, a few of them in full."""
    whole = Counter(tuple(change.words for change in one.changes) for one in because)
    if len(whole) == 1:
        return next(iter(whole)), ()
    general = tuple(dict.fromkeys(change.general for one in because for change in one.changes))
    details = tuple("; ".join(words) for words, _ in whole.most_common(_MOST))
    return _sizes_together(general), details


def _sizes_together(general: Sequence[str]) -> tuple[str, ...]:
    """ "size 8 -> 9" and "size 8 -> 10" as "size 8 -> 9, 10"."""
    others: dict[str, list[str]] = defaultdict(list)
    for text in general:
        matches = _SIZE.findall(text)
        for old, new in matches:
            others[f"size {old} -> "].append(new)
        if not matches:
            others[text] = []
    return tuple(text + listed(list(dict.fromkeys(new))) for text, new in others.items())


def _frequent(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for word, _ in Counter(filter(None, words)).most_common())


def _told(answer: Compiled) -> Compiled:
    return replace(answer, graph=replace(answer.graph, components=()))


def _ranked(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    return tuple(sorted(causes, key=lambda cause: (cause.number, cause.seconds), reverse=True))


class _Threads:
    """Which settings each thread of each process compiled with."""

    def __init__(self, settings: Settings, logs: Iterable[Log]) -> None:
        self._settings = settings
        self._used: dict[int, dict[str, set[int]]] = {}
        for log in logs:
            used = self._used.setdefault(id(log), defaultdict(set))
            for answer in log.compiled:
                if answer.graph.components:
                    used[answer.thread].add(settings.parse(answer.graph).settings)

    def apart(self, group: Sequence[tuple[Missed, _Because]]) -> tuple[str, str]:
        """Threads with a new value of a setting, and threads of the same processes with the old one; "" for none."""
        here: set[str] = set()
        there: set[str] = set()
        for item, because in group:
            if (
                because.near
                and because.wanted
                and because.near.settings
                and {change.kind for change in because.changes} <= set(OF_A_THREAD)
            ):
                here.add(item.answer.thread)
                there.update(self._with_old_value(item, because.near, because.wanted))
        if not there or here & there:
            return "", ""
        return tuple(f"thread {listed(sorted(side))}" for side in (here, there))  # type: ignore[return-value]

    def _with_old_value(self, item: Missed, near: Near, wanted: Parsed) -> Iterator[str]:
        for thread, used in self._used[id(item.log)].items():
            for number in used:
                if all(
                    self._settings.value(number, name) == self._settings.value(near.parsed.settings, name)
                    for name in near.settings
                ):
                    yield thread


# What is no miss


def _bypasses(logs: Iterable[Log]) -> tuple[Cause, ...]:
    groups: dict[tuple[str, str], list[tuple[Log, Compiled]]] = defaultdict(list)
    for log in logs:
        for answer in log.compiled:
            if answer.graph.state == "bypass":
                groups[answer.graph.cache, answer.graph.reason].append((log, answer))
    return _ranked(
        Cause(
            (f"bypass of {cache}",),
            (reason or "torch gives no reason",),
            advise_bypass(cache, reason),
            len(found),
            functions=_frequent(answer.graph.function for _, answer in found),
            devices=_frequent(answer.graph.device for _, answer in found),
            threads=_frequent(answer.thread for _, answer in found),
            ranks=_frequent(_rank(log) for log, _ in found),
            graphs=tuple(_told(answer) for _, answer in found),
        )
        for (cache, reason), found in groups.items()
    )


def _fallbacks(logs: Iterable[Log]) -> tuple[Cause, ...]:
    groups: dict[str, list[tuple[Log, Fallback]]] = defaultdict(list)
    for log in logs:
        for fallback in log.fallbacks:
            groups[re.split(r"[;(]| reached", fallback.reason)[0].strip()].append((log, fallback))
    return _ranked(
        Cause(
            ("fallback",),
            tuple(dict.fromkeys(item.reason for _, item in found))[:1],
            advise_fallback(found[0][1].reason),
            len(found),
            details=tuple(dict.fromkeys(item.reason for _, item in found))[1:_MOST],
            functions=_frequent(item.function for _, item in found),
            threads=_frequent(item.thread for _, item in found),
            ranks=_frequent(_rank(log) for log, _ in found),
        )
        for found in groups.values()
    )


def _rank(log: Log) -> str:
    return "" if log.process.rank is None else str(log.process.rank)


def _notes(logs: Sequence[Log]) -> tuple[str, ...]:
    told = dict.fromkeys(note.text for log in logs for note in log.notes)
    dropped = sum(log.end.dropped for log in logs if log.end)
    room = f"{dropped:,} events had no room in the telemetry, and are not counted"
    return (*told, room) if dropped else tuple(told)
