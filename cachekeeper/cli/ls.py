"""cachekeeper ls"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from ..environment import summary
from ..manifest import Header
from ..models import Comparison
from ..stores import Store
from ..units import age_seconds, format_bytes, format_duration, listed, short_id, timestamp_of
from .options import examples, output_options, store_options
from .output import Output, on_terminal, plain, table

if TYPE_CHECKING:
    from ..repository import Removal
    from ..verbs.ls import RemovedRow, TrashResult

_HEADING = ("ID", "NAME", "AGE", "SIZE", "GRAPHS", "ENVIRONMENT", "HERE?")
_NAME, _ENVIRONMENT = 1, 5
# What a narrow terminal leaves of either.
_LEAST = 11
_MOST_FACTS = 3
_LONGEST = 1000 * 365 * 86400.0
_TRASH_HEADING = ("ID", "NAME", "REMOVED", "LEFT", "BY")


@click.command(
    name="ls",
    epilog=examples(
        "cachekeeper ls",
        "cachekeeper ls drafter",
        "cachekeeper ls --trash",
        "cachekeeper ls --quiet --store /srv/caches",
    ),
)
@click.argument("name", required=False)
@click.option("--trash", is_flag=True, help="What was removed, and how long `undo` can bring it back.")
@store_options
@partial(output_options, quiet="Print no more than errors, warnings and the ids.")
def command(name: str | None, trash: bool, store: Store, as_json: bool, quiet: bool) -> None:
    """List snapshots, or the history of NAME.

    HERE? says whether torch would use it on this machine, and if not, why; and whether the snapshot is pinned, or
    proven by a warmup. SIZE is that of its files. What it needs in the store, `show` says: compressed, and partly with
    others, so that these sizes do not add up, and `rm` and `sweep` may free less.

    A terminal that is too narrow cuts NAME and ENVIRONMENT: a pipe, as in `cachekeeper ls | cat`, has all of it.
    """
    from ..verbs.ls import ls, ls_trash

    output = Output(as_json, quiet)
    if trash:
        _say_trash(output, ls_trash(name, store=store))
        return
    result = ls(name, store=store)
    rows = [
        (
            short_id(row.snapshot.id),
            ", ".join(row.names) or "-",
            format_duration(age_seconds(row.snapshot.header.created)),
            format_bytes(row.snapshot.header.bytes),
            f"{row.snapshot.header.entries_of('fxgraph'):,}",
            summary(row.snapshot.header.fingerprint),
            here(row.here, _MOST_FACTS) + _marks(row.snapshot.header, row.pinned),
        )
        for row in result.rows
    ]
    empty = [] if result.removed else ["no snapshots yet"]
    for line in table(_narrowed([_HEADING, *rows], _columns()), right=(3, 4)) if rows else empty:
        output.line(line)
    for removed in result.removed:
        output.line(_removed(removed))
    for line in result.unreadable:
        output.warn(f"unreadable: {line}")
    for note in result.notes:
        output.line(f"note: {note}")
    if quiet:
        for row in result.rows:
            click.echo(row.snapshot.id)
    output.result(
        "ls",
        {
            "store": result.store,
            "snapshots": [_plain_row(row) for row in result.rows],
            "unreadable": result.unreadable,
            "notes": result.notes,
            "removed": [
                {
                    "id": row.removal.snapshot,
                    "names": row.names,
                    "when": timestamp_of(row.removal.modified),
                    "gone": row.removal.gone,
                }
                for row in result.removed
            ],
        },
    )


def _columns() -> int:
    """The width of the terminal; 0 where there is none."""
    return shutil.get_terminal_size().columns if on_terminal() else 0


def _narrowed(rows: Sequence[Sequence[str]], columns: int) -> list[tuple[str, ...]]:
    """With ENVIRONMENT, and then NAME, cut as far as that takes for the last column to be seen."""
    table_of = [list(row) for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    excess = sum(widths) + 2 * (len(widths) - 1) - columns if columns else 0
    for column in (_ENVIRONMENT, _NAME):
        most = max(widths[column] - max(excess, 0), _LEAST)
        excess -= max(widths[column] - most, 0)
        for row in table_of:
            if len(row[column]) > most:
                row[column] = (
                    _with_torch(row[column], most) if column == _ENVIRONMENT else f"{row[column][: most - 3]}..."
                )
    return [tuple(row) for row in table_of]


def _with_torch(environment: str, most: int) -> str:
    """An environment cut in its middle: what matters most is torch's version, which stands last."""
    device, *_, torch = environment.split()
    return next((text for text in (f"{device} ... {torch}", f"... {torch}") if len(text) <= most), torch[:most])


