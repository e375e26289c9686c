"""cachekeeper verify"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..stores import Store
from ..units import count, format_bytes, short_id
from .options import examples, output_options, plan_options, store_options
from .output import Output
from .proof import in_words

if TYPE_CHECKING:
    from ..verbs.verify import PackDamage, VerifyResult

_RIGHT = {
    "store": "every SHA-256 matches",
    "live": "every SHA-256 matches",
    "structure": "no structural damage",
}
_FULL = "from a good cache, `cachekeeper snapshot NAME --full` stores every file again"


@click.command(
    name="verify",
    epilog=examples(
        "cachekeeper verify drafter",
        "cachekeeper verify drafter --live /tmp/torchinductor_root",
        "cachekeeper verify drafter --live /tmp/torchinductor_root --repair",
        "cachekeeper verify --all",
        "cachekeeper verify --dir /tmp/torchinductor_root",
        "cachekeeper verify drafter --replay train.py:step",
    ),
)
@click.argument("reference", required=False, metavar="[ID|NAME]")
@click.option("--live", metavar="DIR", help="Compare the cache in DIR with the snapshot.")
@click.option("--all", "every", is_flag=True, help="Check every snapshot of the store.")
@click.option(
    "--dir", "directory", metavar="DIR", help="Check the cache in DIR alone: its structure; no snapshot is needed."
)
@click.option(
    "--repair",
    is_flag=True,
    help="With --live, mend what differs from the snapshot; with --dir, drop what is damaged. "
    "What was there goes to quarantine.",
)
@click.option(
    "--replay",
    "target",
    metavar="TARGET",
    help="Restore the snapshot into a temporary directory and run this warmup there, which must build nothing.",
)
@plan_options
@click.option("--verbose", "-v", is_flag=True, help="Say which entries of snapshots are damaged.")
@store_options
@partial(output_options, quiet="Print no more than errors and warnings, and with --replay the id.")
def command(
    reference: str | None,
    live: str | None,
    every: bool,
    directory: str | None,
    repair: bool,
    target: str | None,
    plan: dict[str, Any],
    verbose: bool,
    store: Store,
    as_json: bool,
    quiet: bool,
) -> int:
    """Check the bytes of a snapshot in the store; exit 3 where something is damaged.

    Nothing is unpickled, loaded or imported, but with --replay, which runs your code. Extra files of a live directory
    are told and are no damage, unless they are empty, cut or incomplete. The plan of a replay is that of `cachekeeper
    warmup`, and by default the one that the snapshot was proved with.

    --repair puts every file that differs from the snapshot into .cachekeeper/quarantine, with evidence.json, and a good
    one in its place: also a file that looks sound, since a flipped bit in a library does. If a job rightly wrote it
    anew, it is there. Damaged entries without a good copy are dropped into quarantine, so that torch builds them again.
    Quarantine stays until `cachekeeper clear DIR --empty-trash`. What is being written just now is left alone. Exit 0
    where all is right then, and all of the snapshot there; else 3.
    """
    from ..verbs.verify import verify

    if sum(map(bool, (live, every, directory, target))) > 1 or (reference and (every or directory)):
        raise click.UsageError(
            "give one of ID|NAME, --live DIR or --replay TARGET with or without ID|NAME, --all, or --dir DIR"
        )
    if repair and not (live or directory):
        raise click.UsageError("--repair goes with --live DIR or --dir DIR")
    if target is None and any(plan.values()):
        raise click.UsageError("--device, --mode, --shape and the like go with --replay TARGET")
    output = Output(as_json, quiet)
    if target is not None:
        return _replay(output, reference, target, store=store, **plan)
    result = verify(
        reference,
        live=live,
        directory=directory,
        every=every,
        repair=repair,
        store=store,
        progress=output.progress(),
    )
    _say(output, result, verbose)
    output.result("verify", {"ok": result.ok, **vars(result)})
    return 0 if result.ok else 3


def _replay(output: Output, reference: str | None, target: str, **plan: Any) -> int:
    from ..verbs.replay import replay
    from .warming import Steps, say_doubts

    result = replay(reference, target, listener=Steps(output), progress=output.progress(), **plan)
    identifier = short_id(result.snapshot.id)
    if result.proof:
        output.ok(f"{identifier} is proved: {in_words(result.proof)}")
        if result.snapshot.header.proof is None:
            output.hint(
                "the snapshot itself stays without a proof; for one that has it, restore it and run "
                f"`cachekeeper warmup {shlex.quote(target)} --snapshot NAME`"
            )
    else:
        say_doubts(output, result.doubts)
        output.line(f"NOT proved: in {len(result.doubts)} of {len(result.steps)} steps {identifier} would not be warm")
    output.result("replay", {"ok": result.ok, **vars(result)}, result.snapshot.id)
    return 0 if result.ok else 3


def _say(output: Output, result: VerifyResult, verbose: bool) -> None:
    what = {
        "store": "the store, snapshots " + ", ".join(map(short_id, result.snapshots)),
        "live": "a live cache against snapshot " + ", ".join(map(short_id, result.snapshots)),
        "structure": "the structure of a cache directory",
    }[result.what]
    output.line(f"Checked  {what}   {count(result.checked, 'file')}   {format_bytes(result.bytes)}")
    if result.repair:
        _say_repair(output, result)
    else:
        _say_found(output, result, verbose)


def _say_found(output: Output, result: VerifyResult, verbose: bool) -> None:
    damaged, missing = _reasons(result.damaged), list(result.missing)
    if result.what == "store":
        explained = {f"pack {short_id(pack.pack)}" for pack in result.packs}
        others = {path: why for path, why in result.damaged.items() if path not in explained and ":" not in path}
        damaged = [_pack(pack) for pack in result.packs if not pack.missing] + _reasons(others)
        missing = [_pack(pack) for pack in result.packs if pack.missing]
    _lists(output, {"damaged": damaged, "missing": missing, "extra": result.extra})
    if result.what == "store" and result.packs:
        _say_entries(output, result, verbose)
    _notes(output, result)
    if result.ok:
        output.ok(_RIGHT[result.what])
        return
    output.line(f"NOT ok: {len(damaged):,} damaged, {len(missing):,} missing")
    if result.what == "live":
        output.hint("add --repair: it mends just these from the snapshot, and keeps what was there in quarantine")
    elif result.what == "structure":
        output.hint(
            "mend them from a snapshot with `cachekeeper verify NAME --live DIR --repair`, or add --repair: they go to "
            "quarantine, and torch builds them again"
        )
    else:
        _say_hints(output, result.damaged)


def _say_hints(output: Output, damaged: Mapping[str, str]) -> None:
    """What helps, for each kind of damage in a store."""
    snapshots = [what.removeprefix("snapshot ") for what in damaged if what.startswith("snapshot ")]
    moves = [what.removeprefix("name ") for what in damaged if what.startswith("name ")]
    names = [move for move in moves if "@{" not in move]
    if snapshots:
        output.hint(f"`cachekeeper rm {snapshots[0]}` takes the snapshot away; a name that points to it goes one back")
    elif names:
        output.hint(f"from a good cache, `cachekeeper snapshot {shlex.quote(names[0])}` points the name to a new one")
    elif moves:
        output.hint(
            f"{moves[0].partition('@{')[0]} itself is whole, and nothing mends its past; `cachekeeper copy` to a new "
            "store leaves it out"
        )
    if any(not what.startswith(("snapshot ", "name ")) for what in damaged):
        output.hint(_FULL)


def _pack(pack: PackDamage) -> str:
    """A pack in a line that fits a terminal."""
    if not pack.damaged:
        return f"pack {short_id(pack.pack)}  {pack.reason}"
    entries = f"{pack.damaged:,} of {count(pack.entries, 'entry')}"
    return f"pack {short_id(pack.pack)}: {entries} of {count(len(pack.snapshots), 'snapshot')}"


def _say_entries(output: Output, result: VerifyResult, verbose: bool) -> None:
    """The entries that suffer from packs, each with its snapshot."""
    found = _reasons({path: why for path, why in result.damaged.items() if ":" in path})
    if verbose:
        for line in found:
            output.line(f"  {line}")
    elif found:
        output.hint("add -v to see the entries")


def _say_repair(output: Output, result: VerifyResult) -> None:
    lists = {
        "mended": _reasons(result.mended),
        "put back": result.put_back,
        "dropped": _reasons(result.dropped),
        "cannot be put back": _reasons(result.lost),
        "still damaged": _reasons(result.unmended),
    }
    _lists(output, lists)
    if result.quarantine:
        output.line(f"Quarantine  {result.quarantine}")
    _notes(output, result)
    for entry in result.damaged_in_store:
        output.warn(f"damaged in the store: {entry}")
    done = f"{len(result.mended):,} mended, {len(result.put_back):,} put back, {len(result.dropped):,} dropped"
    if not result.ok:
        left = f", {len(result.unmended):,} still damaged" if result.unmended else ""
        lost = f"; {count(len(result.damaged_in_store), 'entry')} of the snapshot not there"
        output.line(f"NOT ok: {done}{left}{lost if result.damaged_in_store else ''}")
    if result.unmended:
        output.hint("somebody may be writing there, or the disk is failing: look at them, then repair again")
    elif result.ok and (result.mended or result.put_back or result.dropped):
        output.ok(done + (": torch builds what was dropped again" if result.dropped else ""))
    elif result.ok:
        output.ok(f"{_RIGHT[result.what]}: nothing to repair")
    if result.damaged_in_store:
        output.hint(_FULL)


def _reasons(found: dict[str, str]) -> list[str]:
    return [f"{path}  {reason}" for path, reason in found.items()]


def _lists(output: Output, lists: Mapping[str, Sequence[str]]) -> None:
    for word, lines in lists.items():
        if lines:
            output.line(f"{word}  {len(lines):,}")
            output.some(lines)


def _notes(output: Output, result: VerifyResult) -> None:
    for note in result.notes:
        output.line(f"note: {note}")
