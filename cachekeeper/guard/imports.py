"""Does something to a module as soon as it has been imported, and imports nothing itself."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType

from .alarm import say

Callback = Callable[[ModuleType], None]


def when_imported(name: str, callback: Callback) -> None:
    """Call `callback` with a module: now, where it has been imported already, or right after its own code has run.

    What it raises is said on standard error, and not raised: it is no fault of who imports.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        return _call(callback, module)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.waiting.setdefault(name, []).append(callback)
    return None


def forget(callbacks: Sequence[Callback]) -> None:
    """Call none of these any more."""
    for name, waiting in list(_FINDER.waiting.items()):
        _FINDER.waiting[name] = [callback for callback in waiting if callback not in callbacks]
    if not any(_FINDER.waiting.values()) and _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


class _Finder(importlib.abc.MetaPathFinder):
    """Asks the other finders, and puts a hook on the loader that they give."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}
        self._asking = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not self.waiting.get(fullname) or getattr(self._asking, "name", None) == fullname:
            return None
        self._asking.name = fullname
        try:
            spec = next(filter(None, (_ask(finder, fullname, path, target) for finder in _others(self))), None)
        finally:
            self._asking.name = None
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._hook(spec.loader, fullname)  # type: ignore[arg-type]
        return spec

    def _hook(self, loader: importlib.abc.Loader, fullname: str) -> None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            for callback in self.waiting.pop(fullname, ()):
                _call(callback, module)

        loader.exec_module = exec_module  # type: ignore[method-assign]


def _call(callback: Callback, module: ModuleType) -> None:
    try:
        callback(module)
    except Exception as error:
        say(f"this process is not guarded in full: {module.__name__}: {error!r}")


def _others(finder: object) -> list[importlib.abc.MetaPathFinder]:
    return [other for other in sys.meta_path if other is not finder]  # type: ignore[misc]


def _ask(
    finder: importlib.abc.MetaPathFinder, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> importlib.machinery.ModuleSpec | None:
    find = getattr(finder, "find_spec", None)
    return find(name, path, target) if find is not None else None


_FINDER = _Finder()
