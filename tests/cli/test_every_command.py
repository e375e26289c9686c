"""What holds of each command, whatever it does: none can be forgotten, since the list is that of `cli.group`.

Each is run where it succeeds, where there is nothing, and with a slip of the pen.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import click
import pytest

from cachekeeper.cli.group import COMMANDS, cli
from cachekeeper.cli.output import WITHOUT_STORE

from .conftest import Command
from .test_group import CONTEXT, get

# Command -> arguments with which it does something with the snapshot "größe", at ~ the home of the test.
WELL = {
    "snapshot": "größe",
    "restore": "größe --cache-dir ~/new",
    "verify": "größe",
    "run": "--no-restore --no-guard -- true",
    "stats": "",
    "diff": "größe größe",
    "report": "größe",
    "bisect": "größe --metric tok_s",
    "explain": "",
    "warmup": "~/none.py:step --dry-run",
    "import": "~/inductor --name other --allow-mismatch",
    "export": "größe ~/größe.tar",
    "merge": "größe größe@{1} --dry-run",
    "copy": "~/store ~/copied",
    "ls": "",
    "show": "größe",
    "status": "",
    "watch": "--once",
    "clear": "",
    "move": "--to ~/moved",
    "pin": "größe --reason größer",
    "unpin": "größe",
    "rm": "größe",
    "undo": "",
    "keep": "--last 1",
    "sweep": "",
    "keygen": "~/größe",
    "sign": "größe",
    "fingerprint": "",
    "doctor": "",
    "completion": "bash",
    "version": "",
}
# Exit codes of those for which nothing is there: no run, no trash, no key, no job.
_NOTHING = {"stats": 5, "explain": 5, "undo": 5, "sign": 2, "warmup": 5}
# What each answers on standard output with --json: `run` writes a file, `completion` a script.
JSON = [name for name in COMMANDS if name not in ("run", "completion", "watch")]
# What colours and bars are made of.
ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def made_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the store of the first test is kept for the others."""
    return tmp_path_factory.mktemp("every") / "store"


