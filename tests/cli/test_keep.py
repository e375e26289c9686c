"""The command: what it says and answers in every mode, and its exit codes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.verbs.test_keep import save

from .conftest import Command
from .test_rm import TIME


def test_in_words(home: Path, command: Command):
    store = home / "store"
    ids = [save(store, "drafter", days, proven=days == 40) for days in (1, 2, 40)] + [save(store, "", 3)]
    command("pin", ids[1])
    said = command("keep", "--last", "1")
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        "ID        NAME     AGE\n"
        f"{ids[0][:8]}  drafter  1 day    keep: last 1\n"
        f"{ids[1][:8]}  drafter  2 days   keep: pinned\n"
        f"{ids[2][:8]}  drafter  40 days  keep: drafter points to it\n"
        "note: 1 snapshot not asked about: kept\n"
        "ok  nothing to remove\n"
    )
    command("unpin", ids[1])
    said = command("keep", "drafter", "--last", "1")
    assert f"{ids[1][:8]}  drafter  2 days   remove\n" in said.out
    assert said.out.endswith("ok  2 stay, 1 would go\nhint: a dry run: the same with --apply removes them\n")
    said = command("keep", "drafter", "--last", "1", "--apply", "--reason", "monthly")
    assert said.code == 0
    assert re.search(
        "ok  2 stay, 1 went to the trash\n"
        f"hint: `cachekeeper undo {ids[1][:8]}` brings it back\n"
        f"note: surely until {TIME}; `sweep` frees the place after that\n"
        "note: a cache restored from it stays, and cannot be mended after that sweep\n$",
        said.out,
    )
    assert "monthly" in command("ls", "--trash").out


def test_many_reasons_fit_the_screen(home: Path, command: Command):
    save(home / "store", "team/a-long-name-of-a-model", 1, proven=True)
    said = command("keep", "--last", "5", "--daily", "7", "--weekly", "4", "--within", "30d", "--proven")
    lines = said.out.splitlines()
    assert max(map(len, lines)) <= 80 and said.out.count("keep:") == 1
    words = " ".join(" ".join(lines[1:-1]).split())
    assert re.search(
        r"keep: team/a-long-name-of-a-model points to it, last 5, daily \S+, weekly \S+, within 30 days, proven$",
        words,
    )


def test_json_and_quiet(home: Path, command: Command):
    store = home / "store"
    ids = [save(store, "drafter", days) for days in (3, 2, 1)]
    document = command("keep", "--last", "1", "--json").json
    assert document["schema"] == "cachekeeper.keep/1" and document["applied"] is False and document["others"] == 0
    assert [(row["id"], row["keep"]) for row in document["snapshots"]] == [
        (ids[2], True),
        (ids[1], False),
        (ids[0], False),
    ]
    assert document["snapshots"][0]["reasons"] == ["drafter points to it", "last 1"]
    assert command("keep", "--last", "1", "--apply", "-q").out == f"{ids[1]}\n{ids[0]}\n"
    assert command("keep", "--last", "1", "--apply", "--json").json["removals"] == []


def test_one_command_brings_all_back(home: Path, command: Command):
    ids = [save(home / "store", "drafter", days) for days in range(9, 1, -1)]
    said = command("keep", "--last", "1", "--apply").out
    arguments = said.partition("cachekeeper undo ")[2].partition("`")[0].split()
    assert len(arguments) == 7 and command("undo", *arguments).code == 0
    assert sorted(command("ls", "-q").out.split()) == sorted(ids)


def test_what_cannot_be_read_is_a_warning(home: Path, command: Command, saved: str):
    (home / "store/snapshots" / ("ab" * 32 + ".json.zst")).write_bytes(b"garbage")
    said = command("keep", "--last", "1")
    assert said.code == 0 and said.err.startswith("warning: kept, since unreadable: abababab: ")


def test_exit_codes(home: Path, command: Command, saved: str):
    said = command("keep", "--apply")
    assert said.code == 2 and "no rule says what stays" in said.err and "as --last 0" in said.err
    assert command("keep", "--last", "-1").code == 2
    said = command("keep", "latest", "--last", "1")
    assert said.code == 2 and "`latest` is another snapshot on another machine" in said.err
    assert command("keep", "--within", "soon").code == 2
    assert command("keep", "draftr", "--last", "1").code == 5
    save(home / "store", "drafter", 9)
    save(home / "store", "drafter", 8)
    assert command("keep", "--last", "1", "--apply", "--read-only").code == 6
