"""The commands, each imported when it is used, so that `--help` and `ls` stay quick."""

from __future__ import annotations

import difflib
import importlib

import click

from ..system import require_linux
from ..version import __version__

# command -> one line for the list
COMMANDS = {
    "snapshot": "Save a cache directory as a snapshot.",
    "restore": "Bring a snapshot back into a cache directory.",
    "verify": "Check a snapshot's bytes, or a live cache against it.",
    "run": "Run a job on a restored cache, guarded, and say what compiled.",
    "stats": "Show what the last runs compiled.",
    "diff": "Compare two caches, down to kernels: why is it slower?",
    "report": "Show a snapshot down to its kernels, and its name over time.",
    "bisect": "Find the snapshot with which a number of the run fell.",
    "explain": "Say why graphs missed, and what to do.",
    "warmup": "Fill the cache on purpose, and prove that a fresh process hits.",
    "import": "Save a cache from a directory, an archive or a Mega-Cache file.",
    "export": "Write a snapshot as a directory, an archive or a Mega-Cache file.",
    "merge": "Unite snapshots, entry by entry.",
    "copy": "Copy snapshots from one store to another.",
    "ls": "List snapshots.",
    "show": "Show one snapshot.",
    "status": "Is the live cache as it should be? One line.",
    "watch": "Keep a live cache whole while jobs use it.",
    "clear": "Move a live cache away, so that it can come back.",
    "move": "Move a live cache to another place.",
    "pin": "Keep snapshots from going away.",
    "unpin": "Let pinned snapshots go again.",
    "rm": "Take snapshots away, into a trash.",
    "undo": "Bring snapshots back from the trash.",
    "keep": "Keep the last, the daily, the proven ones; remove the others.",
    "sweep": "Free what no snapshot needs any more.",
    "keygen": "Make a key that signs snapshots.",
    "sign": "Sign snapshots, and the names that point to them.",
    "fingerprint": "Show what the validity of a cache depends on here.",
    "doctor": "Is this machine ready?",
    "completion": "Print the completion script of a shell.",
    "version": "Print the version.",
}

# Words that are none for a module.
_MODULES = {"import": "import_cache"}

# Commands that need nothing of the system.
_ANYWHERE = ("version", "completion")

_EPILOG = """\b
Examples:
  cachekeeper snapshot drafter           after a run that was warm and good
  cachekeeper restore drafter --verify   in the launch script, before torch
  cachekeeper ls                         what there is, and does it fit here
"""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        if name not in _ANYWHERE:
            require_linux()
        module = _MODULES.get(name, name)
        command = importlib.import_module(f".{module}", __package__).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            raise click.UsageError(f"no command {args[0]!r}." + (f" Did you mean `{close[0]}`?" if close else ""), ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=_LazyGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.version_option(__version__, "-V", "--version", message="cachekeeper %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Keep PyTorch's compile cache: snapshot a known-good one, verify it, restore it.

    ID|NAME is a snapshot: an id or its beginning, a name, NAME@{1} for the one before, or `latest`, the newest that
    fits this machine. DIR is a cache directory, by default the one that torch would use: the argument of `clear`,
    `move` and `status`, of `verify` --live (against a snapshot) or --dir (alone), of all others --cache-dir.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
