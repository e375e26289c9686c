"""cachekeeper warmup"""

from __future__ import annotations

from typing import Any

import click

from ..stores import Store
from ..units import count, format_duration, harmless, spaced
from .options import (
    cache_dir_option,
    examples,
    metrics_option,
    output_options,
    plan_options,
    store_options,
    tags_option,
)
from .output import Output
from .proof import ANOTHER_PLACE, in_words
from .snapshot import say_saved


@click.command(
    name="warmup",
    epilog=examples(
        "cachekeeper warmup train.py:step --dry-run",
        "cachekeeper warmup train.py:step --snapshot drafter",
        "cachekeeper warmup train.py:step --device cuda:5 --mode train --shape 8x512",
        "cachekeeper warmup package.module:step --in-thread --no-prove",
    ),
)
@click.argument("target", required=False, metavar="[TARGET]")
@plan_options
@cache_dir_option
@click.option("--keep-going", is_flag=True, help="Go on with the plan after a step that raised.")
@click.option("--prove/--no-prove", default=True, help="Run it again in a second process, which must build nothing.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and run nothing.")
@click.option("--snapshot", "name", metavar="NAME", help="Save the cache under this name, where nothing is wrong.")
@store_options
@click.option("--message", "-m", default="", metavar="TEXT", help="A note to keep with the snapshot.")
@metrics_option
@tags_option
@click.option("--force", is_flag=True, help="Move the name even to a much smaller snapshot.")
@output_options
def command(
    target: str | None,
    plan: dict[str, Any],
    cache_dir: str | None,
    keep_going: bool,
    prove: bool,
    dry_run: bool,
    name: str | None,
    store: Store,
    message: str,
    metrics: dict[str, float],
    tags: dict[str, str],
    force: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Fill the cache on purpose, and prove that a fresh process finds everything in it.

    TARGET is `path/to/train.py:step` or `package.module:step`: a function that takes any of `device`, `mode` and
    `shape` and runs the real model for one step. The plan is the product of all three, one step after the other;
    `@cachekeeper.plan(...)` or `[warmup."TARGET"]` in cachekeeper.toml declares it, options here win. In mode `infer`
    the function is called under no_grad, in `train` with gradients; a scalar that it returns then is taken for the
    loss, and its backward is run.

    Columns: graphs and autograd are found/missed/bypassed, kernels are found/compiled by Triton; memory is that of
    the device, of the process for a CPU. Exit 3: a step raised, or the second process built something.
    """
    from ..verbs.warmup import WarmupResult, warmup
    from .warming import Steps, product

    output = Output(as_json, quiet)
    result: WarmupResult = warmup(
        target,
        **plan,
        cache_dir=cache_dir,
        keep_going=keep_going,
        prove=prove,
        dry_run=dry_run,
        name=name,
        store=store,
        message=message,
        metrics=metrics,
        tags=tags,
        force=force,
        listener=None if dry_run else Steps(output),
        progress=output.progress(),
    )
    if dry_run:
        output.line(f"Plan      {product(result.steps)}   {count(len(result.steps), 'step')} in {result.cache_dir}")
        for number, step in enumerate(result.steps, 1):
            output.line(f"{number:>4} {spaced(*step)}")
    else:
        _say(output, result, prove)
    output.result("warmup", {"ok": result.ok, **vars(result)}, result.saved.snapshot.id if result.saved else "")
    return 0 if result.ok and not (result.saved and result.saved.shrunk_from) else 3


def _say(output: Output, result: object, prove: bool) -> None:
    from ..verbs.warmup import WarmupResult

    assert isinstance(result, WarmupResult)
    cold = format_duration(sum(report.seconds for report in result.warmed))
    if result.failed or len(result.warmed) < len(result.steps):
        _say_failed(output, result)
        return
    if result.doubts:
        _say_doubts(output, result)
        return
    for note in result.notes:
        output.line(f"note: {note}")
    if result.proof:
        output.ok(f"Proved: {in_words(result.proof)}")
    else:
        output.ok(f"Warmed: {count(len(result.steps), 'step')}, {cold}; nothing is proved (--no-prove)")
    if result.saved is None:
        output.hint("the same with --snapshot NAME saves it" + ", proof and all" * bool(result.proof))
        return
    say_saved(output, result.saved, "Saved", "warm up again with --force")


def _say_failed(output: Output, result: object) -> None:
    from ..verbs.warmup import WarmupResult

    assert isinstance(result, WarmupResult)
    for report in result.failed:
        output.warn(f"step {report} raised")
        for line in report.error.rstrip().splitlines():
            click.echo(f"  {harmless(line)}", err=True)
    ran = len(result.warmed)
    output.line(f"NOT ok: {len(result.failed)} of {ran} steps raised, {len(result.steps) - ran} not run; nothing saved")
    if len(result.failed) == 1 and ran < len(result.steps):
        output.hint("--keep-going goes on after a step that raised")


def _say_doubts(output: Output, result: object) -> None:
    from ..verbs.warmup import WarmupResult
    from .warming import say_doubts

    assert isinstance(result, WarmupResult)
    say_doubts(output, result.doubts)
    output.line(f"NOT proved: {len(result.doubts)} of {len(result.steps)} steps would not be warm; nothing saved")
    missed = [line for lines in result.doubts.values() for line in lines if line.startswith("missed")]
    if any("the cache is off" not in line for line in missed):
        if any(report.new_entries for report in (*result.warmed, *result.proved)):
            output.hint("what missed is cached now: a second warmup shows whether it stays so")
        else:
            output.hint(f"no entry appeared in {result.cache_dir}: {ANOTHER_PLACE}")
    output.hint("--no-prove --snapshot NAME saves it all the same, unproved")
