"""cachekeeper sweep"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import click

from ..stores import Store
from ..sweeping import GRACE_SECONDS
from ..units import as_duration, count, format_bytes, listed, short_id, timestamp_of
from .options import examples, output_options, store_options
from .output import Output
from .rm import duration

if TYPE_CHECKING:
    from ..sweeping import Sweep
    from ..verbs.sweep import SweepResult


@click.command(
    name="sweep",
    epilog=examples(
        "cachekeeper sweep                   what would be freed",
        "cachekeeper sweep --apply           once a day, from cron",
        "cachekeeper sweep --apply --empty-trash",
    ),
)
@click.option("--apply", is_flag=True, help="Do it; without, only say what would be done.")
@click.option(
    "--grace",
    callback=duration,
    metavar="DURATION",
    default="24h",
    show_default=True,
    help="How long a pack must have been unneeded before it is deleted, as 12h or 2d; in a bucket 1h at least.",
)
@click.option("--empty-trash", is_flag=True, help="Drop removed snapshots before their grace time is over.")
@store_options
@partial(output_options, quiet="Print no more than errors.")
def command(apply: bool, grace: float, empty_trash: bool, store: Store, as_json: bool, quiet: bool) -> None:
    """Free what no snapshot needs any more. A dry run without --apply.

    Removed snapshots whose grace time is over are dropped for good. Packs that nothing needs are condemned, and deleted
    by a later sweep that still finds them unneeded: so it takes two sweeps, a grace time apart; with --grace 0 both
    looks happen in one. Snapshots and restores may run beside it. Where anything cannot be read, nothing is condemned
    or deleted (exit 3). A cache restored from what is dropped stays as it is, but cannot be mended from it any more, by
    a running `watch` neither.

    In a bucket that keeps versions, what is deleted stays as an old version until a lifecycle rule expires it.
    """
    from ..verbs.sweep import sweep

    output = Output(as_json, quiet)
    result = sweep(apply=apply, grace=grace, empty_trash=empty_trash, store=store, progress=output.progress())
    _say(output, result, " --empty-trash" if empty_trash else "")
    document = {**vars(result), **vars(result.found)}
    document |= {"freed": result.found.freed, "freed_later": result.found.freed_later}
    del document["found"]
    output.result("sweep", document)


def _say(output: Output, result: SweepResult, options: str = "") -> None:
    found, would = result.found, not result.applied
    for word, text in (
        ("drop" if would else "dropped", _dropped(found)),
        ("condemn" if would else "condemned", _packs(found.condemned, ", which nothing needs")),
        ("delete" if would else "deleted", _packs(found.deleted)),
        ("waiting", _waiting(found)),
        ("young", _packs(found.young, ", which nothing needs yet, or any more")),
        ("in the trash", _kept(found)),
        ("needed", f"{count(found.needed, 'pack')}, {format_bytes(found.needed_bytes)}"),
    ):
        if text:
            output.line(f"{word:<12}  {text}")
    for lease in found.at_work:
        since = f" since {lease.when}" if lease.when else ""
        output.line(f"at work       {lease.who}{since} ({_WORK.get(lease.kind.value, 'at what, nobody knows')})")
    _advise(output, result, options)


_WORK = {"write": "writing", "read": "reading", "exclusive": "writing", "sweep": "sweeping"}


def _packs(packs: Mapping[str, int], more: str = "") -> str:
    return f"{count(len(packs), 'pack')}, {format_bytes(sum(packs.values()))}{more}" if packs else ""


def _dropped(found: Sweep) -> str:
    ids = dict.fromkeys(removal.snapshot for removal in found.dropped)
    return f"{count(len(ids), 'removed snapshot')}, for good: {_some(list(ids))}" if ids else ""


def _kept(found: Sweep) -> str:
    ids = dict.fromkeys(removal.snapshot for removal in found.kept)
    first = min((removal.until for removal in found.kept), default=0.0)
    return f"{count(len(ids), 'snapshot')}, at least until {timestamp_of(first)}" if ids else ""


def _some(ids: list[str]) -> str:
    return listed([*map(short_id, ids)], 2)


def _waiting(found: Sweep) -> str:
    """Packs that were condemned by an earlier sweep."""
    waiting = {pack: wait for pack, wait in found.waiting.items() if pack not in found.condemned}
    told = _packs({pack: wait.size for pack, wait in waiting.items()}, ", condemned before")
    later = [wait.until for wait in waiting.values() if wait.until > found.now]
    return told + (f", until {timestamp_of(max(later))}" if told and later else "")


def _advise(output: Output, result: SweepResult, options: str) -> None:
    found = result.found
    if found.at_work:
        output.line("note: what they may use stays; a later sweep deletes it")
    if not result.applied:
        if found.dropped or found.condemned or found.deleted:
            later = f"{format_bytes(found.freed_later)} by later sweeps"
            output.ok(f"a dry run: it would free {format_bytes(found.freed)} now, {later}")
            options += f" --grace {as_duration(result.grace)}" if result.grace != GRACE_SECONDS else ""
            output.hint(f"`cachekeeper sweep{options} --apply` does it")
        else:
            output.ok("nothing to do")
        return
    output.ok(f"swept: {format_bytes(found.freed)} freed")
    if found.unfinished:
        output.hint("there was no time for all of it: sweep again")
    elif found.waiting:
        when = max(wait.until for wait in found.waiting.values())
        output.hint(f"a sweep after {timestamp_of(when)} deletes what is still unneeded")
