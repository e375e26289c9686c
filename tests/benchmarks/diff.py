"""`cachekeeper diff` of two snapshots on more and more files, against `diff -rq` of the two directories.

`diff -rq` says which files differ, and nothing of what is in them; but it is on every machine, and reads as many files.
restic and borg compare lists of files alone, as `cachekeeper diff` does before it reads anything. The trees are made
up, and their modules hold no kernels: this is the cost of files, and not of kernels that are looked into.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from .comparison import Say, sync, tree_program
from .measuring import CommandFailed, Sample, count_of, measure, settle
from .tools import CACHEKEEPER, Place, program

SIZES = (300, 3_000, 10_000, 50_000)
PEER = "diff -rq"
OTHERS = {"changed": "1 % changed", "other": "all of it another"}


@dataclass
class Difference:
    """One size of tree: (what the other tree is, tool) -> one sample for each run."""

    files: int
    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=lambda: defaultdict(list))
    notes: list[str] = field(default_factory=list)


def differ(*, work: Path, runs: int, say: Say) -> list[Difference]:
    """Measure each size."""
    return [_measure(files, work / f"diff-{files}", runs, say) for files in SIZES]


def _measure(files: int, work: Path, runs: int, say: Say) -> Difference:
    say(f"diff: {files:,} files")
    place = Place(work / "tree", work / CACHEKEEPER)
    place.make()
    trees = {"tree": place.tree, "changed": work / "changed", "other": work / "other"}
    tree_program(trees["tree"], "--files", str(files), "--mb", "0")
    shutil.copytree(trees["tree"], trees["changed"])
    tree_program(trees["changed"], "--mutate", "0.01")
    tree_program(trees["other"], "--files", str(files), "--mb", "0", "--seed", "5")
    result = Difference(count_of(trees["tree"]))
    for name, tree in trees.items():
        settle(tree)
        options = ["--quiet", "--store", str(place.store), "--cache-dir", str(tree), "--wait", "0"]
        measure([program(), "snapshot", name, *options], directory=place.target, environment=place.environment())
    for _ in range(runs):
        for other in OTHERS:
            ours = [program(), "diff", "tree", other, "--store", str(place.store)]
            # Its exit code is 1 where anything differs.
            theirs = ["sh", "-c", 'diff -rq "$0" "$1"; test $? -le 1', str(trees["tree"]), str(trees[other])]
            for tool, command in ((CACHEKEEPER, ours), (PEER, theirs)):
                _sample(result, (other, tool), command, place)
    return result


def _sample(result: Difference, key: tuple[str, str], command: list[str], place: Place) -> None:
    sync()
    try:
        sample = measure(command, directory=place.target, environment=place.environment())
        result.samples[key].append(sample)
    except CommandFailed as error:
        result.notes.append(f"failed: {error}")
