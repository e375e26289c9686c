"""What a command costs that does almost nothing, against a Python that does nothing."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from .comparison import Say, tree_program
from .measuring import CommandFailed, Sample, measure, settle
from .tools import Place, program

STARTS = 10
SNAPSHOTS = 20
BARE = "python -c pass"


@dataclass
class Startup:
    """Command, as a person types it -> one sample for each start."""

    samples: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    notes: list[str] = field(default_factory=list)


def start(*, work: Path, say: Say) -> Startup:
    """Start each command in turn, and all of them again."""
    place = Place(work / "startup" / "tree", work / "startup" / "cachekeeper")
    place.make()
    say(f"start-up: a store of {SNAPSHOTS} snapshots")
    _fill(place)
    result = Startup()
    commands = {
        BARE: [sys.executable, "-c", "pass"],
        "cachekeeper --help": [program(), "--help"],
        "cachekeeper version": [program(), "version"],
        f"cachekeeper ls ({SNAPSHOTS} snapshots)": [program(), "ls", "--store", str(place.store)],
        "cachekeeper fingerprint": [program(), "fingerprint"],
    }
    for number in range(STARTS):
        say(f"start-up: {number + 1} of {STARTS}")
        for name, arguments in commands.items():
            _start(result, name, arguments, place, noted=number == 0)
    return result


def _start(result: Startup, name: str, arguments: list[str], place: Place, noted: bool) -> None:
    try:
        result.samples[name].append(measure(arguments, directory=place.target, environment=place.environment()))
    except CommandFailed as error:
        if noted:
            result.notes.append(f"failed: {error}")


def _fill(place: Place) -> None:
    tree_program(place.tree, "--files", "50", "--mb", "0")
    settle(place.tree)
    for number in range(SNAPSHOTS):
        options = ["--quiet", "--store", str(place.store), "--cache-dir", str(place.tree), "--wait", "0"]
        arguments = [program(), "snapshot", f"bench-{number % 3}", *options]
        measure(arguments, directory=place.target, environment=place.environment())
