"""Which snapshots stay, and why: rules over the snapshots of each name. Nothing is read or written here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

from .units import format_duration, timestamp_of


@dataclass(frozen=True)
class Rules:
    """What stays of each name: whatever one of these says.

    Attributes:
        last: the newest so many.
        daily, weekly: the newest of a day (UTC) and of an ISO week, for the newest so many of them that have any.
        within: what was saved in so many seconds until now; None: no such rule.
        proven: what has the certificate of a warmup.
    """

    last: int = 0
    daily: int = 0
    weekly: int = 0
    within: float | None = None
    proven: bool = False

    @property
    def any(self) -> bool:
        """False where no rule says anything."""
        return bool(self.last or self.daily or self.weekly or self.proven) or self.within is not None


class Candidate(NamedTuple):
    """A snapshot: its full id, when it was saved (as `now_utc`), and whether it is proven."""

    id: str
    created: str
    proven: bool = False


def reasons(
    groups: Mapping[str, Sequence[Candidate]], always: Mapping[str, Sequence[str]], rules: Rules, now: float
) -> dict[str, tuple[str, ...]]:
    """Why each snapshot stays, by its full id; what has no reason goes. Of a name, the newest stays at least.

    Args:
        groups: name -> its snapshots, newest first; those under "" have no name. One may be in several.
        always: id -> reasons that no rule takes away.
        now: in seconds since the epoch.
    """
    found = {each.id: dict.fromkeys(always.get(each.id, ())) for group in groups.values() for each in group}
    for group in groups.values():
        for identifier, reason in _by_rules(group, rules, now):
            found[identifier][reason] = None
    for name, group in groups.items():
        if name and group and not any(found[each.id] for each in group):
            found[group[0].id][f"the last of {name}"] = None
    return {identifier: tuple(why) for identifier, why in found.items()}


def _by_rules(group: Sequence[Candidate], rules: Rules, now: float) -> Iterator[tuple[str, str]]:
    for each in group[: rules.last]:
        yield each.id, f"last {rules.last:,}"
    yield from _newest_of(group, rules.daily, "daily", lambda each: each.created[:10])
    yield from _newest_of(group, rules.weekly, "weekly", _week)
    if rules.within is not None:
        since = timestamp_of(now - rules.within)
        for each in group:
            if each.created >= since:
                yield each.id, f"within {format_duration(rules.within)}"
    for each in group:
        if rules.proven and each.proven:
            yield each.id, "proven"


def _newest_of(
    group: Sequence[Candidate], most: int, word: str, period: Callable[[Candidate], str]
) -> Iterator[tuple[str, str]]:
    """The newest of each day or week, for the newest so many that have any."""
    newest: dict[str, str] = {}
    for each in group:
        newest.setdefault(period(each), each.id)
    for when in sorted(newest, reverse=True)[:most]:
        yield newest[when], f"{word} {when}"


def _week(candidate: Candidate) -> str:
    year, week, _ = date.fromisoformat(candidate.created[:10]).isocalendar()
    return f"{year}-W{week:02d}"
