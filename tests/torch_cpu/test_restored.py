"""A restored cache is warm: torch misses nothing, builds nothing, writes nothing, and computes the same."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cachekeeper

from .conftest import Filled
from .job import files_in
from .running import REPOSITORY, Run, check_warm, environment_of

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("torch")]
RunJob = Callable[..., Run]

USER = 12345
LONG_AGO = 1_000_000_000


def test_into_the_same_directory_after_it_was_wiped(filled: Filled, run_job: RunJob) -> None:
    shutil.rmtree(filled.cache)
    result = cachekeeper.restore("main", cache_dir=filled.cache, store=filled.store, verify=True)
    warm = run_job(filled.cache, environment=environment_of(result))
    check_warm(warm, filled.cold)
    assert warm.hits == 4  # block forward and backward, attend, scale
    assert sorted(warm.questions) == ["--version", "--version", "-v"]
    assert len(warm.preprocessed) == 1
    assert len(filled.cold.builds) > 10


def test_into_another_directory_with_the_old_one_gone(filled: Filled, tmp_path: Path, run_job: RunJob) -> None:
    shutil.rmtree(filled.cache, ignore_errors=True)
    result = cachekeeper.restore("main", cache_dir=tmp_path / "new", store=filled.store, verify=True)
    check_warm(run_job(tmp_path / "new", environment=environment_of(result)), filled.cold)
    assert not filled.cache.exists()


def emptied(path: Path) -> bytes:
    return b""


def garbage(path: Path) -> bytes:
    return b"\x7fELF, {]" * (path.stat().st_size // 8 + 1)


def test_into_another_directory_with_the_old_one_emptied(filled: Filled, tmp_path: Path, run_job: RunJob) -> None:
    """No file there was read: the times of last access say so, where the filesystem keeps them."""
    damaged = _damage_all(filled, emptied)
    result = cachekeeper.restore("main", cache_dir=tmp_path / "new", store=filled.store, verify=True)
    check_warm(run_job(tmp_path / "new", environment=environment_of(result)), filled.cold)
    if _access_is_recorded(tmp_path):
        assert [path for path in damaged if path.stat().st_atime != LONG_AGO] == []
        assert all(path.stat().st_atime != LONG_AGO for path in (tmp_path / "new").rglob("*.main.so"))


def test_into_another_directory_with_garbage_in_the_old_one(filled: Filled, tmp_path: Path, run_job: RunJob) -> None:
    """No system call of the job names the old directory, where strace is there to tell."""
    _damage_all(filled, garbage)
    result = cachekeeper.restore("main", cache_dir=tmp_path / "new", store=filled.store, verify=True)
    trace = tmp_path / "trace"
    strace = ["strace", "-f", "--seccomp-bpf", "-e", "trace=%file", "-s", "4096", "-o", str(trace)]
    prefix = strace if shutil.which("strace") else []
    check_warm(run_job(tmp_path / "new", environment=environment_of(result), prefix=prefix), filled.cold)
    if prefix:
        lines = trace.read_text(errors="replace").splitlines()
        assert any(f"{tmp_path}/new/fxgraph/" in line for line in lines)
        assert [line for line in lines if str(filled.cache) in line and "execve(" not in line] == []
        print(f"strace: {len(lines):,} calls about files, none of them about the old directory")


def _damage_all(filled: Filled, damage: Callable[[Path], bytes]) -> list[Path]:
    cachekeeper.restore("main", cache_dir=filled.cache, store=filled.store)
    damaged = [path for path in filled.cache.rglob("*") if path.is_file()]
    for path in damaged:
        path.write_bytes(damage(path))
        os.utime(path, (LONG_AGO, path.stat().st_mtime))
    return damaged


def _access_is_recorded(directory: Path) -> bool:
    """False on a filesystem that is mounted with noatime."""
    probe = directory / "probe"
    probe.write_bytes(b"x")
    os.utime(probe, (LONG_AGO, probe.stat().st_mtime))
    probe.read_bytes()
    return probe.stat().st_atime != LONG_AGO


def test_merged_into_the_cache_of_another_job(filled: Filled, tmp_path: Path, run_job: RunJob) -> None:
    """Job `main` and another: with both in one directory both are warm; --exact leaves one, and keeps what it moved."""
    shared, store = tmp_path / "shared", filled.store
    other = run_job(shared, "scale=40")
    assert other.code == 0 and other.misses > 0
    result = cachekeeper.restore("main", cache_dir=shared, store=store)
    # Both had to find out the processor's instruction set; the compiler gives each of those libraries an id of its own.
    assert all(path.endswith(".so") and ".main." not in path for path in _replaced(shared))
    check_warm(run_job(shared, "scale=40", environment=environment_of(result)), other)
    check_warm(run_job(shared, environment=environment_of(result)), filled.cold)

    theirs = set(files_in(shared)) - set(_paths(filled))
    assert any(path.startswith("fxgraph/") for path in theirs) and any(path.endswith(".so") for path in theirs)
    result = cachekeeper.restore("main", cache_dir=shared, store=store, exact=True)
    assert result.aside and result.aside.is_relative_to(shared / ".cachekeeper" / "aside")
    assert set(files_in(result.aside)) == theirs
    assert set(files_in(shared)) == set(_paths(filled))
    check_warm(run_job(shared, environment=environment_of(result)), filled.cold)


def _replaced(cache: Path) -> list[str]:
    """What restoring moved aside."""
    return [name for stamp in (cache / ".cachekeeper" / "aside").glob("*") for name in files_in(stamp)]


def _paths(filled: Filled) -> list[str]:
    """Paths of the files in the snapshot."""
    from cachekeeper.repository import open_repository

    repository = open_repository(filled.store)
    return [file.path for file in repository.manifest(repository.resolve("main")).tables.files]


def test_by_a_program_that_has_imported_torch(filled: Filled, tmp_path: Path) -> None:
    script = (
        "import sys, cachekeeper\n"
        "before = cachekeeper.restore('main', cache_dir=sys.argv[1], store=sys.argv[2])\n"
        "import torch\n"
        "after = cachekeeper.restore('main', cache_dir=sys.argv[1], store=sys.argv[2])\n"
        "print(*before.notes, sep='\\n'); print('--'); print(*after.notes, sep='\\n')\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "new"), str(filled.store)]
    printed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    before, _, after = printed.partition("--")
    assert "torch is already loaded" not in before
    assert "torch is already loaded in this process" in after


def test_by_a_launch_script(filled: Filled, tmp_path: Path, run_job: RunJob) -> None:
    """The job has nothing but what `--export` printed."""
    script = tmp_path / "launch.sh"
    script.write_text(
        "set -eu\nunset TORCHINDUCTOR_CACHE_DIR\n"
        'eval "$("$1" -m cachekeeper restore main --verify --export)"\n'
        'test -n "$TRITON_CACHE_DIR"\nexec "$@"\n'
    )
    own = {
        "CACHEKEEPER_CACHE_DIR": str(tmp_path / "a cache"),
        "CACHEKEEPER_STORE": str(filled.store),
        "PYTHONPATH": str(REPOSITORY),
    }
    warm = run_job("/nonexistent", environment=own, prefix=["sh", str(script)], cwd=tmp_path)
    check_warm(warm, filled.cold)
    assert "Restored to" in warm.errors


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user can enter; those of pytest are its owner's alone."""
    directory = Path(tempfile.mkdtemp(prefix="cachekeeper-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def test_by_another_user(filled: Filled, public: Path, run_job: RunJob, compilers: Path) -> None:
    """Saved by root, restored by a user with a home, a temporary directory and a cache directory of its own."""
    become = _become_user(public)
    store = shutil.copytree(filled.store, public / "store")
    for path in (store, *store.rglob("*")):  # a store is its owner's alone until somebody opens it
        path.chmod(0o755 if path.is_dir() else 0o444)
    tools = shutil.copytree(compilers, public / "bin")
    home = public / "home"
    home.mkdir()
    (home / "tmp").mkdir()
    for path in (home, home / "tmp"):
        os.chown(path, USER, USER)
    own = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "USER": "somebody", "LOGNAME": "somebody"}
    cache = home / "inductor"
    restore = ["-m", "cachekeeper", "restore", "main", "--verify", "--store", str(store), "--cache-dir", str(cache)]
    done = subprocess.run(
        [*become, sys.executable, *restore], env={**os.environ, **own}, cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert {path.lstat().st_uid for path in (cache, *cache.rglob("*"))} == {USER}
    assert not any(path.stat().st_mode & stat.S_IWOTH for path in cache.rglob("*"))
    environment = {**own, "PATH": f"{tools}:{os.environ['PATH']}"}
    warm = run_job(cache, environment=environment, prefix=become, cwd=REPOSITORY, work=public)
    check_warm(warm, filled.cold, headers=True)


def _become_user(public: Path) -> list[str]:
    """A command that runs another as USER; where root's home is closed, with a way to the interpreter inside it.

    The home is covered, in a mount namespace of that command alone, by an empty one with only the interpreter in it.
    """
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("becoming another user takes root and setpriv")
    become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    if _reaches_interpreter(become):
        return become
    interpreter = Path(sys.executable).resolve().parents[1]
    home = Path("/", *interpreter.parts[1:2])
    script = public / "become.sh"
    way = public / "interpreter"
    way.mkdir()
    script.write_text(
        f"set -e\nmount --bind {interpreter} {way}\nmount -t tmpfs -o mode=755 none {home}\n"
        f'mkdir -p {interpreter}\nmount --bind {way} {interpreter}\nexec {" ".join(become)} "$@"\n'
    )
    become = ["unshare", "--mount", "--propagation", "private", "sh", str(script)]
    if not _reaches_interpreter(become):
        pytest.skip(f"{interpreter} and {sys.prefix} are closed to other users, and no mount namespace can be had")
    return become


def _reaches_interpreter(become: list[str]) -> bool:
    """True where it is this very interpreter that runs; another one of the machine may take its place."""
    command = [*become, sys.executable, "-c", "import sys, zstandard, torch.version; print(sys.base_prefix)"]
    try:
        done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == sys.base_prefix
