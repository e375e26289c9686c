"""One result in words, as JSON or in silence; tables, bars and colours."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from cachekeeper.cli import output
from cachekeeper.cli.output import Output, plain, table

from .conftest import Command


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Both streams, on one terminal of 40 columns."""
    found = Terminal()
    monkeypatch.setattr(output, "sys", SimpleNamespace(stdout=found, stderr=found))
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return found


class Row(NamedTuple):
    path: Path
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    rows: list[Row]
    table: dict[str, Path]


def test_any_result_is_json_data():
    found = plain(Result([Row(Path("/x"), (1, 2))], {"a": Path("/y")}))
    assert found == {"rows": [{"path": "/x", "sizes": [1, 2]}], "table": {"a": "/y"}}
    json.dumps(found)


def say(as_json: bool, quiet: bool) -> None:
    words = Output(as_json, quiet)
    words.line("a line")
    words.ok("done")
    words.hint("next")
    words.warn("careful")
    words.result("x", {"value": "größe"}, "the-id")


def test_words(capsys: pytest.CaptureFixture[str]):
    say(as_json=False, quiet=False)
    assert capsys.readouterr() == ("a line\nok  done\nhint: next\n", "warning: careful\n")


def test_quiet_is_the_id_alone_and_warnings(capsys: pytest.CaptureFixture[str]):
    say(as_json=False, quiet=True)
    assert capsys.readouterr() == ("the-id\n", "warning: careful\n")


@pytest.mark.parametrize("quiet", [False, True])
def test_json_is_one_object_and_nothing_else(capsys: pytest.CaptureFixture[str], quiet: bool):
    say(as_json=True, quiet=quiet)
    assert capsys.readouterr() == ('{"schema": "cachekeeper.x/1", "value": "größe"}\n', "")


def test_json_of_a_name_that_is_no_unicode_is_json(capsys: pytest.CaptureFixture[str]):
    Output(True, False).result("x", {"path": Path("/\udcff")})
    assert json.loads(capsys.readouterr().out)["path"] == "/\udcff"


def test_colours_on_a_terminal_alone(terminal: Terminal, monkeypatch: pytest.MonkeyPatch):
    assert output.style("ok", "green") == "\x1b[32mok\x1b[0m"
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
        assert output.style("ok", "green") == "ok"
        monkeypatch.delenv(name)
    monkeypatch.setattr(output, "sys", SimpleNamespace(stdout=io.StringIO()))
    assert output.style("ok", "green") == "ok"


def test_what_would_drive_a_terminal_is_shown_as_question_marks(capsys: pytest.CaptureFixture[str]):
    words = Output(False, False)
    for method in (words.line, words.ok, words.hint, words.warn):
        method("a\x1b[2Jb\nc")
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err and said.out.count("a?[2Jb?c") == 3


def test_columns():
    rows = [("ID", "SIZE"), ("abc", "1"), ("d", "1,000")]
    assert table(rows, right=[1]) == ["ID    SIZE", "abc      1", "d    1,000"]
    assert table([("A", "B"), ("long", "")]) == ["A     B", "long"]


def test_a_table_is_cut_to_the_terminals_width(terminal: Terminal):
    short, long = table([("A", "B"), ("x" * 30, "y" * 30)])
    assert len(long) == 40 and long.endswith("...") and short.startswith("A ")


def test_a_bar_is_drawn_and_taken_away(terminal: Terminal):
    bar = Output(False, False).progress()
    bar("Packing", 512, 1024)
    drawn = terminal.getvalue()
    assert drawn == "\rPacking     [###############               ]  50%  512 B\033[K"
    bar("Packing", 600, 1024)  # too soon to draw again
    assert terminal.getvalue() == drawn
    bar("Packing", 1024, 1024)
    assert terminal.getvalue() == drawn + "\r\033[K"


def test_a_bar_that_was_left_is_taken_away_before_an_error(terminal: Terminal):
    Output(False, False).progress()("Packing", 1, 2)
    drawn = terminal.getvalue()
    output.clear_bar()
    output.clear_bar()
    assert terminal.getvalue() == drawn + "\r\033[K"


@pytest.mark.parametrize(("as_json", "quiet"), [(True, False), (False, True)])
def test_no_bar_where_no_words_are_wanted(terminal: Terminal, as_json: bool, quiet: bool):
    Output(as_json, quiet).progress()("Packing", 1, 2)
    assert terminal.getvalue() == ""


def test_no_bar_without_a_terminal(capsys: pytest.CaptureFixture[str]):
    Output(False, False).progress()("Packing", 1, 2)
    assert capsys.readouterr() == ("", "")


def refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def test_json_is_strict():
    found = output.strict_json({"a": [float("nan"), (float("inf"),)], "b": -float("inf"), "c": 1.5})
    assert json.loads(found, parse_constant=refused) == {"a": [None, [None]], "b": None, "c": 1.5}


def test_a_cache_with_numbers_that_are_none_gives_strict_json(home: Path, command: Command):
    config = next((home / "inductor").glob("??/*.best_config"))
    for block in ("NaN", "1e999"):
        config.write_text(f'{{"XBLOCK": {block}, "YBLOCK": 8, "num_warps": 4, "time_taken_ms": -Infinity}}')
        assert command("snapshot", "drafter").code == 0
    for arguments in (["diff", "drafter@{1}", "drafter"], ["report", "drafter"]):
        said = command(*arguments, "--json")
        assert said.code == 0 and json.loads(said.out, parse_constant=refused)["schema"]


def test_a_long_line_is_broken_at_words_on_a_terminal_alone(terminal: Terminal, monkeypatch: pytest.MonkeyPatch):
    text = "Replaced     something that is much longer than the terminal is wide"
    assert output.fitted(text).splitlines() == [
        "Replaced     something that is much",
        "             longer than the terminal is",
        "             wide",
    ]
    monkeypatch.setattr(output, "sys", SimpleNamespace(stdout=io.StringIO(), stderr=None))
    assert output.fitted(text) == output.fitted(text, err=True) == text


def test_a_command_to_copy_is_not_broken(terminal: Terminal):
    words = output.fitted("hint: mend it with `cachekeeper verify drafter --live /cache --repair` now")
    assert words.splitlines() == [
        "hint: mend it with",
        "      `cachekeeper verify drafter --live /cache --repair`",
        "      now",
    ]
