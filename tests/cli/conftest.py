"""A command run in this process, and what it said."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cachekeeper.cli import main
from cachekeeper.testing import make_cache
from tests.verbs.conftest import machine, settle

__all__ = ["machine"]


class Said(NamedTuple):
    """Exit code and both streams of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on standard output."""
        assert self.out.count("\n") == 1 and self.err == "", self
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document

    @property
    def error(self) -> dict[str, Any]:
        """The one object on standard error."""
        assert self.err.count("\n") == 1 and self.out == "", self
        document = json.loads(self.err)
        assert document["schema"] == "cachekeeper.error/1" and document["exit_code"] == self.code
        return document


Command = Callable[..., Said]


@pytest.fixture
def command(machine: object, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Runs a command on a machine with an H200."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: object) -> Said:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return Said(code, *capfd.readouterr())

    yield run
    gc.enable()  # a command turns it off, since its process ends soon


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a cache at rest, `inductor`, that torch would use, and the configured store, `store`."""
    settle(make_cache(tmp_path / "inductor", kernels=2, graphs=2))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("CACHEKEEPER_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("CACHEKEEPER_WAIT", "0")
    return tmp_path


@pytest.fixture
def saved(home: Path, command: Command) -> str:
    """The id of a snapshot of that cache, which is "drafter" too."""
    return command("snapshot", "drafter", "--quiet").out.strip()
