"""What a command costs that does little, against a Python that does nothing."""

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
SMALL_TREE = 300
BARE = "python -c pass"


@dataclass
class Startup:
    """Command, as a person types it -> one sample for each start.

    Attributes:
        aimed: the commands that are to start within `targets.START_SECONDS`.
    """

    samples: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    aimed: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def start(*, work: Path, say: Say) -> Startup:
    """Start each command in turn, and all of them again."""
    place = Place(work / "startup" / "tree", work / "startup" / "cachekeeper")
    place.make()
    say(f"start-up: a store of {SNAPSHOTS} snapshots")
    _fill(place)
    store = ["--store", str(place.store)]
    quick = {
        "cachekeeper --help": [program(), "--help"],
        "cachekeeper version": [program(), "version"],
        f"cachekeeper ls ({SNAPSHOTS} snapshots)": [program(), "ls", *store],
        "cachekeeper fingerprint": [program(), "fingerprint"],
    }
    there = place.target / "there"
    launch = {
        f"cachekeeper restore ({SMALL_TREE} files)": lambda number: _restore(store, place.target / f"{number}"),
        f"cachekeeper restore ({SMALL_TREE} files, all there)": lambda number: _restore(store, there),
    }
    measure(_restore(store, there), directory=place.target, environment=place.environment())
    result = Startup(aimed=tuple(quick))
    for number in range(STARTS):
        say(f"start-up: {number + 1} of {STARTS}")
        commands = {BARE: [sys.executable, "-c", "pass"], **quick}
        commands |= {name: command(number) for name, command in launch.items()}
        for name, arguments in commands.items():
            _start(result, name, arguments, place, noted=number == 0)
    return result


def _restore(store: list[str], directory: Path) -> list[str]:
    return [program(), "restore", "small", "--verify", *store, "--cache-dir", str(directory)]


def _start(result: Startup, name: str, arguments: list[str], place: Place, noted: bool) -> None:
    try:
        result.samples[name].append(measure(arguments, directory=place.target, environment=place.environment()))
    except CommandFailed as error:
        if noted:
            result.notes.append(f"failed: {error}")


def _fill(place: Place) -> None:
    """The snapshots that `ls` lists; the last of them, `small`, is what is restored."""
    small = place.tree.with_name("small")
    for tree, files in ((place.tree, 50), (small, SMALL_TREE)):
        tree_program(tree, "--files", str(files), "--mb", "0")
        settle(tree)
    for number in range(SNAPSHOTS - 1):
        _snapshot(place, f"bench-{number % 3}", place.tree)
    _snapshot(place, "small", small)


def _snapshot(place: Place, name: str, tree: Path) -> None:
    options = ["--quiet", "--store", str(place.store), "--cache-dir", str(tree), "--wait", "0"]
    measure([program(), "snapshot", name, *options], directory=place.target, environment=place.environment())
