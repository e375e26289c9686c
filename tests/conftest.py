"""Every test owns its environment: no setting, cache or store of the person who runs them is seen."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from .probes import make_compiler

_PREFIXES = ("CACHEKEEPER_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_COMPILE", "TRITON_", "AWS_", "XDG_")


def pytest_configure(config: pytest.Config) -> None:
    """One compiler for the whole run: its workers are started with this PATH."""
    if hasattr(config, "workerinput"):
        return
    directory = Path(tempfile.mkdtemp(prefix="cachekeeper-compiler-"))
    directory.chmod(0o755)  # another user compiles as well
    make_compiler(directory)
    os.environ["PATH"] = f"{directory}{os.pathsep}{os.environ['PATH']}"
    config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))


@pytest.fixture(autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own for each test, and no variable that changes what cachekeeper or torch does."""
    for name in list(os.environ):
        if name.startswith(_PREFIXES):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "data"))
    return home
