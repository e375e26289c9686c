"""What missed -> causes, each once however many graphs it kills."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..telemetry import Compiled, Fallback, Log
from ..units import listed
from .advice import advise, advise_bypass, advise_fallback
from .known import Book, Settings
from .missed import Missed, missed
from .reasons import Because, Reasons
from .threads import Threads

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
    reasons = Reasons(settings, book, cold=not book)
    groups: dict[object, list[tuple[Missed, Because]]] = defaultdict(list)
    for item in misses:
        because = reasons.of(item)
        groups[_group(item, because)].append((item, because))
    threads = Threads(settings, logs)
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


# One cause


def _group(item: Missed, because: Because) -> object:
    generals = sorted({_SIZE.sub(r"size \1", change.general) for change in because.changes})
    return because.within, item.traced, *generals


def _cause(group: Sequence[tuple[Missed, Because]], threads: Threads) -> Cause:
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


def _in_words(because: Sequence[Because]) -> tuple[tuple[str, ...], tuple[str, ...]]:
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
