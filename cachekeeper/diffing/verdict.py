"""The likeliest causes, ranked, and one line that says it all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..units import count, listed
from .clues import FASTER, LIKELY, POSSIBLE, SLOWER, START, UNLIKELY, Clue, said
from .coverage import gained, joined
from .findings import Findings
from .metrics import in_words, is_start
from .models import Change, Metric, Suspect
from .suspects import RULES

MOST = 5
NOTHING = "nothing that explains it"
_NO_SUBJECT = "nothing that explains a difference"
_RANKS = (LIKELY, POSSIBLE, UNLIKELY)
_LABEL = 40


def judge(found: Findings) -> tuple[str, tuple[Suspect, ...]]:
    """The verdict's line, and at most five suspects, likeliest first."""
    clues = [_weighed(clue, found) for rule in RULES for clue in rule(found) if _is_looked_for(clue, found)]
    ranked = sorted(clues, key=lambda clue: (_RANKS.index(clue.likelihood), clue.effect == ""))
    suspects = [*_not_the_same_work(found), *map(_suspect, ranked)]
    return f"{_line(found, ranked)}{limits(found)}", tuple(suspects[:MOST])


def alike(found: Findings) -> str:
    """The verdict's line where nothing differs in what was read."""
    of_what = " in what could be read" if found.unread else " in what is recorded" if _unchosen(found) else ""
    return f"no difference{of_what}{limits(found)}"


def limits(found: Findings) -> str:
    """What was not read, or is not recorded, for the end of the line."""
    looked_at, all_ = found.looked_at
    unchosen = _unchosen(found)
    told = [
        f"{count(found.unread, 'file')} could not be read" if found.unread else "",
        f"no recorded choice for {count(unchosen, 'kernel')}" if unchosen else "",
        f"{looked_at:,} of {count(all_, 'kernel')} looked at (--full looks at all)" if looked_at < all_ else "",
    ]
    return "".join(f"; {words}" for words in told if words)


def _unchosen(found: Findings) -> int:
    """Kernels of which neither side records the choice: each start makes it anew, and a near tie may fall otherwise."""
    if found.unread:  # it may be in what could not be read
        return 0
    told = {pair.b.name for pair in found.kernels.changed if any(change.name == "choice" for change in pair.changes)}
    return len(set(found.kernels.unrecorded) - told)


def _suspect(clue: Clue) -> Suspect:
    return Suspect(clue.likelihood, clue.effect, clue.words, clue.evidence, clue.advice)


def _is_looked_for(clue: Clue, found: Findings) -> bool:
    """What makes faster is no cause of what is slower, and the other way."""
    return clue.effect != {SLOWER: FASTER, FASTER: SLOWER}.get(found.direction, "none")


def _weighed(clue: Clue, found: Findings) -> Clue:
    """Without numbers that differ, nothing is a likely cause; nor where the work is another one."""
    if clue.likelihood != LIKELY:
        return clue
    sure = found.start == SLOWER if clue.effect == START else found.direction in (SLOWER, FASTER)
    return clue if sure and found.fair else clue._replace(likelihood=POSSIBLE)


def _not_the_same_work(found: Findings) -> Iterator[Suspect]:
    if not found.fair:
        lines = tuple(map(said, found.work.differences))
        advice = "compare with a snapshot of the same work"
        yield Suspect(LIKELY, "", "Not the same work: no number of the one says anything of the other", lines, advice)


# The line


def _line(found: Findings, clues: Sequence[Clue]) -> str:
    if not found.fair:
        return "; ".join(
            filter(None, (f"not the same work: {_work(found.work.differences)}", _numbers(found.headline)))
        )
    metric = found.headline
    if metric is None:
        return _without_numbers(found, clues)
    return f"{_how_fast(found, metric)}: {_causes(clues, found)}{_start(clues, metric)}"


def _work(differences: Sequence[Change]) -> str:
    return listed([f"{change.name} {_cut(change.a)} -> {_cut(change.b)}" for change in differences], 2)


def _cut(text: str) -> str:
    return text if len(text) <= _LABEL else text[: _LABEL - 3] + "..."


def _numbers(metric: Metric | None) -> str:
    return f"{metric.name} {number(metric.a)} -> {number(metric.b)}" if metric else ""


def number(value: float) -> str:
    """12800.0 -> "12,800", 0.0571 -> "0.0571"."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _how_fast(found: Findings, metric: Metric) -> str:
    label = found.b.label if len(found.b.label) <= _LABEL else "the second"
    verb = "starts" if is_start(metric.name) else "is"
    also = ", though other numbers say otherwise" if "mixed" in (found.direction, found.start) else ""
    return f"{label} {verb} {in_words(metric)} ({_numbers(metric)}{also})"


def _causes(clues: Sequence[Clue], found: Findings) -> str:
    """Those that explain what the number says."""
    metric = found.headline
    start = metric is not None and is_start(metric.name)
    fitting = [clue for clue in clues if clue.likelihood != UNLIKELY and (start or clue.effect != START)]
    likely: dict[str, str] = {}
    for clue in fitting:
        if clue.likelihood == LIKELY and not any(clue.brief in said for said in likely.values()):
            likely.setdefault(clue.subject or clue.brief, clue.brief)
    if likely:
        return f"likely {' and '.join(list(likely.values())[:2])}"
    return f"possibly {fitting[0].brief}" if fitting else NOTHING


def _start(clues: Sequence[Clue], metric: Metric) -> str:
    """What no number of the speed shows: the next start."""
    brief = next((clue.brief for clue in clues if clue.effect == START), "")
    return f"; may start slower: {brief}" if brief and not is_start(metric.name) else ""


def _without_numbers(found: Findings, clues: Sequence[Clue]) -> str:
    some = next((clue for clue in clues if clue.likelihood != UNLIKELY), None)
    same = f"as fast as before ({', '.join(m.name for m in found.metrics if m.verdict == 'same')} within 1 %)"
    if found.direction == "same":
        return same
    if some is None:
        new = gained(found.coverage.devices)
        return f"{_NO_SUBJECT}; new: {joined(new)}" if new else _NO_SUBJECT
    may = {SLOWER: "may be slower", FASTER: "may be faster", START: "may start slower"}.get(some.effect, "may matter")
    return f"{may}: {some.brief}"
