"""Keep the last, the daily, the proven snapshots of each name, and remove the others."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import NotFound, UsageError
from ..manifest import Snapshot
from ..pins import pinned_ids
from ..progress import Progress
from ..repository import GRACE_SECONDS, Removal, Repository, open_repository
from ..retention import Candidate, Rules, reasons
from ..stores import Store
from .rm import refuse_latest, remove


@dataclass(frozen=True)
class Verdict:
    """A snapshot, the names in whose history it is, and why it stays; empty where it goes."""

    snapshot: Snapshot
    names: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class KeepResult:
    """What stays and what goes.

    Attributes:
        store: URL of the store.
        verdicts: on each snapshot of the names asked for, newest first.
        unreadable: "id: reason" of those that cannot be read, which stay.
        others: number of snapshots that were not asked about, and stay.
        applied: False where nothing was changed.
        removals: how each that goes went to the trash.
        grace: seconds for which these can come back at least.
    """

    store: str
    verdicts: tuple[Verdict, ...]
    unreadable: tuple[str, ...] = ()
    others: int = 0
    applied: bool = False
    removals: tuple[Removal, ...] = ()
    grace: float = GRACE_SECONDS

    @property
    def going(self) -> list[str]:
        """Full ids of those that go."""
        return [verdict.snapshot.id for verdict in self.verdicts if not verdict.reasons]


def keep(
    names: str | Sequence[str] = (),
    *,
    last: int = 0,
    daily: int = 0,
    weekly: int = 0,
    within: float | None = None,
    proven: bool = False,
    unnamed: bool = False,
    apply: bool = False,
    grace: float = GRACE_SECONDS,
    reason: str = "",
    store: str | os.PathLike[str] | Store | None = None,
    progress: Progress = lambda stage, done, total: None,
) -> KeepResult:
    """Say which snapshots of each name stay, by any of the rules, and move the others to the trash.

    What is pinned, what a name points to, what cannot be read and what has no name stays in any case. A snapshot
    belongs to the names in whose history it is, and to that under which it was saved; one that belongs to a name that
    was not asked for stays.

    Args:
        names: those to look at; by default all.
        last, daily, weekly, within, proven: the rules, as `retention.Rules` has them; one at least.
        unnamed: also look at the snapshots that have no name.
        apply: remove; otherwise it is only said what would be.
        grace, reason: of the removals, as for `rm`.

    Raises:
        UsageError: no rule, or one that makes no sense; or `latest` for a name.
        NotFound: no such name.
        Pinned: somebody pinned one at the same moment.
        StoreError: the store cannot be written, or may not be deleted from. Repeating it finishes what was begun.
    """
    rules = Rules(last, daily, weekly, within, proven)
    _refuse_senseless(rules)
    names = [names] if isinstance(names, str) else names
    for name in names:
        refuse_latest(name, "give a name of your own, or none to look at all: see `cachekeeper ls`")
    repository = Repository(open_repository(store).store.original)
    repository.require()
    # Pins and names before the snapshots: what comes to be meanwhile is no candidate.
    pinned = set(pinned_ids(repository))
    found = _Found(repository)
    asked = found.asked(names, unnamed)
    why = reasons(
        {name: [_candidate(each) for each in group] for name, group in asked.items()},
        found.always(pinned, asked),
        rules,
        time.time(),
    )
    verdicts = tuple(
        Verdict(each, tuple(filter(None, found.names[each.id])), why[each.id])
        for each in found.listing.snapshots
        if each.id in why
    )
    others = len(found.listing.snapshots) - len(verdicts)
    unreadable = tuple(found.listing.unreadable)
    result = KeepResult(repository.store.url, verdicts, unreadable, others, apply, (), grace)
    if not apply or not result.going:
        return result
    # The oldest first: where this is killed, what is left is the history's newer end.
    removals, _ = remove(repository, result.going[::-1], reason, grace, progress)
    return replace(result, removals=removals)


def _refuse_senseless(rules: Rules) -> None:
    if min(rules.last, rules.daily, rules.weekly, rules.within or 0) < 0:
        raise UsageError("a rule with a negative number keeps nothing", hint="give numbers from 0 up")
    if not rules.any:
        raise UsageError(
            "no rule says what stays",
            facts=["a rule of 0, as --last 0, keeps nothing"],
            hint="as `cachekeeper keep --last 5 --daily 7 --proven`: what any of them says stays",
        )


def _candidate(snapshot: Snapshot) -> Candidate:
    return Candidate(snapshot.id, snapshot.header.created, snapshot.header.proof is not None)


class _Found:
    """The snapshots of a store and the names that they belong to."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        histories = {name: repository.history(name) for name in sorted(repository.names())}
        # Where the last move is damaged, people go on with the one before.
        self._pointing = {
            name: next((move.snapshot for move in reversed(moves) if move.snapshot), "")
            for name, moves in histories.items()
        }
        self.listing = repository.snapshots()
        belongs: dict[str, dict[str, None]] = defaultdict(dict)
        for name, moves in histories.items():
            for move in moves:
                belongs[move.snapshot][name] = None
        for snapshot in self.listing.snapshots:
            if snapshot.header.name:
                belongs[snapshot.id][snapshot.header.name] = None
        # Id -> its names; "" alone where it has none.
        self.names = {each.id: tuple(belongs[each.id]) or ("",) for each in self.listing.snapshots}

    def asked(self, names: Sequence[str], unnamed: bool) -> dict[str, list[Snapshot]]:
        """Name -> its snapshots, newest first.

        Raises:
            NotFound: no snapshot has a name of these.
        """
        groups: dict[str, list[Snapshot]] = defaultdict(list)
        for snapshot in self.listing.snapshots:
            for name in self.names[snapshot.id]:
                groups[name].append(snapshot)
        for name in names:
            if name not in groups or not name:
                self._repository.resolve(name)  # says what was perhaps meant
                raise NotFound(f"no snapshot has the name {name}", hint="see the names with `cachekeeper ls`")
        wanted = set(names) or groups.keys() - {""}
        return {name: groups[name] for name in sorted({*wanted, ""} if unnamed else wanted)}

    def always(self, pinned: set[str], asked: Mapping[str, object]) -> dict[str, list[str]]:
        """Id -> why it stays whatever the rules say."""
        found: dict[str, list[str]] = defaultdict(list)
        for identifier in pinned:
            found[identifier].append("pinned")
        for name, identifier in self._pointing.items():
            found[identifier].append(f"{name} points to it")
        for identifier, names in self.names.items():
            found[identifier] += [f"also of {name}, which was not asked for" for name in names if name not in asked]
        return dict(found)
