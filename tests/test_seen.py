"""What need not be read again, and what must be."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import capture, seen
from cachekeeper.disk import LiveFile, open_directory, walk
from cachekeeper.inductor import FileCheck
from cachekeeper.manifest import Manifest
from cachekeeper.repository import open_repository
from cachekeeper.seen import Seen, SeenFiles
from cachekeeper.stores import MemoryStore
from cachekeeper.testing import make_cache

HASH = "ab" * 32
CONTENT = Seen(HASH, 5, FileCheck("", "cuda:90", ("k.cubin",)))
OLD = LiveFile("ab/x", 5, 0o644, 1_000, 2_000, 7, 0)
LATER = time.time_ns()


def remember(directory: Path, *files: tuple[str, LiveFile, Seen], began: int = LATER) -> SeenFiles:
    SeenFiles(directory).save(files, began)
    return SeenFiles(directory)


def test_an_unchanged_file_is_known(tmp_path: Path):
    assert remember(tmp_path, ("ab/x", OLD, CONTENT)).get("ab/x", OLD) == CONTENT


def test_damage_is_remembered(tmp_path: Path):
    damaged = Seen(HASH, 0, FileCheck("empty file"))
    assert remember(tmp_path, ("ab/x", OLD, damaged)).get("ab/x", OLD) == damaged


def test_secrets_are_remembered(tmp_path: Path):
    secret = CONTENT._replace(secrets=("a GitHub token",))
    assert remember(tmp_path, ("ab/x", OLD, secret)).get("ab/x", OLD) == secret


def test_nothing_is_known_once_others_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whose files were taken depends on whom this user trusted."""
    remember(tmp_path, ("ab/x", OLD, CONTENT))
    monkeypatch.setenv("CACHEKEEPER_TRUSTED_OWNERS", "12345")
    assert SeenFiles(tmp_path).get("ab/x", OLD) is None


@pytest.mark.parametrize("field", ["size", "mtime_ns", "ctime_ns", "inode"])
def test_a_file_that_changed_in_any_way_is_not(tmp_path: Path, field: str):
    changed = OLD._replace(**{field: getattr(OLD, field) + 1})
    assert remember(tmp_path, ("ab/x", OLD, CONTENT)).get("ab/x", changed) is None


def test_other_files_and_directories_are_not(tmp_path: Path):
    assert remember(tmp_path, ("ab/x", OLD, CONTENT)).get("ab/y", OLD) is None
    assert SeenFiles(tmp_path / "other").get("ab/x", OLD) is None


@pytest.mark.parametrize("field", ["mtime_ns", "ctime_ns"])
def test_a_fresh_file_is_not_trusted(tmp_path: Path, field: str):
    """It may have changed again within the granularity of its clock."""
    began = time.time_ns()
    fresh = OLD._replace(**{field: began - 1_000_000_000})
    settled = OLD._replace(**{field: began - 3_000_000_000})
    known = remember(tmp_path, ("fresh", fresh, CONTENT), ("settled", settled, CONTENT), began=began)
    assert known.get("fresh", fresh) is None
    assert known.get("settled", settled) == CONTENT


def test_what_is_gone_is_forgotten(tmp_path: Path):
    remember(tmp_path, ("a", OLD, CONTENT), ("b", OLD, CONTENT))
    assert remember(tmp_path, ("b", OLD, CONTENT)).get("a", OLD) is None


def memory_of(directory: Path, home: Path) -> Path:
    [path] = (home / "cache" / "cachekeeper" / "seen").iterdir()
    return path


def test_it_is_this_users_alone(tmp_path: Path, own_environment: Path):
    remember(tmp_path, ("a", OLD, CONTENT))
    assert memory_of(tmp_path, own_environment).parent.stat().st_mode & 0o777 == 0o700


def test_a_damaged_memory_is_no_memory(tmp_path: Path, own_environment: Path):
    remember(tmp_path, ("a", OLD, CONTENT))
    path = memory_of(tmp_path, own_environment)
    whole = path.read_bytes()
    for data in (b"", b"garbage", whole[:-1], whole[:40], *(_flipped(whole, at) for at in range(len(whole)))):
        path.write_bytes(data)
        assert SeenFiles(tmp_path).get("a", OLD) is None


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_memory_of_another_version_is_no_memory(
    tmp_path: Path, own_environment: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(seen, "_VERSION", 999)
    remember(tmp_path, ("a", OLD, CONTENT))
    monkeypatch.undo()
    assert SeenFiles(tmp_path).get("a", OLD) is None


def test_without_a_place_to_write_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert remember(tmp_path, ("a", OLD, CONTENT)).get("a", OLD) is None


# A snapshot with it


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache whose files count as settled at once."""
    monkeypatch.setattr(seen, "_FRESH_NS", -(10**18))
    return make_cache(tmp_path / "inductor", kernels=2, graphs=2)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths of the files that were read."""
    paths: list[str] = []
    take = capture.take

    def counting(source, *rest):
        paths.append(source.path)
        return take(source, *rest)

    monkeypatch.setattr(capture, "take", counting)
    yield paths


def save(cache: Path, store: MemoryStore, **options: object) -> Manifest:
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0, **options)
    return open_repository(store).manifest(saved.snapshot.id)


def files_of(cache: Path) -> int:
    with open_directory(cache) as root:
        found, *_ = walk(
            root, lambda path: path not in ("locks", ".cachekeeper"), lambda name: not name.endswith(".tmp")
        )
        return len(found)


def test_unchanged_files_are_not_read_again(cache: Path, read: list[str]):
    store = MemoryStore()
    first = save(cache, store)
    assert len(read) == len(first.tables.files) == files_of(cache)
    read.clear()
    assert save(cache, store).tables == first.tables
    assert read == []


def test_changed_files_are_read_again_whatever_their_times_say(cache: Path, read: list[str]):
    store = MemoryStore()
    save(cache, store)
    read.clear()
    module = next(cache.glob("??/*.py"))
    before = module.stat()
    module.write_bytes(module.read_bytes().replace(b"x = 0", b"x = 1"))
    os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = module.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    second = save(cache, store)
    assert read == [module.relative_to(cache).as_posix()]
    cachekeeper.restore(second.id, cache_dir=cache.parent / "other", store=store)
    assert b"x = 1" in (cache.parent / "other" / read[0]).read_bytes()


def test_fresh_files_are_read_again(cache: Path, read: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    store = MemoryStore()
    paths: list[str] = []
    take = capture.take
    monkeypatch.setattr(capture, "take", lambda source, *rest: (paths.append(source.path), take(source, *rest))[1])
    save(cache, store)
    paths.clear()
    save(cache, store)
    assert len(paths) == files_of(cache)


def test_files_that_another_store_lacks_are_read_again(cache: Path, read: list[str]):
    save(cache, MemoryStore())
    read.clear()
    save(cache, MemoryStore())
    assert len(read) == files_of(cache)


def test_full_reads_everything(cache: Path, read: list[str]):
    store = MemoryStore()
    save(cache, store)
    read.clear()
    save(cache, store, full=True)
    assert len(read) == files_of(cache)


def test_what_is_remembered_says_nothing_of_a_store(cache: Path, own_environment: Path):
    """A memory that names a content that no store has cannot make a snapshot that does not restore."""
    store = MemoryStore()
    save(cache, store)
    rows = SeenFiles(cache)._rows
    assert rows and all(json.dumps(row) for row in rows.values())
    for key, *_ in store.list("packs/"):
        store.delete(key)
    saved = save(cache, store)
    assert cachekeeper.verify(saved.id, store=store).ok
