"""Memory of devices: at most, and left over."""

from __future__ import annotations

import contextlib
import gc
from typing import Any


class Memory:
    """Measures one step.

    Args:
        device: as "cuda:0"; for "cpu" it is the memory of this process.
    """

    def __init__(self, device: str) -> None:
        kind, _, index = device.partition(":")
        self._device = device
        self._kind = kind
        self._index = int(index or 0)
        self._module = _device_module(kind)
        self._before: dict[int, int] = {}

    def begin(self) -> None:
        """Forget the peak until now."""
        if self._module is None:
            with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")
            return
        self._module.init()
        self._before = self._left()
        for index in range(self._module.device_count()):
            self._module.reset_peak_memory_stats(index)

    def end(self) -> tuple[int, int, dict[str, int]]:
        """(bytes at most, bytes left over, device -> bytes newly left over on it), after garbage was collected."""
        gc.collect()
        if self._module is None:
            return _status_kib("VmHWM") << 10, _status_kib("VmRSS") << 10, {}
        try:
            self._module.empty_cache()
        except RuntimeError:  # a step has broken the device for this process, and says so itself
            return 0, 0, {}
        left = self._left()
        grown = {index: size - self._before.get(index, 0) for index, size in left.items() if index != self._index}
        others = {f"{self._kind}:{index}": size for index, size in grown.items() if size > 0}
        return self._module.max_memory_allocated(self._index), left.get(self._index, 0), others

    def _left(self) -> dict[int, int]:
        return {index: self._module.memory_allocated(index) for index in range(self._module.device_count())}


def synchronise(device: str) -> None:
    """Wait until a device has done what it was given.

    Raises:
        RuntimeError: it failed at that.
    """
    module = _device_module(device.partition(":")[0])
    if module is not None:
        module.synchronize(device)


def _device_module(kind: str) -> Any:
    """torch.cuda, torch.xpu, ...; None for the CPU and for what does not measure."""
    import torch

    module = getattr(torch, kind, None) if kind != "cpu" else None
    return module if hasattr(module, "max_memory_allocated") else None


def _status_kib(name: str) -> int:
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{name}:"))
    return 0
