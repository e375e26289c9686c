"""A cache at rest, a store, and a machine whose environment a test can change."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from cachekeeper.inductor.layout import EXPORTED
from cachekeeper.models import Fingerprint
from cachekeeper.testing import make_cache
from tests import samples

VERBS = ("snapshot", "restore", "verify", "ls", "show", "status.reference", "status.judging")


@dataclass
class Machine:
    """What every verb takes for this machine's fingerprint."""

    fingerprint: Fingerprint


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """One with an H200; nothing is looked at."""
    found = Machine(samples.fingerprint())
    for verb in VERBS:
        module = import_module(f"cachekeeper.verbs.{verb}")
        monkeypatch.setattr(module, "fingerprint", lambda **_: found.fingerprint)
    return found


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A directory that is no store yet."""
    return tmp_path / "store"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with every common kind of entry, at rest."""
    return settle(make_cache(tmp_path / "inductor", kernels=3, graphs=3))


def settle(directory: Path) -> Path:
    """Nobody has written into it for a minute, as its times say."""
    for path in [*directory.rglob("*"), directory]:
        os.utime(path, (time.time() - 60,) * 2, follow_symlinks=False)
    return directory


def kernels(cache: Path, device: str = "triton/0") -> list[Path]:
    """The directories of kernels."""
    return sorted((cache / device).iterdir())


def tree(directory: Path) -> dict[str, bytes]:
    """Path -> bytes of every file but scratch and our own."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not {"locks", ".cachekeeper", EXPORTED} & set(path.parts) and path.suffix != ".tmp"
    }


def unplaced(directory: Path) -> dict[str, bytes]:
    """The same, with @ for the directory itself: equal wherever a cache lies."""
    here = str(directory).encode()
    return {path: data.replace(here, b"@") for path, data in tree(directory).items()}
