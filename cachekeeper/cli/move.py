"""cachekeeper move"""

from __future__ import annotations

import os
import shlex
from functools import partial
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
        "cachekeeper move --dry-run          out of /tmp, to ~/.cache/torchinductor",
        "cachekeeper move --to /local/inductor",
        "cachekeeper move /tmp/torchinductor_root --to /local/inductor",
        'eval "$(cachekeeper move --export)"',
    ),
)
@click.argument("directory", required=False, metavar="[DIR]")
@click.option(
    "--to",
    "target",
    metavar="TO",
    help="Where it goes. Default: a directory of this user on a local disk that no cleaner empties.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--export", is_flag=True, help="Print the job's environment for `eval`; words go to standard error.")
@partial(output_options, quiet="Print no more than errors, warnings and the new place.")
def command(directory: str | None, target: str | None, dry_run: bool, export: bool, as_json: bool, quiet: bool) -> None:
    """Move the live cache in DIR to another place, with the paths in it rewritten.

    DIR is, by default, the cache directory that torch would use. The entries are written again in TO, read again, and
    only then the old directory is cleared, into the trash beside it. What is in TO already stays, or is put aside where
    it differs. Jobs must be told of the new place: set what it prints.
    """
    from ..verbs.move import move

    if export and dry_run:
        raise click.UsageError("--export goes with moving, and not with --dry-run: the job would find nothing there")
    output = Output(as_json, quiet, to_stderr=export)
    result = move(directory, target, dry_run=dry_run, progress=output.progress())
    _say(output, result, export)
    output.result("move", result, str(result.target))
    if export:
        for variable, value in result.environment.items():
            click.echo(os.fsencode(f"export {variable}={shlex.quote(value)}"))


def _say(output: Output, result: MoveResult, export: bool) -> None:
    for item in result.skipped:
        output.warn(f"left behind: {item.path}  {item.reason}")
    if result.scratch:
        output.line(f"Left behind  {count(result.scratch, 'item')}: locks, temporary files and directories of them")
    if result.others:
        output.line(f"Beside it    {count(result.others, 'file')} of another cache in {result.target}, which stay")
    for note in result.notes:
        output.line(f"note: {note}")
    _say_what_was_done(output, result)
    if not export and not result.dry_run:
        output.line("jobs need, before they import torch (--export prints it for eval):")
        for variable, value in result.environment.items():
            output.line(f"  export {variable}={shlex.quote(value)}", whole=True)
        output.hint(f"`cachekeeper clear {shlex.quote(str(result.cache_dir))} --empty-trash` deletes the old one")


def _say_what_was_done(output: Output, result: MoveResult) -> None:
    there = f", {result.files - result.new:,} of them already there" if result.new != result.files else ""
    amount = f"{count(result.files, 'file')}, {format_bytes(result.bytes)}{there}"
    if result.dry_run:
        replaced = f", {result.replaced:,} would replace what is there and differs" if result.replaced else ""
        output.ok(f"would move {result.cache_dir} to {result.target}: {amount}{replaced}")
        return
    if result.aside:
        output.line(f"Replaced     {count(result.replaced, 'file')}; what was there is put aside in {result.aside}")
    output.line(f"Verified     {count(result.files, 'file')} read again, every SHA-256 matches")
    output.line(f"The old one  {result.trash}")
    output.ok(f"moved {result.cache_dir} to {result.target}: {amount}")
