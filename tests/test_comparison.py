"""A live cache against a manifest, file by file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import comparison
from cachekeeper.comparison import LiveComparison, compare_live, entries_of
from cachekeeper.livecache import LiveCache
from cachekeeper.manifest import Manifest
from cachekeeper.repository import open_repository
from cachekeeper.stores import MemoryStore
from cachekeeper.testing import make_cache


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make_cache(tmp_path / "inductor", kernels=1, graphs=1)


@pytest.fixture
def manifest(cache: Path) -> Manifest:
    store = MemoryStore()
    saved = cachekeeper.snapshot(cache_dir=cache, store=store, wait=0)
    return open_repository(store).manifest(saved.snapshot.id)


def compare(manifest: Manifest, cache: Path) -> LiveComparison:
    with LiveCache(cache) as live:
        return compare_live(manifest, manifest.tables.files, live.scan().files)


def test_all_the_same(manifest: Manifest, cache: Path):
    found = compare(manifest, cache)
    assert found.same == {file.path for file in manifest.tables.files}
    assert not found.missing and not found.changed and not found.extra


def test_differences_of_every_kind(manifest: Manifest, cache: Path):
    library, module = next(cache.glob("??/*.so")), next(cache.glob("??/*.py"))
    library.write_bytes(library.read_bytes()[:-1] + b"x")
    module.write_bytes(b"")
    shutil.rmtree(cache / "fxgraph")
    (module.parent / "new.py").write_bytes(b"")
    found = compare(manifest, cache)
    assert found.changed == {
        library.relative_to(cache).as_posix(): "its bytes are different",
        module.relative_to(cache).as_posix(): "0 bytes instead of 32",
    }
    assert [path.partition("/")[0] for path in found.missing] == ["fxgraph"]
    assert [source.path for source in found.extra] == [(module.parent / "new.py").relative_to(cache).as_posix()]
    assert len(found.same) == len(manifest.tables.files) - 3


def test_what_vanishes_meanwhile_is_missing(manifest: Manifest, cache: Path):
    with LiveCache(cache) as live:
        sources = live.scan().files
        shutil.rmtree(cache / "triton")
        found = compare_live(manifest, manifest.tables.files, sources)
    assert {path.partition("/")[0] for path in found.missing} == {"triton"} and not found.changed


def test_what_cannot_be_read_is_different(manifest: Manifest, cache: Path):
    library = next(cache.glob("??/*.so"))
    with LiveCache(cache) as live:
        sources = live.scan().files
        library.unlink()
        os.symlink("/etc/passwd", library)
        found = compare_live(manifest, manifest.tables.files, sources)
    assert found.changed == {library.relative_to(cache).as_posix(): "Too many levels of symbolic links"}


def test_what_its_owner_may_not_read_is_different_for_root_too(manifest: Manifest, cache: Path):
    library = next(cache.glob("??/*.so"))
    library.chmod(0)
    assert compare(manifest, cache).changed == {
        library.relative_to(cache).as_posix(): "its owner may not read it (mode 000)"
    }
    library.chmod(0o400)
    assert not compare(manifest, cache).changed


def test_a_file_that_is_too_large_to_hold_is_compared_in_pieces(
    manifest: Manifest, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(comparison, "_READ_LIMIT", 100)
    monkeypatch.setattr(comparison, "SEGMENT_BYTES", 1000)
    assert not compare(manifest, cache).changed.keys() - {
        path for path in compare(manifest, cache).changed if "__grp__" in path
    }
    library = next(cache.glob("??/*.so"))
    library.write_bytes(library.read_bytes()[:-1] + b"x")
    assert library.relative_to(cache).as_posix() in compare(manifest, cache).changed


def test_files_by_entry(manifest: Manifest):
    kernel = [file.path for file in manifest.tables.files if file.path.startswith("triton")]
    found = entries_of(manifest, [kernel[0], kernel[1], "nothing"])
    assert found == {kernel[0].rpartition("/")[0]: kernel[:2]}
