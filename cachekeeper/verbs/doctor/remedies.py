"""For each finding what to do about it, as lines of a shell script that a person reads and runs."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

from .cleaners import cleaning, reaper_commands, rule_commands
from .findings import DoctorResult, Finding, Remedy
from .place import Place, another_place

_COMMANDS = (
    *("cachekeeper", "chmod", "df", "docker", "echo", "eval", "export", "ls", "mount", "pip", "python", "rm", "sudo"),
    *("ulimit", "unset"),
)
_WIDTH = 78


def remedies(result: DoctorResult) -> tuple[Remedy, ...]:
    """One for each finding that has a remedy and is not ok; the same commands only once."""
    found: dict[tuple[str, ...], Remedy] = {}
    for finding in result.findings:
        if finding.level != "ok" and finding.fix:
            remedy = Remedy(finding.check, finding.message, tuple(_commands(finding, result.cache_dir)))
            found.setdefault(remedy.commands, remedy)
    return tuple(found.values())


def is_command(fix: str) -> bool:
    """True for a command of a shell, False for a sentence."""
    return bool(re.match(r"[\w.-]+", fix)) and fix.split()[0] in _COMMANDS


def _commands(finding: Finding, cache_dir: Path) -> Iterator[str]:
    if finding.check == "tmp-cleaner":
        yield from _against_cleaners(cache_dir)
    elif is_command(finding.fix):
        yield finding.fix
    else:
        for line in textwrap.wrap(finding.fix, _WIDTH, break_long_words=False, break_on_hyphens=False):
            yield f"# {line}"


def _against_cleaners(cache_dir: Path) -> Iterator[str]:
    place = Place.at(cache_dir)
    found = cleaning(place.real)
    if found.age or not found.reapers:
        yield from rule_commands(place.real)
    for name, _ in found.reapers:
        yield from reaper_commands(name, place.real)
    target = another_place(place.path)
    if target is not None:
        move = f"cachekeeper move {shlex.quote(str(place.path))} --to {shlex.quote(str(target))}"
        yield f"# or, without root, to a place that no cleaner empties: {move}"
