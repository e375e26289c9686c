"""torch's configuration as a thread sees it.

From torch 2.12 on, what code sets in `torch._inductor.config` and its like holds in the thread that set it alone; what
another thread compiles then has other keys. The default device and autocast were always a thread's own.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping
from threading import Thread

_MODULES = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
# Different in every process or thread by nature, and in no key.
_OF_NO_MATTER = ("is_fbcode",)


def settings() -> dict[str, str]:
    """Every setting as this thread sees it: "torch._inductor.config.max_autotune" -> "False"."""
    found = {}
    for name in _MODULES:
        try:
            values = importlib.import_module(name).save_config_portable()
        except (ImportError, AttributeError):
            continue
        found.update({f"{name}.{key}": repr(value) for key, value in values.items() if key not in _OF_NO_MATTER})
    return found | _of_the_thread()


def _of_the_thread() -> dict[str, str]:
    import torch

    found = {"gradients": repr(torch.is_grad_enabled())}
    with contextlib.suppress(AttributeError):
        found["the default device"] = str(torch.get_default_device())
    for kind in ("cpu", "cuda"):
        with contextlib.suppress(TypeError, RuntimeError):  # older ones know no kinds
            found[f"autocast of {kind}"] = repr(torch.is_autocast_enabled(kind))
    return found


def settings_of_a_new_thread() -> dict[str, str]:
    """The same, as a thread that is started now sees it."""
    found: dict[str, str] = {}
    thread = Thread(target=lambda: found.update(settings()))
    thread.start()
    thread.join()
    return found


def differences(main: Mapping[str, str], worker: Mapping[str, str]) -> list[str]:
    """What two threads see differently, a line each."""
    return [
        f"{name}: {main.get(name, 'not set')} in the main thread, {worker.get(name, 'not set')} in a worker thread"
        for name in sorted(main.keys() | worker.keys())
        if main.get(name) != worker.get(name)
    ]
