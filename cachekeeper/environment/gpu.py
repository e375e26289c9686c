"""The GPUs that torch would see: which of the driver's, and in which order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..models import Fact, Value
from . import kfd, nvml
from .nvml import Device, Inventory, QueryFailed

DEVICES = Path("/dev")


class _Hidden(Exception):
    """Which GPUs are visible cannot be told; the text says why."""


def gpu_facts(environ: Mapping[str, str], *, cuda: Fact, hip: Fact) -> dict[str, Fact]:
    """The facts `gpu`, `gpu_count` and `driver`.

    `gpu` is None where there is no GPU or torch is a build without GPUs, else what `described` says.
    No CUDA context is created.
    """
    if not cuda.unknown and cuda.value is None and hip.value is None:
        return {"gpu": Fact(None), "gpu_count": Fact(0), "driver": Fact(None)}
    try:
        inventory = kfd.query(environ) if hip.value else _nvidia(environ)
        devices = list(inventory.devices) if hip.value else visible(inventory.devices, environ)
    except (_Hidden, QueryFailed) as error:
        return dict.fromkeys(("gpu", "gpu_count", "driver"), Fact(unknown=str(error)))
    return {
        "gpu": Fact(described(devices)),
        "gpu_count": Fact(len(devices)),
        "driver": Fact(inventory.driver or None),
    }


def described(devices: Sequence[Device]) -> Value:
    """[{"name", "capability"}] of the one model, or of every GPU where models are mixed; None without a GPU."""
    return collapsed([{"name": device.name, "capability": device.capability} for device in devices])


def collapsed(models: Sequence[dict[str, str]]) -> Value:
    """A machine's only model once; several models in full, as their order decides which is current."""
    if not models:
        return None
    return list(models[:1]) if all(model == models[0] for model in models) else list(models)


def visible(devices: Sequence[Device], environ: Mapping[str, str]) -> list[Device]:
    """What CUDA_VISIBLE_DEVICES leaves, read as CUDA and torch/cuda/__init__.py read it.

    Raises:
        _Hidden: MIG, or an order that only CUDA knows.
    """
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if (value is not None and value.startswith("MIG-")) or any(device.mig for device in devices):
        raise _Hidden("MIG is on: what a part of a GPU is called is only known to CUDA")
    if value is not None and value.startswith("GPU-"):
        return [devices[index] for index in _by_uuid(value, [device.uuid for device in devices])]
    mixed = len({(device.name, device.capability) for device in devices}) > 1
    if mixed and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        raise _Hidden("mixed GPU models in an order that only CUDA knows: set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    if value is None:
        return list(devices)
    return [devices[index] for index in _by_index(value, len(devices))]


def _nvidia(environ: Mapping[str, str]) -> Inventory:
    present = _device_files()
    try:
        inventory = nvml.query(environ)
    except QueryFailed as error:
        # A driver library without a driver is what a CUDA image has on a machine without a GPU.
        if not present:
            return Inventory("", ())
        raise QueryFailed(f"there is a GPU, but it could not be asked: {error}") from error
    if inventory is not None:
        return inventory
    if present:
        raise QueryFailed(f"there is {present}, but neither NVML nor nvidia-smi to ask")
    return Inventory("", ())


def _device_files() -> str:
    try:
        names = sorted(entry.name for entry in DEVICES.iterdir())
    except OSError:
        return ""
    found = [name for name in names if re.fullmatch(r"nvidia\d+|dxg", name)]
    return str(DEVICES / found[0]) if found else ""


def _by_index(value: str, count: int) -> list[int]:
    chosen: list[int] = []
    for part in value.split(","):
        match = re.match(r"\+?(\d+)", part.strip())
        if match is None or int(match[1]) >= count:
            # CUDA stops at the first entry that names no GPU; what follows is not visible.
            break
        if int(match[1]) in chosen:
            return []
        chosen.append(int(match[1]))
    return chosen


def _by_uuid(value: str, uuids: list[str]) -> list[int]:
    chosen: list[int] = []
    for part in value.split(","):
        matches = [index for index, uuid in enumerate(uuids) if uuid.startswith(part)]
        if not part.startswith("GPU-") or len(matches) != 1:
            break
        if matches[0] in chosen:
            return []
        chosen.append(matches[0])
    return chosen
