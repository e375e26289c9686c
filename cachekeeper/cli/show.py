"""cachekeeper show"""

from __future__ import annotations

import shlex

import click

from ..environment import summary
from ..manifest import RunSummary
from ..signing import short_key
from ..stores import Store
from ..units import count, format_bytes, format_duration, short_id
from .ls import here
from .options import examples, output_options, store_options
from .output import Output
from .pin import described
from .proof import proof_in_words, proof_table
from .snapshot import contents


@click.command(name="show", epilog=examples("cachekeeper show drafter", "cachekeeper show 7c1e04ab --json"))
@click.argument("reference", metavar="ID|NAME")
@store_options
@output_options
def command(reference: str, store: Store, as_json: bool, quiet: bool) -> None:
    """Show one snapshot: what is in it, where it was made, and whether it fits this machine."""
    from ..verbs.show import show

    output = Output(as_json, quiet)
    result = show(reference, store=store)
    _say(output, result)
    output.result("show", {**vars(result), "fits": result.here.fits}, result.snapshot.id)


def _run_in_words(run: RunSummary) -> str:
    """The run that a snapshot was saved after, in one line."""
    if not run.processes:
        return f"{shlex.join(run.command)}: told nothing of its compiles"
    numbers = f"{run.hits:,} hit, {run.misses:,} missed, {run.bypasses:,} bypassed"
    fallbacks = f", {count(run.fallbacks, 'fallback')}" if run.fallbacks else ""
    return f"{shlex.join(run.command)}: {numbers}, {format_duration(run.compiling)} compiling{fallbacks}"


def _say(output: Output, result: object) -> None:
    from ..verbs.show import ShowResult

    assert isinstance(result, ShowResult)
    header = result.snapshot.header
    output.line(f"snapshot     {result.snapshot.id}")
    for word, value in (
        ("names", ", ".join(result.names)),
        ("saved", f"{header.created} by cachekeeper {header.tool}"),
        ("before it", short_id(header.parent)),
        ("message", header.message),
        ("metrics", "  ".join(f"{key} {value:g}" for key, value in header.metrics.items())),
        ("tags", "  ".join(f"{key}={value}" for key, value in header.tags.items())),
        ("from", header.cache_dir or header.origin),
        ("also", "  ".join(f"{label} ({path})" for label, path in header.also.items())),
        (
            "size",
            f"{count(header.files, 'file')}, {format_bytes(header.bytes)}, {format_bytes(header.stored)} in the store",
        ),
        ("holds", contents(header)),
        ("kernels in", "  ".join(f"{path} {number:,}" for path, number in header.triton_dirs.items())),
        ("built for", ", ".join(header.targets)),
        ("environment", f"{summary(header.fingerprint)}   fingerprint {header.fingerprint.id}"),
        ("here?", here(result.here)),
        ("pinned", described(result.pin) if result.pin else ""),
        (
            "proof",
            proof_in_words(header.proof) if header.proof else "none: no warmup has shown that a fresh process hits",
        ),
        ("run", _run_in_words(header.run) if header.run else ""),
        ("telemetry", f"{format_bytes(header.telemetry.raw)} of its graphs" if header.telemetry else ""),
    ):
        if value:
            output.line(f"{word:<12} {value}")
    for signature in result.signatures:
        told = signature.damage or f"{signature.when} by {signature.who}"
        output.line(f"{'signature':<12} key {short_key(signature.key)}   {told}")
    for item in (*result.here.must, *result.here.should):
        output.line(
            f"  {item.name}  {item.theirs} -> here {item.ours}" + (f"   ({item.effect})" if item.effect else "")
        )
    for kind, amount in header.counts.items():
        entries, files = count(amount.entries, "entry"), count(amount.files, "file")
        output.line(f"  {kind:<12} {entries:>15} {files:>14} {format_bytes(amount.bytes):>10}")
    for line in proof_table(header.proof) if header.proof else []:
        output.line(f"  {line}")
    for note in result.notes:
        output.line(f"note: {note}")
    for line in (*header.live, *header.damaged):
        output.warn(line)
    for line in header.secrets:
        output.warn(f"looks like a secret: {line}")
