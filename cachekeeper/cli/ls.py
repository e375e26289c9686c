"""cachekeeper ls"""

from __future__ import annotations

import click

from ..environment import summary
from ..manifest import Header
from ..models import Comparison
from ..stores import Store
from ..units import age_seconds, format_bytes, format_duration, short_id
from .options import examples, output_options, store_options
from .output import Output, plain, table

_HEADING = ("ID", "NAME", "AGE", "SIZE", "GRAPHS", "ENVIRONMENT", "HERE?")


@click.command(
    name="ls",
    epilog=examples("cachekeeper ls", "cachekeeper ls drafter", "cachekeeper ls --quiet --store /srv/caches"),
)
@click.argument("name", required=False)
@store_options
@output_options
def command(name: str | None, store: Store, as_json: bool, quiet: bool) -> None:
    """List snapshots, or the history of NAME.

    HERE? says whether torch would use it on this machine, and if not, why; and whether the snapshot is pinned, or
    proven by a warmup. SIZE is what it takes in the store.
    """
    from ..verbs.ls import ls

    output = Output(as_json, quiet)
    result = ls(name, store=store)
    rows = [
        (
            short_id(row.snapshot.id),
            ", ".join(row.names) or "-",
            format_duration(age_seconds(row.snapshot.header.created)),
            format_bytes(row.snapshot.header.stored),
            f"{row.snapshot.header.entries_of('fxgraph'):,}",
            summary(row.snapshot.header.fingerprint),
            here(row.here) + _marks(row.snapshot.header, row.pinned),
        )
        for row in result.rows
    ]
    for line in table([_HEADING, *rows], right=(3, 4)) if rows else ["no snapshots yet"]:
        output.line(line)
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
        },
    )


def here(comparison: Comparison) -> str:
    """The answer in the HERE? column."""
    if comparison.fits:
        return "yes"
    return "no: " + ", ".join(dict.fromkeys(item.name for item in comparison.must))


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
        "pinned": row.pinned,
        "proven": header.proof is not None,
        "origin": header.origin,
        "environment": summary(header.fingerprint),
        "fits": row.here.fits,
        "differences": plain((*row.here.must, *row.here.should)),
    }
