"""cachekeeper undo"""

from __future__ import annotations

from functools import partial

import click

from ..stores import Store
from ..units import short_id
from .options import examples, output_options, store_options
from .output import Output
from .rm import say_names, say_unsigned


@click.command(
    name="undo",
    epilog=examples(
        "cachekeeper undo                    the last that was removed",
        "cachekeeper undo 7c1e04ab 51d9aa30",
        "cachekeeper ls --trash              what can come back",
    ),
)
@click.argument("references", nargs=-1, metavar="[ID|NAME]...")
@store_options
@partial(output_options, quiet="Print no more than errors, warnings and the ids.")
def command(references: tuple[str, ...], store: Store, as_json: bool, quiet: bool) -> None:
    """Bring snapshots back from the trash; without ID the last one that was removed.

    NAME is what pointed to it when it was removed. A name that was not moved since points to it again. Where a bucket
    keeps versions, what somebody's plain delete hid of a snapshot comes back too: give its whole id.

    The history of a name keeps both moves, away and back: what was NAME@{1} before the removal is NAME@{3} then.
    """
    from ..verbs.undo import undo

    output = Output(as_json, quiet)
    result = undo(references, store=store)
    _say(output, result)
    output.result("undo", vars(result), "\n".join(removal.snapshot for removal in result.removals))


def _say(output: Output, result: object) -> None:
    from ..verbs.undo import UndoResult

    assert isinstance(result, UndoResult)
    for removal in result.removals:
        told = f"removed {removal.when} by {removal.who}" if removal.when else removal.damage
        told += (": " if told and removal.reason else "") + removal.reason
        output.line(f"Back  {short_id(removal.snapshot)}   {told}".rstrip())
    for identifier in result.already:
        output.line(f"Was there  {short_id(identifier)}")
    there = {name: each for name, each in result.names.items() if each in result.already}
    for name, identifier in there.items():
        output.line(f"{name} points to {short_id(identifier)}")
    say_names(output, {name: each for name, each in result.names.items() if name not in there})
    for name, identifier in result.elsewhere.items():
        output.line(f"{name} was moved since, and stays at {short_id(identifier)}")
    say_unsigned(output, result.unsigned)
    output.ok("as it was" if not result.elsewhere else "back")
    if result.left:
        output.hint(f"{len(result.left):,} more in the trash: `cachekeeper ls --trash`")
