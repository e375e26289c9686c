"""cachekeeper keygen"""

from __future__ import annotations

import shlex

import click

from ..signing import short_key
from .options import examples, output_options
from .output import Output


@click.command(
    name="keygen",
    epilog=examples(
        "cachekeeper keygen",
        "cachekeeper keygen ~/keys/release",
        "ssh-keygen -p -f ~/.config/cachekeeper/signing_key   # give it a passphrase",
    ),
)
@click.argument("file", required=False)
@output_options
def command(file: str | None, as_json: bool, quiet: bool) -> None:
    """Make a key that signs snapshots: FILE, and FILE.pub for those who restore.

    FILE is ~/.config/cachekeeper/signing_key by default; a file that is there is never written over. It is an Ed25519
    key in OpenSSH's format: one of `ssh-keygen -t ed25519` signs as well.
    """
    from ..verbs.keygen import keygen

    output = Output(as_json, quiet)
    result = keygen(file)
    output.line(f"Private      {result.file}   (only you can read it; it signs)")
    output.line(f"Public       {result.public_file}   (give it to those who restore)")
    output.line(f"Key          {short_key(result.key)}")
    output.line(f"Fingerprint  {result.fingerprint}")
    output.ok("made a key")
    output.hint(f"sign with `cachekeeper snapshot NAME --sign {shlex.quote(str(result.file))}`, and restore with")
    output.line(f"  --require-signature {shlex.quote(str(result.public_file))}")
    output.result("keygen", result, result.key)
