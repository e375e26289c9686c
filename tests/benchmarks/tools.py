"""The command lines of cachekeeper and its peers: for each operation one, or none where a tool has no such thing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .measuring import size_of

CACHEKEEPER, TAR, RESTIC, BORG = "cachekeeper", "tar \\| zstd -3 -T0", "restic", "borg"

# In the order in which a run does them.
OPERATIONS = {
    "snapshot": "snapshot",
    "verify": "verify",
    "restore": "restore",
    "restore-verify": "restore, then read again",
    "unchanged": "snapshot, unchanged",
    "changed": "snapshot, 1 % changed",
}

# Without bytecode, Python compiles every module at every start.
_FOREIGN = (
    *("CACHEKEEPER_", "TORCHINDUCTOR_", "TORCH_COMPILE", "TRITON_", "XDG_", "PYTHONDONTWRITEBYTECODE"),
    *("RESTIC_", "BORG_", "ZSTD_", "TAR_", "AWS_", "S3_"),
)


@dataclass(frozen=True)
class Place:
    """Where one tool works in one run: nothing in it is used by another.

    Attributes:
        tree: the cache directory to keep.
        home: the tool's private caches.
        store: its archive or repository.
        target: an empty directory to restore into, and the one that the commands run in.
    """

    tree: Path
    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def target(self) -> Path:
        return self.root / "restored"

    @property
    def copy(self) -> Path:
        """Where a tool that restores whole paths puts the tree."""
        return self.target / self.tree.relative_to("/")

    def environment(self) -> dict[str, str]:
        """The variables of the caller but for those that change what a tool does, and a home of its own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        return kept | {
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "BORG_BASE_DIR": str(self.home),
            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
            "RESTIC_PASSWORD": "benchmark",
            "LC_ALL": "C.UTF-8",
        }

    def make(self) -> None:
        """Make the directories that a tool expects."""
        for directory in (self.home, self.target):
            directory.mkdir(parents=True)

    def stored(self) -> int:
        """The bytes that the tool has stored."""
        return size_of(self.store)


Command = Callable[[Place], list[str]]


@dataclass(frozen=True)
class Tool:
    """A tool and what it is called with.

    Attributes:
        programs: what must be installed; the first has the version.
        version: the option or command that prints it.
        prepare: makes an empty repository; not measured.
        commands: operation -> command line.
        copy: where `restore` puts what was the tree.
        helpers: more that must be installed.
        runs: at most so many, of a tool that takes minutes.
    """

    name: str
    programs: tuple[str, ...]
    version: str
    commands: Mapping[str, Command]
    copy: Callable[[Place], Path]
    prepare: Command | None = None
    helpers: tuple[str, ...] = ()
    runs: int | None = None

    def missing(self) -> list[str]:
        """The programs that are not installed."""
        return [program for program in (*self.programs, *self.helpers) if shutil.which(program) is None]

    def versions(self) -> str:
        """What the programs say that they are, a line each."""
        return "; ".join(_version(program, self.version) for program in self.programs)


def _version(program: str, option: str) -> str:
    done = subprocess.run([program, option], capture_output=True, text=True, check=False)
    text = (done.stdout or done.stderr).strip().partition("\n")[0].partition(" Python/")[0].strip("* ")
    return f"{Path(program).name} {text}" if re.match(r"v?\d", text) else text


def program() -> str:
    """The `cachekeeper` of the running interpreter."""
    return str(Path(sys.executable).parent / "cachekeeper")


def found(name: str) -> str:
    """A program beside the running interpreter, or else its name, to be found on PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if os.access(beside, os.X_OK) else name


def _local(place: Place) -> str:
    return str(place.store)


def cachekeeper(store: Callable[[Place], str] = _local) -> Tool:
    """cachekeeper as installed: every command is a process of its own."""

    def command(verb: str, *options: str) -> Command:
        return lambda place: [program(), verb, "bench", "--quiet", "--store", store(place), *options]

    def snapshot(place: Place) -> list[str]:
        return [*command("snapshot", "--wait", "0")(place), "--cache-dir", str(place.tree)]

    def restore(place: Place) -> list[str]:
        return [*command("restore")(place), "--cache-dir", str(place.target / "cache")]

    def restore_verify(place: Place) -> list[str]:
        return [*command("restore", "--verify")(place), "--cache-dir", str(place.target / "again")]

    return Tool(
        name=CACHEKEEPER,
        programs=(program(),),
        version="--version",
        commands={
            "snapshot": snapshot,
            "verify": command("verify"),
            "restore": restore,
            "restore-verify": restore_verify,
            "unchanged": snapshot,
            "changed": snapshot,
        },
        copy=lambda place: place.target / "cache",
    )


def tar() -> Tool:
    """One compressed archive. It has no unchanged or changed: all is done again. Its check is of the stream alone."""
    return Tool(
        name=TAR,
        programs=("tar", "zstd"),
        version="--version",
        commands={
            "snapshot": lambda place: ["tar", "-I", "zstd -3 -T0", "-C", str(place.tree), "-cf", str(place.store), "."],
            "verify": lambda place: ["zstd", "--test", "--quiet", str(place.store)],
            "restore": lambda place: ["tar", "-I", "zstd", "-C", str(place.target), "-xf", str(place.store)],
        },
        copy=lambda place: place.target,
    )


def restic(repository: Callable[[Place], str] = _local) -> Tool:
    """restic, encrypted and compressed as it is by default."""

    def command(*words: str) -> Command:
        return lambda place: ["restic", "--quiet", "--repo", repository(place), *words]

    def backup(place: Place) -> list[str]:
        return command("backup", str(place.tree))(place)

    return Tool(
        name=RESTIC,
        programs=("restic",),
        version="version",
        prepare=command("init"),
        commands={
            "snapshot": backup,
            "verify": command("check", "--read-data"),
            "restore": lambda place: command("restore", "latest", "--target", str(place.target))(place),
            "unchanged": backup,
            "changed": backup,
        },
        copy=lambda place: place.copy,
    )


def borg() -> Tool:
    """borg with zstd 3 and no encryption."""

    def create(archive: str) -> Command:
        return lambda place: ["borg", "create", "--compression", "zstd,3", f"{place.store}::{archive}", str(place.tree)]

    return Tool(
        name=BORG,
        programs=("borg",),
        version="--version",
        prepare=lambda place: ["borg", "init", "--encryption", "none", str(place.store)],
        commands={
            "snapshot": create("first"),
            "verify": lambda place: ["borg", "check", "--verify-data", str(place.store)],
            "restore": lambda place: ["borg", "extract", f"{place.store}::first"],
            "unchanged": create("same"),
            "changed": create("changed"),
        },
        copy=lambda place: place.copy,
    )


def all_tools() -> list[Tool]:
    """cachekeeper, then its peers."""
    return [cachekeeper(), tar(), restic(), borg()]
