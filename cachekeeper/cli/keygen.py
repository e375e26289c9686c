"""cachekeeper keygen"""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

import click

from ..config import setting
from ..keyfiles import default_key
from ..signing import short_key
from .options import examples, output_options
from .output import Output


@click.command(
    name="keygen",
    epilog=examples(
        "cachekeeper keygen",
        "cachekeeper keygen ~/keys/release",
        "ssh-keygen -p -f ~/keys/release   # give it a passphrase",
    ),
)
@click.argument("file", required=False)
@partial(output_options, quiet="Print no more than errors, warnings and the key.")
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
    key = "" if result.file == Path(setting("signing_key") or default_key()) else f" {shlex.quote(str(result.file))}"
    output.hint(f"sign with `cachekeeper snapshot NAME --sign{key}`")
    output.hint(f"restore with `--require-signature {shlex.quote(str(result.public_file))}`")
    output.result("keygen", result, result.key)
