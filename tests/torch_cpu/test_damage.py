"""Damage that torch does not see, or dies of: `verify` names it, `restore` mends it and touches nothing else."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import DamagedCache
from cachekeeper.verbs.restore import RestoreResult

from .conftest import Filled
from .job import FACTOR
from .running import Run, check_warm, environment_of, unchanged_but

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("torch")]
RunJob = Callable[..., Run]


def test_a_damaged_byte_in_a_library(filled: Filled, restored: RestoreResult, run_job: RunJob) -> None:
    """torch counts only hits, and computes something else."""
    cache = restored.cache_dir
    library, at = _library_with_the_factor(cache)
    data = bytearray(library.read_bytes())
    data[at + 1] ^= 0x40
    library.write_bytes(data)
    name = str(library.relative_to(cache))

    wrong = run_job(cache, "scale", environment=environment_of(restored))
    assert wrong.code == 0, wrong.errors
    assert (wrong.hits, wrong.misses, wrong.bypasses) == (1, 0, 0)
    assert (wrong.new_files, wrong.builds) == ((), [])
    assert wrong.outputs != {"scale": filled.cold.outputs["scale"]}

    found = cachekeeper.verify("main", live=cache, store=filled.store)
    assert (list(found.damaged), found.missing) == ([name], ())
    with unchanged_but(cache, name):
        mended = cachekeeper.restore("main", cache_dir=cache, store=filled.store)
    assert (mended.new, mended.replaced) == (0, 1)
    assert len(mended.mended) == 1 and mended.mended[0].startswith(name.partition(".")[0])
    assert cachekeeper.verify("main", live=cache, store=filled.store).ok
    check_warm(run_job(cache, environment=environment_of(mended)), filled.cold)


def _library_with_the_factor(cache: Path) -> tuple[Path, int]:
    found = [(path, path.read_bytes().find(struct.pack("<f", FACTOR))) for path in sorted(cache.rglob("*.main.so"))]
    (one,) = [(path, at) for path, at in found if at >= 0]
    return one


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_damage_of_every_kind_is_mended(filled: Filled, restored: RestoreResult, run_job: RunJob) -> None:
    cache = restored.cache_dir
    libraries, graphs = sorted(cache.glob("??/*.main.so")), sorted(cache.glob("fxgraph/*/*/*"))
    module = next(cache.glob("??/*.py"))
    damaged = {libraries[0]: empty, libraries[1]: truncate, module: truncate, graphs[0]: truncate}
    deleted = {libraries[2]: Path.unlink, graphs[1]: Path.unlink}
    for path, damage in (damaged | deleted).items():
        damage(path)

    def names(paths: Iterable[Path]) -> list[str]:
        return sorted(str(path.relative_to(cache)) for path in paths)

    found = cachekeeper.verify("main", live=cache, store=filled.store)
    assert sorted(found.damaged) == names(damaged)
    assert sorted(found.missing) == names(deleted)
    with unchanged_but(cache, *names(damaged | deleted)):
        mended = cachekeeper.restore("main", cache_dir=cache, store=filled.store, verify=True)
    assert (mended.replaced, mended.new) == (len(damaged), len(deleted))
    check_warm(run_job(cache, environment=environment_of(mended)), filled.cold)


def test_an_emptied_library_is_not_saved(filled: Filled, restored: RestoreResult, run_job: RunJob) -> None:
    """torch does not get over it either."""
    library, _ = _library_with_the_factor(restored.cache_dir)
    library.write_bytes(b"")
    broken = run_job(restored.cache_dir, "scale", environment=environment_of(restored))
    assert broken.code != 0 and "ImportError" in broken.errors
    with pytest.raises(DamagedCache) as caught:
        cachekeeper.snapshot("bad", cache_dir=restored.cache_dir, store=filled.store, wait=0)
    assert [fact for fact in caught.value.facts if str(library.relative_to(restored.cache_dir)) in fact]
    assert caught.value.exit_code == 3
