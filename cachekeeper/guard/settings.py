"""torch's configuration, seen by every thread of the job as the thread that started it sees it.

From torch 2.12 on, what a thread sets in `torch._inductor.config` and its like holds in that thread alone. A worker, or
autograd's thread of a device, then compiles something else than the main thread warmed, or reaches a limit of
recompiles that the main thread raised. Autocast and the default device were always a thread's own.
Source: torch/utils/_config_module.py (`user_override`).
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any, NamedTuple

from ..inside.patches import Patches
from .compiling import around_compiles
from .measure import NotNeeded

_CONFIGS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
_VALUE_LIMIT = 60
_ATTRIBUTE = "_cachekeeper_settings"


class _Setting(NamedTuple):
    module: str
    name: str


Settings = Mapping[_Setting, Any]


class Carrying:
    """Compares each thread's settings with those of the thread that started it, before it first compiles.

    Args:
        carry: give the thread the settings that it lacks; what it has set itself stays.
        tell: called with what differs, and whether it was carried over.
    """

    def __init__(self, carry: bool, tell: Callable[[tuple[str, ...], bool], None]) -> None:
        self._carry = carry
        self._tell = tell
        self._main: Settings = {}
        self._looked = threading.local()

    def take(self, patches: Patches, module: ModuleType) -> None:
        """Look from now on.

        Raises:
            NotNeeded: settings are the process's in this torch.
            Cannot: this torch compiles elsewhere than is known.
        """
        import torch._dynamo.config

        if not isinstance(_override(torch._dynamo.config, "recompile_limit"), ContextVar):
            raise NotNeeded("a setting holds in the whole process in this torch")
        start = threading.Thread.start

        @functools.wraps(start)
        def started(thread: threading.Thread) -> None:
            if patches.active:
                setattr(thread, _ATTRIBUTE, set_here())
            start(thread)

        patches.replace(threading.Thread, "start", started)
        around_compiles(patches, module, self._before_compile)

    @contextlib.contextmanager
    def _before_compile(self) -> Iterator[None]:
        if threading.current_thread() is threading.main_thread():
            self._main = set_here()
        elif not getattr(self._looked, "already", False):
            self._looked.already = True
            with contextlib.suppress(Exception):  # a setting that cannot be read or set stays as it is
                self._look(getattr(threading.current_thread(), _ATTRIBUTE, self._main))
        yield

    def _look(self, wanted: Settings) -> None:
        here = set_here(also_to_default=True)
        missing = {setting: value for setting, value in wanted.items() if setting not in here}
        if not missing:
            return
        words = tuple(_in_words(setting, value) for setting, value in missing.items())
        if self._carry:
            for setting, value in missing.items():
                setattr(sys.modules[setting.module], setting.name, value)
        self._tell(words, self._carry)


def set_here(*, also_to_default: bool = False) -> Settings:
    """What this thread has set, and others may not see: setting -> value.

    Args:
        also_to_default: with what it has set to the value that it had anyway, as `config.patch` does when it ends.
    """
    found = {}
    for module in _CONFIGS:
        for name, entry in getattr(sys.modules.get(module), "_config", {}).items():
            value = entry.user_override.get()
            if value is _unset(type(entry).__module__):
                continue
            # A list or a dictionary is copied to here, for it may be changed, when it is first read.
            plain = also_to_default and not isinstance(value, (list, dict, set))
            if plain or not _same(value, entry.default):
                found[_Setting(module, name)] = value
    return found


@functools.lru_cache
def _unset(module: str) -> object:
    return getattr(sys.modules[module], "_UNSET_SENTINEL", None)


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # a value of the user's own class
        return False


def _override(config: Any, name: str) -> object:
    entry = getattr(config, "_config", {}).get(name)
    return getattr(entry, "user_override", None)


def _in_words(setting: _Setting, value: Any) -> str:
    there = getattr(sys.modules[setting.module], setting.name)
    return (
        f"{setting.module}.{setting.name} is {_short(value)} in the thread that started this one, {_short(there)} here"
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE_LIMIT else text[: _VALUE_LIMIT - 3] + "..."
