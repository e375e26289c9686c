"""cachekeeper stats"""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from ..errors import NotFound
from ..runs import short
from ..telemetry import is_wanted
from ..units import count, short_id
from .explain import without_end
from .options import examples, output_options
from .output import Output, table, wrapped

if TYPE_CHECKING:
    from ..runs import RunInfo
    from ..runs.totals import Row, Totals
    from ..verbs.stats import ProcessStats, RunStats, StatsResult

_HEADING = ("RUN", "AGE", "EXIT", "HIT", "MISS", "BYPASS", "SPENT", "FALLBACKS", "FROM", "SAVED")
_NUMBERS = ("HIT", "MISS", "BYPASS", "TRACED", "AGAIN", "SECONDS", "FALLBACKS")
_CACHES = {"fx": "Inductor", "aot": "AOTAutograd"}
_MOST = 20
_INDENT = 13
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


@click.command(
    name="stats",
    epilog=examples("cachekeeper stats", "cachekeeper stats --last", "cachekeeper stats 7c1e04 --json"),
)
@click.argument("reference", required=False, metavar="[RUN]")
@click.option("--last", is_flag=True, help="The last run in detail.")
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="How many runs are listed.")
@output_options
def command(reference: str | None, last: bool, limit: int, as_json: bool, quiet: bool) -> int:
    """Show what the last runs compiled, or one RUN by process, thread and function.

    A run is what `cachekeeper run` started, or a script that calls `cachekeeper.guard.install()`. HIT and MISS count
    graphs as Inductor's cache answered, BYPASS those for which torch bypassed a cache. SPENT is the time in which
    functions were traced, and their graphs compiled or loaded from the cache; of RUN, TRACED is how many these were,
    AGAIN how many of them once more, and SECONDS the time. FALLBACKS is what ran uncompiled. RUN is an id, the
    beginning of it or of its last six digits, or `last`. Where no run is kept,
    the exit code is 5.
    """
    from ..verbs.stats import stats

    output = Output(as_json, quiet)
    result = stats(reference, last=last, limit=limit)
    if reference is None and not last:
        _say_list(output, result)
    else:
        _say_run(output, result)
    output.result("stats", result, "\n".join(each.run.id for each in result.runs))
    return 0 if result.runs else NotFound.exit_code


def _say_list(output: Output, result: StatsResult) -> None:
    if not result.runs:
        output.line(f"no runs yet in {result.home}")
        if is_wanted(os.environ):
            output.hint("run the job with `cachekeeper run -- COMMAND`, or call `cachekeeper.guard.install()` in it")
        else:
            output.hint("telemetry is off: CACHEKEEPER_TELEMETRY is set")
        return
    heading, *lines = table([_HEADING, *map(_cells, result.runs)], right=range(2, 8))
    output.line(heading)
    for line, each in zip(lines, result.runs, strict=True):
        output.line(line)
        for text in _below(each):
            [line] = table([(" " * 8 + text,)])
            output.line(line)
    if result.more:
        output.line(f"and {result.more:,} older; --limit shows more")


def _cells(each: RunStats) -> tuple[str, ...]:
    run, totals = each.run, each.totals
    return (
        short(run.id),
        _age(run.began),
        "runs" if each.going else _exit(run),
        f"{totals.hits:,}",
        f"{totals.misses:,}",
        f"{totals.bypasses:,}",
        _seconds(totals.seconds),
        f"{totals.fallbacks:,}",
        short_id(run.restored) or "-",
        short_id(run.saved) or "-",
    )


def _below(each: RunStats) -> list[str]:
    """The command, and what was out of order."""
    command = shlex.join(each.run.command)
    lines = [f"{each.run.name}: {command}" if each.run.name else command]
    if each.crashed:
        lines.append(without_end(each.crashed, each.processes))
    return lines


def _exit(run: RunInfo) -> str:
    return "-" if run.exit_code is None else str(run.exit_code)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:,.0f} s"


def _age(began: float) -> str:
    seconds = max(0.0, time.time() - began)
    size, unit = next((item for item in _UNITS if seconds >= item[0]), (1, "s"))
    return f"{seconds // size:.0f} {unit}"


# One run


