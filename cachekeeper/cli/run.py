"""cachekeeper run"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..runs import short
from ..stores import Store
from ..units import count, format_duration, harmless, short_id
from .options import Function, cache_dir_option, examples, store_options
from .output import Output, clear_bar, plain

if TYPE_CHECKING:
    from ..runs.totals import Totals
    from ..verbs.run import RunResult, Stop, Trouble

_WIDTH = 80
_MOST_FACTS = 3


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
@click.option("--warmup", metavar="TARGET", help="Warm up first, unless what was restored is proven.")
@click.option("--assert-warm", is_flag=True, help="End the job at the first graph that misses: exit 3, and why.")
@click.option("--guard/--no-guard", default=True, help="Load the guard into the job's Python processes.")
@click.option(
    "--fallback",
    type=click.Choice(("warn", "error", "off")),
    default="warn",
    help="What the guard does where a compiled function runs uncompiled. Default: warn.",
)
@click.option("--carry", is_flag=True, help="Threads see the settings of the thread that started them.")
@click.option("--strict", is_flag=True, help="A failure of cachekeeper's own stops: exit 125, no job.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write the result here, as JSON.")
@click.option("--json", "as_json", is_flag=True, help="With --report: say nothing, it is all there.")
@click.option("--quiet", "-q", is_flag=True, help="Say no more than warnings and errors.")
def command(
    command: tuple[str, ...],
    report: Path | None,
    as_json: bool,
    quiet: bool,
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
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # it was closed, and stays so for the job
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115
    output = Output(as_json, quiet, to_stderr=True)
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
                for fact in trouble.facts[:_MOST_FACTS]:
                    click.echo(f"  {harmless(fact)}", err=True)
                if trouble.hint:
                    click.echo(f"  hint: {harmless(trouble.hint)}", err=True)

        def note(self, text: str) -> None:
            with contextlib.suppress(OSError):
                output.line(f"note: {text}")

        def warmup(self) -> WarmupListener:
            return Steps(output)

    return Told()


def _written(output: Output, report: Path | None, result: RunResult, strict: bool) -> int:
    """Write the report. Returns the exit code, which a report that cannot be written does not change."""
    if report is not None:
        document = {"schema": "cachekeeper.run/1", **plain(result)}
        try:
            report.write_text(json.dumps(document) + "\n", encoding="utf-8")
        except OSError as error:
            with contextlib.suppress(OSError):
                output.warn(f"no report: {error}")
            if strict and not result.exit_code:
                return 125
    return result.exit_code


def _say(output: Output, result: RunResult) -> None:
    clear_bar()
    for text in _summary(result):
        output.line(_cut(text))
    compiled = result.compiled
    if compiled and compiled.fallbacks:
        more = len(compiled.fallbacks) - 1
        output.warn(_cut(f"UNCOMPILED {compiled.fallbacks[0]}", _WIDTH - 9, f" (and {more} more)" * bool(more)))
    if compiled and compiled.notes:
        output.line(_note(compiled.notes))
    if result.stopped:
        _say_stopped(output, result.stopped)
    elif compiled and compiled.totals.misses:
        output.hint("`cachekeeper explain --last` says why graphs missed")
    if result.saved:
        _say_saved(output, result.saved)


def _summary(result: RunResult) -> list[str]:
    end = f"exit {result.exit_code}" if not result.signal else f"killed by signal {result.signal}"
    known = f"{short(result.id)}: " if result.id else ""
    lines = [f"Run       {known}{end} after {format_duration(result.seconds)}, {_began(result)}"]
    if result.warmed:
        lines[0] += ", proved by a warmup" if result.warmed.proof else ", warmed up"
    compiled = result.compiled
    if result.python is False:
        lines.append("Graphs    no Python process loaded the guard (it takes 3.10, without -I, -E, -S)")
    elif result.torch is False:
        lines.append("Graphs    none: no process imported torch")
    elif compiled and (result.torch or compiled.processes):
        lines.append(f"Graphs    {_graphs(compiled.totals)} (hit/missed/bypassed)")
        where = "in 1 process" if compiled.processes == 1 else f"in {compiled.processes} processes"
        cut = f" ({compiled.incomplete} not to its end)" if compiled.incomplete and not result.stopped else ""
        lines.append(f"Compiling {format_duration(compiled.totals.seconds)} {where}{cut}{_appeared(result)}")
        return lines
    return [*lines, f"Cache     {_appeared(result)[2:]}"] if result.new_entries else lines


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
    return f"restored {short_id(snapshot.id)}{name}" + ", proven" * bool(snapshot.header.proof)


def _appeared(result: RunResult) -> str:
    if result.new_entries is None:
        return ""
    verb = "appeared in the cache"
    return f"; {count(result.new_entries, 'entry')} {verb}" if result.new_entries else f"; no entry {verb}"


def _say_stopped(output: Output, stopped: Stop) -> None:
    output.warn(_cut(f"NOT WARM, so the job was ended: {stopped.function or 'a graph'} missed", _WIDTH - 9))
    for line in stopped.why[:_MOST_FACTS]:
        if not output.as_json:
            click.echo(f"  {_cut(harmless(line), _WIDTH - 2)}", err=True)
    output.hint("`cachekeeper explain --last` says more")


def _say_saved(output: Output, saved: Any) -> None:
    from .snapshot import contents

    as_name = f" as {saved.name}" if saved.name_moved else ""
    output.ok(_cut(f"Saved {short_id(saved.snapshot.id)}{as_name}: {contents(saved.snapshot.header)}", _WIDTH - 4))
    if saved.shrunk_from:
        output.warn(
            f"{saved.name} was not moved: what it points to has {saved.shrunk_from:,} entries; "
            "`cachekeeper snapshot --force` moves it"
        )


def _cut(text: str, width: int = _WIDTH, end: str = "") -> str:
    room = width - len(end)
    return (text if len(text) <= room else text[: room - 3] + "...") + end


def _note(texts: tuple[str, ...]) -> str:
    """The first of some notes, and how many more there are; of a long one the end, which says what it is about."""
    text = texts[0] if len(texts[0]) < _WIDTH - 10 else texts[0].rpartition(": ")[2]
    return _cut(f"note: {text}", _WIDTH, f" (and {len(texts) - 1} more)" * (len(texts) > 1))
