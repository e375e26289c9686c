"""The verb: what it refuses, how it comes back, and what it says of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import seen
from cachekeeper.clearing.trash import Trash
from cachekeeper.disk import locked
from cachekeeper.errors import Busy, CachekeeperError, NotFound, UnsafePath, UsageError
from cachekeeper.seen import SeenFiles
from cachekeeper.testing import make_cache, make_triton_entry
from cachekeeper.verbs.clear import bring_back, clear, cleared, empty_trash
from cachekeeper.watching import held

from .conftest import Machine, settle

Tree = dict[str, bytes]


@pytest.fixture(autouse=True)
def configured_store(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHEKEEPER_STORE", str(store))


def tree(directory: Path) -> Tree:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@contextlib.contextmanager
def holding(code: str, *arguments: object) -> Iterator[int]:
    """Another process that does something and then stays; its id."""
    script = f"import mmap, os, sys\n{code}\nprint(flush=True)\nsys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.communicate(b"")


def refused(cache: Path, error: type[CachekeeperError], match: str, **options: bool) -> CachekeeperError:
    before = tree(cache)
    with pytest.raises(error, match=match) as caught:
        clear(cache, **options)
    assert tree(cache) == before
    assert caught.value.hint
    assert not Trash(cache).beside.exists()
    return caught.value


# Away and back


def test_cleared_and_back(cache: Path):
    before = tree(cache)
    result = clear(cache)
    assert (result.cache_dir, result.dry_run, result.snapshot) == (cache, False, "")
    assert result.trash is not None and tree(result.trash) == before
    assert (result.files, result.entries) == (40, 19)
    assert os.listdir(cache) == []
    assert [each.item.name for each in cleared(cache)] == [result.item]
    undone = bring_back(cache)
    assert (undone.item.name, undone.now_in_trash) == (result.item, None)
    assert tree(cache) == before
    assert cleared(cache) == ()


def test_default_is_the_directory_that_torch_would_use(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    assert clear().cache_dir == cache
    assert bring_back().cache_dir == cache


def test_a_dry_run_moves_nothing(cache: Path):
    before = tree(cache)
    result = clear(cache, dry_run=True)
    assert (result.trash, result.item, result.dry_run) == (None, "", True)
    assert result.files > 0
    assert tree(cache) == before and not Trash(cache).beside.exists()


@pytest.mark.parametrize("what", ["empty", "locks alone", "cachekeeper's own"])
def test_nothing_to_clear(tmp_path: Path, what: str):
    directory = tmp_path / "inductor"
    directory.mkdir()
    if what == "locks alone":
        (directory / "locks").mkdir()
        (directory / "locks" / "c.lock").touch()
    elif what == "cachekeeper's own":
        (directory / ".cachekeeper" / "aside").mkdir(parents=True)
    result = clear(directory)
    assert (result.trash, result.files) == (None, 0)
    assert cleared(directory) == ()


def test_one_of_several_comes_back(cache: Path):
    first = tree(cache)
    one = clear(cache)
    make_cache(cache, seed=4)
    two = clear(cache)
    make_cache(cache, seed=5)
    now = tree(cache)
    with pytest.raises(NotFound, match="that begins with '1999'"):
        bring_back(cache, "1999")
    with pytest.raises(UsageError, match="beginning of several"):
        bring_back(cache, one.item[:3])
    undone = bring_back(cache, one.item)
    assert tree(cache) == first
    assert undone.now_in_trash is not None and tree(undone.now_in_trash) == now
    assert {each.item.name for each in cleared(cache)} == {two.item, undone.now_in_trash.name}


def test_undo_without_anything_in_the_trash(cache: Path, tmp_path: Path):
    for directory in (cache, tmp_path / "absent"):
        with pytest.raises(NotFound, match="is in the trash"):
            bring_back(directory)


def test_undo_over_something_that_is_no_cache(cache: Path):
    clear(cache)
    (cache / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="not only a compile cache"):
        bring_back(cache)
    assert (cache / "thesis.tex").exists() and len(cleared(cache)) == 1


def test_absent_with_something_in_the_trash_says_how_it_comes_back(cache: Path):
    clear(cache)
    cache.rmdir()
    with pytest.raises(NotFound) as caught:
        clear(cache)
    assert "--undo" in caught.value.hint


def test_a_triton_cache_alone(tmp_path: Path):
    directory = tmp_path / "triton"
    make_triton_entry(directory)
    assert clear(directory).entries == 1


# What is told


def test_what_no_snapshot_holds_is_counted(machine: Machine, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seen, "_FRESH_NS", 0)  # else what was written in the last two seconds is not remembered
    assert clear(cache, dry_run=True).unsaved == clear(cache, dry_run=True).entries
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, wait=0)
    assert clear(cache, dry_run=True).unsaved == 0
    make_triton_entry(cache / "triton" / "0", seed=99)
    result = clear(cache)
    assert (result.unsaved, result.snapshot) == (1, saved.snapshot.id)
    cachekeeper.restore("drafter", cache_dir=cache)
    result = clear(cache, dry_run=True)
    assert (result.unsaved, result.snapshot) == (0, saved.snapshot.id)
    new = make_triton_entry(cache / "triton" / "0", seed=98)
    for path in new.iterdir():
        os.utime(path, (time.time() + 60,) * 2)
    assert clear(cache).unsaved == 1


def test_what_was_just_saved_or_restored_is_held(
    machine: Machine, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Whatever its times say, and nothing is remembered of it."""
    monkeypatch.setattr(SeenFiles, "get", lambda *_: None)
    cachekeeper.snapshot("drafter", cache_dir=cache, wait=0)
    cachekeeper.restore("drafter", cache_dir=tmp_path / "restored")
    for place in (cache, tmp_path / "restored"):
        for path in place.rglob("*.so"):
            os.utime(path, (time.time() + 60,) * 2)
        assert clear(place, dry_run=True).unsaved == 0
        next(place.rglob("*.so")).write_bytes(b"another")
        assert clear(place, dry_run=True).unsaved == 1


