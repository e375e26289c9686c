"""cachekeeper unpin"""

from __future__ import annotations

from functools import partial

import click

from ..stores import Store
from ..units import count, short_id
from .options import examples, output_options, store_options
from .output import Output


@click.command(
    name="unpin",
    epilog=examples("cachekeeper unpin drafter", "cachekeeper unpin drafter@{1} 7c1e04ab --store s3://bucket/caches"),
)
@click.argument("references", nargs=-1, required=True, metavar="ID|NAME...")
@store_options
@partial(output_options, quiet="Print no more than errors, warnings and the ids.")
def command(references: tuple[str, ...], store: Store, as_json: bool, quiet: bool) -> None:
    """Unpin snapshots. Nothing is taken away; it may be, from now on.

    In a bucket with object lock the holds are taken off all that no other pin needs. An unpin that was interrupted is
    finished by repeating it.
    """
    from ..verbs.unpin import unpin

    output = Output(as_json, quiet)
    result = unpin(references, store=store)
    _say(output, result)
    output.result("unpin", vars(result), "\n".join(result.unpinned))


def _say(output: Output, result: object) -> None:
    from ..verbs.unpin import UnpinResult

    assert isinstance(result, UnpinResult)
    for identifier in result.unpinned:
        output.line(f"Unpinned        {short_id(identifier)}")
    for identifier in result.already:
        output.line(f"Was not pinned  {short_id(identifier)}")
    for identifier in result.unknown:
        output.warn(f"the pin and the manifest of {short_id(identifier)} are damaged: its packs may still be locked")
    if result.missing:
        output.warn(f"{count(len(result.missing), 'object')} not in the store, so that no lock was taken off there:")
        output.some(result.missing)
        output.hint("where a delete marker hides one, delete the marker, then `unpin` again")
    if result.kept:
        output.line(f"note: other pins keep {count(len(result.kept), 'object')} of that locked")
    if result.unpinned:
        output.ok("unlocked and unpinned" if result.locks else "unpinned")
