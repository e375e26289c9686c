"""cachekeeper report"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from ..stores import Store
from ..units import age_seconds, count, format_bytes, format_duration, format_number, short_id, shortened, spaced
from .options import examples, full_option, output_options, store_options
from .output import Output, table, wrapped
from .pages import html_options, write_page

if TYPE_CHECKING:
    from ..inventory.models import Coverage, Inventory, Kernel
    from ..verbs.report import HistoryPoint, ReportResult

_WIDTH = 80
_LABEL = 12
_ROWS = 10
_MOST_METRICS = 3
_NAME = 40
_NAME_END = 12
_MOST_NOTES = 6


@click.command(
    name="report",
    epilog=examples(
        "cachekeeper report drafter",
        "cachekeeper report drafter --html drafter.html",
        "cachekeeper report drafter@{1} --json",
    ),
)
@click.argument("reference", metavar="ID|NAME|DIR")
@html_options
@full_option
@store_options
@output_options
def command(reference: str, html: str | None, force: bool, full: bool, store: Store, as_json: bool, quiet: bool) -> int:
    """Show what a cache holds, down to its kernels, and a snapshot's name over time.

    Nothing is unpickled, loaded or run, and no GPU is needed.
    """
    from ..verbs.report import report

    if html == "-" and as_json:
        raise click.UsageError("--json and --html - both want standard output.", click.get_current_context())
    output = Output(as_json, quiet)
    result = report(reference, store=store, full=full, progress=output.progress())
    if html is None:
        _say(output, result)
    else:
        _write(output, result, html, force)
    if html != "-":
        output.result("report", result, result.side.id)
    return 0


def _write(output: Output, result: ReportResult, html: str, force: bool) -> None:
    from ..pages import of_report

    write_page(html, of_report(result), force, ("report", result.side.label))
    if html != "-":
        output.ok(f"Wrote {html}")


def _say(output: Output, result: ReportResult) -> None:
    _say_overview(output, result)
    _say_coverage(output, result.inventory.coverage)
    _say_kernels(output, result.inventory)
    _say_history(output, result.history)
    for note in (*result.inventory.notes, *result.notes)[:_MOST_NOTES]:
        for line in wrapped(f"note: {note}", "", "      ", _WIDTH):
            output.line(line)


def _say_overview(output: Output, result: ReportResult) -> None:
    from ..environment import summary

    side, found = result.side, result.inventory
    seconds = [graph.seconds for graph in found.graphs if graph.seconds is not None]
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in found.entries.items())
    for word, value in (
        ("snapshot" if side.id else "live", spaced(short_id(side.id), side.name) or side.label),
        ("saved", f"{format_duration(age_seconds(side.created))} ago" if side.created else ""),
        ("message", side.message),
        ("metrics", "  ".join(f"{key} {format_number(value)}" for key, value in side.metrics.items())),
        ("tags", "  ".join(f"{key}={value}" for key, value in side.tags.items())),
        ("environment", summary(side.fingerprint) if side.fingerprint else ""),
        ("holds", f"{count(sum(found.entries.values()), 'entry')}, {format_bytes(sum(found.bytes.values()))}: {kinds}"),
        ("compiling", f"{format_duration(sum(seconds))} for {count(len(seconds), 'graph')}" if seconds else ""),
        ("proof", _proof(side.proof_seconds)),
        ("uncompiled", "; ".join(side.fallbacks)),
    ):
        if value:
            _line(output, word, value)


def _proof(seconds: tuple[float, float] | None) -> str:
    return f"{format_duration(seconds[0])} cold, {format_duration(seconds[1])} warm" if seconds else ""


def _say_coverage(output: Output, coverage: Sequence[Coverage]) -> None:
    if not coverage:
        return
    heading = ["graphs of", "forward", "backward", "inference", "unknown", "kernels"]
    rows = [[row.device or "unknown", *(f"{getattr(row, name):,}" for name in heading[1:])] for row in coverage]
    _table(output, [heading, *rows], right=(1, 2, 3, 4, 5))


def _say_kernels(output: Output, found: Inventory) -> None:
    if not found.kernels:
        return
    largest = sorted(found.kernels, key=lambda kernel: (-kernel.bytes, kernel.name))[:_ROWS]
    heading = ["largest kernels", "size", "registers", "spills", "shared"]
    _table(output, [heading, *map(_kernel, largest)], right=(1, 2, 3, 4))
    spilling = [kernel for kernel in found.kernels if kernel.binary and kernel.binary.local_bytes]
    others = [f"and {len(found.kernels) - _ROWS:,} more"] if len(found.kernels) > _ROWS else []
    others += [f"{count(len(spilling), 'kernel')} with spills"] if spilling else []
    others += [f"{found.tried:,} that only autotuning tried"] if found.tried else []
    if others:
        output.line("  " + ", ".join(others))


def _kernel(kernel: Kernel) -> list[str]:
    binary = kernel.binary
    known = (binary.registers, binary.local_bytes, binary.dynamic_shared) if binary else (None, None, None)
    numbers = ["-" if number is None else f"{number:,}" for number in known]
    return [shortened(kernel.name, _NAME, _NAME_END), format_bytes(kernel.bytes), *numbers]


def _say_history(output: Output, history: Sequence[HistoryPoint]) -> None:
    shown = history[-_ROWS:]
    named = list(dict.fromkeys(name for point in reversed(history) for name in point.metrics))[:_MOST_METRICS]
    columns = _columns(shown)
    metrics = [[name, *(_or_dash(format_number, point.metrics.get(name)) for point in shown)] for name in named]
    while len(metrics) > 1 and _wide(columns + metrics) > _WIDTH:
        metrics.pop()
    columns += metrics
    _table(output, list(zip(*columns, strict=True)), right=range(2, len(columns)))
    if len(history) > len(shown):
        output.line(f"  and {len(history) - len(shown):,} before (all of them with --json)")


def _columns(shown: Sequence[HistoryPoint]) -> list[list[str]]:
    """What there is of each point, below a heading; entries are called as in the line "holds"."""
    columns = [
        ["history", *(short_id(point.id) + " *" * point.is_this for point in shown)],
        ["age", *(format_duration(age_seconds(point.created)) for point in shown)],
        ["graphs", *(f"{point.graphs:,}" for point in shown)],
    ]
    for kind in ("triton", "native"):
        if any(getattr(point, kind) for point in shown):
            columns.append([kind, *(f"{getattr(point, kind):,}" for point in shown)])
    columns.append(["size", *(format_bytes(point.bytes) for point in shown)])
    if any(point.cold_seconds is not None for point in shown):
        columns.append(["cold", *(_or_dash(_seconds, point.cold_seconds) for point in shown)])
        columns.append(["warm", *(_or_dash(_seconds, point.warm_seconds) for point in shown)])
    return columns


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


def _or_dash(form: Callable[[float], str], value: float | None) -> str:
    return "-" if value is None else form(value)


def _wide(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in columns) - 2


def _table(output: Output, rows: Sequence[Sequence[str]], right: Sequence[int]) -> None:
    output.line()
    for line in table(rows, right):
        output.line(line)


def _line(output: Output, word: str, text: str) -> None:
    for line in wrapped(text, f"{word:<{_LABEL}} ", " " * (_LABEL + 1), _WIDTH):
        output.line(line)
