"""Snapshots taken while torch compiles: marked, or refused, and never wrong. They were taken by the cold run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import Busy, DamagedCache, EmptyCache
from cachekeeper.verbs.snapshot import SnapshotResult

from .conftest import Filled
from .job import files_in
from .running import Run, environment_of

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("torch")]
RunJob = Callable[..., Run]


def saved(filled: Filled) -> list[SnapshotResult]:
    return [item.outcome for item in filled.attempts if isinstance(item.outcome, SnapshotResult)]


def test_each_is_marked_or_refused(filled: Filled) -> None:
    for attempt in filled.attempts:
        outcome = attempt.outcome
        if isinstance(outcome, SnapshotResult):
            print(outcome.snapshot.header.entries, "entries", outcome.snapshot.header.live, "lock held", attempt.held)
            assert outcome.snapshot.header.files > 0
            # Between two graphs nothing is written for a while, and what is there is whole.
            assert outcome.snapshot.header.live or not attempt.held
        else:
            print(type(outcome).__name__, outcome)
            assert isinstance(outcome, EmptyCache | DamagedCache | Busy)
            assert outcome.hint
            assert str(filled.cache) in str(outcome)
    marked = [result for result in saved(filled) if result.snapshot.header.live]
    assert marked, "no snapshot hit a compilation"
    words = ("compiling", "written", "wrote", "changed", "appeared")
    for result in marked:
        assert any(word in " ".join(result.snapshot.header.live) for word in words)


def test_each_verifies_and_restores(filled: Filled, tmp_path: Path) -> None:
    assert saved(filled)
    for result in saved(filled):
        identity = result.snapshot.id
        assert cachekeeper.verify(identity, store=filled.live_store).ok
        restored = cachekeeper.restore(identity, cache_dir=tmp_path / identity, store=filled.live_store, verify=True)
        assert restored.verified == result.snapshot.header.files
        assert cachekeeper.verify(directory=tmp_path / identity).ok
        live = result.snapshot.header.live
        assert any("while the cache was in use" in note for note in restored.notes) == bool(live)


def test_a_job_makes_what_is_missing(filled: Filled, tmp_path: Path, run_job: RunJob) -> None:
    """From the latest of those marked, which lacks least."""
    result = [result for result in saved(filled) if result.snapshot.header.live][-1]
    restored = cachekeeper.restore(result.snapshot.id, cache_dir=tmp_path / "new", store=filled.live_store)
    some = set(files_in(tmp_path / "new"))
    run = run_job(tmp_path / "new", environment=environment_of(restored))
    assert run.code == 0, run.errors
    assert run.outputs == filled.cold.outputs
    assert some.isdisjoint(run.new_files)
    missing = {path.partition("/")[0] for path in run.new_files}
    assert (run.misses > 0) == ("fxgraph" in missing)


def test_one_that_waits_is_not_marked(filled: Filled) -> None:
    """It began while the last library was built, and holds that library."""
    assert filled.waited == 0
    snapshot = cachekeeper.show("waited", store=filled.live_store).snapshot
    assert snapshot.header.live == ()
    main = cachekeeper.show("main", store=filled.store).snapshot
    assert snapshot.header.entries_of("native") == main.header.entries_of("native")
    print("waited:", dict(snapshot.header.counts))
    print("main:  ", dict(main.header.counts))
