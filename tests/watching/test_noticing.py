"""What the kernel says, on real files; and what happens where it says nothing."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachekeeper.watching import inotify
from cachekeeper.watching.inotify import Inotify
from cachekeeper.watching.noticing import Noticed, Noticer

FILES = ("ab/cx.py", "fxgraph/aa/fx/key", "triton/0/K/k.cubin", "top.json")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    for path in FILES:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    return tmp_path


@pytest.fixture
def noticer(cache: Path) -> Iterator[Noticer]:
    with Noticer(cache, FILES) as made:
        made.arm()
        assert not made.polling and made.complete and made.directories == 8
        yield made


OF_ONE_FILE: list[tuple[str, Callable[[Path], object]]] = [
    ("ab/cx.py", lambda cache: (cache / "ab/cx.py").unlink()),
    ("top.json", lambda cache: (cache / "top.json").write_text("")),
    ("fxgraph/aa/fx/key", lambda cache: (cache / "fxgraph/aa/fx/key").rename(cache / "elsewhere")),
    ("ab/cx.py", lambda cache: (cache / "top.json").replace(cache / "ab/cx.py")),
    ("triton/0/K/k.cubin", lambda cache: subprocess.run(["truncate", "-s", "0", cache / "triton/0/K/k.cubin"])),
]


@pytest.mark.parametrize(("path", "happen"), OF_ONE_FILE)
def test_a_file_of_the_snapshot(cache: Path, noticer: Noticer, path: str, happen: Callable[[Path], object]):
    happen(cache)
    noticed = noticer.wait(5)
    assert path in noticed.paths and not noticed.everything


OF_DIRECTORIES: list[Callable[[Path], object]] = [
    lambda cache: shutil.rmtree(cache / "triton/0/K"),
    lambda cache: (cache / "triton/0").rename(cache / "gone"),
    lambda cache: shutil.rmtree(cache),
    lambda cache: cache.rename(cache.with_name("moved")),
]


@pytest.mark.parametrize("happen", OF_DIRECTORIES)
def test_a_directory_on_the_way_to_one(cache: Path, noticer: Noticer, happen: Callable[[Path], object]):
    happen(cache)
    assert noticer.wait(5).everything


def test_what_torch_makes_wakes_nobody(cache: Path, noticer: Noticer):
    (cache / "ab/cnew.py").write_text("new")
    (cache / "fxgraph/aa/fx/.1.2.tmp").write_text("half")
    (cache / "fxgraph/aa/fx/.1.2.tmp").rename(cache / "fxgraph/aa/fx/other")
    (cache / "locks").mkdir()
    (cache / "locks/cx.lock").write_text("")
    (cache / "zz").mkdir()
    (cache / "triton/0/K/tmp.pid_1_ab").mkdir()
    assert not noticer.wait(0.05)


def test_a_directory_that_comes_back_is_watched_when_armed_again(cache: Path, noticer: Noticer):
    shutil.rmtree(cache / "triton")
    assert noticer.wait(5).everything
    noticer.arm()
    assert not noticer.complete
    (cache / "triton/0/K").mkdir(parents=True)
    assert noticer.wait(5).everything
    noticer.arm()
    assert noticer.complete
    (cache / "triton/0/K/k.cubin").write_text("x")
    assert noticer.wait(5).paths == {"triton/0/K/k.cubin"}


def test_where_the_kernel_lost_count_everything_is_looked_at(
    cache: Path, noticer: Noticer, monkeypatch: pytest.MonkeyPatch
):
    overflow = struct.pack("iIII", -1, inotify.OVERFLOW, 0, 0)
    monkeypatch.setattr(Inotify, "read", lambda self: iter([inotify.Happened(*struct.unpack("iI8x", overflow), "")]))
    assert noticer.wait(0).everything


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "max_user_watches"), (errno.EMFILE, "max_user_instances"), (errno.EIO, "Input")],
)
def test_where_the_kernel_refuses_it_polls_and_says_why(
    cache: Path, number: int, words: str, monkeypatch: pytest.MonkeyPatch
):
    def refuse(self: Inotify, directory: str) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Inotify, "add", refuse)
    with Noticer(cache, FILES) as noticer:
        noticer.arm()
        assert words in noticer.polling and noticer.directories == 0 and noticer.complete
        shutil.rmtree(cache)
        assert noticer.wait(0.01) == Noticed()


def test_the_limit_of_this_machine_is_met(cache: Path, tmp_path: Path):
    """A real EMFILE: no descriptor is left for inotify."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Noticer(cache, FILES) as noticer:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            noticer.arm()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert "instances" in noticer.polling


@pytest.mark.parametrize("poll", ["", "as asked"])
def test_it_ends_when_the_other_end_of_the_pipe_is_closed(cache: Path, poll: str):
    until, other = os.pipe()
    with Noticer(cache, FILES, poll, until) as noticer:
        noticer.arm()
        assert not noticer.wait(0).ended and not noticer.ended()
        os.close(other)
        assert noticer.ended() and noticer.wait(60).ended
    os.close(until)
