"""cachekeeper export"""

from __future__ import annotations

import click

from ..stores import Store
from ..units import count, format_bytes, short_id
from .options import examples, output_options, store_options
from .output import Output

_FORMATS = ("tar.zst", "tar.gz", "tar", "directory", "mega-cache")


@click.command(
    name="export",
    epilog=examples(
        "cachekeeper export drafter drafter.tar.zst",
        "cachekeeper export drafter drafter.mega",
        "cachekeeper export drafter@{1} /scratch/inductor",
        "cachekeeper export drafter - | ssh host cachekeeper import - --name drafter",
    ),
)
@click.argument("reference", metavar="ID|NAME")
@click.argument("destination", metavar="DST")
@click.option(
    "--format",
    "kind",
    type=click.Choice(_FORMATS),
    metavar="FORMAT",
    help=f"One of {', '.join(_FORMATS)}; by default as DST ends.",
)
@click.option(
    "--for-dir",
    metavar="DIR",
    help="The cache directory it will be in, which some files name. Default: DST, or where the cache was made.",
)
@click.option(
    "--with-unknown", is_flag=True, help="Put artifacts of unknown types into a Mega-Cache too; torch refuses it then."
)
@store_options
@output_options
def command(
    reference: str,
    destination: str,
    kind: str | None,
    for_dir: str | None,
    with_unknown: bool,
    store: Store,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write a snapshot as a directory, a tar file or a Mega-Cache.

    DST must not exist, or be an empty directory. The format is told by its ending: .tar.zst, .tar.gz, .tar; .mega,
    .megacache or .bin for bytes that torch.compiler.load_cache_artifacts takes; none for a directory. - is standard
    output. Every SHA-256 is checked before anything is there.
    """
    from ..verbs.export import export

    output = Output(as_json, quiet, to_stderr=destination == "-")
    result = export(
        reference,
        destination,
        store=store,
        format=kind,
        for_dir=for_dir,
        with_unknown=with_unknown,
        progress=output.progress(),
    )
    _say(output, result)
    output.result("export", result, result.snapshot.id)


def _say(output: Output, result: object) -> None:
    from ..verbs.export import ExportResult

    assert isinstance(result, ExportResult)
    carried = f"{count(result.files, 'file')}   {format_bytes(result.bytes)}, every SHA-256 matches"
    output.line(f"Snapshot  {short_id(result.snapshot.id)}   {carried}")
    written = f"   {format_bytes(result.size)}" if result.format != "directory" else ""
    output.line(f"Format    {result.format}{written}")
    if result.artifacts:
        output.line("          " + ", ".join(f"{number:,} {kind}" for kind, number in result.artifacts.items()))
    if result.placed:
        verb = "names" if result.placed == 1 else "name"
        output.line(f"For       {result.for_dir}   ({count(result.placed, 'file')} {verb} it)")
    if result.lacks:
        output.line(f"Lacks     {result.lacks[0]}")
        output.some(result.lacks[1:], indent=" " * 10)
    for note in result.notes:
        output.line(f"note: {note}")
    where = "standard output" if result.destination == "-" else result.destination
    output.ok(f"Exported {short_id(result.snapshot.id)} to {where}")
    if result.placed and result.format != "directory":
        output.hint("for another directory use --for-dir, or `cachekeeper import` there")