def _say_trash(output: Output, result: TrashResult) -> None:
    rows = [
        (
            short_id(row.removal.snapshot),
            ", ".join(row.names) or "-",
            _ago(row.removal),
            _left(row),
            row.removal.who + (f": {row.removal.reason}" if row.removal.reason else ""),
        )
        for row in result.rows
    ]
    for line in table([_TRASH_HEADING, *rows]) if rows else ["nothing is in the trash"]:
        output.line(line)
    for row in result.rows:
        if row.damage or row.removal.damage:
            output.warn(f"{short_id(row.removal.snapshot)}: {row.damage or row.removal.damage}")
    for note in result.notes:
        output.line(f"note: {note}")
    if rows:
        output.hint("`cachekeeper undo ID` brings one back")
    removed = [_plain_removed(row) for row in result.rows]
    document = {"store": result.store, "removed": removed, "notes": result.notes}
    output.result("trash", document, "\n".join(row.removal.snapshot for row in result.rows))


def _ago(removal: Removal) -> str:
    return f"{format_duration(max(0.0, time.time() - removal.modified))} ago"


def _left(row: RemovedRow) -> str:
    """How long it can come back surely; by the clocks of the store and of this machine."""
    left = row.removal.until - time.time()
    if row.damage:
        return "damaged"
    return format_duration(min(left, _LONGEST), nearest=True) if left > 0 else "until a sweep"


def _removed(row: RemovedRow) -> str:
    """A removed snapshot in the history of a name."""
    short = short_id(row.removal.snapshot)
    back = "gone for good" if row.removal.gone else f"`cachekeeper undo {short}`"
    return f"{short}  {', '.join(row.names)}  removed {_ago(row.removal)}: {back}"


def _plain_removed(row: RemovedRow) -> dict[str, object]:
    removal = row.removal
    return {
        "id": removal.snapshot,
        "names": row.names,
        "when": removal.when,
        "who": removal.who,
        "reason": removal.reason,
        "until": timestamp_of(removal.until),
        "damage": row.damage or removal.damage,
    }


def here(comparison: Comparison, most: int | None = None) -> str:
    """The answer in the HERE? column.

    Args:
        most: of the facts that differ, name so many; None: all.
    """
    if comparison.fits:
        return "yes"
    if any(item.name == "torch" and item.ours.startswith("unknown") for item in comparison.must):
        return "unknown: no torch in this Python"
    names = list(dict.fromkeys(item.name for item in comparison.must))
    return "no: " + listed(names, most or len(names)) + (" (show ID)" if most and len(names) > most else "")


def _marks(header: Header, pinned: bool) -> str:
    known = (("proven", header.proof), ("damaged", header.damaged), ("taken live", header.live), ("pinned", pinned))
    marks = [word for word, found in known if found]
    return f" ({', '.join(marks)})" if marks else ""


def _plain_row(row: object) -> dict[str, object]:
    from ..verbs.ls import Row

    assert isinstance(row, Row)
    header: Header = row.snapshot.header
    return {
        "id": row.snapshot.id,
        "names": row.names,
        "created": header.created,
        "message": header.message,
        "metrics": plain(header.metrics),
        "tags": plain(header.tags),
        "files": header.files,
        "bytes": header.bytes,
        "stored": header.stored,
        "entries": header.entries,
        "graphs": header.entries_of("fxgraph"),
        "live": header.live,
        "damaged": header.damaged,
        "secrets": header.secrets,
        "pinned": row.pinned,
        "proven": header.proof is not None,
        "origin": header.origin,
        "environment": summary(header.fingerprint),
        "fits": row.here.fits,
        "differences": plain((*row.here.must, *row.here.should)),
    }
