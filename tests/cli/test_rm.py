"""The command: what it says and answers in every mode, and its exit codes."""

from __future__ import annotations

import re
from pathlib import Path

from cachekeeper import trash
from cachekeeper.cli import rm as cli_rm
from cachekeeper.cli.output import Output
from cachekeeper.repository import GRACE_SECONDS, open_repository
from cachekeeper.units import parse_duration

from .conftest import Command

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def again(command: Command) -> str:
    """The id of another snapshot of drafter."""
    return command("snapshot", "drafter", "-q", "-m", "again").out.strip()


def test_in_words(home: Path, command: Command, saved: str):
    newer = again(command)
    said = command("rm", "drafter", "--dry-run")
    assert said == (
        0,
        f"Would remove  {newer[:8]}\n"
        f"drafter would point to {saved[:8]}\n"
        "ok  nothing was changed; 1 snapshot would go to the trash\n",
        "",
    )
    said = command("rm", "drafter", "--reason", "wrong dataset", "--grace", "2d")
    assert (said.code, said.err) == (0, "")
    assert re.fullmatch(
        f"Removed  {newer[:8]}\n"
        f"drafter points to {saved[:8]} again\n"
        "ok  in the trash\n"
        f"hint: `cachekeeper undo {newer[:8]}` brings it back\n"
        f"note: surely until {TIME}; `sweep` frees the place after that\n"
        "note: a cache restored from it stays, and cannot be mended after that sweep\n",
        said.out,
    )
    [removal] = trash.look(open_repository(home / "store")).removals
    assert (removal.reason, removal.grace) == ("wrong dataset", 2 * 86400)


def test_the_last_of_a_name(home: Path, command: Command, saved: str):
    said = command("rm", "drafter")
    assert said.code == 3 and said.err.startswith("error[check-failed]: nothing else is left of drafter\n")
    said = command("rm", "drafter", "--force")
    assert said.code == 0 and said.err == "warning: drafter points to nothing, until `undo` or the next snapshot\n"
    for arguments in (("show", "drafter"), ("show", saved), ("restore", "drafter")):
        told = command(*arguments)
        assert told.code == 5 and told.err.startswith(f"error[not-found]: snapshot {saved[:8]} was removed ")
        assert told.err.endswith(f"hint: bring it back with `cachekeeper undo {saved[:8]}`\n")
    assert command("restore", "drafter", "--missing-ok", "--cache-dir", home / "new").code == 0


def test_json_and_quiet(home: Path, command: Command, saved: str):
    newer, newest = again(command), again(command)
    document = command("rm", "drafter", "--json").json
    assert document["schema"] == "cachekeeper.rm/1" and document["snapshots"] == [newest]
    assert document["names"] == {"drafter": newer} and re.fullmatch(TIME, document["until"])
    assert document["removals"][0]["names"] == {"drafter": 4} and document["dry_run"] is False
    assert command("rm", newer, "-q") == (0, f"{newer}\n", "")
    assert command("rm", newer).out == f"Was removed before  {newer[:8]}\nok  nothing to remove\n"


def test_exit_codes(home: Path, command: Command, saved: str):
    again(command)
    assert command("rm").code == 2
    assert command("rm", "latest").code == 2
    said = command("rm", "drafter", "--grace", "5m")
    assert said.code == 2 and "'5m' is no duration: write it as 90s, 30min, 12h, 14d or 2w (m could" in said.err
    assert command("rm", "draftr").code == 5
    assert command("rm", "drafter", "--read-only").code == 6
    command("pin", "drafter", "--reason", "release")
    said = command("rm", "drafter", "--force", "--json")
    assert said.code == 3 and said.error["code"] == "pinned"
    assert "cachekeeper unpin" in said.error["hint"]


def test_what_was_signed_is_told(capsys):
    cli_rm.say_unsigned(Output(False, False), ["drafter", "best"])
    said = capsys.readouterr()
    assert said.err == "warning: not signed any more, since moved: drafter, best\n"
    assert said.out == "hint: if that is where they should point: `cachekeeper sign drafter best`\n"


def test_the_hint_brings_all_back(home: Path, command: Command, saved: str):
    ids = [again(command) for _ in range(5)]
    said = command("rm", *ids).out
    assert f"hint: `cachekeeper undo {' '.join(each[:8] for each in ids)}` brings them back\n" in said
    assert command("undo", *said.partition("cachekeeper undo ")[2].partition("`")[0].split()).code == 0
    assert sorted(command("ls", "-q").out.split()) == sorted([*ids, saved])
    assert command("ls", "--trash").out == "nothing is in the trash\n"


def test_the_default_is_that_of_the_trash(command: Command):
    assert parse_duration("14d") == GRACE_SECONDS and "[default: 14d]" in command("rm", "--help").out


def test_text_from_a_store_cannot_drive_a_terminal(home: Path, command: Command, saved: str):
    command("rm", "drafter", "--force", "--reason", "\x1b[2J\n\x07")
    for said in (command("ls", "--trash"), command("show", saved), command("undo")):
        assert "\x1b" not in said.out + said.err
