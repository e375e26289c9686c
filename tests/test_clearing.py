"""The trash of a cache: swapped at once, never through a link, on mounts of its own, and deleted with care."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachekeeper.clearing import trash as trashing
from cachekeeper.clearing.items import DELETING, MOVING
from cachekeeper.clearing.places import is_bare, refuse_place
from cachekeeper.clearing.trash import Trash
from cachekeeper.errors import LocalDiskError, UnsafePath, UsageError
from cachekeeper.testing import make_cache

Tree = dict[str, bytes]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make_cache(tmp_path / "place" / "inductor", kernels=2, graphs=2)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    points: list[Path] = []

    def mount(point: Path) -> None:
        point.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "mode=0700,size=8m", "tmpfs", point], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"may not mount here: {done.stderr.strip()}")
        points.append(point)

    yield mount
    for point in points:
        subprocess.run(["umount", point], check=True)


def tree(directory: Path) -> Tree:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def clear(cache: Path) -> Path:
    found = refuse_place(cache)
    assert found is not None
    return Trash(cache).move_away(found)


# Away and back


def test_it_is_swapped_with_an_empty_directory_at_once(cache: Path, monkeypatch: pytest.MonkeyPatch):
    before, inode = tree(cache), cache.stat().st_ino
    renames = []
    real = trashing.exchange
    monkeypatch.setattr(trashing, "exchange", lambda *names: renames.append(names) or real(*names))
    where = clear(cache)
    assert len(renames) == 1
    assert where.parent == cache.parent / ".inductor.cleared"
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{6}", where.name)
    assert where.stat().st_ino == inode and tree(where) == before
    assert os.listdir(cache) == []
    assert {path.stat().st_mode & 0o777 for path in (cache, where.parent)} == {0o700}


def test_without_an_exchange_two_renames_do(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trashing, "exchange", lambda *names: False)
    before = tree(cache)
    where = clear(cache)
    assert (tree(where), os.listdir(cache)) == (before, [])
    make_cache(cache, seed=5)
    later = tree(cache)
    [item] = Trash(cache).items()
    now = Trash(cache).bring_back(item)
    assert now is not None
    assert (tree(cache), tree(now)) == (before, later)


def test_back_into_a_place_that_is_gone_or_empty(cache: Path):
    before = tree(cache)
    for gone in (True, False):
        clear(cache)
        if gone:
            cache.rmdir()
        [item] = Trash(cache).items()
        assert (item.files, item.bytes) == (len(before), sum(map(len, before.values())))
        assert Trash(cache).bring_back(item) is None
        assert tree(cache) == before
        assert not Trash(cache).beside.exists()


def test_back_over_another_cache_loses_neither(cache: Path):
    before = tree(cache)
    clear(cache)
    make_cache(cache, seed=7)
    later = tree(cache)
    [item] = Trash(cache).items()
    now = Trash(cache).bring_back(item)
    assert now is not None and (tree(cache), tree(now)) == (before, later)
    assert [item.path for item in Trash(cache).items()] == [now]


def test_several_are_listed_newest_first(cache: Path):
    for number, when in enumerate(("20260101T000000Z", "20260301T000000Z", "20260201T000000Z")):
        make_cache(Trash(cache).beside / f"{when}-00000{number}", graphs=1, kernels=0)
    (Trash(cache).beside / "20260401T000000Z-000000").mkdir()  # what a killed clear leaves
    (Trash(cache).beside / "notes").mkdir()
    assert [item.name[:8] for item in Trash(cache).items()] == ["20260301", "20260201", "20260101"]


def test_the_reason_is_kept_with_it_and_gone_when_it_is_back(cache: Path):
    before = tree(cache)
    found = refuse_place(cache)
    assert found is not None
    where = Trash(cache).move_away(found, "run 1: \N{SNOWMAN} exit 1")
    [item] = Trash(cache).items()
    assert item.reason == "run 1: \N{SNOWMAN} exit 1"
    reason = where / ".cachekeeper" / "reason.txt"
    for odd in (lambda: reason.symlink_to("/etc/passwd"), lambda: os.mkfifo(reason), lambda: reason.mkdir()):
        reason.unlink()
        odd()
        assert Trash(cache).items()[0].reason == ""
        if reason.is_dir():
            reason.rmdir()
            reason.touch()
    reason.write_bytes(b"\xff" * 10_000)
    assert len(Trash(cache).items()[0].reason) == 4096
    Trash(cache).bring_back(item)
    assert tree(cache) == before and not Trash(cache).beside.exists()


# A directory that cannot be renamed


def test_contents_of_a_mount_point_move_within_it(tmp_path: Path, mounted: Callable[[Path], None]):
    cache = tmp_path / "place" / "inductor"
    mounted(cache)
    make_cache(cache)
    (cache / ".cachekeeper" / "aside").mkdir(parents=True)
    (cache / ".cachekeeper" / "restored.json").write_bytes(b"{}")
    before = tree(cache)
    found = refuse_place(cache)
    assert found is not None
    where = Trash(cache).move_away(found, "as told")
    assert where.parent == cache / ".cachekeeper" / "cleared"
    assert tree(where) == {**before, ".cachekeeper/reason.txt": b"as told"}
    assert is_bare(cache) and not (cache / ".cachekeeper" / "restored.json").exists()
    assert sorted(os.listdir(tmp_path / "place")) == ["inductor"]
    make_cache(cache, seed=3)
    later = {path: data for path, data in tree(cache).items() if not path.startswith(".cachekeeper/cleared")}
    [item] = Trash(cache).items()
    now = Trash(cache).bring_back(item)
    assert now is not None and tree(now) == later
    assert {path: data for path, data in tree(cache).items() if "cleared" not in path} == before
    assert {path.name for path in Trash(cache).empty()} == {now.name}
    assert tree(cache) == before


def test_where_the_parent_may_not_be_written_contents_move_within(cache: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(*names: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(trashing, "exchange", refused)
    before = tree(cache)
    where = clear(cache)
    assert where.parent == cache / ".cachekeeper" / "cleared"
    assert tree(where) == before
    assert not Trash(cache).beside.exists()


def test_directories_of_an_image_move_file_by_file(cache: Path, monkeypatch: pytest.MonkeyPatch):
    """In an overlay, a directory of the lower layer cannot be renamed (EXDEV)."""
    real = trashing.rename_new

    def of_an_overlay(source: str, target: str, source_root: int, target_root: int) -> None:
        info = os.stat(source, dir_fd=source_root, follow_symlinks=False)
        if os.path.isdir(f"/proc/self/fd/{source_root}/{source}") and info.st_mtime < time.time() - 1000:
            raise OSError(18, "Invalid cross-device link")
        real(source, target, source_root, target_root)

    def refused(*names: object) -> bool:
        raise OSError(18, "Invalid cross-device link")

    before = tree(cache)
    for path in [cache, *cache.rglob("*")]:
        os.utime(path, (1, 1))
    monkeypatch.setattr(trashing, "rename_new", of_an_overlay)
    monkeypatch.setattr(trashing, "exchange", refused)
    where = clear(cache)
    assert tree(where) == before
    assert is_bare(cache)


def test_a_mount_inside_is_refused_and_all_is_as_before(
    cache: Path, mounted: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
):
    def refused(*names: object) -> bool:
        raise OSError(16, "Device or resource busy")

    mounted(cache / "triton" / "9")
    monkeypatch.setattr(trashing, "exchange", refused)
    shutil.move(cache / "triton" / "0", cache / "0a")
    subprocess.run(["mount", "--bind", cache / "0a", cache / "0a"], check=True)
    try:
        before = tree(cache)
        with pytest.raises(LocalDiskError, match="cannot move the cache away"):
            clear(cache)
        assert {path: data for path, data in tree(cache).items() if ".cachekeeper" not in path} == before
        assert Trash(cache).items() == []
    finally:
        subprocess.run(["umount", cache / "0a"], check=True)


# Others who write there


def test_a_link_put_in_its_place_meanwhile_is_noticed_and_put_back(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    victim = make_cache(tmp_path / "victim")
    before, real = tree(victim), trashing.exchange
    raced: list[bool] = []

    def race(source: str, target: str, source_root: int, target_root: int) -> bool:
        if not raced:
            raced.append(True)
            cache.rename(tmp_path / "stolen")
            cache.symlink_to(victim)
        return real(source, target, source_root, target_root)

    monkeypatch.setattr(trashing, "exchange", race)
    with pytest.raises(UnsafePath, match="something else took the place"):
        clear(cache)
    assert tree(victim) == before
    assert cache.is_symlink()
    assert sorted(os.listdir(cache.parent)) == ["inductor"]


@pytest.mark.parametrize("what", ["link", "file", "foreign"])
def test_a_trash_that_somebody_else_made_is_refused(cache: Path, tmp_path: Path, what: str):
    beside = Trash(cache).beside
    if what == "link":
        (tmp_path / "theirs").mkdir()
        beside.symlink_to(tmp_path / "theirs")
    elif what == "file":
        beside.write_text("x")
    else:
        if os.geteuid():
            pytest.skip("only root can give a directory away")
        beside.mkdir()
        os.chown(beside, 12345, -1)
    before = tree(cache)
    with pytest.raises(UnsafePath):
        clear(cache)
    assert tree(cache) == before
    with pytest.raises(UnsafePath):
        list(Trash(cache).empty())


def test_a_workshop_that_is_a_link_is_never_emptied(cache: Path, tmp_path: Path):
    theirs = tmp_path / "project"
    (theirs / "aside").mkdir(parents=True)
    (theirs / "aside" / "thesis.tex").write_text("x")
    (cache / ".cachekeeper").symlink_to(theirs)
    with pytest.raises(UnsafePath):
        list(Trash(cache).empty())
    assert (theirs / "aside" / "thesis.tex").exists()


# Emptying


def test_only_the_trash_goes_and_no_link_is_followed(cache: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "file").write_text("x")
    (cache / "fxgraph" / "link").symlink_to(outside)
    (cache / "file-link").symlink_to(outside / "file")
    (cache / "nowhere").symlink_to("/nowhere/at/all")
    os.mkfifo(cache / "fifo")
    clear(cache)
    for place in ("aside", "quarantine"):
        (cache / ".cachekeeper" / place / "20260101T000000Z-000000").mkdir(parents=True)
        (cache / ".cachekeeper" / place / "20260101T000000Z-000000" / "old.so").write_bytes(bytes(10))
    (cache / ".cachekeeper" / "restored.json").write_text("{}")
    make_cache(cache, seed=9)
    live = {path: data for path, data in tree(cache).items() if "old.so" not in path}
    deleted = list(Trash(cache).empty())
    assert len(deleted) == 3
    assert {path.name for path in cache.parent.iterdir()} == {"inductor"}
    assert tree(cache) == live
    assert (outside / "file").read_text() == "x" and (outside / "inner").is_dir()


def test_a_dry_run_says_the_same_and_deletes_nothing(cache: Path):
    clear(cache)
    would = list(Trash(cache).empty(dry_run=True))
    assert Trash(cache).items() == would
    assert list(Trash(cache).empty()) == would


def test_only_what_is_old_enough(cache: Path):
    old = make_cache(Trash(cache).beside / "20260101T000000Z-000000", graphs=1, kernels=0)
    new = clear(cache)
    assert [item.path for item in Trash(cache).empty(older_than=3600)] == [old]
    assert [item.path for item in Trash(cache).items()] == [new]


def test_a_tree_deeper_than_any_path_and_without_permissions(cache: Path):
    where = clear(cache)
    descriptor = os.open(where, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d" * 50, dir_fd=descriptor)
        deeper = os.open("d" * 50, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.fchmod(descriptor, 0o500)
    os.close(descriptor)
    assert len(list(Trash(cache).empty())) == 1
    assert not Trash(cache).beside.exists()


def test_what_a_killed_emptying_left_goes_whatever_its_age(cache: Path):
    left = make_cache(Trash(cache).beside / f"{DELETING}0123", graphs=1, kernels=0)
    assert Trash(cache).items() == []
    assert [item.path for item in Trash(cache).empty(older_than=1e6)] == [left]
    assert not left.exists()


def test_something_mounted_in_the_trash_stays(cache: Path, tmp_path: Path, mounted: Callable[[Path], None]):
    mounted(tmp_path / "other")
    (tmp_path / "other" / "file").write_text("x")
    point = clear(cache) / "triton" / "mount"
    point.mkdir()
    subprocess.run(["mount", "--bind", tmp_path / "other", point], check=True)
    try:
        with pytest.raises(LocalDiskError):
            list(Trash(cache).empty())
        assert (tmp_path / "other" / "file").read_text() == "x"
    finally:
        [point] = Trash(cache).beside.rglob("mount")
        subprocess.run(["umount", point], check=True)
    list(Trash(cache).empty())
    assert not Trash(cache).beside.exists()


def test_half_moved_contents_come_back_and_conflicts_stay_in_the_trash(cache: Path):
    before = tree(cache)
    half = cache / ".cachekeeper" / "cleared" / f"{MOVING}20260101T000000Z-000000"
    half.mkdir(parents=True)
    (cache / "fxgraph").rename(half / "fxgraph")
    (cache / "triton").rename(half / "triton")
    (cache / "fxgraph").mkdir()  # torch has begun anew
    trash = Trash(cache)
    assert [item.unfinished for item in trash.items()] == [True]
    assert list(trash.empty()) == []  # nothing of it is deleted
    trash.settle()
    [item] = trash.items()
    assert not item.unfinished and os.listdir(item.path) == ["fxgraph"]
    (cache / "fxgraph").rmdir()
    (item.path / "fxgraph").rename(cache / "fxgraph")
    assert tree(cache) == before


# Which places


@pytest.mark.parametrize(
    "path", ["/", "/tmp", "/var/tmp", "/usr", "/home", "/dev/shm", "/root", "~", "~/.cache", "~/.triton"]
)
def test_roots_are_never_cleared(path: str):
    with pytest.raises(UsageError):
        refuse_place(Path(os.path.expanduser(path)))


def test_what_is_above_the_home_or_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    for path in (tmp_path / "a" / "b", tmp_path / "a"):
        with pytest.raises(UsageError, match="working directory"):
            refuse_place(path)
    monkeypatch.chdir("/")
    monkeypatch.setenv("HOME", str(tmp_path / "a" / "b"))
    with pytest.raises(UsageError, match="holds the home directory"):
        refuse_place(tmp_path / "a")


def test_links_files_and_others_directories(cache: Path, tmp_path: Path):
    (tmp_path / "link").symlink_to(cache)
    with pytest.raises(UsageError, match="is a symbolic link to") as caught:
        refuse_place(tmp_path / "link")
    assert f"`cachekeeper clear {cache}`" in caught.value.hint
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="not a directory"):
        refuse_place(tmp_path / "file")
    assert refuse_place(tmp_path / "absent") is None
    if os.geteuid() == 0:
        os.chown(cache, 12345, -1)
        with pytest.raises(UnsafePath) as caught:
            refuse_place(cache)
        assert caught.value.exit_code == 8


def test_places_that_every_user_may_change(cache: Path):
    cache.chmod(0o777)
    with pytest.raises(UnsafePath, match="every user may write into it"):
        refuse_place(cache)
    cache.chmod(0o755)
    cache.parent.chmod(0o777)
    with pytest.raises(UnsafePath, match="every user may put another directory in its place"):
        refuse_place(cache)
    cache.parent.chmod(0o1777)
    assert refuse_place(cache)
