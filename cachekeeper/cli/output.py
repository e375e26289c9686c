"""One result -> words for a person, one JSON object, or silence."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..units import format_bytes, harmless

_MOST = 20
_NARROWEST = 40
_COMMAND = re.compile(r"`cachekeeper ([a-z]+)((?: [^`]*)?)`")
# Commands that have no --store; of those that have one, `ls` alone is a whole command without an argument.
WITHOUT_STORE = frozenset(
    ("stats", "explain", "copy", "clear", "move", "keygen", "fingerprint", "completion", "version")
)
# What the lines below the first one of a text are to stand under: "note: ", or a word in a column of its own.
_HEAD = re.compile(r" *(?:(?:note|hint|warning|error\[[a-z-]+\]): |\S+(?: \S+){0,2} {2,})")
_DEEPEST = 17
# `harmless` leaves none in a text, and to textwrap it is no space.
_TIE = "\N{NO-BREAK SPACE}"


def wrapped(text: str, first: str, others: str, width: int = 80) -> list[str]:
    """Lines of at most so many columns, but for longer words; `first` and `others` are what they begin with.

    A command in backticks is not broken: it is there to be copied.
    """
    tied = re.sub(r"`cachekeeper [^`]*`", lambda found: found[0].replace(" ", _TIE), of_this_store(text))
    lines = textwrap.wrap(
        tied,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_TIE, " ") for line in lines]


def of_this_store(text: str) -> str:
    """A text whose commands look into the store that this command line names, not into the configured one."""
    context = click.get_current_context(silent=True)
    given = context.params if context else {}
    options = [
        f" --{name.replace('_', '-')} {shlex.quote(given[name])}"
        for name in ("store", "s3_endpoint")
        if isinstance(given.get(name), str)
    ]
    return _COMMAND.sub(lambda found: _with(found, "".join(options)), text) if options else text


def _with(found: re.Match[str], options: str) -> str:
    name, arguments = found.groups()
    if name in WITHOUT_STORE or re.search(" --(?:store|help)\\b", arguments) or (not arguments and name != "ls"):
        return found[0]
    own, dashes, job = arguments.partition(" -- ")
    return f"`cachekeeper {name}{own}{options}{dashes}{job}`"


def fitted(text: str, err: bool = False) -> str:
    """A text without what would drive a terminal; on a terminal broken at words to its width, else one line, for grep.

    Args:
        err: it is for standard error.
    """
    shown = of_this_store(harmless(text))
    if not on_terminal(err):
        return shown
    width = max(_NARROWEST, shutil.get_terminal_size().columns)
    head = _HEAD.match(shown)
    indent = head.end() if head and head.end() <= _DEEPEST else len(shown) - len(shown.lstrip()) + 2
    return "\n".join(wrapped(shown, "", " " * indent, width)) if len(shown) > width else shown


def labelled(label: str, colour: str, between: str, text: str, err: bool = False) -> str:
    """A text behind a word in a colour, where the stream shows colours."""
    return style(label, colour, err) + fitted(f"{label}{between}{text}", err)[len(label) :]


def on_terminal(err: bool = False) -> bool:
    """True where a stream, standard output or error, is a terminal: not closed, no pipe, no file."""
    stream = sys.stderr if err else sys.stdout
    return stream is not None and stream.isatty()


def colourful(err: bool = False) -> bool:
    """True where colour helps: a terminal, and nobody said NO_COLOR."""
    return on_terminal(err) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style(text: str, colour: str, err: bool = False) -> str:
    """The text in a colour, where the stream shows colours."""
    return click.style(text, fg=colour) if colourful(err) else text


class Output:
    """Where a command's words go: standard output, or standard error where that carries data."""

    def __init__(self, as_json: bool, quiet: bool, to_stderr: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._err = to_stderr

    @property
    def talks(self) -> bool:
        """True where words for a person are wanted."""
        return not self.as_json and not self.quiet

    def line(self, text: str = "", colour: str = "", whole: bool = False) -> None:
        """A line for a person, in a colour where the stream shows colours.

        Args:
            whole: never broken to fit a terminal: a command to copy, a line of a program or of a table.
        """
        if self.talks:
            shown = harmless(text) if whole else fitted(text, self._err)
            click.echo(style(shown, colour, self._err) if colour else shown, err=self._err)

    def ok(self, text: str) -> None:
        """The line that says that it worked."""
        self.labelled("ok", "green", "  ", text)

    def warn(self, text: str) -> None:
        """A warning; with --quiet too, on standard error."""
        if not self.as_json:
            click.echo(labelled("warning", "yellow", ": ", text, err=True), err=True)

    def hint(self, text: str) -> None:
        """What to do next."""
        self.labelled("hint", "cyan", ": ", text)

    def labelled(self, label: str, colour: str, between: str, text: str) -> None:
        """A line that begins with a word in a colour."""
        if self.talks:
            click.echo(labelled(label, colour, between, text, self._err), err=self._err)

    def some(self, lines: Sequence[str], indent: str = "  ") -> None:
        """The first of many lines, and how many more there are."""
        for text in lines[:_MOST]:
            self.line(indent + text)
        if len(lines) > _MOST:
            self.line(f"{indent}and {len(lines) - _MOST:,} more (all of them with --json)")

    def result(self, schema: str, value: Any, identifier: str = "") -> None:
        """The JSON object of a result with --json; its id with --quiet."""
        if self.as_json:
            document = {"schema": f"cachekeeper.{schema}/1", **plain(value)}
            click.echo(_json(document), err=self._err)
        elif self.quiet and identifier:
            click.echo(identifier, err=self._err)

    def progress(self) -> Callable[[str, int, int], None]:
        """A callback that draws a bar on a terminal, and nothing elsewhere."""
        return _Bar() if self.talks and on_terminal(err=True) else _nothing


def _json(document: Mapping[str, Any]) -> str:
    """One line of JSON: readable where it can be, escaped where names are no Unicode or the terminal knows less."""
    text = strict_json(document, ensure_ascii=False)
    try:
        text.encode("utf-8")
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return strict_json(document)
    return text


def strict_json(document: Any, ensure_ascii: bool = True) -> str:
    """One line of JSON as RFC 8259 has it; a number that is none, or has no end, is null."""
    try:
        return json.dumps(document, ensure_ascii=ensure_ascii, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(document), ensure_ascii=ensure_ascii, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return list(map(_finite, value)) if isinstance(value, (list, tuple)) else value


def plain(value: Any) -> Any:
    """A result as JSON data, without fields whose metadata says so."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field for field in dataclasses.fields(value) if field.metadata.get("json", True)]
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def table(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Columns aligned; on a terminal cut to its width, elsewhere whole.

    Args:
        rows: the first is the heading.
        right: numbers of the columns that are aligned to the right.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    to_right = set(right)
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if n in to_right else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    if not on_terminal():
        return lines
    columns = shutil.get_terminal_size().columns
    return [line if len(line) <= columns else line[: columns - 3] + "..." for line in lines]


def _nothing(stage: str, done: int, total: int) -> None:
    pass


class _Bar:
    """A line on the terminal that is drawn over, ten times a second at the most."""

    _EVERY = 0.1
    showing = False

    def __init__(self) -> None:
        self._drawn = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        import time

        now = time.monotonic()
        finished = done >= total
        if now - self._drawn < self._EVERY and not finished:
            return
        self._drawn = now
        share = done / total if total else 1.0
        bar = "#" * round(share * 30)
        text = f"\r{stage:<11} [{bar:<30}] {share:4.0%}  {format_bytes(done)}"
        sys.stderr.write("\r\033[K" if finished else text + "\033[K")
        sys.stderr.flush()
        _Bar.showing = not finished


def drawn_over(text: str) -> None:
    """A line on the terminal that the next one takes away."""
    columns = shutil.get_terminal_size().columns
    sys.stderr.write("\r" + harmless(text)[: columns - 1] + "\033[K")
    sys.stderr.flush()
    _Bar.showing = True


def clear_bar() -> None:
    """Take away a bar that was left half drawn, before an error is printed."""
    if _Bar.showing:
        sys.stderr.write("\r\033[K")
        _Bar.showing = False
