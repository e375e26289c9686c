"""cachekeeper snapshot"""

from __future__ import annotations

import shlex
import time
from typing import Any

import click

from ..signing import short_key
from ..stores import Store
from ..units import count, format_bytes, format_duration, short_id
from .options import (
    cache_dir_option,
    examples,
    metrics_option,
    model_options,
    output_options,
    store_options,
    tags_option,
)
from .output import Output


@click.command(
    name="snapshot",
    epilog=examples(
        "cachekeeper snapshot drafter --metric tok_s=21500 --tag dataset=pile-v2",
        "cachekeeper snapshot --cache-dir /scratch/inductor -m 'before the upgrade'",
        "cachekeeper snapshot drafter --also ~/.triton/cache --store /srv/caches",
        "cachekeeper snapshot drafter --sign",
    ),
)
@click.argument("name", required=False)
@cache_dir_option
@store_options
@click.option("--also", multiple=True, metavar="DIR", help="Keep this directory too; may be repeated.")
@click.option("--message", "-m", default="", metavar="TEXT", help="A note to keep with it.")
@metrics_option
@tags_option
@model_options
@click.option(
    "--wait",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Wait at most so long for the cache to be quiet (default 10), else mark it as taken live.  [CACHEKEEPER_WAIT]",
)
@click.option("--allow-damaged", is_flag=True, help="Save damaged entries too, and note them.")
@click.option("--force", is_flag=True, help="Move the name even to a much smaller snapshot.")
@click.option("--with-headers", is_flag=True, help="Keep precompiled headers (CPU only, about 147 MB a set of flags).")
@click.option("--full", is_flag=True, help="Store every file again, trusting nothing in the store.")
@click.option(
    "--run", "run", metavar="RUN", help="Keep what the processes of this run told (`stats`); `last`: the last one."
)
@click.option(
    "--sign",
    is_flag=False,
    flag_value="",
    metavar="[KEYFILE]",
    help="Sign it, and that NAME points to it; with ~/.config/cachekeeper/signing_key where no file is given.  "
    "[CACHEKEEPER_SIGNING_KEY]",
)
@click.option(
    "--allow-secrets", is_flag=True, help="Save files that hold what looks like keys or tokens, and note which."
)
@output_options
def command(
    name: str | None,
    cache_dir: str | None,
    store: Store,
    also: tuple[str, ...],
    message: str,
    metrics: dict[str, float],
    tags: dict[str, str],
    model_config: str | None,
    model_sources: tuple[str, ...],
    wait: float | None,
    allow_damaged: bool,
    force: bool,
    with_headers: bool,
    full: bool,
    run: str | None,
    sign: str | None,
    allow_secrets: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Save a cache directory as a snapshot, and point NAME to it.

    Locks and temporary files are left out. Structural damage is refused: empty or cut libraries and kernels, JSON that
    does not parse, incomplete Triton groups.
    """
    from ..runs import find
    from ..verbs.snapshot import snapshot

    output = Output(as_json, quiet)
    began = time.monotonic()
    result = snapshot(
        name,
        cache_dir=cache_dir,
        store=store,
        also=also,
        message=message,
        metrics=metrics,
        tags=tags,
        model_config=model_config,
        model_sources=model_sources,
        wait=wait,
        allow_damaged=allow_damaged,
        force=force,
        with_headers=with_headers,
        full=full,
        run=find(run) if run else None,
        sign=sign,
        allow_secrets=allow_secrets,
        progress=output.progress(),
    )
    _say(output, result, time.monotonic() - began)
    output.result("snapshot", result, result.snapshot.id)
    return 3 if result.shrunk_from else 0


def _say(output: Output, result: object, seconds: float) -> None:
    from ..verbs.snapshot import SnapshotResult

    assert isinstance(result, SnapshotResult)
    header = result.snapshot.header
    passed = f"   (scratch skipped: {result.scratch:,})" if result.scratch else ""
    size = format_bytes(header.bytes)
    output.line(f"Scanned  {header.cache_dir}   {count(header.files, 'file')}   {size}{passed}")
    written = format_bytes(result.stored)
    output.line(f"Stored   {count(result.new_files, 'new file')}, {written} written   {format_duration(seconds)}")
    say_flaws(output, result)
    if result.signed_by:
        output.line(f"Signed   by key {short_key(result.signed_by)}")
    for note in result.notes:
        output.line(f"note: {note}")
    say_saved(output, result, "Saved", "save it again with --force")


def say_flaws(output: Output, result: object) -> None:
    """What is not in a snapshot, or not as it should be."""
    from ..verbs.snapshot import SnapshotResult

    assert isinstance(result, SnapshotResult)
    for item in result.skipped[:10]:
        output.warn(f"not saved: {item.path} ({item.reason})")
    for reason in result.snapshot.header.live:
        output.warn(f"taken live: {reason}")
    for line in result.snapshot.header.damaged[:10]:
        output.warn(f"saved damaged: {line}")


def say_saved(output: Output, result: Any, done: str, again: str) -> None:
    """A new snapshot, whether its name points to it, and what to do with it.

    Args:
        result: has `snapshot`, `name`, `name_moved` and `shrunk_from`, as those of snapshot, run and merge have.
        done: as "Saved".
        again: how the name moves all the same, as "save it again with --force".
    """
    header = result.snapshot.header
    as_name = f" as {result.name}" if result.name_moved else ""
    output.ok(f"{done} {short_id(result.snapshot.id)}{as_name}: {contents(header)}")
    if result.shrunk_from:
        output.warn(
            f"{result.name} was not moved: this snapshot has {count(header.entries, 'entry')}, "
            f"the one it points to has {result.shrunk_from:,}; if that is right, {again}"
        )
    reference = result.name if result.name_moved else short_id(result.snapshot.id)
    output.hint(f"restore it with `cachekeeper restore {shlex.quote(reference)} --verify`")


def contents(header: object) -> str:
    """What a snapshot holds, as "214 graphs, 476 kernels, 88 autotune results"."""
    from ..manifest import Header

    assert isinstance(header, Header)
    nouns = {"fxgraph": "graph", "triton": "Triton kernel", "native": "native module", "autotune": "autotune result"}
    return ", ".join(
        count(header.entries_of(kind), noun) for kind, noun in nouns.items() if header.entries_of(kind)
    ) or (count(header.entries, "entry"))