def _say_run(output: Output, result: StatsResult) -> None:
    from ..verbs.stats import measures, silence

    [each] = result.runs
    run, totals = each.run, each.totals
    for word, value in (
        ("run", f"{run.id}   {_age(run.began)} ago"),
        ("command", shlex.join(run.command)),
        ("exit", _ending(each)),
        ("name", run.name),
        ("restored", short_id(run.restored) or "nothing"),
        ("saved", short_id(run.saved)),
        ("cache", run.cache_dir),
        ("new entries", "" if run.new_entries is None else f"{run.new_entries:,}"),
        *((cache, _answers(totals, name)) for name, cache in _CACHES.items()),
        ("tracing" if totals.all_found else "compiling", _compiling(totals)),
        ("fallbacks", f"{totals.fallbacks:,}" if totals.fallbacks else ""),
        *(("guard", text) for text in _guard(measures(result.processes))),
    ):
        if value:
            _wrap(output, f"{word:<12} {value}", " " * _INDENT)
    if not result.processes:
        _wrap(output, silence(run))
    _say_processes(output, result.processes)
    _say_functions(output, result.functions)
    for note in run.notes:
        _wrap(output, f"note: {note}")
    if each.dropped:
        _wrap(output, f"note: {count(each.dropped, 'event')} had no room, or none for what their keys were made of")


def _guard(measures: Mapping[str, str]) -> list[str]:
    """The measures that are not simply on, each; and how many are."""
    others = [f"{name}: {said}" for name, said in measures.items() if said != "on"]
    number = len(measures) - len(others)
    if not others:
        return [f"all {count(number, 'measure')} on"] if number else []
    return [*others, f"the other {count(number, 'measure')} on"] if number else others


def _ending(each: RunStats) -> str:
    after = "" if each.seconds is None else f" after {_seconds(each.seconds)}"
    if each.going:
        return f"still running{after}"
    if each.run.exit_code is None:
        return (
            f"not known, ended{after}" if each.run.ended else f"nobody saw it end{after and ', last heard of' + after}"
        )
    return f"{each.run.exit_code}{after}"


def _answers(totals: Totals, cache: str) -> str:
    states = totals.caches.get(cache, {})
    words = {"hit": "hit", "miss": "missed", "bypass": "bypassed"}
    return ", ".join(f"{states.get(state, 0):,} {word}" for state, word in words.items())


def _compiling(totals: Totals) -> str:
    again = f", {totals.recompiles:,} of them again" if totals.recompiles else ""
    inside = f"; {_seconds(totals.thread_seconds)} over all threads" if totals.thread_seconds > totals.seconds else ""
    found = ", every graph found" if totals.all_found else ""
    return f"{_seconds(totals.seconds)} for {count(totals.compiles, 'function')}{again}{found}{inside}"


def _numbers(totals: Totals) -> tuple[str, str, str, str, str, str, str]:
    return (
        f"{totals.hits:,}",
        f"{totals.misses:,}",
        f"{totals.bypasses:,}",
        f"{totals.compiles:,}",
        f"{totals.recompiles:,}",
        f"{totals.thread_seconds:,.1f}",
        f"{totals.fallbacks:,}",
    )


def _say_processes(output: Output, processes: Sequence[ProcessStats]) -> None:
    several = len({item.process.host for item in processes}) > 1
    rows = [(*_NUMBERS, "PROCESS")]
    for item in processes[:_MOST]:
        process = item.process
        rank = "" if process.rank is None else f"rank {process.rank}, "
        host = f"{process.host} " if several else ""
        torn = ", torn" if item.torn else ""
        rows.append((*_numbers(item.totals), f"{rank}{host}{process.pid} ({item.state}{torn})"))
        rows += [(*_numbers(thread.totals), f"  {thread.name}") for thread in item.threads[:_MOST]]
    _say_table(output, rows, len(processes) - _MOST)
    told = [
        f"fallback: {event.function or 'a function'} in {event.thread}: {event.reason}"
        for item in processes
        for event in item.fallbacks
    ]
    _some(output, [f"{text}   ({number:,} times)" if number > 1 else text for text, number in Counter(told).items()])
    notes = dict.fromkeys(event.text for item in processes for event in item.notes)
    _some(output, [f"note: {text}" for text in notes])


def _some(output: Output, texts: Sequence[str]) -> None:
    for text in texts[:_MOST]:
        _wrap(output, text)
    _say_more(output, len(texts) - _MOST)


def _wrap(output: Output, text: str, others: str = " " * 6) -> None:
    for line in wrapped(text, "", others):
        output.line(line)


def _say_functions(output: Output, functions: Sequence[Row]) -> None:
    rows = [(*_NUMBERS, "FUNCTION")]
    rows += [(*_numbers(row.totals), row.name or "(torch does not say)") for row in functions[:_MOST]]
    _say_table(output, rows, len(functions) - _MOST)


def _say_table(output: Output, rows: Sequence[Sequence[str]], more: int) -> None:
    if len(rows) > 1:
        output.line()
        for line in table(rows, right=range(len(_NUMBERS))):
            output.line(line)
    _say_more(output, more)


def _say_more(output: Output, more: int) -> None:
    if more > 0:
        output.line(f"and {more:,} more (all of them with --json)")