def test_an_undo_can_be_tried(cache: Path):
    trash = clear(cache).trash
    result = bring_back(cache, dry_run=True)
    assert trash and trash.exists() and result.item.path == trash and result.dry_run
    assert not any(cache.iterdir())


@pytest.mark.parametrize("work", [clear, bring_back, cleared, empty_trash])
def test_an_empty_name_is_no_directory(work: Callable[[str], object]):
    with pytest.raises(UsageError, match="is empty"):
        work("")


def test_tritons_directory_outside_is_told_and_stays(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    beside = tmp_path / "kernels"
    make_triton_entry(beside)
    before = tree(beside)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(beside))
    [note] = clear(cache).notes
    assert str(beside) in note and tree(beside) == before
    bring_back(cache)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache / "triton" / "0"))
    assert clear(cache).notes == ()


# What is refused


@pytest.mark.parametrize("foreign", ["README.md", "src/main.py", ".git/HEAD", "torchinductor_root/fxgraph/x"])
def test_anything_that_is_not_a_caches(cache: Path, foreign: str):
    (cache / foreign).parent.mkdir(parents=True, exist_ok=True)
    (cache / foreign).write_text("x")
    error = refused(cache, UsageError, "is not only a compile cache")
    assert error.facts == (foreign.partition("/")[0],)
    if "fxgraph" in foreign:
        assert f"cachekeeper clear {cache}/torchinductor_root" in error.hint


def test_a_checkout_of_triton_is_no_cache(tmp_path: Path):
    source = tmp_path / "checkouts" / "triton" / "python" / "triton" / "core.py"
    source.parent.mkdir(parents=True)
    source.write_text("x")
    refused(tmp_path / "checkouts", UsageError, "holds no entry of a compile cache")


def test_a_parent_of_caches_names_the_cache_in_it(tmp_path: Path):
    inner = make_cache(tmp_path / "node" / "torchinductor_root")
    error = refused(tmp_path / "node", UsageError, "not only a compile cache")
    assert f"`cachekeeper clear {inner}`" in error.hint


