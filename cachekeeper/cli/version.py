"""cachekeeper version"""

from __future__ import annotations

from functools import partial

import click

from ..version import STORE_FORMAT, __version__
from .options import examples, output_options
from .output import Output


@click.command(name="version", epilog=examples("cachekeeper version", "cachekeeper version --json"))
@partial(output_options, quiet="Print the number alone.")
def command(as_json: bool, quiet: bool) -> None:
    """Print the version, and the store format that it reads and writes."""
    output = Output(as_json, quiet)
    output.line(f"cachekeeper {__version__}  (store format {STORE_FORMAT})")
    output.result("version", {"version": __version__, "format": STORE_FORMAT}, __version__)
