"""What is known of a cache besides its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cachekeeper.diffing.models import Side
from cachekeeper.diffing.sides import proof_seconds, side_of, side_of_directory
from cachekeeper.manifest import RunSummary, Snapshot
from cachekeeper.models import Fact
from cachekeeper.telemetry import Fallback, Log, Process
from tests import samples

RUN = RunSummary("20260131-081500-7c1e04", ("python", "train.py"), "2026-01-31T08:15:00Z", 1.0, 1.0, *[0] * 7)


def test_a_snapshot_with_all_that_is_known():
    header = samples.header(
        message="warm", metrics={"tok_s": 1.5}, tags={"batch": "8"}, origin="x", proof=samples.proof(), run=RUN
    )
    told = tuple(Fallback(1.0, "t", *words) for words in (("g", "b"), ("f", "recompile limit"), ("g", "b"), ("", "c")))
    log = Log(Process(1, "host", 1.0, world_size=4), fallbacks=told)
    side = side_of("drafter@{1}", Snapshot(samples.ID, header), log)
    assert replace(side, proof_seconds=None) == Side(
        label="drafter@{1}",
        id=samples.ID,
        name="drafter",
        created="2026-01-31T08:15:00Z",
        message="warm",
        metrics={"tok_s": 1.5},
        tags={"batch": "8"},
        cache_dir="/tmp/torchinductor_me",
        origin="x",
        fingerprint=samples.fingerprint(),
        run=RUN,
        shapes=("512",),
        world_size=4,
        fallbacks=("c", "f: recompile limit", "g: b"),
    )
    assert side.proof_seconds == (pytest.approx(11.8), pytest.approx(4.5))


def test_a_snapshot_of_which_nobody_told():
    side = side_of(samples.ID, Snapshot(samples.ID, samples.header()), None)
    assert side.label == "7c1e04ab"
    assert (side.run, side.shapes, side.world_size, side.fallbacks, side.proof_seconds) == (None, (), None, (), None)


def test_the_number_of_processes_is_as_the_launcher_told_whoever_saved_it():
    def told(**job):
        made_on = replace(samples.fingerprint(), recorded={"job": Fact(job)})
        return side_of("x", Snapshot(samples.ID, samples.header(fingerprint=made_on)), None).world_size

    assert (told(WORLD_SIZE="8", RANK="3"), told(RANK="3"), told(WORLD_SIZE="many")) == (8, None, None)


def test_shapes_are_told_once_in_their_order():
    step = samples.proof().steps[0]
    steps = tuple(replace(step, shape=shape) for shape in ("2048", "", "512", "2048"))
    side = side_of("x", Snapshot(samples.ID, samples.header(proof=samples.proof(steps=steps))), None)
    assert side.shapes == ("2048", "512")
    assert proof_seconds(samples.proof(steps=())) == (0, 0)


def test_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    side = side_of_directory("./cache", "./cache", samples.fingerprint())
    assert side == Side("./cache", cache_dir=str(tmp_path / "cache"), fingerprint=samples.fingerprint())
