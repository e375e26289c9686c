"""cachekeeper fingerprint"""

from __future__ import annotations

import click

from ..environment import shown, summary
from ..models import Facts
from .options import examples, model_options, output_options
from .output import Output

_WIDTH = 46


@click.command(
    name="fingerprint",
    epilog=examples(
        "cachekeeper fingerprint",
        "cachekeeper fingerprint --model-config config.json --model-source model.py",
        "cachekeeper fingerprint --deep",
    ),
)
@model_options
@click.option("--deep", is_flag=True, help="Also ask torch itself, in a process that imports it (seconds).")
@output_options
def command(model_config: str | None, model_sources: tuple[str, ...], deep: bool, as_json: bool, quiet: bool) -> int:
    """Show what the validity of a compile cache depends on, on this machine.

    `must`: a difference means misses or wrong code. `should`: a difference deserves a warning. `recorded`: for people.
    torch is not imported and no GPU is touched. With --deep, exit 3 where torch contradicts.
    """
    from ..config import model_files
    from ..verbs.fingerprint import fingerprint

    output = Output(as_json, quiet)
    report = fingerprint(**model_files(model_config, model_sources), deep=deep)
    found = report.fingerprint
    output.line(f"fingerprint  {found.id}   {summary(found)}")
    output.line(f"cache dir    {report.cache_dir.path}   ({report.cache_dir.source})")
    for note in report.cache_dir.notes:
        output.line(f"note: {note}")
    for title, facts in (("must", found.must), ("should", found.should), ("recorded", found.recorded)):
        output.line(title)
        _say_facts(output, facts)
    if found.model:
        output.line(f"model        {found.model.sha256}")
        if found.model.ignored:
            output.line(f"  left out   {', '.join(found.model.ignored)}")
    for check in report.deep:
        word = "agrees" if check.agree else "DISAGREES"
        output.line(
            f"torch {word:<9}  {check.name:<16} {check.torchs}" + ("" if check.agree else f"   here {check.ours}")
        )
    output.result("fingerprint", {**vars(report), "agrees": report.agrees}, found.id)
    return 0 if report.agrees else 3


def _say_facts(output: Output, facts: Facts) -> None:
    for name, fact in facts.items():
        if not fact.unknown and isinstance(fact.value, dict) and fact.value:
            output.line(f"  {name:<24} {len(fact.value)}")
            items = [f"{key}={value}" for key, value in fact.value.items()]
            if len(items) <= 12:
                output.some(items, indent="    ")
        else:
            text = shown(name, fact)
            output.line(f"  {name:<24} {text if len(text) <= _WIDTH or fact.unknown else text[: _WIDTH - 3] + '...'}")