def test_a_directory_with_the_store_in_it(machine: Machine, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_STORE", str(cache / "cache" / "store"))
    refused(cache, UsageError, "the store")


def test_a_store(machine: Machine, cache: Path, store: Path, monkeypatch: pytest.MonkeyPatch):
    cachekeeper.snapshot("drafter", cache_dir=cache, wait=0)
    monkeypatch.setenv("CACHEKEEPER_STORE", str(store.parent / "another"))
    refused(store, UsageError, "is not only a compile cache")


def test_a_link(cache: Path, tmp_path: Path):
    (tmp_path / "link").symlink_to(cache)
    refused(tmp_path / "link", UsageError, "is a symbolic link")


def test_another_users(cache: Path):
    if os.geteuid():
        pytest.skip("only root can give a directory away")
    os.chown(cache, 12345, -1)
    assert refused(cache, UnsafePath, "belongs to another user").exit_code == 8


@pytest.mark.parametrize(
    "code",
    [
        "file = open(sys.argv[1])",
        "file = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), 100, prot=mmap.PROT_READ)\nos.closerange(3, 99)",
    ],
    ids=["open", "mapped"],
)
def test_one_that_a_process_uses(cache: Path, code: str):
    library = next(cache.rglob("*.so"))
    with holding(code, library) as pid:
        error = refused(cache, Busy, "is in use")
        assert error.exit_code == 7 and f"process {pid}  " in error.facts[0]
        assert clear(cache, in_use=True).trash is not None
    bring_back(cache)
    assert clear(cache).trash is not None


def test_one_that_torch_compiles_into(cache: Path):
    lock = next((cache / "locks").iterdir())
    code = "import fcntl\nfile = open(sys.argv[1], 'a')\nfcntl.flock(file, fcntl.LOCK_EX)"
    with holding(code, lock):
        refused(cache, Busy, "is in use")
    descriptor = os.open(lock, os.O_RDWR)  # this process itself is no user; its lock is
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert refused(cache, Busy, "is in use").facts == ("torch holds one of its compile locks",)
    finally:
        os.close(descriptor)
    assert clear(cache).trash is not None


def test_undo_over_one_that_a_process_uses(cache: Path):
    clear(cache)
    make_cache(cache, seed=3)
    with holding("file = open(sys.argv[1])", next(cache.rglob("*.so"))):
        with pytest.raises(Busy):
            bring_back(cache)
        assert bring_back(cache, in_use=True).now_in_trash


@pytest.mark.parametrize("in_use", [False, True])
def test_one_that_another_cachekeeper_works_on(cache: Path, in_use: bool):
    with locked(cache):
        refused(cache, Busy, "another cachekeeper works on", in_use=in_use)
        with pytest.raises(Busy):
            empty_trash(cache)


@pytest.mark.parametrize("in_use", [False, True])
def test_one_that_is_watched(cache: Path, in_use: bool):
    with held(cache):
        error = refused(cache, Busy, "would put back what is taken away", in_use=in_use)
        assert error.facts == (f"process {os.getpid()}",)
        with pytest.raises(Busy):
            bring_back(cache)
    assert clear(cache).trash is not None


# Emptying


def test_emptying_says_what_it_deleted(cache: Path):
    result = clear(cache)
    other = make_cache(cache.parent / "other")
    assert empty_trash(cache, older_than=3600).deleted == ()
    would = empty_trash(cache, dry_run=True)
    assert [item.path for item in would.deleted] == [result.trash] and would.bytes >= result.bytes
    assert tuple(each.item for each in cleared(cache)) == would.deleted
    assert empty_trash(cache).deleted == would.deleted
    assert cleared(cache) == () and cache.is_dir() and other.is_dir()
    assert empty_trash(cache).deleted == ()


def test_emptying_where_the_cache_itself_is_gone(cache: Path):
    clear(cache)
    cache.rmdir()
    assert len(empty_trash(cache).deleted) == 1
    with pytest.raises(UsageError):
        empty_trash("/")


def test_what_restores_put_aside_goes_too(machine: Machine, cache: Path):
    cachekeeper.snapshot("drafter", cache_dir=cache, wait=0)
    next(cache.rglob("*.so")).write_bytes(b"broken")
    aside = cachekeeper.restore("drafter", cache_dir=cache).aside
    assert aside is not None
    settle(cache)
    before = {path: data for path, data in tree(cache).items() if "aside" not in path}
    assert [item.path for item in empty_trash(cache).deleted] == [aside]
    assert tree(cache) == before and (cache / ".cachekeeper" / "restored.json").exists()
