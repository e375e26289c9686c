"""Fast places, small mounts, and an environment that is looked at once."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

from cachekeeper import environment

_MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True)
def known_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at this machine once: it takes 23 ms, these tests call verbs thousands of times, and it stays the same."""
    for verb in ("snapshot", "restore", "ls", "verify"):
        module = import_module(f"cachekeeper.verbs.{verb}")
        monkeypatch.setattr(module, "fingerprint", _fingerprint)


@functools.cache
def _looked_at() -> environment.machine.Fingerprint:
    return environment.fingerprint()


def _fingerprint(**_: object) -> environment.machine.Fingerprint:
    return _looked_at()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """An empty directory, in memory where there is such a filesystem."""
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="cachekeeper-faults-", dir=_MEMORY))
    yield directory
    # Not shutil's, which calls itself for each level of a tree that may be a thousand deep.
    subprocess.run(["rm", "-rf", directory], env={"PATH": os.environ["PATH"]}, check=False)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts small tmpfs filesystems with the options given; skips the test where that is refused."""
    mounted: list[Path] = []

    def make(options: str) -> Path:
        directory = tmp_path / f"mount-{len(mounted)}"
        directory.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            pytest.skip(f"cannot mount a tmpfs here: {result.stderr.strip()}")
        mounted.append(directory)
        return directory

    yield make
    for directory in mounted:
        subprocess.run(["umount", "-l", str(directory)], check=False)


@pytest.fixture
def remount() -> Callable[[Path, str], None]:
    """Changes the options of a mount made by `mount`."""

    def change(directory: Path, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(directory)], check=True)

    return change
