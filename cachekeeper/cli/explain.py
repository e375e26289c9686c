"""cachekeeper explain"""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import click

from ..units import count, format_duration, listed, short_id
from .options import examples, exit_code_option, output_options
from .output import Output, wrapped

if TYPE_CHECKING:
    from ..explaining import Cause, Explanation
    from ..runs.stopping import Stop
    from ..verbs.explain import ExplainResult

_CAUSES = 10
_NOTES = 8
_EXAMPLES = 3


@click.command(
    name="explain",
    epilog=examples("cachekeeper explain", "cachekeeper explain 7c1e04", "cachekeeper explain --last --exit-code"),
)
@click.argument("reference", required=False, metavar="[RUN]")
@click.option("--last", is_flag=True, help="The last run; so it is without RUN.")
@exit_code_option("something missed")
@output_options
def command(reference: str | None, last: bool, exit_code: bool, as_json: bool, quiet: bool) -> int:
    """Say why graphs of a run missed torch's caches, and what to do about it.

    Each graph that missed is compared with the nearest one that is known: of the snapshot that the run began with, of
    what it found, and of earlier runs of the same name or script. What differs is said once for all graphs that it
    concerns, most graphs first. The order of a change is known -> this run. RUN is an id, the beginning of it or of its
    last six digits, or `last`.
    """
    from ..verbs.explain import explain

    output = Output(as_json, quiet)
    result = explain(reference, last=last)
    _say(output, result)
    output.result("explain", {"ok": result.ok, **vars(result)}, result.run.id)
    return 3 if exit_code and not result.ok else 0


def _say(output: Output, result: ExplainResult) -> None:
    run, found = result.run, result.explanation
    ago = format_duration(max(0.0, time.time() - run.began))
    _line(output, "run", f"{run.id}, {ago} ago: {shlex.join(run.command)}")
    _line(output, "compared", _compared(result))
    _line(output, "graphs", _counts(found))
    if result.stopped:
        _say_stopped(output, result.stopped, in_full=not found.misses)
    for causes, prefix in ((found.misses, ""), (found.bypasses, "bypassed: "), (found.fallbacks, "UNCOMPILED: ")):
        for cause in causes[:_CAUSES]:
            output.line()
            _say_cause(output, cause, prefix)
        if len(causes) > _CAUSES:
            output.line()
            output.line(f"and {count(len(causes) - _CAUSES, 'more cause')} (all of them with --json)")
    if found.misses or found.bypasses or found.fallbacks:
        output.line()
    notes = [*_state(result), *result.notes]
    for note in notes[:_NOTES]:
        _wrap(output, f"note: {note}", "", "      ")
    if len(notes) > _NOTES:
        output.line(f"and {count(len(notes) - _NOTES, 'more note')} (all of them with --json)")
    if found.processes and result.ok:
        output.ok("Nothing missed" + (" so far" if result.going else ""))


def _compared(result: ExplainResult) -> str:
    """As "snapshot 7c1e04ab, 2 earlier runs: 412 graphs"."""
    snapshot = f"snapshot {short_id(result.run.restored)}".strip() if result.snapshot else ""
    earlier = count(len(result.earlier), "earlier run") if result.earlier else ""
    what = ", ".join(filter(None, (snapshot, earlier)))
    run = result.run
    if what:
        missing = f"; {run.name} was not restored" if run.name and not run.restored else ""
        return f"{what}: {count(result.explanation.known, 'graph')} known{missing}"
    restored = "it restored no snapshot"
    if run.restored:
        restored = f"snapshot {short_id(run.restored)} does not list its graphs"
    return f"only with this run itself: {restored}, and no earlier run of this name or script told of any"


def _counts(found: Explanation) -> str:
    """As "198 hit, 14 missed, 2 bypassed; 94 s of 120 s compiling for what missed"."""
    if not found.processes:
        return "none"
    said = [f"{found.found:,} hit", f"{found.missed:,} missed"]
    said += [f"{found.traced:,} traced again"] * bool(found.traced)
    said += [f"{found.bypassed:,} bypassed"] * bool(found.bypassed)
    seconds = f"; {format_duration(found.lost)} of {format_duration(found.seconds)} compiling for what missed"
    return ", ".join(said) + (seconds if found.lost else "")


def _say_stopped(output: Output, stop: Stop, in_full: bool) -> None:
    where = f" in thread {stop.thread}" if stop.thread else ""
    _line(output, "ended", f"by --assert-warm, as {stop.graph or 'a graph'} missed{where}")
    if in_full:
        for words in stop.why or ("nothing like it is known",):
            _line(output, "why", words)


def _state(result: ExplainResult) -> list[str]:
    """Why there may be more to know than this."""
    found = []
    if result.going:
        found.append("the run is still going: this is what it has told so far")
    if result.crashed and not result.stopped:
        silent = without_end(result.crashed, result.explanation.processes)
        found.append(f"{silent}: what was compiled last may be missing here")
    return found


def without_end(number: int, processes: int) -> str:
    """As "2 of 4 processes did not say that they ended"."""
    return f"{number:,} of {count(processes, 'process')} did not say that {'it' if processes == 1 else 'they'} ended"


def _say_cause(output: Output, cause: Cause, prefix: str) -> None:
    number = count(cause.number, "graph" if not prefix or cause.graphs else "time")
    seconds = format_duration(cause.seconds) if cause.seconds else ""
    head = f"{number:<11} {seconds:>9}  " if not prefix else f"{number:<11} "
    for position, words in enumerate(cause.words):
        _wrap(
            output, (prefix if not position else "") + words, head if not position else " " * len(head), " " * len(head)
        )
    for label, text in (
        ("as", " | ".join(cause.details[:2])),
        ("of", listed(cause.functions, _EXAMPLES)),
        ("on", _places(cause)),
        ("keys", f"{cause.distinct:,}: several processes or threads asked for the same" * _is_shared(cause)),
        ("but", "only traced again: Inductor's cache had it" * cause.autograd_only),
        ("against", "a graph that this run had compiled itself" * cause.within),
        ("to do", cause.advice),
    ):
        if text:
            _line(output, f"  {label}", text)


def _is_shared(cause: Cause) -> bool:
    return 0 < cause.distinct < cause.number


def _places(cause: Cause) -> str:
    """As "cuda:0, cuda:1; thread MainThread; rank 0, 1"."""
    said = [listed(cause.devices, _EXAMPLES)] if cause.devices else []
    others = (("thread", cause.threads), ("rank", cause.ranks))
    said += [f"{word} {listed(items, _EXAMPLES)}" for word, items in others if items]
    return "; ".join(said)


def _line(output: Output, label: str, text: str) -> None:
    _wrap(output, text, f"{label:<10} ", " " * 11)


def _wrap(output: Output, text: str, first: str, others: str) -> None:
    for line in wrapped(text, first, others):
        output.line(line)
