"""cachekeeper watch"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..disk import explained
from ..stores import Store
from ..units import harmless
from .options import cache_dir_option, examples, store_options
from .output import plain, strict_json

if TYPE_CHECKING:
    from ..watching import Event

_LOUD = ("trouble", "restless")


@click.command(
    name="watch",
    epilog=examples(
        "cachekeeper watch",
        "cachekeeper watch drafter --cache-dir /scratch/inductor --log watch.log",
        "cachekeeper watch --once --quiet",
    ),
)
@click.argument("reference", required=False, metavar="[ID|NAME]")
@cache_dir_option
@store_options
@click.option("--once", is_flag=True, help="Look, put back what is wrong, and end: 0, or 3 where something is lost.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0, min_open=True, max=86400),
    default=30.0,
    metavar="S",
    help="Seconds between two looks at every file; the kernel tells of changes at once. Default: 30.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True, max=1e6),
    default=64.0,
    metavar="MIB/S",
    help="Put back no faster than this. Default: 64.",
)
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Append to this file, and say nothing.")
@click.option("--poll", is_flag=True, help="Do not ask the kernel, look every 5 seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object an event.")
@click.option("--quiet", "-q", is_flag=True, help="Print no more than troubles.")
def command(
    reference: str | None,
    cache_dir: str | None,
    store: Store,
    once: bool,
    interval: float,
    rate: float,
    log: Path | None,
    poll: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Keep a live cache whole while jobs use it.

    When files of the snapshot vanish from the cache directory, or break (emptied, cut, a kernel incomplete), exactly
    these are put back from the store. What the snapshot does not have, and what torch wrote itself, is left alone. By
    default it is the snapshot that was restored there or saved from there last; a name is looked up once, at the start.

    Runs until it is ended (SIGTERM, Ctrl-C); kill -9 does no harm. One line an event, with UTC time. What fails is
    told and tried again. `clear` and `move` refuse a directory that is watched.
    """
    from ..livecache import chosen_cache_dir
    from ..verbs.watch import watch

    if log is not None and chosen_cache_dir(cache_dir) in Path(os.path.abspath(log)).parents:
        raise click.UsageError(
            "the log is inside the cache directory, and would go with it", click.get_current_context()
        )
    gc.enable()  # other commands end soon, and go without
    result = watch(
        reference,
        cache_dir=cache_dir,
        store=store,
        once=once,
        interval=interval,
        rate=rate * (1 << 20),
        poll=poll,
        tell=_Log(log, as_json, quiet),
    )
    return 0 if result.ok else 3


class _Log:
    """Writes an event as a line. Who reads it may go, and its disk may be full: the watch goes on.

    Raises:
        LocalDiskError: the file cannot be written at the start.
    """

    def __init__(self, path: Path | None, as_json: bool, quiet: bool) -> None:
        self._path = None if path is None else Path(os.path.abspath(path))
        self._as_json, self._quiet = as_json, quiet
        if self._path is not None:
            with explained(self._path, "write the log"):
                self._path.open("a").close()

    def __call__(self, event: Event) -> None:
        if self._quiet and event.event not in _LOUD:
            return
        line = harmless(str(event))
        if self._as_json:
            line = strict_json({"schema": "cachekeeper.watch/1", **plain(event)})
        if self._path is not None:
            # Opened for each line: whoever rotates logs need not tell us.
            with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8", errors="replace") as file:
                file.write(line + "\n")
            return
        try:
            click.echo(line)
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
