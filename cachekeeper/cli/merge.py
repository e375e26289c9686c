"""cachekeeper merge"""

from __future__ import annotations

import click

from ..stores import Store
from ..units import count, short_id
from .options import examples, output_options, store_options
from .output import Output, table
from .snapshot import say_saved


@click.command(
    name="merge",
    epilog=examples(
        "cachekeeper merge rank0 rank1 --name job",
        "cachekeeper merge rank0 rank1 --name job --prefer first --variants",
        "cachekeeper merge drafter drafter@{1} 7c1e04ab --prefer newest --dry-run",
    ),
)
@click.argument("references", nargs=-1, required=True, metavar="ID|NAME ID|NAME...")
@click.option("--name", metavar="NAME", help="Point this name to the result.  [CACHEKEEPER_NAME]")
@click.option(
    "--prefer",
    default="",
    metavar="ID|NAME|first|newest",
    help="Whose version to take, whole, of an entry that is not the same in all.",
)
@click.option("--variants", is_flag=True, help="Keep, under the key of a graph, the files of all.")
@click.option("--message", "-m", default="", metavar="TEXT", help="A note to keep with it.")
@click.option("--force", is_flag=True, help="Move the name even to a much smaller snapshot.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
@store_options
@output_options
def command(
    references: tuple[str, ...],
    name: str | None,
    prefer: str,
    variants: bool,
    message: str,
    force: bool,
    dry_run: bool,
    store: Store,
    as_json: bool,
    quiet: bool,
) -> int:
    """Unite snapshots of one store, entry by entry: of ranks, devices, or nodes that each compiled a part.

    Each entry (a kernel's directory, a graph, a module with its library) comes whole from one snapshot; no file is read
    or stored again. An entry that is not the same in all is a conflict: nothing is saved (exit 3), unless --prefer says
    whose to take. Ranks that compiled the same graph in directories of their own always conflict: graphs hold timings,
    libraries the directory. Snapshots of different environments are refused (exit 4).

    Under the key of a graph torch looks at one file after the other for one whose guards hold. --prefer keeps the files
    of one snapshot there; --variants those of all, which ranks need that ran different shapes.
    """
    from ..verbs.merge import merge

    output = Output(as_json, quiet)
    result = merge(
        references,
        name=name,
        store=store,
        prefer=prefer,
        variants=variants,
        message=message,
        force=force,
        dry_run=dry_run,
    )
    _say(output, result)
    output.result("merge", {"ok": result.ok, **vars(result)}, result.snapshot.id if result.snapshot else "")
    return 0 if result.ok else 3


def _say(output: Output, result: object) -> None:
    from ..verbs.merge import MergeResult
    from ..verbs.merge.words import described

    assert isinstance(result, MergeResult)
    _table(output, result)
    settled = [conflict for conflict in result.conflicts if conflict.taken]
    left = [conflict for conflict in result.conflicts if not conflict.taken]
    if settled:
        output.line(f"Conflicts settled ({len(settled):,}):")
        output.some([f"{item.kind}  {item.entry}   from {short_id(item.taken)}" for item in settled])
    if left:
        output.line(f"Conflicts ({len(left):,}):")
        output.some([described(item) for item in left])
    for note in result.notes:
        output.line(f"note: {note}")
    if result.snapshot is None:
        _say_dry(output, len(left))
        return
    say_saved(output, result, "Saved", "merge again with --force")


def _say_dry(output: Output, conflicts: int) -> None:
    if conflicts:
        output.line(f"NOT ok: {count(conflicts, 'conflict')}; nothing would be saved")
        output.hint("say whose version to take with --prefer; --variants keeps the files of all under a graph's key")
    else:
        output.ok("nothing is in the way of this merge")


def _table(output: Output, result: object) -> None:
    from ..verbs.merge import MergeResult

    assert isinstance(result, MergeResult)
    only = [f"ONLY {short_id(source.id)}" for source in result.sources]
    rows = [
        (kind, *(f"{number:,}" for number in (*share.only, share.shared, share.variants, share.conflicts)))
        for kind, share in result.shares.items()
    ]
    heading = ("KIND", *only, "SHARED", "VARIANTS", "CONFLICTS")
    for line in table([heading, *rows], right=range(1, len(heading))):
        output.line(line)
