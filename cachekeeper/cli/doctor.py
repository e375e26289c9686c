"""cachekeeper doctor"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from ..stores import Store
from ..units import count
from .options import cache_dir_option, examples, output_options, store_options
from .output import Output, labelled, wrapped

if TYPE_CHECKING:
    from ..verbs.doctor import Remedy

_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "red"}
_INDENT = " " * 9


@click.command(
    name="doctor",
    epilog=examples(
        "cachekeeper doctor",
        "cachekeeper doctor --cache-dir /local/torchinductor --store /srv/caches",
        "cachekeeper doctor --json | jq '.findings[] | select(.level != \"ok\")'",
        "cachekeeper doctor --quiet || exit 1",
        "cachekeeper doctor --fix | less",
    ),
)
@click.option("--fix", is_flag=True, help="Print what to do about it, as a shell script to read; nothing is run.")
@cache_dir_option
@store_options
@partial(output_options, quiet="Print no more than errors.")
def command(fix: bool, cache_dir: str | None, store: Store, as_json: bool, quiet: bool) -> int:
    """Is this machine ready? Exit 3 where something is an error.

    Looks at the cache directory that torch would use, the job's switches, torch, and the store, and says how to mend
    what it finds. It changes nothing: a probe file is written and removed. Run it with the job's Python and in the
    job's environment. With --quiet only errors are printed.
    """
    from ..verbs.doctor import doctor, remedies

    output = Output(as_json, quiet)
    result = doctor(cache_dir=cache_dir, store=store)
    if fix:
        found = remedies(result)
        _say_remedies(output, found)
        output.result("doctor-fix", {"ok": result.ok, "remedies": found})
    else:
        _say(output, result)
        output.result("doctor", {"ok": result.ok, **vars(result)})
    return 0 if result.ok else 3


def _say_remedies(output: Output, found: tuple[Remedy, ...]) -> None:
    for remedy in found:
        for line in wrapped(f"{remedy.check}: {remedy.message}", "# ", "#   "):
            output.line(line)
        for line in remedy.commands:
            output.line(line, whole=True)
        output.line()
    if not found:
        output.line("# nothing to mend")


def _say(output: Output, result: object) -> None:
    from ..verbs.doctor import DoctorResult
    from ..verbs.doctor.remedies import is_command

    assert isinstance(result, DoctorResult)
    output.line(f"Cache directory  {result.cache_dir}   {result.source}")
    output.line(f"Store            {result.store}")
    output.line()
    for finding in result.findings:
        said = f"{finding.check}: {finding.message}"
        output.labelled(f"{finding.level:<7}", _COLOURS[finding.level], "  ", said)
        if finding.fix and finding.level != "ok":
            output.line(f"{_INDENT}fix: {finding.fix}", whole=is_command(finding.fix))
        if output.quiet and not output.as_json and finding.level == "error":
            click.echo(labelled("error", "red", ": ", said, err=True), err=True)
    output.line()
    _conclude(output, result)


def _conclude(output: Output, result: object) -> None:
    from ..verbs.doctor import DoctorResult

    assert isinstance(result, DoctorResult)
    errors, warnings, notes = (result.number(level) for level in ("error", "warning", "note"))
    summary = f"{count(errors, 'error')}, {count(warnings, 'warning')}, {count(notes, 'note')}"
    if result.ok:
        output.ok(f"ready: {summary}")
    else:
        output.line(f"NOT ready: {summary}")
