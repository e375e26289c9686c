"""cachekeeper verify"""

from __future__ import annotations

import shlex
from typing import Any

import click

from ..stores import Store
from ..units import count, format_bytes, short_id
from .options import examples, output_options, plan_options, store_options
from .output import Output
from .proof import in_words


@click.command(
    name="verify",
    epilog=examples(
        "cachekeeper verify drafter",
        "cachekeeper verify drafter --live /tmp/torchinductor_root",
        "cachekeeper verify --all",
        "cachekeeper verify --dir /tmp/torchinductor_root",
        "cachekeeper verify drafter --replay train.py:step",
    ),
)
@click.argument("reference", required=False, metavar="[ID|NAME]")
@click.option("--live", metavar="DIR", help="Compare this cache directory with the snapshot.")
@click.option("--all", "every", is_flag=True, help="Check every snapshot of the store.")
@click.option("--dir", "directory", metavar="DIR", help="Check the structure of a directory; no snapshot is needed.")
@click.option(
    "--replay",
    "target",
    metavar="TARGET",
    help="Restore the snapshot into a temporary directory and run this warmup there, which must build nothing.",
)
@plan_options
@store_options
@output_options
def command(
    reference: str | None,
    live: str | None,
    every: bool,
    directory: str | None,
    target: str | None,
    plan: dict[str, Any],
    store: Store,
    as_json: bool,
    quiet: bool,
) -> int:
    """Check the bytes of a snapshot in the store; exit 3 where something is damaged.

    Nothing is unpickled, loaded or imported, but with --replay, which runs your code. Extra files of a live directory
    are told and are no damage. The plan of a replay is that of `cachekeeper warmup`, and by default the one that the
    snapshot was proved with.
    """
    from ..verbs.verify import verify

    if sum(map(bool, (live, every, directory, target))) > 1 or (reference and (every or directory)):
        raise click.UsageError(
            "give one of ID|NAME, --live DIR or --replay TARGET with or without ID|NAME, --all, or --dir DIR"
        )
    if target is None and any(plan.values()):
        raise click.UsageError("--device, --mode, --shape and the like go with --replay TARGET")
    output = Output(as_json, quiet)
    if target is not None:
        return _replay(output, reference, target, store=store, **plan)
    result = verify(reference, live=live, directory=directory, every=every, store=store, progress=output.progress())
    _say(output, result, live or directory or "")
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


def _say(output: Output, result: object, directory: str) -> None:
    from ..verbs.verify import VerifyResult

    assert isinstance(result, VerifyResult)
    what = {
        "store": "the store, snapshots " + ", ".join(map(short_id, result.snapshots)),
        "live": "a live cache against snapshot " + ", ".join(map(short_id, result.snapshots)),
        "structure": "the structure of a cache directory",
    }[result.what]
    output.line(f"Checked  {what}   {count(result.checked, 'file')}   {format_bytes(result.bytes)}")
    for word, lines in (
        ("damaged", [f"{path}  {reason}" for path, reason in result.damaged.items()]),
        ("missing", list(result.missing)),
        ("extra", list(result.extra)),
    ):
        if lines:
            output.line(f"{word}  {len(lines):,}")
            output.some(lines)
    if result.ok:
        output.ok("every SHA-256 matches" if result.what != "structure" else "no structural damage")
        return
    output.line(f"NOT ok: {len(result.damaged):,} damaged, {len(result.missing):,} missing")
    if result.what == "live":
        reference = short_id(result.snapshots[0])
        output.hint(f"mend just these with `cachekeeper restore {reference} --cache-dir {shlex.quote(directory)}`")
    elif result.what == "structure":
        output.hint("mend them from a snapshot with `cachekeeper restore NAME --repair`")
    else:
        output.hint("from a good cache, `cachekeeper snapshot NAME --full` stores every file again")
