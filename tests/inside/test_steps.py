"""What a warmup needs before it runs a step."""

from __future__ import annotations

import sys

import pytest

from cachekeeper.errors import UsageError
from cachekeeper.inside.steps import default_devices


def test_a_python_without_torch_is_told_so(monkeypatch: pytest.MonkeyPatch):
    absent = ModuleNotFoundError("No module named 'torch'", name="torch")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Lacking(absent), *sys.meta_path])
    with pytest.raises(UsageError, match="torch is not installed in this Python") as caught:
        default_devices()
    assert "python -m cachekeeper warmup" in caught.value.hint


def test_a_torch_that_cannot_be_imported_is_not_hidden(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Lacking(ModuleNotFoundError("no", name="typing_extensions"))])
    with pytest.raises(ModuleNotFoundError, match="no"):
        default_devices()


class Lacking:
    """A finder that raises where torch is looked for."""

    def __init__(self, error: ModuleNotFoundError) -> None:
        self.error = error

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            raise self.error
