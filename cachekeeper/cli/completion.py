"""cachekeeper completion"""

from __future__ import annotations

import click

from .options import examples


@click.command(
    name="completion",
    epilog=examples('eval "$(cachekeeper completion bash)"', "cachekeeper completion fish | source"),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    from .group import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "cachekeeper", "_CACHEKEEPER_COMPLETE").source())
