"""Starts jobs in fresh processes, with every launch of the compiler on record.

A directory with a `g++` that notes its arguments and becomes the real one stands first on PATH, for cold and warm
runs alike: torch still spells the compiler `g++`, which is part of its keys.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cachekeeper.verbs.restore import RestoreResult

JOB = Path(__file__).with_name("job.py")
REPOSITORY = JOB.parents[2]
_WRAPPER = """#!/bin/sh
printf '%s\\n' "$*" >> "$COMPILER_LOG"
exec {real} "$@"
"""


@dataclass(frozen=True)
class Run:
    """What a job printed, and the command lines of the compilers it launched."""

    code: int
    wall: float
    errors: str
    launches: tuple[str, ...]
    seconds: float = 0.0
    outputs: Mapping[str, str] | None = None
    hits: int = 0
    misses: int = 0
    bypasses: int = 0
    new_files: tuple[str, ...] = ()

    @property
    def questions(self) -> list[str]:
        """Launches that ask the compiler who it is."""
        return [line for line in self.launches if line in ("--version", "-v")]

    @property
    def preprocessed(self) -> list[str]:
        """Launches that only preprocess: every process does one, to find its precompiled headers by their content."""
        return [line for line in self.launches if " -E -P -o " in line]

    @property
    def headers(self) -> list[str]:
        """Launches that precompile headers, which are kept in torch's default directory, one set a user."""
        return [line for line in self.launches if line.endswith(".h.gch")]

    @property
    def builds(self) -> list[str]:
        """All other launches: libraries."""
        rest = {*self.questions, *self.preprocessed, *self.headers}
        return [line for line in self.launches if line not in rest]

    def __str__(self) -> str:
        return (
            f"{self.wall:.1f} s, {self.seconds:.1f} s of them the job: {self.hits} hits, {self.misses} misses, "
            f"{self.bypasses} bypasses, {len(self.new_files)} new files; launches: {len(self.builds)} builds, "
            f"{len(self.headers)} headers, {len(self.preprocessed)} preprocessed, {len(self.questions)} questions"
        )


def make_compilers(directory: Path) -> Path:
    """The directory to put first on PATH."""
    directory.mkdir()
    for name in ("g++", "c++", "clang++", "gcc", "cc"):
        if real := shutil.which(name):
            (directory / name).write_text(_WRAPPER.format(real=real))
            (directory / name).chmod(0o755)
    return directory


class Started:
    """A job on its way.

    Args:
        compilers: what `make_compilers` returned.
        prefix: a command to start the job by, as strace.
        work: where its standard error and the record of its compilers go.
    """

    def __init__(
        self,
        compilers: Path,
        cache: Path | str,
        parts: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        cwd: Path | None = None,
        work: Path | None = None,
    ) -> None:
        self._work = Path(tempfile.mkdtemp(dir=work, prefix="job-"))
        self._work.chmod(0o777)
        self.stderr = self._work / "stderr"
        self._log = self._work / "compilers"
        self._log.touch(0o666)
        self._log.chmod(0o666)
        own = {
            "PATH": f"{compilers}:{os.environ['PATH']}",
            "COMPILER_LOG": str(self._log),
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
            **(environment or {}),
        }
        self._began = time.monotonic()
        with self.stderr.open("wb") as errors:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, str(JOB), *parts],
                env={**os.environ, **own},
                cwd=cwd,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def running(self) -> bool:
        """True until it has ended."""
        return self.process.poll() is None

    def finish(self) -> Run:
        """Wait for its end; a job that failed has no figures, see `Run.code`."""
        stdout, _ = self.process.communicate()
        wall = time.monotonic() - self._began
        errors, launches = self.stderr.read_text(errors="replace"), tuple(self._log.read_text().splitlines())
        shutil.rmtree(self._work)
        printed = json.loads(stdout.splitlines()[-1]) if self.process.returncode == 0 else {}
        new_files = tuple(printed.pop("new_files", ()))
        run = Run(self.process.returncode, wall, errors, launches, new_files=new_files, **printed)
        print(run)
        return run


def check_warm(run: Run, cold: Run, *, headers: bool = False) -> None:
    """Nothing was compiled, built or written, and the outputs are those of the cold run to the last bit.

    Args:
        headers: whether the job may precompile headers: they are outside the cache, and a user's first job does.
    """
    assert run.code == 0, run.errors[-3000:]
    assert (run.misses, run.bypasses) == (0, 0)
    assert run.hits > 0
    assert run.new_files == ()
    assert run.builds == []
    assert headers or run.headers == []
    assert len(run.preprocessed) <= 1
    assert run.outputs and cold.outputs
    assert run.outputs.items() <= cold.outputs.items()


def cachekeeper(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own."""
    command = [sys.executable, "-m", "cachekeeper", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload]


def environment_of(result: RestoreResult) -> dict[str, str]:
    assert result.environment
    return result.environment


@contextlib.contextmanager
def unchanged_but(directory: Path, *paths: str) -> Iterator[None]:
    """Fails where any file but these is not the same one, unwritten, afterwards."""
    from .job import files_in

    before = files_in(directory)
    yield
    after = files_in(directory)
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} == set(paths)
