"""What a process told -> what missed, each graph once.

torch asks AOTAutograd's cache first, and Inductor's for what that does not have: for a person it is one graph that
missed in both. A compile of a function that is trained has two graphs, the second of which may be compiled later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..telemetry import Compiled, Frame, Log

_SLACK = 1.0  # seconds between the answer of a cache and the end of its compile, beyond the compile's own


@dataclass(frozen=True)
class Missed:
    """A graph that missed.

    Attributes:
        log: of the process.
        answer: of Inductor's cache; of AOTAutograd's where Inductor's had it.
        autograd: what AOTAutograd's cache said for it, if that missed, too.
        seconds: that were spent on it, as far as torch tells.
        cut: the process ended, or told no more, before Inductor's cache was asked.
    """

    log: Log
    answer: Compiled
    autograd: Compiled | None
    seconds: float
    cut: bool = False

    @property
    def traced(self) -> bool:
        """Inductor's cache had it: it was traced again, and not compiled."""
        return self.answer.graph.cache == "aot" and not self.cut


@dataclass
class _Compile:
    """The answers to one compile: AOTAutograd's, and Inductor's that missed."""

    autograd: Compiled | None = None
    missed: list[Compiled] = field(default_factory=list)
    frame: Frame | None = None


def missed(log: Log) -> list[Missed]:
    """What missed in a process, in order."""
    found: list[Missed] = []
    before: dict[str, Compiled] = {}
    last = {answer.thread: answer for answer in sorted(log.compiled, key=lambda answer: answer.at)}
    for one in _compiles(log):
        autograd = one.autograd if one.autograd and one.autograd.graph.state == "miss" else None
        answers = one.missed or ([autograd] if autograd else [])
        if autograd:
            before[autograd.graph.function] = autograd
        for answer in answers:
            # A backward that is compiled when it is called is of the compile of its forward.
            of_forward = before.get(answer.graph.function) if answer.graph.direction == "backward" else None
            seconds = one.frame.seconds / len(answers) if one.frame else answer.seconds or 0.0
            cut = answer is autograd and one.frame is None and last[answer.thread] is answer
            found.append(Missed(log, answer, autograd or of_forward, seconds, cut))
    return sorted(found, key=lambda item: item.answer.at)


def _compiles(log: Log) -> Iterator[_Compile]:
    frames: dict[str, list[Frame]] = defaultdict(list)
    for frame in sorted(log.frames, key=lambda frame: frame.at):
        frames[frame.thread].append(frame)
    answers: dict[tuple[str, int], list[Compiled]] = defaultdict(list)
    for answer in _once(sorted(log.compiled, key=lambda answer: answer.at)):
        answers[answer.thread, _frame(frames[answer.thread], answer)].append(answer)
    for (thread, number), group in answers.items():
        for one in _split(group):
            one.frame = frames[thread][number] if number >= 0 else None
            yield one


def _frame(frames: Sequence[Frame], answer: Compiled) -> int:
    """The number of the compile that an answer belongs to, -1 where none of them ended soon enough after it."""
    number = bisect_left(frames, answer.at, key=lambda frame: frame.at)
    if number < len(frames) and frames[number].at - answer.at <= frames[number].seconds + _SLACK:
        return number
    return -1


def _split(answers: Sequence[Compiled]) -> Iterator[_Compile]:
    """Each compile begins with what AOTAutograd's cache said, or with another function."""
    current, function = _Compile(), None
    for answer in answers:
        autograd = answer.graph.cache == "aot"
        if (autograd and (current.autograd or current.missed)) or (function and answer.graph.function != function):
            yield current
            current = _Compile()
        function = answer.graph.function
        if autograd:
            current.autograd = answer
        elif answer.graph.state == "miss":
            current.missed.append(answer)
    yield current


def _once(answers: Sequence[Compiled]) -> list[Compiled]:
    """Without misses that torch repeats: it has what AOTAutograd kept, but not the graph in it, and asks again."""
    threads: dict[str, list[Compiled]] = defaultdict(list)
    for answer in answers:
        threads[answer.thread].append(answer)
    return [answer for thread in threads.values() for n, answer in enumerate(thread) if not _is_repeated(thread, n)]


def _is_repeated(answers: Sequence[Compiled], number: int) -> bool:
    graph, following = answers[number].graph, [answer.graph for answer in answers[number + 1 : number + 4]]
    if graph.cache != "fx" or graph.state != "miss" or not following:
        return False
    is_of_autograd = following[0].cache == "aot" and following[0].state == "miss"
    return is_of_autograd and graph.key in [other.key for other in following[1:]]
