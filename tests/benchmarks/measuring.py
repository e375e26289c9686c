"""One command -> what it cost, with everything that it started."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# cachekeeper trusts what it saw of a file only if the file had not just been written (2 s); borg does likewise.
SETTLED_SECONDS = 3.0


class Sample(NamedTuple):
    """Wall and processor seconds, and the largest memory of any one process, in bytes."""

    wall: float
    cpu: float
    peak: float


class CommandFailed(Exception):
    """A measured command that ended with an error; the text says which and how."""


def measure(arguments: Sequence[str], *, directory: Path, environment: Mapping[str, str]) -> Sample:
    """Run a command to its end.

    The memory includes what this process had when it started the command (Linux counts it), so it must stay small:
    trees are made in processes of their own.

    Raises:
        CommandFailed: its exit code is not 0.
    """
    with tempfile.TemporaryFile() as words:
        began = time.perf_counter()
        process = subprocess.Popen(
            arguments,
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            words.seek(0)
            raise CommandFailed(_failure(arguments, process.returncode, words.read()))
    return Sample(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def _failure(arguments: Sequence[str], code: int, words: bytes) -> str:
    lines = [line.strip() for line in words.decode(errors="replace").splitlines() if line.strip()]
    told = next((line for line in lines if line.lower().startswith(("error", "fatal"))), lines[-1] if lines else "")
    return f"{Path(arguments[0]).name} {arguments[1] if len(arguments) > 1 else ''} ended with {code}: {told}"


def middle(samples: Iterable[Sample]) -> Sample:
    """The median of each figure."""
    return Sample(*(statistics.median(column) for column in zip(*samples, strict=True)))


def settle(directory: Path) -> None:
    """Wait until a tree is on disk, in the page cache, and older than what is called fresh."""
    newest = 0.0
    for path in _files(directory):
        status = path.stat()
        newest = max(newest, status.st_mtime, status.st_ctime)
        path.read_bytes()
    os.sync()
    time.sleep(max(0.0, newest + SETTLED_SECONDS - time.time()))


def size_of(path: Path) -> int:
    """The length of a file, or of all files below a directory."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in _files(path))


def count_of(directory: Path) -> int:
    """The number of files below a directory."""
    return sum(1 for _ in _files(directory))


def _files(directory: Path) -> Iterable[Path]:
    for top, _, names in os.walk(directory):
        yield from (Path(top, name) for name in names)
