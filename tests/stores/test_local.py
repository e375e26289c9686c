"""A store in a directory: the contract, and what is particular to files."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from cachekeeper.errors import LocalDiskError, StoreError
from cachekeeper.stores import KeyMissing, LocalStore, local
from cachekeeper.testing import StoreContract


def make(root: Path) -> LocalStore:
    store = LocalStore(root)
    store.prepare()
    return store


class TestContract(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> LocalStore:
        return make(tmp_path / "a store")


class TestContractWithoutHardLinks(StoreContract):
    """Some network and FUSE filesystems have none."""

    @pytest.fixture
    def store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
        monkeypatch.setattr(local.os, "link", refuse(errno.EPERM))
        return make(tmp_path / "a store")


def refuse(code: int):
    def call(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_objects_are_read_only_and_directories_the_owners_alone(tmp_path: Path):
    store = make(tmp_path / "store")
    store.create("names/team/drafter/00000001", b"x")
    assert mode(tmp_path / "store/names/team/drafter/00000001") == 0o444
    for directory in ("store", "store/names", "store/names/team", "store/names/team/drafter"):
        assert mode(tmp_path / directory) == 0o700, directory


def test_a_umask_does_not_open_directories(tmp_path: Path):
    before = os.umask(0)
    try:
        make(tmp_path / "store").create("packs/x", b"x")
    finally:
        os.umask(before)
    assert mode(tmp_path / "store/packs") == 0o700
    assert mode(tmp_path / "store/packs/x") == 0o444


def test_what_is_made_above_a_store_is_the_owners_alone(tmp_path: Path):
    before = os.umask(0)
    try:
        make(tmp_path / "a/b/store")
    finally:
        os.umask(before)
    assert [mode(tmp_path / where) for where in ("a", "a/b", "a/b/store")] == [0o700] * 3


def test_a_store_that_every_user_may_change_says_so(tmp_path: Path):
    store = make(tmp_path / "store")
    assert store.caveats == ()
    store.create("names/drafter/00000001", b"x")
    (tmp_path / "store/names").chmod(0o777)
    [caveat] = make(tmp_path / "store").caveats
    where = tmp_path / "store/names"
    assert caveat == f"the store {where} is not safe: every user may write into it: restores from it are refused"
    (tmp_path / "store/names").chmod(0o2770)  # a group that the owner let in
    assert make(tmp_path / "store").caveats == ()


def test_temporary_files_are_not_listed(tmp_path: Path):
    store = make(tmp_path)
    store.create("packs/x", b"x")
    (tmp_path / "packs/.tmp-0123456789abcdef").write_bytes(b"half")
    (tmp_path / "packs/with space").write_bytes(b"no key")
    assert [item.key for item in store.list("")] == ["packs/x"]


def test_nothing_temporary_stays_behind(tmp_path: Path):
    store = make(tmp_path)
    store.create("packs/x", b"x")
    store.create("packs/x", b"again")
    assert os.listdir(tmp_path / "packs") == ["x"]


def test_nothing_temporary_stays_behind_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = make(tmp_path)
    monkeypatch.setattr(local, "write_all", refuse(errno.ENOSPC))
    with pytest.raises(LocalDiskError) as caught:
        store.create("packs/x", b"x")
    assert caught.value.exit_code == 8 and "--store" in caught.value.hint
    assert os.listdir(tmp_path / "packs") == []
    with pytest.raises(KeyMissing):
        store.read("packs/x")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.EROFS, errno.ESTALE])
def test_other_failures_are_the_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int):
    store = make(tmp_path)
    monkeypatch.setattr(local, "write_all", refuse(code))
    with pytest.raises(StoreError) as caught:
        store.create("packs/x", b"x")
    assert caught.value.exit_code == 6
    assert caught.value.facts == (f"store   {tmp_path}", f"reason  {os.strerror(code)}")


def test_a_file_where_the_store_should_be(tmp_path: Path):
    (tmp_path / "store").write_text("mine")
    with pytest.raises(StoreError):
        LocalStore(tmp_path / "store").prepare()
    with pytest.raises(KeyMissing):
        LocalStore(tmp_path / "store").read("format.json")
    assert list(LocalStore(tmp_path / "store").list("")) == []


def test_its_url_is_percent_encoded(tmp_path: Path):
    assert LocalStore(Path("/srv/my caches/größe#1")).url == "file:///srv/my%20caches/gr%C3%B6%C3%9Fe%231"


def test_a_link_to_a_store_is_a_store(tmp_path: Path):
    make(tmp_path / "store").create("packs/x", b"x")
    (tmp_path / "link").symlink_to("store")
    assert LocalStore(tmp_path / "link").read("packs/x") == b"x"
