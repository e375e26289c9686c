"""cachekeeper copy"""

from __future__ import annotations

import shlex

import click

from ..units import count, format_bytes, short_id
from .options import examples, output_options, s3_endpoint_option
from .output import Output

_MOST = 20


@click.command(
    name="copy",
    epilog=examples(
        "cachekeeper copy /srv/caches s3://bucket/caches",
        "cachekeeper copy s3://bucket/caches ~/.local/share/cachekeeper drafter",
        "cachekeeper copy /srv/caches /mnt/backup drafter@{1} 7c1e04ab --dry-run",
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.argument("references", nargs=-1, metavar="[ID|NAME]...")
@click.option("--dry-run", is_flag=True, help="Say what would be copied, and write nothing.")
@s3_endpoint_option
@output_options
def command(
    source: str,
    destination: str,
    references: tuple[str, ...],
    dry_run: bool,
    s3_endpoint: str | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Copy snapshots from store SRC to store DST: what DST lacks, every byte checked.

    Without ID or NAME it is every snapshot, and every name with its history; a name that was moved later in DST stays.
    With NAME, that name is moved in DST too. What is damaged is left out: exit 3.
    """
    from ..verbs.copy import copy, open_copied

    output = Output(as_json, quiet)
    ours, theirs = open_copied(source, s3_endpoint), open_copied(destination, s3_endpoint)
    result = copy(ours, theirs, references, dry_run=dry_run, progress=output.progress())
    _say(output, result)
    output.result("copy", {"ok": result.ok, **vars(result)}, "\n".join(result.copied))
    return 0 if result.ok else 3


def _say(output: Output, result: object) -> None:
    from ..verbs.copy import CopyResult

    assert isinstance(result, CopyResult)
    there = f"{count(len(result.there), 'snapshot')} {'was' if len(result.there) == 1 else 'were'} already there"
    if result.copied or result.packs:
        copied = f"{count(len(result.copied), 'snapshot')}, {count(result.packs, 'pack')}, {format_bytes(result.bytes)}"
        copied += f"   ({there})" if result.there else ""
    else:
        copied = f"nothing: {there}" if result.there else "nothing"
    output.line(f"{'Would copy' if result.dry_run else 'Copied'}   {copied}")
    _names(output, "Would move" if result.dry_run else "Names ", result.names)
    _names(output, "Kept      " if result.dry_run else "Kept  ", result.kept, "   (moved later there)")
    for what, reason in list(result.damaged.items())[:_MOST]:
        output.warn(f"not copied: {what}: {reason}")
    if len(result.damaged) > _MOST:
        output.warn(f"and {len(result.damaged) - _MOST:,} more (all of them with --json)")
    for note in result.notes:
        output.line(f"note: {note}")
    if result.ok:
        output.ok(f"{'Would copy ' if result.dry_run else ''}{result.source} -> {result.destination}")
        return
    output.line(f"NOT ok: {len(result.damaged):,} damaged; {result.source} -> {result.destination}")
    output.hint(f"see what is wrong with `cachekeeper verify --all --store {shlex.quote(result.source)}`")


def _names(output: Output, label: str, names: dict[str, str], remark: str = "") -> None:
    lines = [f"{name} -> {short_id(identifier) or 'what is damaged'}{remark}" for name, identifier in names.items()]
    if lines:
        output.line(f"{label}   {lines[0]}")
        output.some(lines[1:], indent=" " * (len(label) + 3))
