"""Cache directories with things in them that no job writes, and with names that are hard to keep."""

from __future__ import annotations

import os
import socket
import stat
import time
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.disk import open_directory, walk
from cachekeeper.environment import cache_directory
from cachekeeper.errors import CachekeeperError, LocalDiskError
from cachekeeper.livecache import LiveCache
from cachekeeper.reading import look
from cachekeeper.testing import make_cache

from .scene import tree

pytestmark = pytest.mark.timeout(60)  # what blocks, as a fifo would, is to fail and not to hold up the rest


@pytest.fixture
def cache(place: Path) -> Path:
    return make_cache(place / "cache", seed=1, kernels=1, graphs=1)


def _round_trip(cache: Path, place: Path) -> tuple[cachekeeper.verbs.snapshot.SnapshotResult, dict[str, bytes]]:
    """Save, verify and restore; the result and what came back."""
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=place / "store", wait=0)
    result = cachekeeper.verify(every=True, store=place / "store")
    assert result.ok, result.damaged
    assert saved.snapshot.id in result.snapshots
    cachekeeper.restore("drafter", cache_dir=place / "target", store=place / "store", verify=True)
    return saved, tree(place / "target")


def _add_links(cache: Path, place: Path) -> None:
    outside = place / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (cache / "to-file").symlink_to(outside / "secret")
    (cache / "to-directory").symlink_to(outside)
    (cache / "loop").symlink_to("loop")
    (cache / "fxgraph" / "upwards").symlink_to("..")
    (cache / "dangling").symlink_to("nothing")
    (cache / "aotautograd" / "cold.so").symlink_to(outside / "secret")


def test_links_are_told_and_not_followed(cache: Path, place: Path) -> None:
    right = tree(cache)
    _add_links(cache, place)
    saved, found = _round_trip(cache, place)
    assert found == right
    assert len(saved.skipped) == 6
    assert b"secret" not in b"".join(found.values())


def test_special_files_do_not_block(cache: Path, place: Path) -> None:
    right = tree(cache)
    os.mkfifo(cache / "fifo.so")
    os.mkfifo(next((cache / "triton" / "0").iterdir()) / "fifo.cubin")
    with socket.socket(socket.AF_UNIX) as server:
        with open_directory(cache) as root:
            server.bind(f"/proc/self/fd/{root}/sock")
        expected = 3 + _add_device(cache)
        saved, found = _round_trip(cache, place)
    assert found == right
    assert len(saved.skipped) == expected


