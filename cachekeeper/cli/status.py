"""cachekeeper status"""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING

import click

from ..stores import Store
from ..units import count, short_id, timestamp_of
from .options import examples, output_options, store_options
from .output import Output

if TYPE_CHECKING:
    from ..verbs.status import StatusResult


@click.command(
    name="status",
    epilog=examples(
        "cachekeeper status",
        "cachekeeper status --quick || cachekeeper restore drafter",
        "cachekeeper status /local/inductor --against drafter -v",
        "cachekeeper status --json | jq .gone",
    ),
)
@click.argument("directory", required=False, metavar="[DIR]")
@click.option("--against", metavar="ID|NAME", help="Compare with this snapshot, not the one it was restored from.")
@click.option("--quick", is_flag=True, help="Look at presence and sizes alone; else every byte is compared.")
@click.option("--verbose", "-v", is_flag=True, help="Say which entries.")
@store_options
@partial(output_options, quiet="Print no more than errors.")
def command(
    directory: str | None,
    against: str | None,
    quick: bool,
    verbose: bool,
    store: Store,
    as_json: bool,
    quiet: bool,
) -> int:
    """Is the live cache as it should be? One line, and an exit code.

    DIR is, by default, the cache directory that torch would use.

    It is compared with the snapshot that was restored there or saved from there last, or else with the latest of the
    configured name.

    \b
    Exit 0  intact; grown; or changed: sound, of a kind that torch writes anew
    Exit 3  entries are gone or damaged
    Exit 5  empty, absent, or unknown: no snapshot to compare it with
    Exit 6  the store is not there

    It writes nothing.
    """
    from ..verbs.status import status

    output = Output(as_json, quiet)
    result = status(directory, against=against, store=store, quick=quick, progress=output.progress())
    output.line(f"{result.state:<9}{result.cache_dir}   {_in_words(result)}")
    if result.state == "unknown":
        output.hint("name a snapshot with --against NAME, or for every launch with CACHEKEEPER_NAME")
    elif not result.snapshot:
        output.hint(f"fill it with `cachekeeper restore NAME --cache-dir {shlex.quote(str(result.cache_dir))}`")
    for note in result.notes if result.snapshot else ():
        output.line(f"note: {note}")
    if verbose:
        _say_which(output, result)
    if result.exit_code and result.snapshot:
        reference = f"{short_id(result.snapshot)} --cache-dir {shlex.quote(str(result.cache_dir))}"
        output.hint(f"put {_first(result)} back with `cachekeeper restore {reference}`")
    output.result("status", {"ok": result.exit_code == 0, **vars(result)})
    return result.exit_code


def _in_words(result: StatusResult) -> str:
    if not result.snapshot:
        return "; ".join(result.notes) or "there is no such directory"
    name = f" ({result.name})" if result.name else ""
    newer = f"; {result.name} is {short_id(result.newer)} now" if result.newer else ""
    snapshot = f"{short_id(result.snapshot)}{name}{newer}"
    if result.state == "intact":
        return f"{count(result.files, 'file')} as in {snapshot}{_unread(result)}"
    if result.state == "empty":
        return f"{count(result.entries, 'entry')} of {snapshot} {_lost(result)}"
    parts = [
        f"{count(len(result.damaged), 'entry')} damaged" if result.damaged else "",
        f"{len(result.gone):,} of {count(result.entries, 'entry')} {_lost(result)}" if result.gone else "",
        f"{count(len(result.changed), 'entry')} changed" if result.changed else "",
        f"grown by {count(len(result.grown), 'entry')}" if result.grown else "",
    ]
    return f"{', '.join(filter(None, parts))}; against {snapshot}{_unread(result)}"


def _lost(result: StatusResult) -> str:
    return "gone" + (f" as of {timestamp_of(result.gone_by)}" if result.gone_by is not None else "")


def _unread(result: StatusResult) -> str:
    return "; by size, no byte read" if result.quick else ""


def _say_which(output: Output, result: StatusResult) -> None:
    for word, lines in (
        ("damaged", [f"{entry}  {reason}" for entry, reason in result.damaged.items()]),
        ("gone", list(result.gone)),
        ("changed", [f"{entry}  {reason}" for entry, reason in result.changed.items()]),
        ("grown", list(result.grown)),
    ):
        if lines:
            output.line(f"{word}  {len(lines):,}")
            output.some(lines)
    since = "snapshot" if result.against == "saved" else "restore"
    if result.gone_after is not None and result.gone_by is not None:
        output.line(f"lost between {timestamp_of(result.gone_after)}, the {since}, and {timestamp_of(result.gone_by)}")


def _first(result: StatusResult) -> str:
    """What a restore puts back, by the name of the first."""
    wrong = (*result.damaged, *result.gone)
    return f"{wrong[0]} and {len(wrong) - 1:,} more" if len(wrong) > 1 else "".join(wrong) or "it"
