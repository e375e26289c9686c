"""One cold run for all tests here, watched while it compiles; the tests restore its snapshot and never write to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import CachekeeperError
from cachekeeper.livecache import LiveCache
from cachekeeper.verbs.restore import RestoreResult
from cachekeeper.verbs.snapshot import SnapshotResult

from ..conftest import _PREFIXES
from .running import REPOSITORY, Run, Started, make_compilers

ALL = ("block", "attend", "scale")
_EVERY = 2.0


@dataclass(frozen=True)
class Attempt:
    """A snapshot tried while torch was compiling.

    Attributes:
        held: whether torch held a compile lock before and after.
        outcome: the snapshot, or why there is none.
    """

    held: bool
    outcome: SnapshotResult | CachekeeperError


@dataclass(frozen=True)
class Filled:
    """A cache that a job filled, and what happened meanwhile.

    Attributes:
        store: holds the snapshot `main`, taken when the job had ended.
        live_store: holds those taken while it ran.
        waited: exit code of `cachekeeper snapshot waited`, begun while the library of its last graph was built.
    """

    cache: Path
    store: Path
    live_store: Path
    cold: Run
    attempts: tuple[Attempt, ...]
    waited: int | None


@pytest.fixture(scope="session")
def clean_environment() -> Iterator[None]:
    """As `own_environment`, for fixtures that are made before it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(_PREFIXES):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_compilers(tmp_path_factory.mktemp("compilers") / "bin")
    if not (directory / "g++").exists():
        pytest.skip("no g++")
    return directory


@pytest.fixture(scope="session")
def filled(clean_environment: None, compilers: Path, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    work = tmp_path_factory.mktemp("main")
    cache, store, live_store = work / "inductor", work / "store", work / "live-store"
    cache.mkdir()
    job = Started(compilers, cache, ALL)
    attempts: list[Attempt] = []
    waiting: subprocess.Popen[str] | None = None
    tried = float("-inf")
    while job.running():
        if f"part {ALL[-1]}" in job.stderr.read_text():
            if waiting is None and _held(cache):
                waiting = _begin_waiting(cache, live_store)
        elif time.monotonic() - tried > _EVERY and (not attempts or any(cache.iterdir())):
            # The first before anything is there, the others not so often as to slow the job down.
            attempts.append(_attempt(cache, live_store, f"live-{len(attempts)}"))
            tried = time.monotonic()
        time.sleep(0.1)
    cold = job.finish()
    assert cold.code == 0, cold.errors
    cachekeeper.snapshot("main", cache_dir=cache, store=store)
    return Filled(cache, store, live_store, cold, tuple(attempts), waiting and waiting.wait())


def _held(cache: Path) -> bool:
    with LiveCache(cache) as live:
        return live.lock_held()


def _attempt(cache: Path, store: Path, name: str) -> Attempt:
    held = _held(cache)
    outcome: SnapshotResult | CachekeeperError
    try:
        outcome = cachekeeper.snapshot(name, cache_dir=cache, store=store, wait=0)
    except CachekeeperError as error:
        outcome = error
    return Attempt(held and _held(cache), outcome)


def _begin_waiting(cache: Path, store: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cachekeeper", "snapshot", "waited", "--wait", "120", "--quiet"]
    return subprocess.Popen(
        [*command, "--cache-dir", str(cache), "--store", str(store)], cwd=REPOSITORY, stdout=subprocess.DEVNULL
    )


@pytest.fixture
def run_job(compilers: Path) -> Callable[..., Run]:
    """Run a job to its end; arguments as for `Started`."""

    def run(cache: Path | str, *parts: str, **options: object) -> Run:
        return Started(compilers, cache, parts or ALL, **options).finish()  # type: ignore[arg-type]

    return run


@pytest.fixture
def restored(filled: Filled, tmp_path: Path) -> RestoreResult:
    """The cache, restored into a directory of the test's own."""
    return cachekeeper.restore("main", cache_dir=tmp_path / "cache", store=filled.store)
