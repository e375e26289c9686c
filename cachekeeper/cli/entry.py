"""The entry point: runs the command, and turns an error into words and an exit code."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType

import click

from ..errors import CachekeeperError
from ..units import harmless
from .group import cli
from .output import clear_bar, style

_INTERRUPTED = 128 + signal.SIGINT
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
        clear_bar()
        click.echo("interrupted; nothing is half done", err=True)
        return _told_to_eval(_INTERRUPTED, own)
    except _Terminated:
        clear_bar()
        click.echo("terminated; nothing is half done", err=True)
        return _told_to_eval(128 + signal.SIGTERM, own)
    except BrokenPipeError:
        # The reader of our output is gone. Keep Python from failing again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except SystemExit:
        if not type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            raise
        return _BROKEN_PIPE  # click saw it first, and keeps Python from failing again


def _told_to_eval(code: int, arguments: Sequence[str]) -> int:
    """The exit code; said in such a way that `eval "$(cachekeeper ... --export)"` ends with it too."""
    if arguments[:1] == ["restore"] and "--export" in arguments:
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
        click.echo(json.dumps(document), err=True)
        return
    clear_bar()
    click.echo(f"{style(f'error[{error.code}]', 'red', err=True)}: {harmless(error.message)}", err=True)
    for fact in error.facts:
        click.echo(f"  {harmless(fact)}", err=True)
    if error.hint:
        click.echo(f"{style('hint', 'cyan', err=True)}: {harmless(error.hint)}", err=True)


def _complain_usage(error: click.ClickException, as_json: bool) -> None:
    context = getattr(error, "ctx", None)
    hint = f"see `{context.command_path} --help`" if context else ""
    usage = CachekeeperError(error.format_message(), hint=hint)
    usage.code, usage.exit_code = "usage", 2
    _complain(usage, as_json)
