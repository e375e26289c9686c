"""Which snapshots stay: rules by example, and what holds for all rules and histories."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper.retention import Candidate, Rules, reasons
from cachekeeper.units import timestamp_of

NOW = 1_790_000_000.0
DAY = 86400.0
HOUR = 3600.0


def saved(identifier: str, ago: float, proven: bool = False) -> Candidate:
    return Candidate(identifier, timestamp_of(NOW - ago), proven)


# Of 2026-09-21, a Monday, 14:13 UTC: two of that day, one of the Sunday before, one of Friday, one a month old.
HISTORY = [
    saved("e", 1 * HOUR),
    saved("d", 2 * HOUR),
    saved("c", 20 * HOUR),
    saved("b", 3 * DAY, proven=True),
    saved("a", 30 * DAY),
]


def why(rules: Rules, always: dict[str, list[str]] | None = None) -> dict[str, str]:
    found = reasons({"drafter": HISTORY}, always or {}, rules, NOW)
    return {identifier: ", ".join(words) for identifier, words in found.items() if words}


@pytest.mark.parametrize(
    ("rules", "stays"),
    [
        (Rules(last=2), {"e": "last 2", "d": "last 2"}),
        (Rules(last=9), dict.fromkeys("abcde", "last 9")),
        (Rules(daily=2), {"e": "daily 2026-09-21", "c": "daily 2026-09-20"}),
        (Rules(weekly=2), {"e": "weekly 2026-W39", "c": "weekly 2026-W38"}),
        (Rules(weekly=3), {"e": "weekly 2026-W39", "c": "weekly 2026-W38", "a": "weekly 2026-W34"}),
        (Rules(within=20 * HOUR), dict.fromkeys("edc", "within 20 hours")),
        (Rules(proven=True), {"b": "proven"}),
        (Rules(last=1, daily=1, proven=True), {"e": "last 1, daily 2026-09-21", "b": "proven"}),
        (Rules(within=60.0), {"e": "the last of drafter"}),
    ],
)
def test_rules(rules: Rules, stays: dict[str, str]):
    assert why(rules) == stays


def test_what_stays_whatever_the_rules_say():
    assert why(Rules(last=1), {"a": ["pinned"], "b": []}) == {"e": "last 1", "a": "pinned"}
    assert why(Rules(within=60.0), {"a": ["pinned"]}) == {"a": "pinned"}


def test_a_snapshot_of_two_names_stays_for_either():
    found = reasons({"drafter": HISTORY, "best": HISTORY[3:]}, {}, Rules(last=1), NOW)
    assert [identifier for identifier, words in found.items() if words] == ["e", "b"]


def test_of_those_without_a_name_all_may_go():
    assert not any(reasons({"": HISTORY}, {}, Rules(within=60.0), NOW).values())


def test_no_rule_is_known_as_none():
    assert not Rules().any and not Rules(0, 0, 0, None, False).any
    assert all(
        rules.any for rules in (Rules(last=1), Rules(daily=1), Rules(weekly=1), Rules(within=0), Rules(proven=True))
    )


# Whatever the rules and histories

RULES = st.builds(
    Rules,
    last=st.integers(0, 6),
    daily=st.integers(0, 6),
    weekly=st.integers(0, 6),
    within=st.none() | st.floats(0, 60 * DAY),
    proven=st.booleans(),
)
SNAPSHOTS = st.lists(
    st.tuples(st.integers(0, 60 * 24), st.booleans(), st.sets(st.sampled_from(("x", "y", "")))), max_size=25
)


def grouped(snapshots: list[tuple[int, bool, set[str]]]) -> dict[str, list[Candidate]]:
    ordered = sorted(enumerate(snapshots), key=lambda item: item[1][0])
    groups: dict[str, list[Candidate]] = {"x": [], "y": [], "": []}
    for number, (hours, proven, names) in ordered:
        for name in names - {""} or {""}:
            groups[name].append(saved(str(number), hours * HOUR, proven))
    return groups


def staying(groups: dict[str, list[Candidate]], always: dict[str, list[str]], rules: Rules) -> set[str]:
    return {identifier for identifier, words in reasons(groups, always, rules, NOW).items() if words}


ALWAYS = st.dictionaries(st.integers(0, 24).map(str), st.just(["pinned"]), max_size=3)


@given(SNAPSHOTS, ALWAYS, RULES)
def test_a_second_time_nothing_more_goes(snapshots, always, rules):
    groups = grouped(snapshots)
    stays = staying(groups, always, rules)
    left = {name: [each for each in group if each.id in stays] for name, group in groups.items()}
    assert staying(left, always, rules) == stays


@given(SNAPSHOTS, ALWAYS, RULES)
def test_no_name_is_left_with_nothing(snapshots, always, rules):
    groups = grouped(snapshots)
    stays = staying(groups, always, rules)
    assert all(stays & {each.id for each in group} for name, group in groups.items() if name and group)


@given(SNAPSHOTS, ALWAYS, RULES, st.sampled_from(("last", "daily", "weekly")))
def test_a_higher_number_keeps_no_less(snapshots, always, rules, rule):
    groups = grouped(snapshots)
    more = replace(rules, **{rule: getattr(rules, rule) + 1})
    assert staying(groups, always, rules) <= staying(groups, always, more)


@given(SNAPSHOTS, ALWAYS, RULES)
def test_what_each_rule_promises(snapshots, always, rules):
    groups = grouped(snapshots)
    stays = staying(groups, always, rules)
    assert {
        identifier for group in groups.values() for identifier in (each.id for each in group)
    } & always.keys() <= stays
    for group in groups.values():
        assert {each.id for each in group[: rules.last]} <= stays
        assert {each.id for each in group if rules.proven and each.proven} <= stays
        days = sorted({each.created[:10] for each in group}, reverse=True)[: rules.daily]
        assert set(days) <= {each.created[:10] for each in group if each.id in stays}