def _add_device(cache: Path) -> int:
    try:
        os.mknod(cache / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        return 0
    return 1


def test_special_files_in_the_way_of_a_restore(cache: Path, place: Path) -> None:
    _, right = _round_trip(cache, place)
    for number, path in enumerate(sorted(right)[:4]):
        (place / "target" / path).unlink()
        if number % 2:
            os.mkfifo(place / "target" / path)
        else:
            (place / "target" / path).symlink_to("/dev/zero")
    assert not cachekeeper.verify("drafter", live=place / "target", store=place / "store").ok
    cachekeeper.verify(directory=place / "target")
    cachekeeper.restore("drafter", cache_dir=place / "target", store=place / "store", verify=True)
    assert tree(place / "target") == right


_GOOD_NAMES = ["n" * 240, "ünïcödé-名前-🔥", "spaces and 'quotes' \"too\" $HOME `x` %41 *?[", "-rf", "~", "#x#", "a..b"]
_ODD_NAMES = [b"new\nline", b"inv\xffalid", b"back\\slash", b"tab\t", b"\x1b[31mred", b"\x7f", b"cr\r"]


def test_names_that_can_be_kept(cache: Path, place: Path) -> None:
    for name in _GOOD_NAMES:
        (cache / "cache" / name).write_bytes(b"{}")
        (cache / name).mkdir()
        (cache / name / "file").write_bytes(name.encode())
    saved, found = _round_trip(cache, place)
    assert not saved.skipped
    assert found == tree(cache)


def test_names_that_cannot_be_kept_are_told(cache: Path, place: Path) -> None:
    right = tree(cache)
    for name in _ODD_NAMES:
        Path(os.fsdecode(os.fsencode(cache) + b"/odd-" + name)).write_bytes(b"odd")
        directory = Path(os.fsdecode(os.fsencode(cache) + b"/dir-" + name))
        directory.mkdir()
        (directory / "file").write_bytes(b"odd")
    saved, found = _round_trip(cache, place)
    assert found == right
    assert len(saved.skipped) == 2 * len(_ODD_NAMES)


@pytest.mark.parametrize(
    "path",
    [
        ".cachekeeper.toml",
        ".cachekeeperrc/x",
        ".cachekeeper-old",
        "fxgraph/.cachekeeper",
        ".hidden",
        ".hidden/x",
        "also/file",
        "also/label/file",
        "also/.hidden/file",
        "also/-dash/file",
        "also/ünï/file",
        f"also/{'n' * 150}/file",
        "also/two words/file",
    ],
)
def test_paths_that_mean_something_to_cachekeeper(cache: Path, place: Path, path: str) -> None:
    """Kept or told; never a snapshot that cannot be read."""
    right = tree(cache)
    (cache / path).parent.mkdir(parents=True, exist_ok=True)
    (cache / path).write_bytes(b"mine")
    _, found = _round_trip(cache, place)
    assert found in (right, right | {path: b"mine"})


@pytest.mark.parametrize("length", [3_900, 3_999, 4_000, 4_001, 4_050, 4_090])
def test_long_paths(cache: Path, place: Path, length: int) -> None:
    """Kept or told; never a snapshot that cannot be read."""
    _write_at(cache, _long_path(length), b"deep")
    saved, _ = _round_trip_long(cache, place)
    kept = saved.snapshot.header.counts["other"].files if "other" in saved.snapshot.header.counts else 0
    assert kept == 1 or saved.skipped


def _round_trip_long(cache: Path, place: Path) -> tuple[cachekeeper.verbs.snapshot.SnapshotResult, bool]:
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=place / "store", wait=0)
    result = cachekeeper.verify(every=True, store=place / "store")
    assert result.ok, result.damaged
    try:
        cachekeeper.restore("drafter", cache_dir=place / "target", store=place / "store")
    except LocalDiskError as error:
        assert "too long" in str(error)  # with the stage's own name before it, it may be longer than the kernel takes
        assert not list((place / "target").glob("*"))
        return saved, False
    return saved, True


