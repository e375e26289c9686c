"""The command: what it says and answers in every mode, and its exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cachekeeper import leases
from cachekeeper.cli import sweep as cli_sweep
from cachekeeper.cli.output import Output
from cachekeeper.leases import Kind, Lease
from cachekeeper.repository import Removal
from cachekeeper.stores import open_store
from cachekeeper.sweeping import GRACE_SECONDS, Sweep, Waiting
from cachekeeper.testing import make_cache
from cachekeeper.units import parse_duration
from cachekeeper.verbs.sweep import SweepResult
from tests.verbs.conftest import settle

from .conftest import Command
from .test_rm import TIME

NOW = 1_790_000_000.0
SIZE = r"[\d.]+ KiB"


@pytest.fixture
def removed(home: Path, command: Command, saved: str) -> str:
    """The id of a removed snapshot, which alone needs one of two packs."""
    cache = settle(make_cache(home / "other", seed=7))
    identifier = command("snapshot", "other", "-q", "--cache-dir", cache).out.strip()
    command("rm", identifier, "--force")
    return identifier


def said_of(capsys: pytest.CaptureFixture[str], found: Sweep, applied: bool) -> str:
    cli_sweep._say(Output(False, False), SweepResult("file:///s", applied, GRACE_SECONDS, found))
    said = capsys.readouterr()
    assert said.err == "" and max(map(len, said.out.splitlines())) <= 80
    return said.out


def test_in_words(home: Path, command: Command, removed: str):
    said = command("sweep")
    assert (said.code, said.err) == (0, "")
    assert re.fullmatch(
        f"in the trash  1 snapshot, at least until {TIME}\nneeded        2 packs, {SIZE}\nok  nothing to do\n", said.out
    )
    said = command("sweep", "--empty-trash")
    assert re.fullmatch(
        f"drop          1 removed snapshot, for good: {removed[:8]}\n"
        f"young         1 pack, ({SIZE}), which nothing needs yet, or any more\n"
        f"needed        1 pack, {SIZE}\n"
        "ok  a dry run: it would free 0 B now, \\1 by later sweeps\n"
        "hint: `cachekeeper sweep --empty-trash --apply` does it\n",
        said.out,
    )
    said = command("sweep", "--empty-trash", "--grace", "0s")
    assert re.fullmatch(
        f"drop          1 removed snapshot, for good: {removed[:8]}\n"
        f"condemn       1 pack, {SIZE}, which nothing needs\n"
        f"delete        1 pack, ({SIZE})\n"
        f"needed        1 pack, {SIZE}\n"
        "ok  a dry run: it would free \\1 now, 0 B by later sweeps\n"
        "hint: `cachekeeper sweep --empty-trash --grace 0 --apply` does it\n",
        said.out,
    )
    with leases.hold(open_store(home / "store"), Kind.READ, 0):
        said = command("sweep", "--empty-trash", "--grace", "0s", "--apply")
    assert re.fullmatch(
        f"dropped       1 removed snapshot, for good: {removed[:8]}\n"
        f"condemned     1 pack, {SIZE}, which nothing needs\n"
        f"needed        1 pack, {SIZE}\n"
        rf"at work       \S+@\S+ since {TIME} \(reading\)\n"
        "note: what they may use stays; a later sweep deletes it\n"
        "ok  swept: 0 B freed\n"
        f"hint: a sweep after {TIME} deletes what is still unneeded\n",
        said.out,
    )
    said = command("sweep", "--grace", "0s", "--apply")
    assert re.fullmatch(
        f"deleted       1 pack, ({SIZE})\nneeded        1 pack, {SIZE}\nok  swept: \\1 freed\n", said.out
    )


def test_all_that_it_can_say(capsys: pytest.CaptureFixture[str]):
    removals = [Removal(f"trash/{digit * 64}/{'0' * 32}", digit * 64, modified=NOW) for digit in "abcdef"]
    found = Sweep(
        dropped=tuple(removals[:5]),
        kept=tuple(removals[5:]),
        condemned={"1": 1 << 20},
        waiting={"1": Waiting(1 << 20, NOW + 86400), "2": Waiting(2 << 20, NOW + 3600), "3": Waiting(1 << 20, NOW)},
        deleted={"4": 32 << 20, "5": 32 << 20},
        young={"6": 1 << 20},
        needed=40,
        needed_bytes=1 << 30,
        at_work=(
            Lease("leases/x", Kind.WRITE, 1, "me@host", "2026-01-31T08:15:00Z", ()),
            Lease("leases/y", Kind.UNKNOWN, 0, "nobody knows who", "", ()),
        ),
        unfinished=True,
        now=NOW,
    )
    assert said_of(capsys, found, True) == (
        "dropped       5 removed snapshots, for good: aaaaaaaa, bbbbbbbb and 3 more\n"
        "condemned     1 pack, 1.0 MiB, which nothing needs\n"
        "deleted       2 packs, 64.0 MiB\n"
        "waiting       2 packs, 3.0 MiB, condemned before, until 2026-09-21T15:13:20Z\n"
        "young         1 pack, 1.0 MiB, which nothing needs yet, or any more\n"
        "in the trash  1 snapshot, at least until 2026-10-05T14:13:20Z\n"
        "needed        40 packs, 1.0 GiB\n"
        "at work       me@host since 2026-01-31T08:15:00Z (writing)\n"
        "at work       nobody knows who (at what, nobody knows)\n"
        "note: what they may use stays; a later sweep deletes it\n"
        "ok  swept: 64.0 MiB freed\n"
        "hint: there was no time for all of it: sweep again\n"
    )
    assert "hint:" not in said_of(capsys, Sweep(needed=1), True)


def test_a_time_that_makes_no_sense_is_no_traceback(capsys: pytest.CaptureFixture[str]):
    removal = Removal("trash/x", "a" * 64, grace=float("inf"), modified=NOW)
    found = Sweep(kept=(removal,), waiting={"1": Waiting(1, float("nan")), "2": Waiting(1, 1e300)}, now=NOW)
    assert "9999-12-31T23:59:59Z" in said_of(capsys, found, True)


def test_json(home: Path, command: Command, removed: str):
    document = command("sweep", "--empty-trash", "--grace", "0s", "--apply", "--json").json
    assert document["schema"] == "cachekeeper.sweep/1" and document["applied"] is True
    assert [each["snapshot"] for each in document["dropped"]] == [removed]
    assert list(document["deleted"]) == list(document["condemned"]) and document["needed"] == 1
    assert document["freed"] == sum(document["deleted"].values()) > 0 == document["freed_later"]
    assert command("sweep", "-q").out == ""


def test_exit_codes(home: Path, command: Command, removed: str, saved: str):
    assert command("sweep", "--grace", "soon").code == 2
    assert command("sweep", "--store", home / "none").code == 5
    assert command("sweep", "--apply", "--read-only").code == 6
    with leases.hold(open_store(home / "store"), Kind.SWEEP, 0):
        said = command("sweep", "--apply")
        assert said.code == 7 and said.err.startswith("error[busy]: another sweep is at work on ")
    path = home / "store" / "snapshots" / f"{saved}.json.zst"
    path.chmod(0o644)
    path.write_bytes(b"garbage")
    for arguments in ((), ("--apply",)):
        said = command("sweep", *arguments, "--json")
        assert said.code == 3 and said.error["code"] == "damaged-store"


def test_the_default_is_that_of_sweeps(command: Command):
    assert parse_duration("24h") == GRACE_SECONDS and "[default: 24h]" in command("sweep", "--help").out
