"""Nothing, and a great deal."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import EmptyCache
from cachekeeper.testing import make_cache

from .scene import files_in


def _empty(cache: Path) -> None:
    pass


def _only_directories(cache: Path) -> None:
    (cache / "fxgraph" / "ab").mkdir(parents=True)
    (cache / "triton" / "0").mkdir(parents=True)


def _only_scratch(cache: Path) -> None:
    for path in (".1.2.tmp", "ab/.3.tmp", "triton/0/tmp.pid_1_2/k.cubin", "x.tmp.pid_1_2", "__pycache__/x.pyc"):
        (cache / path).parent.mkdir(parents=True, exist_ok=True)
        (cache / path).write_bytes(b"half")


def _only_locks(cache: Path) -> None:
    (cache / "locks").mkdir()
    (cache / "locks" / "cabc.lock").touch()
    (cache / "ab").mkdir()
    (cache / "ab" / "x.lock").touch()


def _only_headers(cache: Path) -> None:
    (cache / "precompiled_headers").mkdir()
    (cache / "precompiled_headers" / "x.gch").write_bytes(b"header")


def _only_our_own(cache: Path) -> None:
    (cache / ".cachekeeper").mkdir()
    (cache / ".cachekeeper" / "restored.json").write_bytes(b"{}")


def _only_notes(cache: Path) -> None:
    (cache / "notes.txt").write_bytes(b"no entry of a compile cache")


def _only_links(cache: Path) -> None:
    (cache / "fxgraph").symlink_to("/")


@pytest.mark.parametrize(
    "fill",
    [_empty, _only_directories, _only_scratch, _only_locks, _only_headers, _only_our_own, _only_notes, _only_links],
)
def test_nothing_to_save(place: Path, fill: object) -> None:
    cache, store = place / "cache", place / "store"
    cache.mkdir()
    fill(cache)  # type: ignore[operator]
    with pytest.raises(EmptyCache) as caught:
        cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    assert caught.value.exit_code == 5
    assert not store.exists()


@pytest.mark.parametrize("missing", ["not-there", "not/there", "a-file"])
def test_no_directory_to_save(place: Path, missing: str) -> None:
    (place / "a-file").write_bytes(b"")
    with pytest.raises(EmptyCache):
        cachekeeper.snapshot("drafter", cache_dir=place / missing, store=place / "store", wait=0)
    assert not (place / "store").exists()


def test_files_of_no_bytes_come_back(place: Path) -> None:
    cache = make_cache(place / "cache", kernels=1, graphs=1)
    for name in ("one", "two"):
        (cache / name).touch()
    cachekeeper.snapshot("drafter", cache_dir=cache, store=place / "store", wait=0)
    cachekeeper.restore("drafter", cache_dir=place / "target", store=place / "store", verify=True)
    assert (place / "target" / "one").read_bytes() == (place / "target" / "two").read_bytes() == b""


@pytest.mark.parametrize(
    "size", [(256 << 10) - 1, 256 << 10, 1 << 20, 8 << 20, (8 << 20) + 1, 17 << 20, (64 << 20) + 9]
)
def test_sizes_around_the_limits(place: Path, size: int) -> None:
    """Where a file gets a frame of its own, a second frame, a second segment, or is read in parts."""
    cache = make_cache(place / "cache", kernels=1, graphs=1)
    for name, byte in (("one", b"1"), ("two", b"2")):
        (cache / name).write_bytes(byte * (size - 1) + b"\n")
    cachekeeper.snapshot("drafter", cache_dir=cache, store=place / "store", wait=0)
    assert cachekeeper.verify(every=True, store=place / "store").ok
    cachekeeper.restore("drafter", cache_dir=place / "target", store=place / "store", verify=True)
    for name, byte in (("one", b"1"), ("two", b"2")):
        assert (place / "target" / name).read_bytes() == byte * (size - 1) + b"\n"


def test_fifty_thousand_small_files(place: Path) -> None:
    cache = make_cache(place / "cache", kernels=2, graphs=2)
    for number in range(50_000):
        directory = cache / "fxgraph" / f"{number % 1000:03d}" / f"f{number}"
        directory.mkdir(parents=True)
        (directory / "k").write_bytes(b"\x80\x05%d." % number)
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=place / "store", wait=0)
    assert saved.snapshot.header.entries_of("fxgraph") == 50_002
    assert cachekeeper.verify(every=True, store=place / "store").ok
    result = cachekeeper.restore("drafter", cache_dir=place / "target", store=place / "store")
    assert result.new == saved.snapshot.header.files
    found = files_in(place / "target" / "fxgraph")
    assert {path: data for path, data in files_in(cache / "fxgraph").items() if not path.endswith(".tmp")} == found
    again = cachekeeper.snapshot("drafter", cache_dir=place / "target", store=place / "store", wait=0)
    assert again.new_files == 0