def _long_path(length: int) -> str:
    parts = ["d" * 200] * (length // 201)
    rest = length - len("/".join(parts)) - 1
    return "/".join([*parts, "f" * rest]) if rest > 0 else "/".join(parts)[:length]


def _write_at(root: Path, path: str, data: bytes) -> None:
    """Write a file whose absolute path is longer than the kernel takes."""
    current = os.open(root, os.O_RDONLY)
    *parents, name = path.split("/")
    for parent in parents:
        os.mkdir(parent, dir_fd=current)
        deeper = os.open(parent, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = deeper
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=current)
    os.write(descriptor, data)
    os.close(descriptor)
    os.close(current)


@pytest.mark.parametrize("name", ["d", "d" * 40])
def test_a_very_deep_directory(cache: Path, place: Path, name: str) -> None:
    _write_at(cache, "/".join([name] * 300) + "/file", b"deep")
    saved, _ = _round_trip_long(cache, place)
    assert saved.skipped or saved.snapshot.header.counts["other"].files == 1


def test_ten_thousand_empty_directories(cache: Path, place: Path) -> None:
    right = tree(cache)
    for number in range(10_000):
        (cache / "fxgraph" / f"{number}").mkdir()
    began = time.monotonic()
    saved, found = _round_trip(cache, place)
    assert found == right and not saved.skipped
    assert time.monotonic() - began < 20


_MOST_SECONDS = 5


@pytest.mark.parametrize("path", ["cache/huge", "zz/chuge.so"])
def test_a_huge_sparse_file_is_told_quickly(cache: Path, path: str) -> None:
    """A file of a terabyte of nothing is not read for hours: by `snapshot` (which calls this) and `verify`."""
    (cache / path).parent.mkdir(parents=True, exist_ok=True)
    with open(cache / path, "wb") as file:
        file.truncate(1 << 40)
    with LiveCache(cache) as live:
        (source,) = [file for file in live.scan().files if file.path == path]
        began = time.monotonic()
        taken = look(source)
    assert taken.seen is None and "arge" in taken.trouble
    assert time.monotonic() - began < _MOST_SECONDS


def test_a_snapshot_with_a_huge_sparse_file(cache: Path, place: Path) -> None:
    with open(cache / "zz.so", "wb") as file:
        file.truncate(1 << 40)
    began = time.monotonic()
    with pytest.raises(LocalDiskError, match=r"zz\.so"):
        cachekeeper.snapshot("drafter", cache_dir=cache, store=place / "store", wait=0)
    assert time.monotonic() - began < _MOST_SECONDS


def test_a_restore_over_a_huge_sparse_file(cache: Path, place: Path) -> None:
    _, right = _round_trip(cache, place)
    for path in sorted(right)[::3]:
        with open(place / "target" / path, "wb") as file:
            file.truncate(1 << 40)
    began = time.monotonic()
    cachekeeper.restore("drafter", cache_dir=place / "target", store=place / "store")
    assert tree(place / "target") == right
    assert time.monotonic() - began < _MOST_SECONDS


_DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.parametrize("path", ["cache/deep", "ab/deep.best_config", "triton/0/K/k.json", "triton/0/K/__grp__k.json"])
def test_json_nested_without_end_is_damage(cache: Path, place: Path, path: str) -> None:
    (cache / path).parent.mkdir(parents=True, exist_ok=True)
    (cache / path).write_bytes(_DEEP)
    assert path in cachekeeper.verify(directory=cache).damaged
    with pytest.raises(CachekeeperError):
        cachekeeper.snapshot("drafter", cache_dir=cache, store=place / "store", wait=0)


@pytest.mark.parametrize("body", [b"x = " + b"(" * 100_000, b"x = " + b"-" * 500_000 + b"1", b"x = " + b"1+" * 200_000])
def test_a_module_nested_without_end(cache: Path, place: Path, body: bytes) -> None:
    (cache / "ab").mkdir(exist_ok=True)
    (cache / "ab" / "cdeep.py").write_bytes(b"# AOT ID: ['0']\n" + body)
    assert "ab/cdeep.py" in cachekeeper.verify(directory=cache).damaged


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x05", b"/ab/c" + b"a" * 51 + b".py\x94", b"\x80\x05X\xff\xff"])
@pytest.mark.parametrize("path", ["fxgraph/aa/fk/k", "aotautograd/ak/k"])
def test_torn_pickles(cache: Path, place: Path, path: str, data: bytes) -> None:
    (cache / path).parent.mkdir(parents=True)
    (cache / path).write_bytes(b"\x80\x05" + data)
    _, found = _round_trip(cache, place)
    assert found == tree(cache)


def test_a_pickle_with_opcodes_that_make_no_sense(cache: Path, place: Path) -> None:
    sign = b"\x8c\x3c/zz/aa/c" + b"a" * 51 + b".py\x94"
    for number, body in enumerate(
        [b"L99", b"I\xff\n.", b"F1e\n.", b"c\xff\xff\n\n.", b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff"]
    ):
        path = cache / "fxgraph" / "aa" / f"f{number}" / "k"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"\x80\x05" + sign + body)
    _, found = _round_trip(cache, place)
    assert found == tree(cache)


def test_a_directory_that_becomes_a_link_meanwhile(cache: Path, place: Path) -> None:
    outside = make_cache(place / "outside", seed=9, kernels=1, graphs=1)

    def swap(stage: str, done: int, total: int) -> None:
        if (cache / "fxgraph").is_dir() and not (cache / "fxgraph").is_symlink():
            (cache / "fxgraph").rename(place / "moved")
            (cache / "fxgraph").symlink_to(outside / "fxgraph")

    with open_directory(cache) as root:
        swap("", 0, 0)
        files, skipped, _ = walk(root, lambda path: True, lambda name: True)
    assert not [file for file in files if file.path.startswith("fxgraph")]
    assert "fxgraph" in {item.path for item in skipped}


def test_a_parent_that_becomes_a_link_before_it_is_read(cache: Path, place: Path) -> None:
    outside = make_cache(place / "outside", seed=1, kernels=1, graphs=1)
    with LiveCache(cache) as live:
        files = live.scan().files
        (cache / "fxgraph").rename(place / "moved")
        (cache / "fxgraph").symlink_to(outside / "fxgraph")
        taken = [look(file) for file in files if file.place.kind == "fxgraph"]
    assert taken and all(item.seen is None and item.trouble for item in taken)


def test_the_cache_directory_itself_may_be_a_link(cache: Path, place: Path) -> None:
    right = tree(cache)
    (place / "link").symlink_to(cache)
    (place / "target-link").symlink_to(place / "real")
    (place / "real").mkdir()
    cachekeeper.snapshot("drafter", cache_dir=place / "link", store=place / "store", wait=0)
    cachekeeper.restore("drafter", cache_dir=place / "target-link", store=place / "store", verify=True)
    assert {path: data.replace(b"@-link", b"@") for path, data in tree(place / "real").items()}.keys() == right.keys()


def test_directories_beside_with_long_and_odd_names(cache: Path, place: Path) -> None:
    beside = [make_cache(place / name, seed=5, kernels=1, graphs=0) for name in ("b" * 200, "ünï", "..x", "two words")]
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=place / "store", also=beside, wait=0)
    assert cachekeeper.verify(saved.snapshot.id, store=place / "store").ok
    cachekeeper.restore("drafter", cache_dir=place / "target", store=place / "store", verify=True)