@pytest.fixture
def place(made_before: Path, home: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a snapshot that was saved twice, whose name no ASCII has."""
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(home / "runs"))
    monkeypatch.setenv("HOME", str(home))
    marker = home / "inductor" / ".cachekeeper" / "restored.json"
    if made_before.exists():  # only the store is brought: the cache that `home` makes is the same each time
        shutil.copytree(made_before, home / "store")
        marker.parent.mkdir()
        marker.write_text((made_before.parent / "marker").read_text().replace("HOME", home.as_uri()))
        return home
    for metric in ("tok_s=2", "tok_s=1"):
        assert command("snapshot", "größe", "--quiet", "--metric", metric).code == 0
    (made_before.parent / "marker").write_text(marker.read_text().replace(home.as_uri(), "HOME"))
    shutil.copytree(home / "store", made_before)
    return home


def arguments(name: str, place: Path) -> list[str]:
    return [name, *WELL[name].replace("~", str(place)).split()]


def test_every_command_is_here():
    assert list(WELL) == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_pipe_gets_no_escape_codes_and_no_bar(name: str, place: Path, command: Command):
    said = command(*arguments(name, place))
    assert ESCAPE not in said.out + said.err and "\r" not in said.out + said.err
    assert said.code == _NOTHING.get(name, 0)


@pytest.mark.parametrize("name", JSON)
def test_json_is_one_object_with_a_schema(name: str, place: Path, command: Command):
    said = command(*arguments(name, place), "--json")
    document = said.error if said.err else said.json
    kind = "error" if said.err else name
    assert said.code == _NOTHING.get(name, 0)
    assert document["schema"] == f"cachekeeper.{kind}/1"


@pytest.mark.parametrize("name", COMMANDS)
def test_an_error_is_one_object_wherever_json_stands(name: str, place: Path, command: Command):
    for line in ([name, "--json", "--no-such-option"], [name, "--no-such-option", "--json"]):
        error = command(*line).error
        assert error["code"] == "usage" and error["hint"] == f"see `cachekeeper {name} --help`"


@pytest.mark.parametrize("name", ["pin", "unpin", "rm", "diff", "show", "sign", "merge", "import", "export", "bisect"])
def test_what_is_missing_is_told_by_an_example(name: str, place: Path, command: Command):
    said = command(name, "--json")
    example, _, rest = said.error["hint"].partition("`; ")
    assert said.code == 2 and example.startswith(f"as `cachekeeper {name} ")
    assert rest == f"see `cachekeeper {name} --help`"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT_STORE])
def test_settings_that_make_no_sense_are_an_error_of_each(
    name: str, place: Path, command: Command, monkeypatch: pytest.MonkeyPatch
):
    (place / "cachekeeper.toml").write_text("store = [\n")
    monkeypatch.chdir(place)
    monkeypatch.delenv("CACHEKEEPER_STORE")
    if name == "run":  # what of ours fails is a warning, and the job runs
        assert "cachekeeper.toml" in command(*arguments(name, place)).err
        return
    error = command(*arguments(name, place), "--json").error
    assert error["code"] == "usage" and "cachekeeper.toml" in json.dumps(error)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_behind_standard_output(name: str, place: Path, command: Command, monkeypatch: pytest.MonkeyPatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        said = command(*arguments(name, place))
        full.flush()  # nothing is left that would fail at the end
    assert said.code in (0, 2, 5, 8) and "Traceback" not in said.err
    if said.code == 8:
        assert said.err.startswith("error[local-disk]: cannot write to standard output: No space left on device\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_locale_that_lacks_letters(name: str, place: Path, command: Command, monkeypatch: pytest.MonkeyPatch):
    files = [open(place / stream, "w", encoding="latin-1") for stream in ("out", "err")]  # noqa: SIM115
    monkeypatch.setattr(sys, "stdout", files[0])
    monkeypatch.setattr(sys, "stderr", files[1])
    command(*arguments(name, place))
    for file in files:
        file.close()
    assert "größe".encode() not in (place / "out").read_bytes() + (place / "err").read_bytes()


# Stores


def test_commands_without_a_store():
    having = {name for name in COMMANDS if any("--store" in parameter.opts for parameter in get(name).params)}
    assert having == COMMANDS.keys() - WITHOUT_STORE


def test_a_hint_looks_into_the_store_that_was_given(place: Path, command: Command):
    store = place / "other store"
    said = command("snapshot", "drafter", "--store", store)
    assert f"hint: restore it with `cachekeeper restore drafter --verify --store '{store}'`\n" in said.out
    for line in (["show", "drafte"], ["show", "nothing"], ["rm", "drafter"]):
        said = command(*line, "--store", store)
        hint = said.err.split("hint: ")[1]
        assert "cachekeeper" not in hint or f"--store '{store}'`" in hint
    assert command("show", "nothing").err.endswith("hint: see what there is with `cachekeeper ls`\n")
    error = command("show", "nothing", "--store", store, "--json").error
    assert error["hint"] == f"see what there is with `cachekeeper ls --store '{store}'`"


def test_a_hint_of_a_command_without_a_store_names_none(place: Path, command: Command):
    said = command("clear", place / "inductor")
    assert "--store" not in said.out


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT_STORE])
def test_a_store_that_is_not_there(name: str, place: Path, command: Command):
    nowhere = place / "nowhere"
    options, dashes, job = " ".join(arguments(name, place)).partition(" -- ")
    said = command(*options.split(), "--store", nowhere, *(dashes + job).split())
    if name in ("snapshot", "import", "run", "warmup", "status", "doctor", "sign"):  # they make one, or need none
        assert said.code in (0, 2, 3, 5)
        return
    assert said.code == 5 and f"no snapshots in {nowhere.as_uri()}, which is not there" in said.err
    assert not nowhere.exists()


# Words


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_says_it_in_the_same_words(name: str, command: Command):
    text = " ".join(command(*filter(None, [name]), "--help").out.split())
    for word in ("SNAPSHOT_ID", "REFERENCE", "CACHE_DIR ", "snapshots's", "cache dir ", "latest]"):
        assert word not in text, word


def test_a_cache_directory_is_spelt_in_one_way():
    taking = {
        name: [parameter for parameter in get(name).params if parameter.name in ("cache_dir", "directory")]
        for name in COMMANDS
    }
    for name, parameters in taking.items():
        for parameter in parameters:
            option = isinstance(parameter, click.Option)
            spelt = parameter.opts[0] if option else str(parameter.metavar)
            assert spelt == {"clear": "[DIR]", "move": "[DIR]", "status": "[DIR]", "verify": "--dir"}.get(
                name, "--cache-dir"
            )
    assert "clear`, `move` and `status`" in " ".join(cli.get_help(CONTEXT).split())
