"""cachekeeper bisect"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..stores import Store
from ..units import age_seconds, count, format_duration, format_number, listed, short_id
from .options import examples, exit_code_option, full_option, output_options, store_options
from .output import Output, plain, table, wrapped

if TYPE_CHECKING:
    from ..verbs.bisect import BisectPoint, BisectResult
    from ..verbs.diff import DiffResult

_MOST_ROWS = 16
_MOST_WHY = 3
_DEFAULT = "5%"


def _share(ctx: click.Context, parameter: click.Parameter, value: str) -> float:
    """ "5%" or "0.05" -> 0.05."""
    number, percent, rest = value.partition("%")
    try:
        share = float(number) / 100 if percent else float(number)
    except ValueError:
        share = -1.0
    if rest.strip() or not 0 <= share < 1:
        raise click.BadParameter(f"{value!r} is no share below 100 %, as 5% or 0.05", ctx, parameter)
    return share


@click.command(
    name="bisect",
    epilog=examples(
        "cachekeeper bisect drafter --metric tok_s",
        "cachekeeper bisect drafter --metric loss --lower-is-better --threshold 1%",
        "cachekeeper bisect drafter --metric tok_s --exit-code --json",
    ),
)
@click.argument("name")
@click.option(
    "--metric", required=True, metavar="KEY", help="The number, as given with `snapshot --metric KEY=NUMBER`."
)
@click.option("--higher-is-better/--lower-is-better", "higher", default=None, help="Default: what KEY's name says.")
@click.option(
    "--threshold",
    default=_DEFAULT,
    metavar="SHARE",
    show_default=True,
    callback=_share,
    help="What is no fall yet, of a step or of all of them.",
)
@exit_code_option("it became worse, at once or little by little")
@full_option
@store_options
@output_options
def command(
    name: str,
    metric: str,
    higher: bool | None,
    threshold: float,
    exit_code: bool,
    full: bool,
    store: Store,
    as_json: bool,
    quiet: bool,
) -> int:
    """Find with which snapshot of NAME a number of the run became worse, and compare it with the one before.

    That is the first one in NAME's history whose number, and each later one, is worse than the one just before it by
    more than the threshold: a dip that recovered does not count. The step that cost most and the best number before
    it are told where they are others. Where no step is so large, but the last number is worse than the best by more
    than the threshold, it became worse little by little. Snapshots without the number are passed over.
    """
    from ..verbs.bisect import HIGHER, LOWER, bisect

    better = None if higher is None else HIGHER if higher else LOWER
    output = Output(as_json, quiet)
    result = bisect(name, metric, better=better, threshold=threshold, store=store)
    _say(output, result)
    difference = _diff(output, result, store, full)
    document = {"fell": result.fell, **vars(result), "diff": plain(difference.difference) if difference else None}
    output.result("bisect", document, result.after.id if result.after else "")
    return 3 if exit_code and result.fell else 0


def _diff(output: Output, result: BisectResult, store: Store, full: bool) -> DiffResult | None:
    if result.before is None or result.after is None or output.quiet:
        return None
    from ..verbs.diff import diff
    from .diff import say

    progress = output.progress()
    found = diff(result.before.reference, result.after.reference, store=store, full=full, progress=progress)
    ids = (result.before.id, result.after.id)
    if (found.difference.a.id, found.difference.b.id) != ids:  # the name has moved since
        found = diff(*ids, store=store, full=full, progress=progress)
    output.line()
    say(output, found)
    return found


def _say(output: Output, result: BisectResult) -> None:
    output.line(
        f"{result.name}: {result.metric} in {len(result.known):,} of {count(len(result.points), 'snapshot')}, "
        f"{result.better} is better, threshold {_percent(result.threshold)}"
    )
    _say_points(output, result)
    output.line()
    if result.before and result.after:
        _say_fall(output, result, result.before, result.after)
    else:
        _say_no_fall(output, result)


def _say_points(output: Output, result: BisectResult) -> None:
    shown = _around(result.points, result.after)
    rows = [["", "ID", "CALLED", "AGE", result.metric, "CHANGE"]]
    before: float | None = None
    for point in result.points:
        change = _change(before, point.value)
        before = before if point.value is None else point.value
        if point in shown:
            rows.append([_mark(result, point), *_cells(point), change])
    for line in table(rows, right=(4, 5)):
        output.line(line)
    if len(shown) < len(result.points):
        output.line(f"  and {len(result.points) - len(shown):,} more (all of them with --json)")


def _around(points: Sequence[BisectPoint], after: BisectPoint | None) -> Sequence[BisectPoint]:
    """No more than so many: the last ones, or those around the fall."""
    at = points.index(after) if after else len(points)
    first = max(0, min(at - _MOST_ROWS // 2, len(points) - _MOST_ROWS))
    return points[first : first + _MOST_ROWS]


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def _mark(result: BisectResult, point: BisectPoint) -> str:
    return "->" if point == result.after else ""


def _cells(point: BisectPoint) -> list[str]:
    age = format_duration(age_seconds(point.created)) if point.created else "-"
    return [short_id(point.id) or "-", point.reference, age, "-" if point.value is None else format_number(point.value)]


def _change(before: float | None, value: float | None) -> str:
    return f"{(value - before) / abs(before):+.1%}" if before and value is not None else ""


def _say_fall(output: Output, result: BisectResult, before: BisectPoint, after: BisectPoint) -> None:
    since = ", and has not recovered since" if after != result.known[-1] else ""
    _wrap(output, f"{result.metric} {_step(before, after)}{since}; {_good(result, before)}")
    between = [point for point in result.skipped if before.number < point.number < after.number]
    if between:
        _wrap(output, f"between the two: {_reasons(between)}; the cause may be older than {short_id(after.id)}")
    if result.largest and result.largest.after != after:
        step = f"{_step(*result.largest)}: {_to_compare(*result.largest)}"
        _wrap(output, f"the largest step is another: it {step}")
    if result.work and result.work.differences:
        _wrap(output, f"NOT THE SAME WORK: other {', '.join(change.name for change in result.work.differences)}")


def _step(before: BisectPoint, after: BisectPoint) -> str:
    """As "fell from 21,450 to 12,800 (-40.3%) with drafter@{1} (61b2c0de)"."""
    assert before.value is not None and after.value is not None
    word = "fell" if after.value < before.value else "rose"
    change = _change(before.value, after.value)
    numbers = f"from {format_number(before.value)} to {format_number(after.value)}{f' ({change})' if change else ''}"
    return f"{word} {numbers} with {after.reference} ({short_id(after.id)})"


def _good(result: BisectResult, before: BisectPoint) -> str:
    best = result.best
    if best is None or best.value is None or best.value == before.value:
        return f"{before.reference} ({short_id(before.id)}) is the last good one"
    last = f"{before.reference} ({short_id(before.id)}) is the last one before it"
    return f"{last}, {best.reference} ({short_id(best.id)}) the best one, at {format_number(best.value)}"


def _to_compare(a: BisectPoint, b: BisectPoint) -> str:
    names = (each.reference.partition("@") for each in (a, b))
    return f"`cachekeeper diff {' '.join(shlex.quote(name) + at + back for name, at, back in names)}`"


def _say_no_fall(output: Output, result: BisectResult) -> None:
    known, drift = result.known, result.drift
    fall = "fall" if result.better == "higher" else "rise"
    if len(known) == 1:
        output.line(f"one snapshot alone has {result.metric}: there is nothing to compare it with")
    elif drift is None:
        output.ok(f"{result.metric} did not {fall} by more than {_percent(result.threshold)}")
    else:
        _say_drift(output, result, drift, known[-1])


def _say_drift(output: Output, result: BisectResult, best: BisectPoint, last: BisectPoint) -> None:
    _wrap(
        output,
        f"{result.metric} {_step(best, last)}, little by little since {best.reference} ({short_id(best.id)}): no step "
        f"that lasted is of more than {_percent(result.threshold)}: {_to_compare(best, last)}",
    )
    if result.largest and result.largest != (best, last):
        _wrap(output, f"in its largest step it {_step(*result.largest)}: {_to_compare(*result.largest)}")


def _reasons(points: Sequence[BisectPoint]) -> str:
    told = [f"{short_id(point.id) or point.reference} {point.why}" for point in points]
    return listed(told, _MOST_WHY)


def _wrap(output: Output, text: str) -> None:
    for line in wrapped(text, "", "  "):
        output.line(line)
