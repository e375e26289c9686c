"""Can the disk take it? Asked before the first byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cachekeeper import preflight
from cachekeeper.errors import LocalDiskError, UnsafePath
from cachekeeper.manifest import FileRow

FILES = [FileRow(f"ab/{number}", 0o644, 5000, "0" * 64, 0, 0, 0) for number in range(10)]


class System:
    """A filesystem with room enough, as statvfs(3) tells it."""

    f_flag, f_bavail, f_frsize, f_files, f_favail, f_namemax = 0, 1 << 20, 4096, 1 << 20, 1 << 20, 255

    def __init__(self, **changes: int) -> None:
        vars(self).update(changes)


def check(monkeypatch: pytest.MonkeyPatch, target: Path, native: bool = False, **changes: int) -> None:
    monkeypatch.setattr(preflight.os, "statvfs", lambda _: System(**changes))
    preflight.check(target, FILES, native)


def refusal(monkeypatch: pytest.MonkeyPatch, target: Path, native: bool = False, **changes: int) -> LocalDiskError:
    with pytest.raises(LocalDiskError) as caught:
        check(monkeypatch, target, native, **changes)
    assert caught.value.exit_code == 8 and caught.value.hint
    return caught.value


def test_room_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    check(monkeypatch, tmp_path, native=True)


def test_bytes_are_counted_in_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """5,000 bytes take two blocks of 4 KiB; and a MiB is left over."""
    needed = 10 * 2 + 256
    check(monkeypatch, tmp_path, f_bavail=needed)
    error = refusal(monkeypatch, tmp_path, f_bavail=needed - 1)
    assert error.message == f"not enough space in {tmp_path}"
    assert error.facts == ("needed  1.1 MiB", "free    1.1 MiB")


def test_inodes_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """C25."""
    check(monkeypatch, tmp_path, f_favail=19)
    assert refusal(monkeypatch, tmp_path, f_favail=18).message == f"not enough inodes in {tmp_path}"


def test_a_filesystem_without_inodes_has_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    check(monkeypatch, tmp_path, f_files=0, f_favail=0)


def test_noexec_matters_for_libraries_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """C23."""
    check(monkeypatch, tmp_path, f_flag=os.ST_NOEXEC)
    assert "noexec" in refusal(monkeypatch, tmp_path, native=True, f_flag=os.ST_NOEXEC).message


@pytest.mark.parametrize("over", [0, 1])
def test_an_absolute_path_that_could_not_be_opened(tmp_path: Path, over: int):
    """pytorch#187283 (C31): a directory so deep that its files can be written, by descriptor, and not be opened."""
    target = tmp_path
    while len(str(target)) < 3900:
        target /= "d" * 150
        os.mkdir(target)
    path = "a/" + "b" * (4095 - len(str(target)) - 3 + over)
    assert len(os.path.join(target, path)) == 4095 + over
    file = FileRow(path, 0o644, 1, "0" * 64, 0, 0, 0)
    if not over:
        preflight.check(target, [file], native=False)
        return
    with pytest.raises(LocalDiskError, match="too long") as caught:
        preflight.check(target, [file], native=False)
    assert caught.value.facts[0] == f"path    {path}" and "4,096 bytes" in caught.value.facts[1]


def test_a_filesystem_of_short_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """eCryptfs takes 143 bytes."""
    files = [FileRow(f"ab/{'k' * 144}", 0o644, 1, "0" * 64, 0, 0, 0)]
    monkeypatch.setattr(preflight.os, "statvfs", lambda _: System(f_namemax=143))
    with pytest.raises(LocalDiskError, match="too long") as caught:
        preflight.check(tmp_path, files, native=False)
    assert "144 bytes for one name, of 143" in caught.value.facts[1]


def test_read_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert "read-only" in refusal(monkeypatch, tmp_path, f_flag=os.ST_RDONLY).message


def test_somebody_elses_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """C28. root may write everywhere, so the answer is given by other means."""
    monkeypatch.setattr(preflight.os, "access", lambda *_: False)
    error = refusal(monkeypatch, tmp_path)
    assert error.facts == (f"owner  uid {tmp_path.stat().st_uid}, this process is uid {os.geteuid()}",)


def test_a_target_is_made_with_what_is_above_it(tmp_path: Path):
    preflight.make_target(tmp_path / "a" / "b")
    assert [(tmp_path / where).stat().st_mode & 0o777 for where in ("a", "a/b")] == [0o700, 0o700]
    preflight.make_target(tmp_path / "a" / "b")


def test_a_target_that_every_user_could_change_is_refused(tmp_path: Path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for target in (tmp_path / "open", tmp_path / "open" / "target"):
        with pytest.raises(UnsafePath, match=f"the cache directory {target} is not safe"):
            preflight.make_target(target)
    assert list((tmp_path / "open").iterdir()) == []


@pytest.mark.parametrize("where", ["file", "file/x", "dangling"])
def test_a_target_that_cannot_be_made(tmp_path: Path, where: str):
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(LocalDiskError, match="cannot make the cache directory"):
        preflight.make_target(tmp_path / where)
