"""A callback with each module as soon as it is imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from cachekeeper.guard.imports import _FINDER, forget, when_imported


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a module of a name that nobody has; it is gone afterwards."""
    names: list[str] = []

    def write(name: str, source: str = "value = 1\n") -> str:
        names.append(name)
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return name

    monkeypatch.syspath_prepend(tmp_path)
    yield write
    for name in names:
        sys.modules.pop(name, None)
        _FINDER.waiting.pop(name, None)


def test_right_after_its_own_code_has_run(module):
    seen: list[int] = []
    when_imported(module("late"), lambda module: seen.append(module.value))
    assert seen == []
    importlib.import_module("late")
    assert seen == [1]
    importlib.reload(sys.modules["late"])
    assert seen == [1]


def test_at_once_where_it_is_there(module):
    importlib.import_module(module("early"))
    seen: list[ModuleType] = []
    when_imported("early", seen.append)
    assert seen == [sys.modules["early"]]


def test_several_in_their_order_and_none_that_was_forgotten(module):
    seen: list[str] = []
    callbacks = [lambda module, name=name: seen.append(name) for name in "abc"]
    for callback in callbacks:
        when_imported(module("many"), callback)
    forget([callbacks[1]])
    importlib.import_module("many")
    assert seen == ["a", "c"]


def test_a_module_that_fails_is_told_when_it_works(module):
    seen: list[int] = []
    when_imported(module("broken", "raise ValueError('no')\n"), lambda module: seen.append(module.value))
    with pytest.raises(ValueError, match="no"):
        importlib.import_module("broken")
    assert seen == []
    module("broken")
    importlib.import_module("broken")
    assert seen == [1]


def test_what_a_callback_raises_is_said_and_not_raised(module, capsys: pytest.CaptureFixture[str]):
    def broken(module: ModuleType) -> None:
        raise KeyError("what")

    seen: list[ModuleType] = []
    for callback in (broken, seen.append):
        when_imported(module("plain"), callback)
    importlib.import_module("plain")
    assert len(seen) == 1
    when_imported("plain", broken)
    said = "cachekeeper: this process is not guarded in full: plain: KeyError('what')\n"
    assert capsys.readouterr().err == said * 2


def test_nothing_is_in_the_way_of_other_imports(module):
    when_imported("a_module_that_never_comes", lambda module: None)
    importlib.import_module(module("other"))
    assert importlib.util.find_spec("other") is not None
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("a_module_that_never_comes")
    _FINDER.waiting.pop("a_module_that_never_comes")
    forget([])
    assert _FINDER not in sys.meta_path


def test_a_module_keeps_what_a_loader_gives_it(module):
    when_imported(module("plain"), lambda module: None)
    plain = importlib.import_module("plain")
    assert plain.__spec__ is not None and plain.__spec__.loader is not None
    assert plain.__spec__.loader.get_source("plain") == "value = 1\n"  # type: ignore[attr-defined]
    assert plain.__file__ == plain.__spec__.origin
