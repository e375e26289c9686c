"""What network filesystems say for a moment, and what nobody waits for."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import disk
from cachekeeper.disk import hint_for, patiently
from cachekeeper.errors import LocalDiskError
from cachekeeper.testing import make_cache

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made; none of them takes time."""
    pauses: list[float] = []
    monkeypatch.setattr(disk.time, "sleep", pauses.append)
    monkeypatch.setattr(disk._Patience, "gave_up", float("-inf"))
    return pauses


def failing(code: int, times: int) -> Callable[..., None]:
    """Something that fails so many times."""
    left = [times]

    def operation(*_: object) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(code, os.strerror(code), "k.cubin")

    return operation


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EBUSY])
def test_what_passes_is_waited_for(code: int, impatient: list[float]):
    patiently(failing(code, 3))
    assert 0 < sum(impatient) < 1


def test_what_does_not_pass_is_raised_and_waited_for_once(impatient: list[float]):
    """A mount that is gone makes every file of a cache stale."""
    for _ in range(1000):
        with pytest.raises(OSError, match="Stale file handle"):
            patiently(failing(errno.ESTALE, 9))
    assert sum(impatient) < 1


def test_other_errors_are_raised_at_once(impatient: list[float]):
    with pytest.raises(PermissionError):
        patiently(failing(errno.EACCES, 1))
    assert impatient == []


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A made-up cache."""
    return make_cache(tmp_path / "cache", kernels=2, graphs=1)


def first_calls_fail(monkeypatch: pytest.MonkeyPatch, name: str, code: int, times: int) -> None:
    """Make the first calls of a function of `disk` fail."""
    real, fail = getattr(disk, name), failing(code, times)

    def function(*arguments: object) -> object:
        fail()
        return real(*arguments)

    monkeypatch.setattr(disk, name, function)


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EBUSY])
@pytest.mark.parametrize("name", ["_read_once", "_renameat2_once"])
def test_a_snapshot_and_a_restore_get_over_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
):
    """pytorch#173679 (C11): a rename or a read on a network filesystem fails for a moment."""
    with monkeypatch.context() as patch:
        first_calls_fail(patch, name, code, 2)
        cachekeeper.snapshot("drafter", cache_dir=cache, store=tmp_path / "store", wait=0)
    with monkeypatch.context() as patch:
        first_calls_fail(patch, name, code, 2)
        cachekeeper.restore("drafter", cache_dir=tmp_path / "out", store=tmp_path / "store", verify=True)
    assert cachekeeper.verify("drafter", live=tmp_path / "out", store=tmp_path / "store").ok


def test_what_stays_stale_says_so_and_names_the_files(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first_calls_fail(monkeypatch, "_read_once", errno.ESTALE, 10**6)
    with pytest.raises(LocalDiskError, match="of the cache cannot be read") as caught:
        cachekeeper.snapshot("drafter", cache_dir=cache, store=tmp_path / "store", wait=0)
    assert any(fact.endswith(".cubin  Stale file handle") for fact in caught.value.facts)
    assert "this node's own disk" in caught.value.hint and "chown" not in caught.value.hint


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.EACCES])
def test_a_directory_that_cannot_be_opened_is_not_left_out(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
):
    real = disk.open_beneath

    def opening(root: int, path: str, *rest: int) -> int:
        if path == "triton":
            raise OSError(code, os.strerror(code), path)
        return real(root, path, *rest)

    monkeypatch.setattr(disk, "open_beneath", opening)
    with pytest.raises(LocalDiskError, match="1 directory of the cache cannot be read") as caught:
        cachekeeper.snapshot("drafter", cache_dir=cache, store=tmp_path / "store", wait=0)
    assert caught.value.facts == (f"triton  {os.strerror(code)}",)


def test_reasons_have_hints():
    assert "own disk" in hint_for("Stale file handle")
    assert hint_for("something else") == ""


@pytest.mark.parametrize("hours", [0, 2])
def test_without_locks_nobody_clears_up_what_somebody_may_be_at_work_in(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
):
    """C30: two of four restores at once ended with "No such file or directory"."""

    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    cachekeeper.snapshot("drafter", cache_dir=cache, store=tmp_path / "store", wait=0)
    stage = tmp_path / "out" / ".cachekeeper" / "stage-abc"
    (stage / "0").mkdir(parents=True)
    began = os.stat(stage).st_mtime - hours * 3600
    os.utime(stage, (began, began))
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        cachekeeper.restore("drafter", cache_dir=tmp_path / "out", store=tmp_path / "store")
    assert stage.exists() == (hours == 0)
    next((tmp_path / "out").glob("fxgraph/*/*/*")).unlink()
    cachekeeper.restore("drafter", cache_dir=tmp_path / "out", store=tmp_path / "store")
    assert not stage.exists()  # with the lock, it belongs to nobody


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_all_is_right_all_the_same(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
):
    """sglang#31347, tvm-ffi#667 (C30): what is right rests on renames and checksums."""

    def flock(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=tmp_path / "store", wait=0)
    for _ in range(2):
        cachekeeper.restore("drafter", cache_dir=tmp_path / "out", store=tmp_path / "store", verify=True)
        assert cachekeeper.verify("drafter", live=tmp_path / "out", store=tmp_path / "store").ok
        next((tmp_path / "out").glob("triton/0/*/*.cubin")).write_bytes(b"")
    repaired = cachekeeper.verify("drafter", live=tmp_path / "out", store=tmp_path / "store", repair=True)
    assert repaired.ok and len(repaired.mended) == 1
