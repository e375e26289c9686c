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

    def begin(self) -> None:
        """Forget the peak until now."""
        if self._module is None:
            with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")
            return
        self._module.init()
        for index in range(self._module.device_count()):
            self._module.reset_peak_memory_stats(index)

    def synchronise(self) -> None:
        """Wait for the device, so that its time is in the step's."""
        if self._module is not None:
            self._module.synchronize(self._index)

    def end(self) -> tuple[int, int, dict[str, int]]:
        """(bytes at most, bytes left over, device -> bytes left over on the others), after a collection of garbage."""
        gc.collect()
        if self._module is None:
            return _status_kib("VmHWM") << 10, _status_kib("VmRSS") << 10, {}
        self._module.empty_cache()
        left = {index: self._module.memory_allocated(index) for index in range(self._module.device_count())}
        others = {f"{self._kind}:{index}": size for index, size in left.items() if size and index != self._index}
        return self._module.max_memory_allocated(self._index), left.get(self._index, 0), others


def _device_module(kind: str) -> Any:
    """torch.cuda, torch.xpu, ...; None for the CPU and for what does not measure."""
    import torch

    module = getattr(torch, kind, None) if kind != "cpu" else None
    return module if hasattr(module, "max_memory_allocated") else None


def _status_kib(name: str) -> int:
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{name}:"))
    return 0
