"""A clue of what may make the second of two caches slower, or faster, and words that all rules have in common."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .findings import Findings
from .models import Change, KernelPair

LIKELY, POSSIBLE, UNLIKELY = "likely", "possible", "unlikely"
SLOWER, FASTER, START = "slower", "faster", "slower start"


class Clue(NamedTuple):
    """What one rule found; `brief` names it within a sentence, `subject` are the kernels that it is about."""

    likelihood: str
    effect: str
    words: str
    brief: str
    evidence: tuple[str, ...] = ()
    advice: str = ""
    subject: str = ""


Rule = Callable[[Findings], Iterator[Clue]]


def said(change: Change, name: str = "") -> str:
    """A change on one line: "registers 40 -> 255 (...)"."""
    arrow = f"{change.a or 'nothing'} -> {change.b or 'nothing'}" if change.a or change.b else ""
    words = f"({change.words})" if change.words else ""
    return " ".join(filter(None, (name or change.name, arrow, words)))


def restore(found: Findings, why: str) -> str:
    """What to do to have the first again; "" for a live directory."""
    return f"`cachekeeper restore {shlex.quote(found.a.label)}` {why}" if found.a.id else ""


def show(found: Findings, pair: KernelPair) -> str:
    """What to do to see all of one kernel."""
    labels = " ".join(shlex.quote(side.label) for side in (found.a, found.b))
    return f"`cachekeeper diff {labels} --kernel {shlex.quote(pair.b.name)}` shows it"
