"""cachekeeper clear"""

from __future__ import annotations

import shlex
import time
from functools import partial
from typing import TYPE_CHECKING

import click

from ..units import count, format_bytes, format_duration, parse_duration, short_id
from .options import examples, output_options
from .output import Output, table

if TYPE_CHECKING:
    from ..clearing.items import Item
    from ..verbs.clear import ClearResult


_HEADING = ("WHEN", "AGE", "FILES", "SIZE", "SNAPSHOT")


def _age(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float:
    try:
        return 0.0 if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from None


# A cache as torch keeps it has more in it than entries: other screens count these alone.
_ALL = "(with locks, headers and what was put aside)"


@click.command(
    name="clear",
    epilog=examples(
        "cachekeeper clear                          the one that torch would use",
        "cachekeeper clear /tmp/torchinductor_root --dry-run",
        "cachekeeper clear --undo                   bring back the last one",
        "cachekeeper clear --list",
        "cachekeeper clear --empty-trash --older-than 7d",
    ),
)
@click.argument("directory", required=False, metavar="[DIR]")
@click.option(
    "--undo",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[WHEN]",
    help="Bring back the last one, or one of --list; what is there now goes to the trash.",
)
@click.option("--list", "listing", is_flag=True, help="Show what is in the trash.")
@click.option("--empty-trash", is_flag=True, help="Delete for good what is in the trash, and what restores put aside.")
@click.option("--older-than", metavar="AGE", callback=_age, help="With --empty-trash: as 7d, 12h or 30min.")
@click.option("--in-use", is_flag=True, help="Also while a process uses the cache.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@partial(output_options, quiet="Print no more than errors, warnings and the path in the trash.")
def command(
    directory: str | None,
    undo: str | None,
    listing: bool,
    empty_trash: bool,
    older_than: float,
    in_use: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Move a live cache away, so that it can come back.

    DIR is, by default, the cache directory that torch would use.

    For `rm -rf`: the cache goes into a trash beside it, at once, and an empty directory takes its place. Refused are
    anything that is not a cache alone, and one that a process uses. Only --empty-trash deletes.
    """
    if undo and directory is None and "/" in undo:  # --undo DIR
        directory, undo = undo, ""
    if sum((undo is not None, listing, empty_trash)) > 1:
        raise click.UsageError("give one of --undo, --list and --empty-trash")
    if older_than and not empty_trash:
        raise click.UsageError("--older-than goes with --empty-trash")
    if dry_run and listing:
        raise click.UsageError("--list changes nothing: there is no --dry-run of it")
    output = Output(as_json, quiet)
    if listing:
        _list(output, directory)
    elif undo is not None:
        _undo(output, directory, undo, in_use, dry_run)
    elif empty_trash:
        _empty(output, directory, older_than, dry_run)
    else:
        _clear(output, directory, in_use, dry_run)


def _clear(output: Output, directory: str | None, in_use: bool, dry_run: bool) -> None:
    from ..verbs.clear import clear

    result = clear(directory, in_use=in_use, dry_run=dry_run)
    for note in result.notes:
        output.line(f"note: {note}")
    if not result.files:
        output.ok(f"nothing to clear: {result.cache_dir} is empty")
    else:
        _say_cleared(output, result)
    output.result("clear", result, str(result.trash or ""))


def _say_cleared(output: Output, result: ClearResult) -> None:
    what = f"{count(result.entries, 'entry')}, {count(result.files, 'file')}, {format_bytes(result.bytes)} {_ALL}"
    path = shlex.quote(str(result.cache_dir))
    if result.unsaved:
        output.warn(f"{count(result.unsaved, 'entry')} that no snapshot is known to hold")
    if result.dry_run:
        output.ok(f"would clear {result.cache_dir}: {what}")
        return
    output.line(f"Moved to     {result.trash}")
    output.ok(f"cleared {result.cache_dir}: {what}")
    output.hint(f"`cachekeeper clear {path} --undo` brings it back")
    if result.snapshot:
        again = f"`cachekeeper restore {short_id(result.snapshot)} --cache-dir {path}`"
        output.hint(f"{again} restores what was restored or saved there last")


def _undo(output: Output, directory: str | None, item: str, in_use: bool, dry_run: bool) -> None:
    from ..verbs.clear import bring_back

    result = bring_back(directory, item or None, in_use=in_use, dry_run=dry_run)
    if result.now_in_trash:
        output.line(f"Moved to     {result.now_in_trash}   (what was there until now)")
    what = "would be" if result.dry_run else "is"
    output.ok(f"{result.cache_dir} {what} back, {_described(result.item)}")
    output.result("clear-undo", result, str(result.cache_dir))


def _described(item: Item) -> str:
    return f"{count(item.files, 'file')}, {format_bytes(item.bytes)} {_ALL}, put there {_age_of(item)} ago"


def _age_of(item: Item) -> str:
    return format_duration(max(0.0, time.time() - item.when))


def _list(output: Output, directory: str | None) -> None:
    from ..verbs.clear import cleared

    found = cleared(directory)
    rows = [
        (item.name, _age_of(item), f"{item.files:,}", format_bytes(item.bytes), short_id(snapshot) or "-")
        for item, snapshot in found
    ]
    for line in table([_HEADING, *rows], right=(2, 3)) if rows else ():
        output.line(line)
    for item, _ in found:
        if item.reason:
            output.line(f"note: {item.name}: {item.reason}")
        if item.unfinished:
            output.line(f"note: {item.name} is half moved: the next clear or --undo completes it")
    if found:
        output.line(f"in {found[0].item.path.parent}")
        output.hint("`cachekeeper clear" + _quoted(directory) + " --undo WHEN` brings one back")
    else:
        output.ok("the trash is empty")
    items = [{**item._asdict(), "snapshot": snapshot} for item, snapshot in found]
    output.result("clear-list", {"items": items}, "\n".join(item.name for item, _ in found))


def _quoted(directory: str | None) -> str:
    return f" {shlex.quote(directory)}" if directory else ""


def _empty(output: Output, directory: str | None, older_than: float, dry_run: bool) -> None:
    from ..verbs.clear import empty_trash

    result = empty_trash(directory, older_than=older_than, dry_run=dry_run)
    word = "would delete" if dry_run else "deleted"
    for item in result.deleted:
        output.line(f"{word}  {item.path}   {_described(item)}")
    if result.deleted:
        output.ok(f"{word} {count(len(result.deleted), 'item')}, {format_bytes(result.bytes)}")
    else:
        output.ok("nothing to delete" + (" that is so old" if older_than else ": the trash is empty"))
    output.result("clear-empty-trash", {**vars(result), "bytes": result.bytes})