def test_a_directory_beside_that_was_restored_inside_before(cache: Path, place: Path) -> None:
    """A restored cache holds also/<label>/; the job may still name the original directory."""
    beside = make_cache(place / "kernels", seed=5, kernels=1, graphs=0)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=place / "store", also=[beside], wait=0)
    target = place / "target"
    cachekeeper.restore("drafter", cache_dir=target, store=place / "store")
    saved = cachekeeper.snapshot("drafter", cache_dir=target, store=place / "store", also=[beside], wait=0)
    result = cachekeeper.verify(every=True, store=place / "store")
    assert result.ok and saved.snapshot.id in result.snapshots, result.damaged


@pytest.mark.parametrize("store", ["cache/store", "cache/.cachekeeper/store"])
def test_a_store_inside_the_cache_does_not_save_itself(cache: Path, place: Path, store: str) -> None:
    for _ in range(2):
        try:
            saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=place / store, wait=0)
        except CachekeeperError:
            return
    assert "other" not in saved.snapshot.header.counts


def test_the_current_directory_is_gone(cache: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = place / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    _, found = _round_trip(cache, place)
    assert found == tree(cache)
    assert cachekeeper.ls(store=place / "store").rows
    assert cache_directory({}).path.is_absolute()


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 2100 + "b"])
def test_directories_whose_names_no_filesystem_takes(place: Path, name: str) -> None:
    make_cache(place / "cache", seed=1, kernels=1, graphs=1)
    cachekeeper.snapshot("drafter", cache_dir=place / "cache", store=place / "store", wait=0)
    for call in (
        lambda: cachekeeper.snapshot("drafter", cache_dir=place / name, store=place / "store", wait=0),
        lambda: cachekeeper.restore("drafter", cache_dir=place / name, store=place / "store"),
        lambda: cachekeeper.restore("drafter", cache_dir=place / name, store=place / "store", dry_run=True),
        lambda: cachekeeper.verify("drafter", live=place / name, store=place / "store"),
        lambda: cachekeeper.verify(directory=place / name),
        lambda: cachekeeper.verify(store=place / name),
        lambda: cachekeeper.ls(store=place / name),
    ):
        with pytest.raises(CachekeeperError):
            call()
