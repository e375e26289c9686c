"""cachekeeper move"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import click

from ..units import count, format_bytes
from .options import examples, output_options
from .output import Output

if TYPE_CHECKING:
    from ..verbs.move import MoveResult


@click.command(
    name="move",
    epilog=examples(
        "cachekeeper move                    out of /tmp, to ~/.cache/torchinductor",
        "cachekeeper move /local/inductor",
        "cachekeeper move /tmp/torchinductor_root /local/inductor",
        'eval "$(cachekeeper move --export)"',
    ),
)
@click.argument("places", nargs=-1, metavar="[[DIR] TO]")
@click.option("--export", is_flag=True, help="Print the job's environment for `eval`; words go to standard error.")
@output_options
def command(places: tuple[str, ...], export: bool, as_json: bool, quiet: bool) -> None:
    """Move a live cache to another place, with the paths in it rewritten.

    The entries are written again in TO, read again, and only then the old directory is cleared, into the trash beside
    it. Jobs must be told of the new place: set what it prints.
    """
    from ..verbs.move import move

    if len(places) > 2:
        raise click.UsageError("give at most two directories: the cache, and where it is to go")
    source, target = places if len(places) == 2 else (None, places[0] if places else None)
    output = Output(as_json, quiet, to_stderr=export)
    result = move(source, target, progress=output.progress())
    _say(output, result, export)
    output.result("move", result, str(result.target))
    if export:
        for variable, value in result.environment.items():
            click.echo(os.fsencode(f"export {variable}={shlex.quote(value)}"))


def _say(output: Output, result: MoveResult, export: bool) -> None:
    for item in result.skipped:
        output.warn(f"left behind: {item.path}  {item.reason}")
    if result.scratch:
        output.line(f"Left behind  {result.scratch:,} locks, temporary files and directories of them")
    output.line(f"Verified     {count(result.files, 'file')} read again, every SHA-256 matches")
    output.line(f"The old one  {result.trash}")
    output.ok(
        f"moved to {result.target}: {count(result.files, 'file')}, {format_bytes(result.bytes)}"
        + (f", {result.files - result.new:,} of them already there" if result.new != result.files else "")
    )
    if not export:
        output.line("jobs need, before they import torch; put it into the shell's profile or the launch script:")
        for variable, value in result.environment.items():
            output.line(f"  export {variable}={shlex.quote(value)}")
        output.hint(f"`cachekeeper clear {shlex.quote(str(result.cache_dir))} --empty-trash` deletes the old one")
