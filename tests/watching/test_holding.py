"""One watch a directory, known by a lock that ends with its holder."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from threading import Thread

import pytest

from cachekeeper.errors import Busy, LocalDiskError
from cachekeeper.watching import held, interrupted, watcher_of
from cachekeeper.watching.holding import UNKNOWN, lock_file
from tests.faults.children import finish, kill, run, start

from .guarding import wait_for


def hold(directory: Path) -> None:
    with held(directory, "7c1e"):
        time.sleep(60)


def test_who_watches(tmp_path: Path):
    assert watcher_of(tmp_path) is None
    with held(tmp_path):
        assert watcher_of(tmp_path) == os.getpid()
        assert not list(tmp_path.iterdir())
    assert watcher_of(tmp_path) is None


def test_a_second_watch_is_refused_whatever_the_directory_is_called(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "cache")
    with held(tmp_path / "cache"), pytest.raises(Busy) as caught, held(tmp_path / "link"):
        pass
    assert caught.value.exit_code == 7 and caught.value.facts == (f"by process {os.getpid()}",)


def test_a_watch_that_was_killed_holds_nothing(tmp_path: Path):
    pid = start(lambda: hold(tmp_path))
    wait_for(lambda: watcher_of(tmp_path) == pid)
    kill(pid)
    finish(pid)
    assert str(pid) in lock_file(tmp_path).read_text()  # it could not tidy up
    assert watcher_of(tmp_path) is None and interrupted(tmp_path) == "7c1e"
    with held(tmp_path, "51d9"):
        assert watcher_of(tmp_path) == os.getpid()
    assert interrupted(tmp_path) == ""  # it ended in order


def test_asking_does_not_keep_a_watch_from_beginning(tmp_path: Path):
    with held(tmp_path):
        pass
    asking = True

    def ask() -> None:
        while asking:
            watcher_of(tmp_path)

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            with held(tmp_path):
                pass
    finally:
        asking = False
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"pid": -5}'])
def test_a_lock_that_names_nobody_is_still_a_lock(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cachekeeper.watching.holding._BETWEEN", 0.001)
    with held(tmp_path):
        lock_file(tmp_path).write_text(text)
        assert watcher_of(tmp_path) == UNKNOWN and interrupted(tmp_path) == ""
        with pytest.raises(Busy), held(tmp_path):
            pass


def test_a_planted_link_is_not_followed(tmp_path: Path):
    path = lock_file(tmp_path)
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "victim")
    assert watcher_of(tmp_path) is None
    assert run(lambda: hold(tmp_path)) != 0
    assert not (tmp_path / "victim").exists()


def test_without_locks_it_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """sglang#31347 (C30): a home on a network filesystem without locks."""

    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(LocalDiskError, match="needs a lock") as caught, held(tmp_path):
        pass
    assert "XDG_CACHE_HOME" in caught.value.hint
