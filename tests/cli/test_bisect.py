"""The command: the history in words, and the comparison below it."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper

from .conftest import Command

VALUES = (21500.0, 21450.0, None, 12800.0, 12900.0)


@pytest.fixture
def ids(home: Path, machine: object) -> list[str]:
    """drafter at 21.5 thousand tokens a second, and after something that nobody measured, at 12.8."""
    found = []
    for number, value in enumerate(VALUES):
        metrics = {} if value is None else {"tok_s": value, "loss": 2.5}
        tags = {"dataset": "pile-v2" if number < 3 else "code"}
        saved = cachekeeper.snapshot("drafter", wait=0, metrics=metrics, tags=tags, message=f"{number}")
        found.append(saved.snapshot.id)
    return found


def test_where_it_fell_and_what_differs(home: Path, command: Command, ids: list[str]):
    said = command("bisect", "drafter", "--metric", "tok_s")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == "drafter: tok_s in 4 of 5 snapshots, higher is better, threshold 5 %"
    assert lines[1].split() == ["ID", "CALLED", "AGE", "tok_s", "CHANGE"]
    rows = [line.split() for line in lines[2:7]]
    assert [row[0] for row in rows] == [*(identifier[:8] for identifier in ids[:3]), "->", ids[4][:8]]
    assert rows[2][-1] == "-" and rows[3][-2:] == ["12,800", "-40.3%"] and rows[4][-1] == "+0.8%"
    words = " ".join(" ".join(lines[8:]).split())
    assert words.startswith(
        f"tok_s fell from 21,450 to 12,800 (-40.3%) with drafter@{{1}} ({ids[3][:8]}), and has not recovered since; "
        f"drafter@{{3}} ({ids[1][:8]}) is the last one before it, drafter@{{4}} "
        f"({ids[0][:8]}) the best one, at 21,500 between the two: {ids[2][:8]} has no tok_s; the cause may "
        f"be older than {ids[3][:8]} NOT THE SAME WORK: other tag dataset "
    )
    assert f"a {ids[1][:8]} drafter@{{3}} " in words and f"b {ids[3][:8]} drafter@{{1}} " in words
    assert fits(said.out)


def test_in_every_mode(home: Path, command: Command, ids: list[str]):
    assert command("bisect", "drafter", "--metric", "tok_s", "-q") == (0, ids[3] + "\n", "")
    document = command("bisect", "drafter", "--metric", "tok_s", "--json").json
    assert document["schema"] == "cachekeeper.bisect/1" and document["fell"] is True
    assert (document["before"]["id"], document["after"]["id"]) == (ids[1], ids[3])
    assert [point["value"] for point in document["points"]] == list(VALUES)
    assert document["work"]["comparable"] == "no" and document["work"]["differences"][0]["b"] == "code"
    assert (document["diff"]["a"]["id"], document["diff"]["b"]["id"]) == (ids[1], ids[3])


def test_nothing_fell(home: Path, command: Command, ids: list[str]):
    said = command("bisect", "drafter", "--metric", "loss", "--lower-is-better", "--exit-code")
    assert said.code == 0 and said.out.endswith("\nok  loss did not rise by more than 5 %\n")
    document = command("bisect", "drafter", "--metric", "loss", "--lower-is-better", "--json").json
    assert (document["fell"], document["after"], document["diff"], document["better"]) == (False, None, None, "lower")
    cachekeeper.snapshot("one", wait=0, metrics={"tok_s": 1})
    out = command("bisect", "one", "--metric", "tok_s").out
    assert out.endswith("\none snapshot alone has tok_s: there is nothing to compare it with\n")


def fits(text: str) -> bool:
    """All but single long words, as paths, is within 80 columns."""
    return all(len(line) <= 80 or " " not in line.strip() for line in text.splitlines())


def told(command: Command, *arguments: object) -> str:
    said = command("bisect", *arguments)
    assert said.err == "" and fits(said.out)
    return " ".join(said.out.split())


def test_a_slow_decline(home: Path, command: Command, machine: object):
    ids = [cachekeeper.snapshot("slow", wait=0, metrics={"tok_s": value}).snapshot.id for value in (100, 96, 91.5, 89)]
    out = told(command, "slow", "--metric", "tok_s")
    assert " ok " not in out and out.endswith(
        f"tok_s fell from 100 to 89 (-11.0%) with slow ({ids[3][:8]}), little by little since slow@{{3}} "
        f"({ids[0][:8]}): no step that lasted is of more than 5 %: `cachekeeper diff slow@{{3}} slow` in its largest "
        f"step it fell from 96 to 91.5 (-4.7%) with slow@{{1}} ({ids[2][:8]}): `cachekeeper diff slow@{{2}} slow@{{1}}`"
    )
    assert command("bisect", "slow", "--metric", "tok_s", "--exit-code").code == 3
    assert command("bisect", "slow", "--metric", "tok_s", "--exit-code", "--threshold", "12%").code == 0
    document = command("bisect", "slow", "--metric", "tok_s", "--json").json
    assert (document["fell"], document["after"], document["drift"]["value"]) == (True, None, 100)
    assert (document["largest"]["before"]["value"], document["largest"]["after"]["value"]) == (96, 91.5)


def test_the_largest_step_is_told(home: Path, command: Command, machine: object):
    ids = [cachekeeper.snapshot("big", wait=0, metrics={"tok_s": value}).snapshot.id for value in (1000, 940, 400)]
    assert (
        f"tok_s fell from 1,000 to 940 (-6.0%) with big@{{1}} ({ids[1][:8]}), and has not recovered since; big@{{2}} "
        f"({ids[0][:8]}) is the last good one the largest step is another: it fell from 940 to 400 (-57.4%) with big "
        f"({ids[2][:8]}): `cachekeeper diff big@{{1}} big` a {ids[0][:8]} big@{{2}} "
    ) in told(command, "big", "--metric", "tok_s")


def test_where_lower_is_better_it_rises(home: Path, command: Command, machine: object):
    for value in (10, 9, 12):
        cachekeeper.snapshot("ms", wait=0, metrics={"step_ms": value})
    out = told(command, "ms", "--metric", "step_ms")
    assert "lower is better" in out and "step_ms rose from 9 to 12 (+33.3%) with ms (" in out
    assert told(command, "ms", "--metric", "step_ms", "--threshold", "50%").endswith(
        "ok step_ms did not rise by more than 50 %"
    )
    assert "fall by more" not in out


def test_options_and_exit_codes(home: Path, command: Command, ids: list[str]):
    for arguments, code in (
        (["--exit-code"], 3),
        (["--exit-code", "--lower-is-better"], 0),
        (["--exit-code", "--threshold", "50%"], 0),
        (["--exit-code", "--threshold", "0.39"], 3),
        (["--exit-code", "--threshold", "0.4"], 0),  # the last one is 39.9 % below
        (["--threshold", "40.5%", "--exit-code"], 0),
    ):
        assert command("bisect", "drafter", "--metric", "tok_s", "-q", *arguments).code == code, arguments
    for arguments in (
        ["drafter"],
        ["drafter", "--metric", "loss"],
        ["--metric", "tok_s"],
        *(["drafter", "--metric", "tok_s", "--threshold", word] for word in ("5", "x", "-1%", "100%", "5%%", "nan")),
    ):
        said = command("bisect", *arguments)
        assert said.code == 2 and said.out == "" and said.err.startswith("error[usage]: "), arguments
    said = command("bisect", "drafter", "--metric", "toks")
    assert said.code == 5 and "  loss  in 4 snapshots\n  tok_s  in 4 snapshots\n" in said.err
    assert command("bisect", "draftr", "--metric", "tok_s").code == 5


def test_of_a_long_history_what_is_around_the_fall_is_shown(home: Path, command: Command, machine: object):
    for number in range(20):
        cachekeeper.snapshot("long", wait=0, metrics={"tok_s": 100 if number < 10 else 50}, message=str(number))
    lines = command("bisect", "long", "--metric", "tok_s").out.splitlines()
    rows = lines[2 : lines.index("")]
    assert len(rows) == 17 and rows[-1] == "  and 4 more (all of them with --json)"
    assert [row.split()[0] == "->" for row in rows].index(True) == 8 and "long@{9}" in rows[8]
