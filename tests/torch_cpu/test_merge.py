"""Merged snapshots are warm for every job that filled a part: torch misses nothing, builds nothing, writes nothing."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import CheckFailed

from . import running
from .job import files_in
from .running import Run, check_warm, environment_of

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("torch")]
RunJob = Callable[..., Run]

# A job whose graph has one key and other guards for short and for long inputs; parts as in job.py, `pool=LENGTH`.
POOLING = """
import sys
sys.path.insert(0, {directory!r})
import job

def pool(length):
    import torch
    pooled = torch.compile(lambda x: torch.nn.functional.adaptive_avg_pool1d(x, 4), dynamic=True)
    with torch.no_grad():
        return {{f"pool{{length}}": job.digest(iter([pooled(torch.linspace(0, 1, 8 * length).reshape(1, 8, length))]))}}

job.PARTS["pool"] = lambda value: pool(int(value))
job.main(sys.argv[1:])
"""


def cold(run_job: RunJob, cache: Path, *parts: str) -> Run:
    cache.mkdir()
    run = run_job(cache, *parts)
    assert run.code == 0 and run.misses > 0, run.errors
    return run


def warm(run_job: RunJob, cache: Path, name: str, store: Path, *parts: str) -> Run:
    """The job in a fresh process, on a snapshot restored into a new directory."""
    result = cachekeeper.restore(name, cache_dir=cache, store=store, verify=True)
    before = files_in(cache)
    run = run_job(cache, *parts, environment=environment_of(result))
    assert run.code == 0, run.errors
    assert (set(files_in(cache)) == set(before)) == (run.new_files == ())
    return run


def test_ranks_with_a_directory_each(tmp_path: Path, run_job: RunJob):
    """Both compiled one graph and one of their own: every build of the shared one differs, and one is taken whole."""
    store = tmp_path / "store"
    parts = {"a": ("scale", "scale=40"), "b": ("scale=50", "scale")}
    with ThreadPoolExecutor() as ranks:
        started = {name: ranks.submit(cold, run_job, tmp_path / name, *of_it) for name, of_it in parts.items()}
    runs = {name: run.result() for name, run in started.items()}
    for name in parts:
        cachekeeper.snapshot(name, cache_dir=tmp_path / name, store=store)
    with pytest.raises(CheckFailed) as caught:
        cachekeeper.merge(["a", "b"], store=store, name="both")
    assert caught.value.facts[0].startswith("1 fxgraph, 1 aotautograd, ") and caught.value.facts[0].endswith(" native")
    for prefer in ("first", "b"):
        result = cachekeeper.merge(["a", "b"], store=store, name=f"by-{prefer}", prefer=prefer)
        assert {kind: share.only for kind, share in result.shares.items()} == {
            "fxgraph": (1, 1),
            "aotautograd": (1, 1),
            "module": (2, 2),
            "native": (1, 1),
        }
    for name in parts:
        shutil.rmtree(tmp_path / name)
    both = Run(0, 0, "", (), outputs={**runs["a"].outputs, **runs["b"].outputs})  # type: ignore[dict-item]
    run = warm(run_job, tmp_path / "one", "by-first", store, *parts["a"], "scale=50")
    check_warm(run, both)
    assert run.hits == 3
    check_warm(warm(run_job, tmp_path / "two", "by-b", store, *parts["b"], "scale=40"), both)


def test_nodes_with_one_path_and_other_shapes(tmp_path: Path, run_job: RunJob, monkeypatch: pytest.MonkeyPatch):
    """Compiled in the same place, libraries are the same to the byte and graphs are not, as these hold timings.

    Each node's graph has guards that the other's input does not meet: what one version lacks is compiled again.
    """
    job = tmp_path / "job.py"
    job.write_text(POOLING.format(directory=str(running.JOB.parent)))
    monkeypatch.setattr(running, "JOB", job)
    store, place = tmp_path / "store", tmp_path / "inductor"
    runs = {}
    for length in (32, 4000):
        runs[length] = cold(run_job, place, f"pool={length}")
        cachekeeper.snapshot(f"node-{length}", cache_dir=place, store=store)
        shutil.rmtree(place)
    nodes = ["node-32", "node-4000"]
    found = cachekeeper.merge(nodes, store=store, dry_run=True)
    assert not found.ok and Counter(item.kind for item in found.conflicts) == {"fxgraph": 1, "aotautograd": 1}
    assert found.shares["native"].shared > 0

    chosen = cachekeeper.merge(nodes, store=store, name="chosen", prefer="first")
    assert any("--variants keeps them all" in note for note in chosen.notes)
    missed = warm(run_job, tmp_path / "c4000", "chosen", store, "pool=4000")
    assert missed.misses > 0 and missed.new_files and missed.outputs == runs[4000].outputs

    all_of_them = cachekeeper.merge(nodes, store=store, name="all", variants=True)
    assert all_of_them.ok and all_of_them.shares["fxgraph"].variants == 1
    both = Run(0, 0, "", (), outputs={**runs[32].outputs, **runs[4000].outputs})  # type: ignore[dict-item]
    run = warm(run_job, tmp_path / "variants", "all", store, "pool=32", "pool=4000")
    check_warm(run, both)
    assert run.hits == 2
