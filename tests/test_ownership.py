"""Whose a directory is, on the whole way to it: root looks at what belongs to others and what all may write to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cachekeeper import ownership
from cachekeeper.errors import LocalDiskError, UnsafePath, UsageError
from cachekeeper.ownership import CACHE, STORE

SOMEBODY = 12345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def way(tmp_path: Path) -> Path:
    """a/b/cache below a directory of this user's own."""
    (tmp_path / "a/b/cache").mkdir(parents=True, mode=0o755)
    return tmp_path / "a/b/cache"


def refusal(path: Path, words: str, work: Callable[..., object] = ownership.check) -> UnsafePath:
    with pytest.raises(UnsafePath, match=words) as caught:
        work(path, CACHE)
    assert caught.value.exit_code == 8 and caught.value.code == "unsafe-path"
    assert "torch runs what lies there" in caught.value.hint
    return caught.value


def test_a_directory_of_ones_own_is_safe(way: Path):
    assert ownership.check(way, CACHE) == way


def test_a_relative_way_and_one_that_goes_up(way: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(way.parent)
    ownership.check(Path("cache"), CACHE)
    ownership.check(way.parent / ".." / "b" / "cache", CACHE)
    way.chmod(0o777)
    refusal(Path("cache"), "every user may write into it")
    refusal(way.parent / ".." / "b" / "cache", "every user may write into it")


@as_root
@pytest.mark.parametrize("where", [".", "..", "../.."])
def test_another_users(way: Path, where: str):
    os.chown(way / where, SOMEBODY, -1)
    error = refusal(way, "another user's")
    assert error.facts[0] == f"path   {os.path.normpath(way / where)}"
    assert f"uid {SOMEBODY}" in error.facts[1] and error.facts[2] == "mode   drwxr-xr-x"
    assert f"CACHEKEEPER_TRUSTED_OWNERS={SOMEBODY}" in error.hint and "--cache-dir" in error.hint


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_what_all_may_write_into(way: Path, mode: int):
    """A sticky bit lets nobody take an entry away; anybody may still add one, which torch finds by its key."""
    way.chmod(mode)
    error = refusal(way, "every user may write into it")
    assert error.facts[0] == f"path   {way}"
    assert (f"`chmod o-w {way}`" in error.hint) is (mode == 0o777)


def test_a_parent_in_which_all_may_rename(way: Path):
    way.parent.chmod(0o777)
    assert f"`chmod +t {way.parent}`" in refusal(way, "put another directory in its place").hint
    way.parent.chmod(0o1777)
    ownership.check(way, CACHE)


def test_a_group_that_was_let_in_is_trusted(way: Path):
    way.parent.chmod(0o2775)
    way.chmod(0o2770)
    ownership.check(way, CACHE)


@as_root
def test_a_sticky_parent_protects_only_what_is_ones_own(way: Path):
    way.parent.chmod(0o1777)
    os.chown(way, SOMEBODY, -1)
    refusal(way, "it is another user's")


# Links


@pytest.mark.parametrize("target", ["b/cache", "./b//cache/", "b/../b/cache", "{a}/b/cache"])
def test_a_link_of_ones_own_is_followed(way: Path, target: str):
    a = way.parent.parent
    (a / "link").symlink_to(target.format(a=a))
    ownership.check(a / "link", CACHE)
    way.chmod(0o777)
    assert refusal(a / "link", "every user may write into it").facts[0] == f"path   {way}"


@as_root
@pytest.mark.parametrize("last", [True, False])
def test_a_link_of_another_user(way: Path, last: bool):
    a = way.parent.parent
    (a / "link").symlink_to(way if last else way.parent)
    os.chown(a / "link", SOMEBODY, -1, follow_symlinks=False)
    path = a / "link" if last else a / "link/cache"
    error = refusal(path, "another user's link to")
    assert error.facts[0] == f"path   {a}/link" and "chmod" not in error.hint


@as_root
def test_where_a_link_leads_is_looked_at_from_the_root_on(way: Path, tmp_path: Path):
    (tmp_path / "theirs/cache").mkdir(parents=True)
    os.chown(tmp_path / "theirs", SOMEBODY, -1)
    (way / "link").symlink_to(tmp_path / "theirs/cache")
    assert refusal(way / "link", "above it is another user's").facts[0] == f"path   {tmp_path}/theirs"


@pytest.mark.parametrize("target", [".", "../cache/.", "{way}"])
def test_a_link_to_what_was_passed_ends_there(way: Path, target: str):
    """Sticky and open to all is fine on the way, and not at its end."""
    (way / "link").symlink_to(target.format(way=way))
    way.chmod(0o1777)
    refusal(way / "link", "every user may write into it")


def test_links_in_a_circle(way: Path):
    (way / "one").symlink_to("two")
    (way / "two").symlink_to("one")
    with pytest.raises(LocalDiskError, match="cannot look at the cache directory"):
        ownership.check(way / "one", CACHE)


# Making


def test_what_is_made_is_this_users_alone(tmp_path: Path):
    before = os.umask(0)
    try:
        ownership.make(tmp_path / "x/y/z", CACHE)
    finally:
        os.umask(before)
    assert [(tmp_path / where).stat().st_mode & 0o777 for where in ("x", "x/y", "x/y/z")] == [0o700] * 3


@as_root
def test_nothing_is_made_behind_a_link_of_another_user(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("mine")
    os.chown(tmp_path / "link", SOMEBODY, -1, follow_symlinks=False)
    refusal(tmp_path / "link/x/y", "another user's link", ownership.make)
    assert list((tmp_path / "mine").iterdir()) == []


@as_root
def test_nothing_is_made_in_a_directory_of_another_user(tmp_path: Path):
    os.chown(tmp_path, SOMEBODY, -1)
    refusal(tmp_path / "x/y", "above it is another user's", ownership.make)
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_leads_nowhere_is_not_made_true(tmp_path: Path):
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(LocalDiskError, match="cannot make the cache directory"):
        ownership.make(tmp_path / "dangling/x", CACHE)
    assert not (tmp_path / "nowhere").exists()


# Whom we trust


@as_root
@pytest.mark.parametrize("trusted", [str(SOMEBODY), f" nobody , {SOMEBODY}", "*"])
def test_owners_that_are_trusted(way: Path, trusted: str, monkeypatch: pytest.MonkeyPatch):
    os.chown(way, SOMEBODY, -1)
    monkeypatch.setenv("CACHEKEEPER_TRUSTED_OWNERS", trusted)
    ownership.check(way, CACHE)
    way.chmod(0o777)
    if trusted == "*":
        ownership.check(way, CACHE)
    else:
        refusal(way, "every user may write into it")


def test_a_trusted_owner_whom_nobody_knows(way: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_TRUSTED_OWNERS", "no-such-user")
    with pytest.raises(UsageError, match="no user 'no-such-user'"):
        ownership.check(way, CACHE)


def test_whom_a_container_does_not_know_owns_what_is_above(way: Path, monkeypatch: pytest.MonkeyPatch):
    """Root of the host, as a rootless container sees it; never for the directory itself."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    unmapped = int(Path("/proc/sys/fs/overflowuid").read_text())
    os.chown(way.parent, unmapped, -1)
    refusal(way, "above it is another user's")
    monkeypatch.setattr(ownership, "_unmapped", lambda: unmapped)
    ownership.check(way, CACHE)
    os.chown(way, unmapped, -1)
    refusal(way, "it is another user's")


# Stores


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for name in ("packs", "snapshots", "names"):
        (tmp_path / "store" / name).mkdir(parents=True)
    return tmp_path / "store"


@pytest.mark.parametrize("where", ["", "packs", "snapshots", "names"])
def test_a_store_that_all_may_write_to(store: Path, where: str):
    ownership.check_store([store])
    (store / where).chmod(0o777)
    with pytest.raises(UnsafePath, match=f"the store .*{where} is not safe") as caught:
        ownership.check_store([store])
    assert STORE.matter in caught.value.hint and "--store" in caught.value.hint


@as_root
@pytest.mark.parametrize("where", ["packs", "names"])
def test_a_part_of_a_store_of_another_user(store: Path, where: str):
    os.chown(store / where, SOMEBODY, -1)
    with pytest.raises(UnsafePath, match="it is another user's"):
        ownership.check_store([store])


def test_a_store_that_is_not_there_yet(tmp_path: Path):
    ownership.check_store([tmp_path / "none"])


def test_files_are_of_whom_we_trust():
    assert ownership.foreign(frozenset({0, 5}), 6) and not ownership.foreign(frozenset({0, 5}), 5)
    assert not ownership.foreign(None, 6)
