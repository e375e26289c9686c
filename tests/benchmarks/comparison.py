"""Every tool on the same tree: peer after peer for each operation, and all of it again, several times."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .measuring import CommandFailed, Sample, count_of, measure, settle, size_of
from .tools import OPERATIONS, Place, Tool

Say = Callable[[str], None]


@dataclass
class Comparison:
    """What was measured.

    Attributes:
        tools: those that took part.
        operations: operation -> its title, in the order in which a run does them.
        samples: (operation, tool) -> one for each run.
        stored: tool -> bytes in its store after the first snapshot, for each run.
        notes: what a reader must know: failures, and restored trees that are not what was kept.
    """

    tools: Sequence[Tool] = ()
    operations: Mapping[str, str] = field(default_factory=lambda: OPERATIONS)
    files: int = 0
    bytes: int = 0
    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=lambda: defaultdict(list))
    stored: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    notes: list[str] = field(default_factory=list)


def compare(
    tools: Sequence[Tool],
    *,
    work: Path,
    files: int,
    megabytes: float,
    runs: int,
    only: Collection[str],
    say: Say,
    operations: Mapping[str, str] = OPERATIONS,
    place: Callable[[Path, Path], Place] = Place,
) -> Comparison:
    """Measure. Nothing is deleted: on ext4 files are created up to 8x slower after a large deletion."""
    result = Comparison(tools, operations)
    for number in range(runs):
        present = [tool for tool in _rotated(tools, number) if tool.runs is None or number < tool.runs]
        run = _Run(result, present, work / f"run-{number}", place, say)
        run.make_tree(files, megabytes)
        for operation, title in operations.items():
            if operation == "snapshot" or operation in only:
                say(f"run {number + 1} of {runs}: {title}")
                run.measure(operation)
                run.afterwards(operation, first=number == 0)
    return result


def _rotated(tools: Sequence[Tool], number: int) -> list[Tool]:
    """Every run begins with another tool, so that none is always first after the tree was made."""
    first = number % len(tools)
    return [*tools[first:], *tools[:first]]


class _Run:
    """One run: a tree, and a place for each tool."""

    def __init__(
        self, result: Comparison, tools: Sequence[Tool], root: Path, place: Callable[[Path, Path], Place], say: Say
    ) -> None:
        self.result, self.tools, self.say = result, tools, say
        self.tree = root / "tree"
        self.places = {tool.name: place(self.tree, root / f"tool-{number}") for number, tool in enumerate(tools)}
        self.failed: set[str] = set()

    def make_tree(self, files: int, megabytes: float) -> None:
        self.say("making the tree")
        tree_program(self.tree, "--files", str(files), "--mb", str(megabytes))
        self.result.files, self.result.bytes = count_of(self.tree), size_of(self.tree)
        for tool in self.tools:
            self.places[tool.name].make()
            if tool.prepare:
                self._measure(tool, tool.prepare)
        settle(self.tree)

    def measure(self, operation: str) -> None:
        if operation == "changed":
            tree_program(self.tree, "--mutate", "0.01")
            settle(self.tree)
        for tool in self.tools:
            command = tool.commands.get(operation)
            if command and tool.name not in self.failed and (sample := self._measure(tool, command)):
                self.result.samples[operation, tool.name].append(sample)

    def _measure(self, tool: Tool, command: Callable[[Place], list[str]]) -> Sample | None:
        place = self.places[tool.name]
        sync()
        try:
            return measure(command(place), directory=place.target, environment=place.environment())
        except CommandFailed as error:
            self.result.notes.append(f"failed: {error}")
            return None

    def afterwards(self, operation: str, first: bool) -> None:
        for tool in self.tools:
            done = self.result.samples.get((operation, tool.name))
            if operation == "snapshot" and done:
                self.result.stored[tool.name].append(self.places[tool.name].stored())
            elif operation == "snapshot":
                self.failed.add(tool.name)
            elif operation == "restore" and first and done:
                self._compare_copy(tool)

    def _compare_copy(self, tool: Tool) -> None:
        wrong = list(differences(self.tree, tool.copy(self.places[tool.name])))
        if wrong:
            self.result.notes.append(f"{tool.name} restored {len(wrong)} files wrongly, the first is {wrong[0]}")


def sync() -> None:
    """Let no command pay for what the one before it wrote."""
    subprocess.run(["sync"], check=True)


def tree_program(directory: Path, *options: str) -> None:
    """Make or change a tree, in a process of its own; see `measure`."""
    command = [sys.executable, "-m", f"{__package__}.tree", str(directory), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2])


def differences(tree: Path, copy: Path) -> Iterator[str]:
    """The files of a tree that a copy lacks or has otherwise.

    Locks and what cachekeeper itself notes there may be left out, and a Triton group file may name the directory that
    it is in now.
    """
    for path in sorted(tree.rglob("*")):
        other = copy / path.relative_to(tree)
        if path.is_dir() or path.suffix == ".lock" or ".cachekeeper" in path.parts:
            continue
        if not other.is_file() or not _same(path, other):
            yield path.relative_to(tree).as_posix()


def _same(path: Path, other: Path) -> bool:
    ours, theirs = path.read_bytes(), other.read_bytes()
    if ours == theirs:
        return True
    return path.name.startswith("__grp__") and _children(theirs) == {
        name: str(other.parent / name) for name in _children(ours)
    }


def _children(data: bytes) -> dict[str, str]:
    children: dict[str, str] = json.loads(data)["child_paths"]
    return children
