"""A live cache, looked at: what is in it, and whether somebody is writing."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cachekeeper.errors import LocalDiskError, UsageError
from cachekeeper.livecache import COMPILING, LiveCache, chosen_cache_dir, command_of, wait_for_quiet
from cachekeeper.testing import make_cache, make_triton_entry


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache that nobody has written into for a while."""
    directory = make_cache(tmp_path / "inductor", kernels=1, graphs=1)
    settle(directory)
    return directory


def settle(directory: Path) -> None:
    for path in [*directory.rglob("*"), directory]:
        os.utime(path, (time.time() - 60,) * 2, follow_symlinks=False)


def paths(cache: Path, **options: bool) -> set[str]:
    with LiveCache(cache) as live:
        return {file.path for file in live.scan(**options).files}


def test_scratch_is_passed_over_and_counted(cache: Path):
    with LiveCache(cache) as live:
        scan = live.scan()
    assert not [file for file in scan.files if file.path.startswith("locks/") or file.path.endswith(".tmp")]
    assert scan.scratch == 2  # the directory of locks, and a temporary file
    assert len(scan.files) == 7 + 6 + 1
    assert scan.bytes == sum((cache / file.path).stat().st_size for file in scan.files)


def test_our_own_workshop_is_no_scratch_to_speak_of(cache: Path):
    (cache / ".cachekeeper").mkdir()
    with LiveCache(cache) as live:
        assert live.scan().scratch == 2


def test_headers_are_passed_over_unless_wanted(cache: Path):
    (cache / "precompiled_headers").mkdir()
    (cache / "precompiled_headers" / "x.gch").write_bytes(b"x")
    with LiveCache(cache) as live:
        assert live.scan().headers
        assert not live.scan(with_headers=True).headers
    assert paths(cache, with_headers=True) - paths(cache) == {"precompiled_headers/x.gch"}


def test_what_cannot_be_kept_is_told(cache: Path):
    (cache / "link.py").symlink_to("/etc/passwd")
    os.mkfifo(cache / "pipe")
    (cache / os.fsdecode(b"\xff.py")).write_bytes(b"x")
    (cache / "new\nline").write_bytes(b"x")
    with LiveCache(cache) as live:
        skipped = dict(live.scan().skipped)
    assert skipped == {
        "link.py": "a symbolic link",
        "pipe": "not a regular file",
        "\udcff.py": "a name that cannot be kept",
        "new\nline": "a name that cannot be kept",
    }


def test_directories_beside_it_have_a_place_of_their_own(cache: Path, tmp_path: Path):
    entry = make_triton_entry(tmp_path / "kernels")
    with LiveCache(cache, {"TRITON_CACHE_DIR": tmp_path / "kernels"}) as live:
        beside = [file for file in live.scan().files if file.path.startswith("also/")]
    assert {file.place for file in beside} == {("triton", f"also/TRITON_CACHE_DIR/{entry.name}")}
    assert {file.base for file in beside} == {str(tmp_path / "kernels")}
    assert {file.directory for file in beside} == {str(entry)}


def test_directories_beside_it_that_were_restored_into_it(cache: Path):
    entry = make_triton_entry(cache / "also" / "TRITON_CACHE_DIR")
    with LiveCache(cache) as live:
        [place] = {file.place for file in live.scan().files if file.path.startswith("also/")}
    assert place == ("triton", f"also/TRITON_CACHE_DIR/{entry.name}")


def test_a_directory_that_is_not_there(tmp_path: Path):
    with pytest.raises(LocalDiskError, match="cannot read the cache directory"), LiveCache(tmp_path / "none"):
        pass


# Who writes


def test_a_cache_at_rest_is_quiet(cache: Path):
    with LiveCache(cache) as live:
        assert wait_for_quiet(live, 0)[1] == ""


@pytest.mark.parametrize("change", ["write", "create", "delete"])
def test_a_fresh_change_is_seen(cache: Path, change: str):
    module = next(cache.glob("??/*.py"))
    if change == "write":
        module.write_bytes(b"new")
    elif change == "create":
        (module.parent / "new.py").write_bytes(b"")
        os.utime(module.parent / "new.py", (1, 1))
    else:
        module.unlink()
    with LiveCache(cache) as live:
        assert wait_for_quiet(live, 0)[1] == "files were written in the last second"


def test_it_waits_until_it_is_quiet(cache: Path):
    next(cache.glob("??/*.py")).write_bytes(b"new")
    began = time.monotonic()
    with LiveCache(cache) as live:
        scan, reason = wait_for_quiet(live, 30)
    assert reason == "" and 0.5 < time.monotonic() - began < 10
    assert not scan.written_within(1)


@contextmanager
def another_process_holds(path: Path) -> Iterator[None]:
    code = f"import fcntl, sys; f = open({str(path)!r}); fcntl.flock(f, 2); print(flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout and process.stdout.readline()
        yield
        process.kill()


def test_a_lock_that_is_held_is_seen_without_taking_it(cache: Path):
    lock = next((cache / "locks").iterdir())
    with LiveCache(cache) as live:
        assert not live.lock_held()
        with another_process_holds(lock):
            assert live.lock_held()
            assert wait_for_quiet(live, 0)[1] == COMPILING
        assert not live.lock_held()
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_stale_lock_file_is_no_lock(cache: Path):
    assert list((cache / "locks").iterdir())
    with LiveCache(cache) as live:
        assert not live.lock_held()


@pytest.mark.parametrize("where", ["", "fxgraph", "also"])
def test_movement_since_a_look(cache: Path, tmp_path: Path, where: str):
    make_triton_entry(tmp_path / "kernels")
    with LiveCache(cache, {"TRITON_CACHE_DIR": tmp_path / "kernels"}) as live:
        scan = live.scan()
        assert not live.moved_since(scan)
        ((tmp_path / "kernels" if where == "also" else cache / where) / "new").write_bytes(b"x")
        assert live.moved_since(scan)


def test_an_empty_name_is_no_directory():
    """As of a variable that is not set: neither the default nor the working directory is meant."""
    with pytest.raises(UsageError, match="is empty"):
        chosen_cache_dir("")


def test_a_process_is_named_by_its_command_without_secrets():
    code, token = "import sys; print(flush=True); sys.stdin.read()", "hf_" + "a" * 30
    command = [sys.executable, "-c", code, "--token", token]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        named = command_of(process.pid)
        process.kill()
    assert named.startswith(sys.executable[:60]) and len(named) <= 60 and "hf_" not in named
    assert command_of(process.pid) == ""
