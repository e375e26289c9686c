"""cachekeeper sign"""

from __future__ import annotations

from functools import partial

import click

from ..signing import short_key
from ..stores import Store
from .options import examples, output_options, store_options
from .output import Output


@click.command(
    name="sign",
    epilog=examples(
        "cachekeeper sign drafter",
        "cachekeeper sign 7c1e04ab drafter@{1} --key ~/keys/release",
        "cachekeeper sign drafter --store s3://bucket/caches",
    ),
)
@click.argument("references", nargs=-1, required=True, metavar="ID|NAME...")
@click.option(
    "--key",
    metavar="FILE",
    help="The private key; default ~/.config/cachekeeper/signing_key.  [CACHEKEEPER_SIGNING_KEY]",
)
@store_options
@partial(output_options, quiet="Print no more than errors, warnings and the ids.")
def command(references: tuple[str, ...], key: str | None, store: Store, as_json: bool, quiet: bool) -> None:
    """Sign snapshots that are in the store, so that `restore --require-signature` takes them.

    With a NAME that it points there is signed too: `restore NAME` needs both. Where the name moves on, the new snapshot
    needs a signature of its own: `snapshot --sign` makes it at once.

    You vouch for what lies in the store now. Where others can write to it, sign by the id that `snapshot` printed.
    """
    from ..verbs.sign import sign

    output = Output(as_json, quiet)
    result = sign(references, key=key, store=store)
    for claim in result.signed:
        output.line(f"{'Was signed' if claim in result.already else 'Signed    '}  {claim}")
    output.ok(f"signed by key {short_key(result.key)}   {result.fingerprint}")
    output.result("sign", result, "\n".join(dict.fromkeys(claim.snapshot for claim in result.signed)))
