"""cachekeeper restore"""

from __future__ import annotations

import os
import shlex

import click

from ..inductor import KINDS
from ..instead import in_words
from ..signing import short_key
from ..stores import Store
from ..units import count, format_bytes, short_id
from .options import cache_dir_option, examples, model_options, output_options, store_options
from .output import Output

_MOST = 20


@click.command(
    name="restore",
    epilog=examples(
        "cachekeeper restore drafter --verify",
        'eval "$(cachekeeper restore drafter --verify --missing-ok --export)"',
        "cachekeeper restore latest --dry-run",
        "cachekeeper restore drafter --require-signature ~/keys/release.pub",
        "cachekeeper restore drafter@{1} --cache-dir /scratch/inductor --exact",
    ),
)
@click.argument("reference", required=False, metavar="[ID|NAME]")
@click.option("--verify", is_flag=True, help="Read everything again after writing.")
@cache_dir_option
@store_options
@click.option("--exact", is_flag=True, help="Move what the snapshot does not have aside.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(KINDS),
    metavar="KIND",
    help=f"Restore this kind only; may be repeated. Kinds: {', '.join(KINDS)}.",
)
@click.option("--repair", is_flag=True, help="Also move damaged entries aside that the snapshot does not have.")
@click.option("--missing-ok", is_flag=True, help="No snapshot is no error: the job starts cold.")
@click.option("--allow-mismatch", is_flag=True, help="Restore although this environment is another.")
@click.option("--allow-damaged", is_flag=True, help="Leave out the damaged entries of a damaged snapshot.")
@click.option("--require-proof", is_flag=True, help="Only a snapshot that a warmup has proved will do; else exit 3.")
@click.option(
    "--require-signature",
    metavar="KEY",
    help="Only what this public key has signed will do (text, a .pub file or a file of several); else exit 3.  "
    "[CACHEKEEPER_REQUIRE_SIGNATURE]",
)
@click.option("--allow-older", is_flag=True, help="Although this machine saw the name point to something newer.")
@model_options
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--export", is_flag=True, help="Print the job's environment for `eval`; words go to standard error.")
@output_options
def command(
    reference: str | None,
    verify: bool,
    cache_dir: str | None,
    store: Store,
    exact: bool,
    only: tuple[str, ...],
    repair: bool,
    missing_ok: bool,
    allow_mismatch: bool,
    allow_damaged: bool,
    require_proof: bool,
    require_signature: str | None,
    allow_older: bool,
    model_config: str | None,
    model_sources: tuple[str, ...],
    dry_run: bool,
    export: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Bring a snapshot back into a cache directory.

    `latest`, the default, is the newest that fits this machine. What is right in the directory stays; what is missing
    or wrong is put right, entry by entry; extra entries stay.
    """
    from ..verbs.restore import RestoreResult, restore

    output = Output(as_json, quiet, to_stderr=export)
    result: RestoreResult = restore(
        reference,
        cache_dir=cache_dir,
        store=store,
        verify=verify,
        exact=exact,
        only=only,
        repair=repair,
        missing_ok=missing_ok,
        allow_mismatch=allow_mismatch,
        allow_damaged=allow_damaged,
        require_proof=require_proof,
        require_signature=require_signature,
        allow_older=allow_older,
        model_config=model_config,
        model_sources=model_sources,
        dry_run=dry_run,
        progress=output.progress(),
    )
    _say(output, result, export)
    output.result("restore", result, result.snapshot.id if result.snapshot else "")
    if not result.ok:
        return 3
    if export:
        for variable, value in (result.environment or {}).items():
            click.echo(os.fsencode(f"export {variable}={shlex.quote(value)}"))
    return 0


def _say(output: Output, result: object, export: bool) -> None:
    from ..verbs.restore import RestoreResult

    assert isinstance(result, RestoreResult)
    if result.snapshot is None:
        output.warn(f"nothing restored: {result.notes[0]}")
        return
    header = result.snapshot.header
    differences = result.comparison.must if result.comparison else ()
    fits = "matches" if not differences else "does NOT match (--allow-mismatch)"
    output.line(f"Environment  {fits}")
    for item in differences:
        output.warn(f"{item.name} {item.theirs} -> {item.ours}" + (f" ({item.effect})" if item.effect else ""))
    for note in result.notes:
        output.line(f"note: {note}")
    word = "Would restore" if result.dry_run else "Restored"
    output.line(
        f"Snapshot     {short_id(result.snapshot.id)}   {count(header.files, 'file')}   {format_bytes(header.bytes)}"
        + ("   proven" if header.proof else "")
    )
    _say_what_was_done(output, result)
    if not result.ok:
        output.line(f"NOT ok: nothing of it could be restored to {result.cache_dir}")
        output.hint("restore another one (`cachekeeper ls`), or start cold")
        return
    output.ok(
        f"{word} to {result.cache_dir}: {result.new:,} new, {result.same:,} already there, {result.replaced:,} replaced"
    )
    if not export and result.environment:
        output.line("jobs need, before they import torch (--export prints it for eval):")
        for variable, value in result.environment.items():
            output.line(f"  export {variable}={shlex.quote(value)}", whole=True)


def _say_what_was_done(output: Output, result: object) -> None:
    from ..verbs.restore import RestoreResult

    assert isinstance(result, RestoreResult)
    if result.passed_over and result.snapshot:
        output.warn(in_words(result.passed_over, result.snapshot.id))
    if result.signed_by:
        output.line(f"Signature    good, by key {short_key(result.signed_by)}")
    for line in result.mended:
        output.line(f"Replaced     {line}" if not result.dry_run else f"Would replace  {line}")
    if result.left_out:
        output.warn(f"{count(len(result.left_out), 'entry')} left out, damaged in the store:")
        output.some(result.left_out)
    _say_extras(output, result)
    if result.aside:
        output.line(f"Put aside    {result.aside}")
        where = shlex.quote(str(result.cache_dir))
        output.line(f"             until `cachekeeper clear {where} --empty-trash` deletes it")
    if result.verified is not None:
        output.line(f"Verified     {count(result.verified, 'file')} read again, every SHA-256 matches")


def _say_extras(output: Output, result: object) -> None:
    """What `--exact` moves away."""
    from ..verbs.restore import RestoreResult

    assert isinstance(result, RestoreResult)
    if not result.extras:
        return
    amount = f"{count(len(result.extras), 'file')} or kernels that the snapshot does not have"
    if not result.dry_run:
        output.line(f"Moved away   {amount}")
        return
    output.line(f"Would move away  {amount}")
    for path in result.extras[:_MOST]:
        output.line(f"  {path}")
    if len(result.extras) > _MOST:
        output.line(f"  and {len(result.extras) - _MOST:,} more; --json lists all")
