"""The command: what it says and answers in every mode, and its exit codes."""

from __future__ import annotations

import re
from pathlib import Path

from .conftest import Command
from .test_rm import TIME, again


def test_in_words(home: Path, command: Command, saved: str):
    newer = again(command)
    command("rm", saved)
    command("rm", "drafter", "--force", "--reason", "wrong")
    said = command("undo")
    assert (said.code, said.err) == (0, "")
    assert re.fullmatch(
        rf"Back  {newer[:8]}   removed {TIME} by \S+@\S+: wrong\n"
        f"drafter points to {newer[:8]} again\n"
        "ok  as it was\n"
        "hint: 1 more in the trash: `cachekeeper ls --trash`\n",
        said.out,
    )
    said = command("undo", saved[:8])
    assert re.fullmatch(rf"Back  {saved[:8]}   removed {TIME} by \S+@\S+\nok  as it was\n", said.out)
    assert command("verify", "--all").code == 0


def test_a_name_that_was_moved_since(home: Path, command: Command, saved: str):
    command("rm", "drafter", "--force")
    newer = again(command)
    said = command("undo")
    assert f"drafter was moved since, and stays at {newer[:8]}\nok  back\n" in said.out


def test_json_and_quiet(home: Path, command: Command, saved: str):
    command("rm", "drafter", "--force")
    document = command("undo", "drafter", "--json").json
    assert document["schema"] == "cachekeeper.undo/1" and document["names"] == {"drafter": saved}
    assert document["removals"][0]["snapshot"] == saved and document["left"] == [] == document["unsigned"]
    command("rm", "drafter", "--force")
    assert command("undo", "-q") == (0, f"{saved}\n", "")


def test_exit_codes(home: Path, command: Command, saved: str):
    said = command("undo")
    assert said.code == 5 and said.err.startswith("error[not-found]: nothing is in the trash of ")
    assert "hint: it holds what was removed" in said.err
    assert command("undo", saved).out == f"Was there  {saved[:8]}\ndrafter points to {saved[:8]}\nok  as it was\n"
    assert command("undo", "ab" * 32).code == 5
    command("rm", "drafter", "--force")
    assert command("undo", "--read-only").code == 6
    [path] = (home / "store" / "trash" / saved).iterdir()
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])
    assert command("undo").code == 3 and path.exists()
