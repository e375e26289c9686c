"""One result -> words for a person, one JSON object, or silence."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..units import format_bytes, harmless

_MOST = 20


def wrapped(text: str, first: str, others: str, width: int = 80) -> list[str]:
    """Lines of at most so many columns, but for longer words; `first` and `others` are what they begin with."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def colourful(stream: Any) -> bool:
    """True where colour helps: a terminal, and nobody said NO_COLOR."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style(text: str, colour: str, err: bool = False) -> str:
    """The text in a colour, where the stream shows colours."""
    return click.style(text, fg=colour) if colourful(sys.stderr if err else sys.stdout) else text


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

    def line(self, text: str = "", colour: str = "") -> None:
        """A line for a person, in a colour where the stream shows colours."""
        if self.talks:
            shown = harmless(text)
            click.echo(style(shown, colour, self._err) if colour else shown, err=self._err)

    def ok(self, text: str) -> None:
        """The line that says that it worked."""
        self.labelled("ok", "green", "  ", text)

    def warn(self, text: str) -> None:
        """A warning; with --quiet too, on standard error."""
        if not self.as_json:
            click.echo(f"{style('warning', 'yellow', err=True)}: {harmless(text)}", err=True)

    def hint(self, text: str) -> None:
        """What to do next."""
        self.labelled("hint", "cyan", ": ", text)

    def labelled(self, label: str, colour: str, between: str, text: str) -> None:
        """A line that begins with a word in a colour."""
        if self.talks:
            click.echo(style(label, colour, self._err) + between + harmless(text), err=self._err)

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
        return _Bar() if self.talks and sys.stderr.isatty() else _nothing


def _json(document: Mapping[str, Any]) -> str:
    """One line of JSON: readable where it can be, escaped where names are no Unicode or the terminal knows less."""
    text = strict_json(document, ensure_ascii=False)
    try:
        text.encode("utf-8")
        text.encode(sys.stdout.encoding or "ascii")
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
    if not sys.stdout.isatty():
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
