"""cachekeeper rm"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from functools import partial

import click

from ..stores import Store
from ..units import count, parse_duration, short_id, timestamp_of
from .options import examples, output_options, store_options
from .output import Output


def duration(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """The callback of an option that takes a length of time: seconds."""
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


# --grace of what moves snapshots to the trash.
grace_option = click.option(
    "--grace",
    callback=duration,
    metavar="DURATION",
    default="14d",
    show_default=True,
    help="How long `undo` can bring it back at least, as 90s, 30min, 12h, 14d or 2w.",
)


@click.command(
    name="rm",
    epilog=examples(
        "cachekeeper rm 7c1e04ab",
        'cachekeeper rm drafter --reason "wrong dataset"',
        "cachekeeper rm drafter@{1} drafter@{2} --dry-run",
        "cachekeeper undo                    brings back the last one",
    ),
)
@click.argument("references", nargs=-1, required=True, metavar="ID|NAME...")
@click.option("--reason", default="", metavar="TEXT", help="Why, for people.")
@grace_option
@click.option("--force", is_flag=True, help="Also the last of a name, which then points to nothing.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@store_options
@partial(output_options, quiet="Print no more than errors, warnings and the ids.")
def command(
    references: tuple[str, ...],
    reason: str,
    grace: float,
    force: bool,
    dry_run: bool,
    store: Store,
    as_json: bool,
    quiet: bool,
) -> None:
    """Take snapshots away into a trash, from which `undo` brings them back.

    Of NAME it is the snapshot that it points to now; the name goes back to the newest snapshot of its history that is
    there. A pinned snapshot is refused, with --force too: `unpin` it first.

    Nothing is freed by this: what is in the trash needs its place until its grace time is over and `sweep` drops it.
    Until then what was restored from it can be mended once it is back; after that it stays as it is.
    """
    from ..verbs.rm import rm

    output = Output(as_json, quiet)
    result = rm(
        references,
        reason=reason,
        grace=grace,
        force=force,
        dry_run=dry_run,
        store=store,
        progress=output.progress(),
    )
    _say(output, result)
    output.result("rm", {**vars(result), "until": until(result.grace)}, "\n".join(result.snapshots))


def until(grace: float) -> str:
    """Until when what is removed now can come back."""
    return timestamp_of(time.time() + grace)


def say_names(output: Output, names: Mapping[str, str], tense: str = "points") -> None:
    """Where names point now, "" for nowhere."""
    for name, identifier in names.items():
        if identifier:
            output.line(f"{name} {tense} to {short_id(identifier)}" + (" again" if tense == "points" else ""))
        else:
            output.warn(f"{name} {tense} to nothing, until `undo` or the next snapshot")


def say_unsigned(output: Output, names: Sequence[str]) -> None:
    """That names were signed and are not any more."""
    if names:
        output.warn(f"not signed any more, since moved: {', '.join(names)}")
        output.hint(f"if that is where they should point: `cachekeeper sign {shlex.join(names)}`")


def say_way_back(output: Output, ids: Sequence[str], grace: float) -> None:
    """How what was removed comes back, and when its place is freed."""
    it = "it" if len(ids) == 1 else "them"
    output.hint(f"`cachekeeper undo {' '.join(map(short_id, ids))}` brings {it} back")
    output.line(f"note: surely until {until(grace)}; `sweep` frees the place after that")
    output.line(f"note: a cache restored from {it} stays, and cannot be mended after that sweep")


def _say(output: Output, result: object) -> None:
    from ..verbs.rm import RmResult

    assert isinstance(result, RmResult)
    for identifier in result.snapshots:
        output.line(f"{'Would remove' if result.dry_run else 'Removed'}  {short_id(identifier)}")
    for identifier in result.already:
        output.line(f"Was removed before  {short_id(identifier)}")
    say_names(output, result.names, "would point" if result.dry_run else "points")
    say_unsigned(output, [] if result.dry_run else result.unsigned)
    if result.dry_run:
        output.ok(f"nothing was changed; {count(len(result.snapshots), 'snapshot')} would go to the trash")
        return
    output.ok("in the trash" if result.snapshots else "nothing to remove")
    if result.snapshots:
        say_way_back(output, result.snapshots, result.grace)
