"""The entry point: runs the command, and turns an error into words and an exit code."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TextIO

import click

from ..errors import CachekeeperError, LocalDiskError
from .group import cli
from .output import clear_bar, fitted, labelled, strict_json

_BROKEN_PIPE = 128 + 13  # SIGPIPE, a name that Windows does not have


class _Terminated(BaseException):
    """SIGTERM arrived: unwind, so that nothing half-written stays, then exit with 143."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit code, for `sys.exit`.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    # What stands after `--` is the command of a job, and its arguments.
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    _encode_anything()
    try:
        gc.disable()  # one command in one process: collecting cycles costs a tenth of it and frees nothing
        with _terminable():
            return cli.main(arguments, prog_name="cachekeeper", standalone_mode=False) or 0
    except CachekeeperError as error:
        _complain(error, "--json" in own)
        return _told_to_eval(error.exit_code, own)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        _complain_usage(error, "--json" in own)
        return 2
    except (KeyboardInterrupt, click.Abort):
        return _told_to_eval(_ended("interrupted", signal.SIGINT, "--json" in own), own)
    except _Terminated:
        return _told_to_eval(_ended("terminated", signal.SIGTERM, "--json" in own), own)
    except OSError as error:
        return _unwritten(error, "--json" in own)
    except SystemExit:
        if not type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            raise
        return _BROKEN_PIPE  # click saw it first, and keeps Python from failing again
    finally:
        _let_go()


def _ended(word: str, number: int, as_json: bool) -> int:
    """Say that a signal ended the command. Returns the exit code."""
    error = CachekeeperError(f"{word}; nothing is half done")
    error.code, error.exit_code = word, 128 + number
    if as_json:
        _complain(error, True)
    else:
        clear_bar()
        _echo(error.message)
    return error.exit_code


def _unwritten(error: OSError, as_json: bool) -> int:
    """The reader of our output is gone, or its disk is full. Returns the exit code; what is no such error is raised."""
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    gone = isinstance(error, BrokenPipeError)
    if not gone and innermost.f_code is not click.echo.__code__:
        raise error
    if gone:
        return _BROKEN_PIPE
    full = LocalDiskError(
        f"cannot write to standard output: {error.strerror or error}",
        hint="what the command does may be done all the same: look before you repeat it",
    )
    _complain(full, as_json)
    return full.exit_code


def _let_go() -> None:
    """Keep Python from failing again, when it flushes at exit what could not be written."""
    for stream in filter(_is_stuck, (sys.stdout, sys.stderr)):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _is_stuck(stream: TextIO | None) -> bool:
    """True where what was written to a stream is in its buffer, and stays there."""
    try:
        if stream is not None:
            stream.flush()
    except OSError:
        return True
    return False


def _told_to_eval(code: int, arguments: Sequence[str]) -> int:
    """The exit code; said in such a way that `eval "$(cachekeeper ... --export)"` ends with it too."""
    if arguments[:1] == ["restore"] and "--export" in arguments:
        with contextlib.suppress(OSError):
            click.echo(f"(exit {code})")
    return code


def _encode_anything() -> None:
    """A name that the terminal's encoding does not have must not end a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    def terminate(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    try:
        before = signal.signal(signal.SIGTERM, terminate)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _complain(error: CachekeeperError, as_json: bool) -> None:
    if as_json:
        document = {
            "schema": "cachekeeper.error/1",
            "code": error.code,
            "exit_code": error.exit_code,
            "message": error.message,
            "facts": list(error.facts),
            "hint": error.hint,
        }
        _echo(strict_json(document))
        return
    clear_bar()
    _echo(labelled(f"error[{error.code}]", "red", ": ", error.message, err=True))
    for fact in error.facts:
        _echo(fitted(f"  {fact}", err=True))
    if error.hint:
        _echo(labelled("hint", "cyan", ": ", error.hint, err=True))


def _echo(text: str) -> None:
    """A line on standard error; where that cannot be written, the exit code says it alone."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def _complain_usage(error: click.ClickException, as_json: bool) -> None:
    context = getattr(error, "ctx", None)
    hint = f"see `{context.command_path} --help`" if context else ""
    if isinstance(error, click.MissingParameter) and context and (example := _example(context.command)):
        hint = f"as `{example}`; {hint}"
    usage = CachekeeperError(error.format_message(), hint=hint)
    usage.code, usage.exit_code = "usage", 2
    _complain(usage, as_json)


def _example(command: click.Command) -> str:
    """The first of the examples of a command, without what is said beside it; "" where it has none."""
    lines = (line.strip() for line in (command.epilog or "").splitlines())
    return next((line.partition("  ")[0] for line in lines if line.startswith("cachekeeper ")), "")
