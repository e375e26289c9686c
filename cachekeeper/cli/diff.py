"""cachekeeper diff"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..stores import Store
from ..units import age_seconds, few, format_duration, older_than, short_id, with_short_names
from .diff_parts import CHANGES, LABEL, SAY, wrap
from .one_kernel import say_kernels
from .options import examples, exit_code_option, full_option, output_options, store_options
from .output import Output, table
from .pages import html_options, write_page

if TYPE_CHECKING:
    from ..diffing.models import Difference, Side, Suspect
    from ..verbs.diff import DiffResult

_ALWAYS = ("differs", "a", "b", "verdict", "work", "notes")
_NOTES = 6


@click.command(
    name="diff",
    epilog=examples(
        "cachekeeper diff drafter@{1} drafter",
        "cachekeeper diff drafter                 # the same: the last two of a name",
        "cachekeeper diff 51d9aa30 /tmp/torchinductor_me --only kernels",
        "cachekeeper diff drafter --kernel softcap",
        "cachekeeper diff drafter --html diff.html",
    ),
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="[B]", required=False)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(SAY)),
    help="Show this part alone; may be repeated. With --json, too.",
)
@click.option("--kernel", metavar="NAME", default="", help="Only kernels with NAME in their name, in full detail.")
@html_options
@exit_code_option("anything differs")
@full_option
@store_options
@output_options
def command(
    a: str,
    b: str | None,
    only: tuple[str, ...],
    kernel: str,
    html: str | None,
    force: bool,
    exit_code: bool,
    full: bool,
    store: Store,
    as_json: bool,
    quiet: bool,
) -> int:
    """Say what is different between two caches, whether it matters, and whether they can be compared at all.

    A and B are ids, names, name@{1} for the one before, "latest", or directories (with a slash, as ./cache). A alone
    is a name: its snapshot before against its last. Changes read A -> B. Nothing is unpickled, loaded or run, and no
    GPU is needed.
    """
    from ..verbs.diff import diff

    _check(only, kernel, html, as_json)
    output = Output(as_json, quiet)
    result = diff(a, b, store=store, kernel=kernel, full=full, fork=True, progress=output.progress())
    if html:
        _write(output, result, html, force, ("--kernel", kernel) if kernel else ())
    elif kernel:
        _say_sides(output, result.difference)
        say_kernels(output, result)
    else:
        say(output, result, only)
    if html != "-":
        output.result("diff", _document(result, only))
    return 3 if exit_code and result.differs else 0


def _check(only: Sequence[str], kernel: str, html: str | None, as_json: bool) -> None:
    if html == "-" and as_json:
        raise click.UsageError("--json and --html - both want standard output.", click.get_current_context())
    if only and (kernel or html):
        other = "--kernel shows kernels alone" if kernel else "a page has all parts"
        raise click.UsageError(f"--only goes with neither --kernel nor --html: {other}.", click.get_current_context())


def _document(result: DiffResult, only: Sequence[str]) -> dict[str, Any]:
    """All of it, or the parts that were asked for; the verdict, and what could not be read, belong to each."""
    parts = vars(result.difference)
    first = {name: parts[name] for name in ("differs", "a", "b", "verdict", "suspects")}
    whole = {**first, **parts, "same": result.same}
    if not only:
        return whole
    kept = {*_ALWAYS, *only, *(["metrics"] if "work" in only else [])}
    return {name: value for name, value in whole.items() if name in kept}


def _write(output: Output, result: DiffResult, html: str, force: bool, more: tuple[str, ...]) -> None:
    from ..pages import of_difference

    found = result.difference
    write_page(html, of_difference(found), force, ("diff", found.a.label, found.b.label, *more))
    if html != "-":
        _say_sides(output, found)
        _say_verdict(output, found)
        output.line()
        output.ok(f"Wrote {html}")


def say(output: Output, result: DiffResult, only: Sequence[str] = ()) -> None:
    """A comparison in words.

    Args:
        only: those of SAY that are said; empty: all, and the verdict first.
    """
    found = result.difference
    _say_sides(output, found)
    if not only:
        _say_verdict(output, found)
    for part in only or SAY:
        SAY[part](output, found)
    for note in found.notes[:_NOTES]:
        output.line()
        wrap(output, f"note: {note}", "", "      ")
    if found.kernels.changed and "kernels" in (only or SAY):
        output.line()
        output.hint("one kernel in full: `--kernel NAME`; all of it as a page: `--html FILE`")


def _say_sides(output: Output, found: Difference) -> None:
    from ..environment import summary

    rows = []
    for letter, side in (("a", found.a), ("b", found.b)):
        age = f"{format_duration(age_seconds(side.created))} old" if side.created else "live"
        machine = summary(side.fingerprint) if side.fingerprint else ""
        rows.append([letter, short_id(side.id), _called(side), age, machine])
    for row in table(rows):
        output.line(row)
    for letter, side in (("a", found.a), ("b", found.b)):
        if side.message:
            wrap(output, side.message, f"{letter}: ", "   ")
    older = older_than(found.a.created, found.b.created)
    if older:
        wrap(output, f"note: {older}", "", "      ")


def _called(side: Side) -> str:
    return side.name if side.id.startswith(side.label) and side.name else side.label


# The verdict


def _say_verdict(output: Output, found: Difference) -> None:
    output.line()
    wrap(output, with_short_names(found.verdict), "", "")
    for suspect in found.suspects:
        output.line()
        _say_suspect(output, suspect)


def _say_suspect(output: Output, suspect: Suspect) -> None:
    head = f"{suspect.likelihood:<{LABEL}} "
    effect = f"{suspect.effect}: " if suspect.effect else ""
    wrap(output, effect + with_short_names(suspect.words), head)
    for number, words in enumerate(few(suspect.evidence, CHANGES)):
        wrap(output, with_short_names(words), f"  {'as' if not number else '':<{LABEL - 2}} ")
    if suspect.advice:
        wrap(output, with_short_names(suspect.advice), f"  {'to do':<{LABEL - 2}} ")
