"""A cache wiped, and cleaned by age, under a running job that is watched: the job goes on, the cache is whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.verbs.restore import RestoreResult

from ..watching.guarding import Guard, wait_for
from .conftest import ALL, Filled
from .job import files_in
from .running import REPOSITORY, Run, check_warm, environment_of

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("torch"), pytest.mark.timeout(900)]
RunJob = Callable[..., Run]

# Does the parts of job.py that it is told to, one line each.
JOB = """
import json, sys
from tests.torch_cpu.job import PARTS
for line in sys.stdin:
    name, _, value = line.strip().partition("=")
    print(json.dumps(PARTS[name](value)), flush=True)
"""
SWEEP = (
    "while sleep 0.1; do find {0} -type f -not -path '*/.cachekeeper/*' -mmin +1 -delete; "
    "touch {1}/swept; test ! -e {1}/stop || exit 0; done"
)


class Job:
    """A process that compiles one graph after the other, when it is told to."""

    def __init__(self, restored: RestoreResult, compilers: Path, work: Path) -> None:
        environment = {
            **os.environ,
            **environment_of(restored),
            "PATH": f"{compilers}:{os.environ['PATH']}",
            "COMPILER_LOG": str(work / "compilers.log"),
            "PYTHONPATH": str(REPOSITORY),
        }
        self._errors = (work / "errors").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-c", JOB],
            env=environment,
            cwd=work,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def begin(self, part: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{part}\n")
        self._process.stdin.flush()

    def done(self) -> dict[str, str]:
        """What the part computed."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        self._errors.seek(0)
        assert line, self._errors.read()[-3000:]
        found: dict[str, str] = json.loads(line)
        return found

    def do(self, part: str) -> dict[str, str]:
        self.begin(part)
        return self.done()

    def end(self) -> int:
        self._process.communicate()
        self._errors.close()
        return self._process.returncode


@pytest.fixture
def job(restored: RestoreResult, compilers: Path, tmp_path: Path) -> Iterator[Job]:
    started = Job(restored, compilers, tmp_path)
    yield started
    assert started.end() == 0


@pytest.fixture
def guard(restored: RestoreResult, filled: Filled) -> Iterator[Guard]:
    with Guard(cache_dir=restored.cache_dir, store=filled.store) as started:
        yield started


def becomes_whole(restored: RestoreResult, filled: Filled) -> None:
    """Every file of the snapshot is there, byte for byte or as torch wrote it anew meanwhile."""

    def whole() -> bool:
        return (
            restored.cache_dir.exists()
            and not cachekeeper.verify("main", live=restored.cache_dir, store=filled.store).missing
        )

    wait_for(whole, "the cache did not become whole")


def test_wiped_under_a_running_job(
    restored: RestoreResult, filled: Filled, job: Job, guard: Guard, run_job: RunJob
) -> None:
    cache, outputs = restored.cache_dir, filled.cold.outputs
    assert outputs
    assert job.do("block").items() <= outputs.items()
    shutil.rmtree(cache)
    assert job.do("attend").items() <= outputs.items()  # while the watch is about to put things back
    becomes_whole(restored, filled)
    subprocess.run(["sh", "-c", f"rm -rf {cache}/* {cache}/.cachekeeper"], check=True)
    assert job.do("scale").items() <= outputs.items()
    new = job.do("scale=52")
    becomes_whole(restored, filled)
    # What was compiled for the first time after the wipe is there as well.
    again = run_job(cache, *ALL, "scale=52", environment=environment_of(restored))
    check_warm(again, replace(filled.cold, outputs={**outputs, **new}))
    assert len(guard.told("put-back")) >= 2 and not guard.told("trouble")


def test_cleaned_by_age_under_a_running_job(
    restored: RestoreResult, filled: Filled, job: Job, guard: Guard, run_job: RunJob, tmp_path: Path
) -> None:
    cache = restored.cache_dir
    assert filled.cold.outputs
    before = {path: inode for path, (inode, _) in files_in(cache).items()}
    for path in before:
        os.utime(cache / path, (0, 0))
    with subprocess.Popen(["sh", "-c", SWEEP.format(cache, tmp_path)]) as cleaner:
        for part in ALL:
            assert job.do(part).items() <= filled.cold.outputs.items()
        job.do("scale=61")
        wait_for((tmp_path / "swept").exists)
        becomes_whole(restored, filled)
        (tmp_path / "stop").touch()
        assert cleaner.wait() == 0
    assert not {path for path, (inode, _) in files_in(cache).items() if before.get(path) == inode}  # each one went
    check_warm(run_job(cache, environment=environment_of(restored)), filled.cold)


def test_what_a_job_compiles_anew_is_never_moved(
    restored: RestoreResult, filled: Filled, job: Job, guard: Guard, run_job: RunJob
) -> None:
    """Meanwhile files of the snapshot vanish and break all around it."""
    cache = restored.cache_dir
    old = files_in(cache)
    seen: dict[str, tuple[int, int]] = {}
    assert filled.cold.outputs
    outputs = dict(filled.cold.outputs)
    parts = [f"scale={width}" for width in (71, 72, 73)]
    for part in parts:
        job.begin(part)
        (cache / min(path for path in old if path.endswith(".so"))).write_bytes(b"")
        for path in old:
            if path.startswith("aotautograd/"):
                (cache / path).unlink(missing_ok=True)
        outputs |= job.done()
        new = {path: how for path, how in files_in(cache).items() if path not in old}
        assert seen.items() <= new.items() and len(new) > len(seen)
        seen = new
    becomes_whole(restored, filled)
    wait_for(lambda: cachekeeper.verify("main", live=cache, store=filled.store).ok)
    assert seen.items() <= files_in(cache).items()
    aside = [path for path in (cache / ".cachekeeper").rglob("*") if path.is_file()]
    assert aside and not {path.name for path in aside} & {path.rpartition("/")[2] for path in seen}
    again = run_job(cache, *ALL, *parts, environment=environment_of(restored))
    check_warm(again, replace(filled.cold, outputs=outputs))
