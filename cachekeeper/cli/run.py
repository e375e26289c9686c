"""cachekeeper run"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import LocalDiskError
from ..guard import VARIABLE as GUARD
from ..runs import short
from ..stores import Store
from ..telemetry import is_wanted
from ..units import count, few, format_bytes, format_duration, harmless, short_id
from .options import Function, cache_dir_option, examples, store_options, tags_option
from .output import Output, clear_bar, plain, strict_json, wrapped
from .proof import ANOTHER_PLACE
from .rm import duration

if TYPE_CHECKING:
    from ..runs.stopping import Stop
    from ..runs.totals import Totals
    from ..verbs.run import Retried, RunResult, Trouble, Watched

_NARROWEST = 40
_MOST_FACTS = 3
_STRICT = "A failure of cachekeeper's own stops: exit 125, no job. With --snapshot-on-success, NAME may be new."


@store_options
def _open(store: Store) -> Store:
    return store


def _store_flags(function: Function) -> Function:
    """--store and the like: the store is not opened yet, since what is wrong with it must not stop the job."""
    function.__click_params__ = [*getattr(function, "__click_params__", ()), *_open.__click_params__]  # type: ignore[attr-defined]
    return function


@click.command(
    name="run",
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "cachekeeper run --name drafter -- python train.py --epochs 3",
        "cachekeeper run --name drafter --snapshot-on-success -- torchrun train.py",
        "cachekeeper run --name drafter --warmup train.py:step -- ./job.sh",
        "cachekeeper run --name drafter --watch -- python serve.py",
        "cachekeeper run --name drafter --retry-cold -- python serve.py",
        "cachekeeper run --name drafter --assert-warm -- python serve.py",
        "cachekeeper run --no-restore --report run.json -- python train.py",
    ),
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND...")
@click.option("--name", metavar="NAME", help="The snapshot to restore, and to save.  [CACHEKEEPER_NAME]")
@click.option(
    "--restore/--no-restore", default=None, help="Default: where there is a name. --restore without one: `latest`."
)
@cache_dir_option
@_store_flags
@click.option("--snapshot-on-success", is_flag=True, help="Save it under NAME after exit 0, if there is more in it.")
@tags_option
@click.option("--warmup", metavar="TARGET", help="Warm up first, unless what was restored is proven for TARGET.")
@click.option(
    "--assert-warm",
    is_flag=True,
    help="End the job at the first graph that misses: exit 3, and why. Exit 3 too where it succeeds and no process "
    "imported torch.",
)
@click.option("--guard/--no-guard", default=True, help="Load the guard into the job's Python processes.")
@click.option(
    "--fallback",
    type=click.Choice(("warn", "error", "off")),
    help="What the guard does where a compiled function runs uncompiled. Default: warn.",
)
@click.option("--carry", is_flag=True, help="Threads see the settings of the thread that started them.")
@click.option("--watch", is_flag=True, help="Put back what vanishes from the restored cache while the job runs.")
@click.option(
    "--retry-cold",
    is_flag=True,
    help="Where it fails by itself on a cache that was not empty: put that cache aside, as `clear`, and start it once "
    "more.",
)
@click.option(
    "--retry-within",
    callback=duration,
    metavar="DURATION",
    help="With --retry-cold: only where it fails so soon.  Default: 30min.",
)
@click.option("--strict", is_flag=True, help=_STRICT)
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write the result here, as JSON.")
@click.option("--json", "as_json", is_flag=True, help="With --report: say nothing, it is all there.")
@click.option("--quiet", "-q", is_flag=True, help="Say no more than warnings and errors.")
def command(
    command: tuple[str, ...],
    report: Path | None,
    as_json: bool,
    quiet: bool,
    retry_within: float | None,
    **options: Any,
) -> int:
    """Run a job on a restored cache, guarded, and say what compiled.

    The job has this terminal, its signals are the job's, and its exit code comes back (128 + n for a signal, 127 not
    found, 126 not executable). What cachekeeper says is on standard error. What of it fails is a warning, and the job
    runs. Standard output is the job's alone: --json needs --report.

    The guard makes threads that compile at the same time safe, and notes what compiles: `stats`, `explain`.
    """
    from ..supervision import die_of
    from ..verbs.run import run

    if as_json and report is None:
        raise click.UsageError("--json needs --report FILE: standard output is the job's.", click.get_current_context())
    if retry_within is not None:
        if not options["retry_cold"]:
            raise click.UsageError("--retry-within goes with --retry-cold")
        options["retry_within"] = retry_within
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # it was closed, and stays so for the job
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115
    output = Output(as_json, quiet, to_stderr=True)
    if report and options["strict"]:
        _check_report(report)
    store = {name: options.pop(name) for name in ("store", "s3_endpoint", "local_cache", "read_only")}
    result = run(
        command,
        store=lambda: _open(**store),
        listener=_listener(output),
        progress=output.progress(),
        **options,
    )
    with contextlib.suppress(OSError):  # whoever read our words is gone
        _say(output, result)
    code = _written(output, report, result, bool(options["strict"]))
    if result.signal:
        die_of(result.signal)
    return code


def _listener(output: Output) -> Any:
    from ..verbs.run import Listener
    from ..warming import Listener as WarmupListener
    from .warming import Steps

    class Told(Listener):
        def trouble(self, trouble: Trouble) -> None:
            with contextlib.suppress(OSError):
                clear_bar()
                output.warn(f"{trouble.what}: {trouble.message}")
                if output.as_json:
                    return
                for line in few(trouble.facts, _MOST_FACTS):
                    click.echo(f"  {harmless(line)}", err=True)
                if trouble.hint:
                    click.echo(f"  hint: {harmless(trouble.hint)}", err=True)

        def note(self, text: str) -> None:
            with contextlib.suppress(OSError):
                output.line(f"note: {text}")

        def warmup(self) -> WarmupListener:
            return Steps(output)

    return Told()


def _check_report(report: Path) -> None:
    """Refuse, before the job, a report that cannot be written.

    Raises:
        LocalDiskError: with exit code 125.
    """
    try:
        there = report.exists()
        if there and not report.is_file():
            return  # to open a pipe and to close it again is an end for its reader
        report.open("ab").close()
        if not there:
            report.resolve().unlink()  # a link to it stays
    except OSError as error:
        hint = "name another file with --report"
        refused = LocalDiskError(f"cannot write the report {report}: {_reason(error)}", hint=hint)
        refused.exit_code = 125
        raise refused from None


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _written(output: Output, report: Path | None, result: RunResult, strict: bool) -> int:
    """Write the report. Returns the exit code, which with `strict` a report that cannot be written changes."""
    if report is None:
        return result.exit_code
    document = {"schema": "cachekeeper.run/1", **plain(result)}
    try:
        report.write_text(strict_json(document) + "\n", encoding="utf-8")
    except OSError as error:
        code = 125 if strict and not result.exit_code else result.exit_code
        ours = f"; exit {code} (the job: {result.job_exit_code})" if code != result.exit_code else ""
        with contextlib.suppress(OSError):
            output.warn(f"no report: cannot write {report}: {_reason(error)}{ours}")
        return code
    return result.exit_code


def _say(output: Output, result: RunResult) -> None:
    clear_bar()
    for text in _summary(result):
        _line(output, text, 10)
    if result.watched:
        _line(output, f"Watch     {_watched(result.watched)}", 10)
        if result.watched.notes:
            _line(output, f"note: {_first(result.watched.notes)}", 6)
    _say_compiled(output, result)
    if result.retried:
        _say_retried(output, result, result.retried)
    _say_of_the_cache(output, result)
    if result.saved:
        _say_saved(output, result.saved)


def _say_compiled(output: Output, result: RunResult) -> None:
    compiled = result.compiled
    if compiled and compiled.fallbacks:
        _warn(output, f"UNCOMPILED {_first(compiled.fallbacks)}")
        output.hint(f"`cachekeeper stats {short(result.id)}` shows what ran uncompiled, by process")
    if compiled and compiled.notes:
        _line(output, f"note: {_first(compiled.notes)}", 6)
    if result.stopped:
        _say_stopped(output, result.stopped)
        if compiled:
            output.hint(f"`cachekeeper explain {short(result.id)}` says more")
    elif compiled and compiled.totals.misses:
        output.hint(f"`cachekeeper explain {short(result.id)}` says why graphs missed")


def _say_saved(output: Output, saved: Any) -> None:
    from .snapshot import say_saved

    say_saved(output, saved, "Saved", f"`cachekeeper snapshot {shlex.quote(saved.name)} --force` moves it")
    for note in saved.notes:
        _line(output, f"note: {note}", 6)


def _say_of_the_cache(output: Output, result: RunResult) -> None:
    """What may be wrong with the cache, where the job does not say so."""
    missed = result.compiled is not None and result.compiled.totals.misses
    if missed and result.new_entries == 0 and not result.exit_code:
        output.hint(f"what missed is not in {result.cache_dir} now: {ANOTHER_PLACE}")
    if _failed_on_a_restored_cache(result):
        output.hint(
            "is it the cache? `run --retry-cold` tries; or `cachekeeper clear` puts it aside, whole, and "
            "`run --no-restore` starts the job cold"
        )


def _failed_on_a_restored_cache(result: RunResult) -> bool:
    restored = result.restored is not None and result.restored.snapshot is not None
    return restored and bool(result.job_exit_code) and not result.signal and not result.stopped


def _say_retried(output: Output, result: RunResult, retried: Retried) -> None:
    """What two attempts say of the cache, and what to do."""
    _line(output, f"Aside     {retried.trash}", 10)
    cleared = f"`cachekeeper clear {shlex.quote(str(result.cache_dir))}"
    first, snapshot = retried.first, retried.first.restored.snapshot if retried.first.restored else None
    if result.signal:
        output.hint(f"whether it was the cache is not known; {cleared} --undo` brings back the first one")
        return
    if result.job_exit_code:
        output.hint(f"it fails on an empty cache, too: {cleared} --undo` brings back the first one")
        return
    name = first.name or (short_id(snapshot.id) if snapshot else "")
    ends = f"exit {first.exit_code} with it, exit 0 on an empty cache"
    if snapshot is None:
        _warn(output, f"WHAT WAS IN {result.cache_dir} MAKES THE JOB FAIL: {ends}")
        return
    beside = f", or one of {count(retried.others, 'entry')} that were there beside it" if retried.others else ""
    _warn(output, f"THE SNAPSHOT {short_id(snapshot.id)} ({name}) MAKES THE JOB FAIL{beside}: {ends}")
    output.hint(f"`cachekeeper verify {short_id(snapshot.id)} --replay TARGET` tries it in a directory of its own")
    if result.saved and result.saved.name_moved:
        bad = shlex.quote(f"{name}@{{1}}")
        output.hint(f"{name} is the new snapshot now; `cachekeeper rm {bad}` takes the other one away")
    else:
        again = f"`cachekeeper rm {short_id(snapshot.id)}` takes it away, and a name that points to it goes one back"
        output.hint(f"the next start restores it again: {again}")


def _summary(result: RunResult) -> list[str]:
    end = f"exit {result.exit_code}" if not result.signal else f"killed by signal {result.signal}"
    if result.exit_code != result.job_exit_code and not result.stopped:
        end += f" (the job: {result.job_exit_code})"
    began = "started once more, cold" if result.retried else _began(result)
    lines = [f"Run       {_known(result)}{end} after {format_duration(result.seconds)}, {began}"]
    if result.retried:
        first = result.retried.first
        ended = f"{_known(first)}exit {first.exit_code} after {format_duration(first.seconds)}"
        lines.insert(0, f"First     {ended}, {_began(first)}")
    if result.warmed:
        lines[-1] += ", proved by a warmup" if result.warmed.proof else ", warmed up"
    compiled = result.compiled
    if result.python is False:
        lines.append("Graphs    no Python process loaded the guard (Python 3.10 or later, without -I, -E, -S)")
    elif result.torch is False:
        lines.append("Graphs    none: no process imported torch")
    elif compiled and (result.torch or compiled.processes):
        lines.append(f"Graphs    {_graphs(compiled.totals)} (hit/missed/bypassed)")
        where = "in 1 process" if compiled.processes == 1 else f"in {compiled.processes} processes"
        cut = f" ({compiled.incomplete} not to its end)" if compiled.incomplete and not result.stopped else ""
        warm = compiled.totals.all_found and not result.new_entries
        word, found = ("Tracing", ", every graph found") if warm else ("Compiling", "")
        lines.append(f"{word:<9} {format_duration(compiled.totals.seconds)} {where}{cut}{found}{_appeared(result)}")
        return lines
    elif compiled is None and GUARD in result.environment:
        off = "telemetry is off" if not is_wanted(os.environ) else "nothing is kept of this run"
        lines.append(f"Graphs    not counted: {off}")
    return [*lines, f"Cache     {_appeared(result)[2:]}"] if result.new_entries else lines


def _known(result: RunResult) -> str:
    return f"{short(result.id)}: " if result.id else ""


def _watched(watched: Watched) -> str:
    """As "put back 3 entries, 1.2 MiB"."""
    done = f"put back {count(watched.entries, 'entry')}, {format_bytes(watched.bytes)}"
    lost = f"; {count(len(watched.lost), 'entry')} could not be put back" if watched.lost else ""
    return (done if watched.entries else "nothing had to be put back") + lost


def _graphs(totals: Totals) -> str:
    """As "Inductor 12/3/0, autograd 6/1/0"."""
    caches = {"Inductor": totals.caches["fx"], "autograd": totals.caches["aot"]}
    return ", ".join(
        f"{cache} " + "/".join(f"{states[state]:,}" for state in ("hit", "miss", "bypass"))
        for cache, states in caches.items()
    )


def _began(result: RunResult) -> str:
    snapshot = result.restored.snapshot if result.restored else None
    if snapshot is None:
        return "nothing restored"
    name = f" ({result.name})" if result.name and result.name != snapshot.id[: len(result.name)] else ""
    return f"restored {short_id(snapshot.id)}{name}" + ", proven" * bool(snapshot.header.proof and not result.warmed)


def _appeared(result: RunResult) -> str:
    if result.new_entries is None:
        return ""
    verb = "appeared in the cache"
    return f"; {count(result.new_entries, 'entry')} {verb}" if result.new_entries else f"; no entry {verb}"


def _say_stopped(output: Output, stopped: Stop) -> None:
    _warn(output, f"NOT WARM, so the job was ended: {stopped.graph or 'a graph'} missed")
    for text in few(stopped.why, _MOST_FACTS):
        for line in _wrapped(text, "  ", "    "):
            if not output.as_json:
                click.echo(harmless(line), err=True)


def _first(texts: Sequence[str]) -> str:
    return texts[0] + f" (and {len(texts) - 1:,} more)" * (len(texts) > 1)


def _wrapped(text: str, first: str, others: str) -> list[str]:
    """Lines as wide as the terminal, or of 80 columns."""
    return wrapped(text, first, others, max(_NARROWEST, shutil.get_terminal_size().columns))


def _line(output: Output, text: str, indent: int) -> None:
    for line in _wrapped(text, "", " " * indent):
        output.line(line)


def _warn(output: Output, text: str) -> None:
    label = "warning: "
    first, *others = _wrapped(text, label, " " * len(label))
    output.warn(first.removeprefix(label))
    for line in others:
        if not output.as_json:
            click.echo(harmless(line), err=True)
