"""cachekeeper keep"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from ..stores import Store
from ..units import age_seconds, count, format_duration, short_id
from .options import examples, output_options, store_options
from .output import Output, table, wrapped
from .rm import duration, grace_option, say_way_back, until

if TYPE_CHECKING:
    from ..verbs.keep import KeepResult, Verdict

_HEADING = ("ID", "NAME", "AGE")


@click.command(
    name="keep",
    epilog=examples(
        "cachekeeper keep --last 5 --daily 7 --proven",
        "cachekeeper keep --last 5 --daily 7 --proven --apply",
        "cachekeeper keep drafter --within 30d --weekly 8 --apply --reason monthly",
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--last", type=click.IntRange(min=0), default=0, metavar="N", help="The newest N.")
@click.option(
    "--daily", type=click.IntRange(min=0), default=0, metavar="N", help="The newest of each of N days (UTC) with any."
)
@click.option(
    "--weekly", type=click.IntRange(min=0), default=0, metavar="N", help="The newest of each of N weeks with any."
)
@click.option("--within", callback=duration, metavar="DURATION", help="What is not older, as 12h, 30d or 2w.")
@click.option("--proven", is_flag=True, help="What a warmup has proved.")
@click.option("--unnamed", is_flag=True, help="Look at snapshots without a name too.")
@click.option("--apply", is_flag=True, help="Do it; without, only say what would be done.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for people.")
@grace_option
@store_options
@partial(output_options, quiet="Print no more than errors, warnings and the ids of what goes.")
def command(
    names: tuple[str, ...],
    last: int,
    daily: int,
    weekly: int,
    within: float | None,
    proven: bool,
    unnamed: bool,
    apply: bool,
    reason: str,
    grace: float,
    store: Store,
    as_json: bool,
    quiet: bool,
) -> None:
    """Keep the snapshots of each NAME that a rule names, and remove the others. A dry run without --apply.

    What any rule names stays. So does what is pinned, what a name points to, what cannot be read, and what has no name
    (but with --unnamed). A snapshot of several names stays unless all are asked for, which is so without NAME.

    What goes is in the trash then, as after `rm`: `undo` brings it back, and only `sweep` frees its place.
    """
    from ..verbs.keep import keep

    output = Output(as_json, quiet)
    result = keep(
        names,
        last=last,
        daily=daily,
        weekly=weekly,
        within=within,
        proven=proven,
        unnamed=unnamed,
        apply=apply,
        grace=grace,
        reason=reason,
        store=store,
        progress=output.progress(),
    )
    _say(output, result)
    output.result("keep", _plain(result), "\n".join(result.going))


def _plain(result: KeepResult) -> dict[str, object]:
    rows = [
        {
            "id": verdict.snapshot.id,
            "names": verdict.names,
            "created": verdict.snapshot.header.created,
            "keep": bool(verdict.reasons),
            "reasons": verdict.reasons,
        }
        for verdict in result.verdicts
    ]
    return {
        "store": result.store,
        "applied": result.applied,
        "snapshots": rows,
        "unreadable": result.unreadable,
        "others": result.others,
        "removals": result.removals,
        "until": until(result.grace),
    }


def _verdict(verdict: Verdict) -> str:
    return f"keep: {', '.join(verdict.reasons)}" if verdict.reasons else "remove"


def _say(output: Output, result: KeepResult) -> None:
    rows = [
        (
            short_id(verdict.snapshot.id),
            ", ".join(verdict.names) or "-",
            format_duration(age_seconds(verdict.snapshot.header.created)),
        )
        for verdict in result.verdicts
    ]
    heading, *lines = table([_HEADING, *rows])
    if rows:
        output.line(heading)
    width = max(map(len, lines), default=0) + 2
    for line, verdict in zip(lines, result.verdicts, strict=True):
        for part in wrapped(_verdict(verdict), line.ljust(width), " " * width):
            output.line(part)
    for line in result.unreadable:
        output.warn(f"kept, since unreadable: {line}")
    if result.others:
        output.line(f"note: {count(result.others, 'snapshot')} not asked about: kept")
    going = len(result.going)
    said = f"{len(rows) - going:,} stay, {going:,} {'went to the trash' if result.applied else 'would go'}"
    output.ok(said if going else "nothing to remove")
    if going and result.applied:
        say_way_back(output, result.going, result.grace)
    elif going:
        output.hint("a dry run: the same with --apply removes them")
