"""cachekeeper import"""

from __future__ import annotations

import click

from ..stores import Store
from ..units import count, format_bytes, short_id
from .options import examples, metrics_option, output_options, store_options, tags_option
from .output import Output
from .snapshot import say_flaws, say_saved


@click.command(
    name="import",
    epilog=examples(
        "cachekeeper import cache.tar.zst --name drafter",
        "cachekeeper import artifacts.mega --name drafter --fingerprint made-on.json",
        "cachekeeper import /mnt/old/torchinductor_me --name drafter",
        "cachekeeper import s3://bucket/caches --only drafter",
        "cachekeeper import - --name drafter   what another machine's export pipes in",
    ),
)
@click.argument("source", metavar="SRC")
@click.option("--name", metavar="NAME", help="Point this name to it.  [CACHEKEEPER_NAME]")
@store_options
@click.option("--root", metavar="PATH", help="The directory in SRC that is the cache, where there are several.")
@click.option("--only", multiple=True, metavar="ID|NAME", help="Of a store, this snapshot alone; may be repeated.")
@click.option(
    "--fingerprint",
    metavar="FILE",
    help="What `cachekeeper fingerprint --json` printed where it was made. Default: what an export says of itself; "
    "else it was made in this environment.",
)
@click.option("--message", "-m", default="", metavar="TEXT", help="A note to keep with it.")
@metrics_option
@tags_option
@click.option("--allow-damaged", is_flag=True, help="Save damaged entries too, and note them.")
@click.option(
    "--allow-secrets", is_flag=True, help="Save files that hold what looks like keys or tokens, and note which."
)
@click.option("--allow-mismatch", is_flag=True, help="Import it although its kernels are for another environment.")
@click.option("--force", is_flag=True, help="Move the name even to a much smaller snapshot.")
@output_options
def command(
    source: str,
    name: str | None,
    store: Store,
    root: str | None,
    only: tuple[str, ...],
    fingerprint: str | None,
    message: str,
    metrics: dict[str, float],
    tags: dict[str, str],
    allow_damaged: bool,
    allow_secrets: bool,
    allow_mismatch: bool,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Save a cache that lies elsewhere as a snapshot.

    SRC is a directory, a tar file (plain, gzip, bzip2, xz, zstd), a Mega-Cache (what
    torch.compiler.save_cache_artifacts returned), or a store, whose snapshots are copied; - is standard input. Its
    kind is told from its bytes. Nothing in it is unpickled, and links and paths that lead out are refused.
    """
    from ..verbs.import_cache import import_cache

    output = Output(as_json, quiet)
    result = import_cache(
        source,
        name,
        store=store,
        root=root,
        only=only,
        fingerprint=fingerprint,
        message=message,
        metrics=metrics,
        tags=tags,
        allow_damaged=allow_damaged,
        allow_secrets=allow_secrets,
        allow_mismatch=allow_mismatch,
        force=force,
        progress=output.progress(),
    )
    _say(output, result)
    ids = [result.saved.snapshot.id] if result.saved else list(result.copied.copied) if result.copied else []
    output.result("import", {"ok": result.ok, **vars(result)}, "\n".join(ids))
    return 0 if result.ok else 3


def _say(output: Output, result: object) -> None:
    from ..verbs.import_cache import ImportResult

    assert isinstance(result, ImportResult)
    if result.copied is not None:
        _say_copied(output, result)
        return
    assert result.saved is not None
    header = result.saved.snapshot.header
    passed = f"   (scratch skipped: {result.passed_over:,})" if result.passed_over else ""
    where = f"   from {result.root}/" if result.root else ""
    output.line(
        f"Read    {result.format}   {count(header.files, 'file')}   {format_bytes(header.bytes)}{where}{passed}"
    )
    if result.artifacts:
        output.line("        " + ", ".join(f"{number:,} {kind}" for kind, number in result.artifacts.items()))
    output.line(f"Stored  {count(result.saved.new_files, 'new file')}, {format_bytes(result.saved.stored)} written")
    _say_lines(output, "Lacks", result.lacks)
    say_flaws(output, result.saved)
    for note in (*result.saved.notes, *result.notes):
        output.line(f"note: {note}")
    say_saved(output, result.saved, "Imported", "import it again with --force")


def _say_lines(output: Output, label: str, lines: tuple[str, ...]) -> None:
    if lines:
        output.line(f"{label:<7} {lines[0]}")
        output.some(lines[1:], indent=" " * 8)


def _say_copied(output: Output, result: object) -> None:
    from ..verbs.import_cache import ImportResult

    assert isinstance(result, ImportResult) and result.copied is not None
    copied = result.copied
    there = f"   ({len(copied.there):,} already there)" if copied.there else ""
    output.line(f"Copied  {count(len(copied.copied), 'snapshot')}, {format_bytes(copied.bytes)}{there}")
    named = {**copied.names, **({result.named: (copied.copied + copied.there)[0]} if result.named else {})}
    _say_lines(output, "Names", tuple(f"{name} -> {short_id(identifier)}" for name, identifier in named.items()))
    _say_lines(
        output,
        "Kept",
        tuple(f"{name} -> {short_id(there)}   (moved later here)" for name, there in copied.kept.items()),
    )
    for what, reason in copied.damaged.items():
        output.warn(f"not imported: {what}: {reason}")
    for note in copied.notes:
        output.line(f"note: {note}")
    if result.ok:
        output.ok(f"Imported from {copied.source}")
    else:
        output.line(f"NOT ok: {len(copied.damaged):,} damaged in {copied.source}")
