"""cachekeeper pin"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from ..stores import Store
from ..units import short_id
from .options import examples, output_options, store_options
from .output import Output

if TYPE_CHECKING:
    from ..pins import Pin


@click.command(
    name="pin",
    epilog=examples(
        'cachekeeper pin drafter --reason "release 2.1"',
        "cachekeeper pin drafter@{1} 7c1e04ab",
        "cachekeeper pin drafter --store s3://bucket/caches",
    ),
)
@click.argument("references", nargs=-1, required=True, metavar="ID|NAME...")
@click.option("--reason", default="", metavar="TEXT", help="Why, for people.")
@store_options
@partial(output_options, quiet="Print no more than errors, warnings and the ids.")
def command(references: tuple[str, ...], reason: str, store: Store, as_json: bool, quiet: bool) -> None:
    """Pin snapshots: no command of cachekeeper takes them away until `unpin`.

    In a bucket with object lock everything they need is locked too (a legal hold on each object): nobody can delete
    these versions, whatever they use, until `unpin` or until somebody with s3:PutObjectLegalHold takes the holds off. A
    delete that names no version still hides an object behind a delete marker; deleting the marker brings it back.
    Elsewhere a pin holds for cachekeeper's own commands only.

    It is the snapshot that is pinned, not the name: where the name moves on to, nothing is pinned.
    """
    from ..verbs.pin import pin

    output = Output(as_json, quiet)
    result = pin(references, reason=reason, store=store)
    _say(output, result, reason)
    output.result("pin", vars(result), "\n".join(each.snapshot for each in result.pins))


def described(pin: Pin) -> str:
    """Who pinned a snapshot, when and why, and what holds it."""
    if pin.damage:
        return f"nobody can tell by whom: {pin.damage}"
    lock = "locked in the store" if pin.locked else "not locked in the store"
    return f"{pin.when} by {pin.who}" + (f": {pin.reason}" if pin.reason else "") + f"   ({lock})"


def _say(output: Output, result: object, reason: str) -> None:
    from ..verbs.pin import PinResult

    assert isinstance(result, PinResult)
    for pin in result.pins:
        before = pin.snapshot in result.already
        said = f"{pin.when} by {pin.who}" + (f": {pin.reason}" if pin.reason else "")
        output.line(f"{'Was pinned' if before else 'Pinned    '}  {short_id(pin.snapshot)}   {said}")
        if before and reason not in ("", pin.reason):
            short = short_id(pin.snapshot)
            output.hint(f"it keeps its reason; to change that: `cachekeeper unpin {short}`, then pin it again")
    if result.locked:
        output.ok("locked in the bucket: nobody can delete these versions until `unpin`")
        output.line("note: a plain delete still hides an object; deleting its delete marker brings it back")
    else:
        output.ok("pinned")
        output.line("note: this store has no object lock: the pin holds for cachekeeper's own commands only")
