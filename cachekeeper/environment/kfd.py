"""AMD's GPUs as the kernel lists them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .nvml import Device, Inventory, QueryFailed

NODES = Path("/sys/class/kfd/kfd/topology/nodes")
DRIVER = Path("/sys/module/amdgpu/version")
_CHOOSERS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def query(environ: Mapping[str, str]) -> Inventory:
    """Every GPU of the kernel's topology, by its architecture ("gfx942"): the product name is not in there.

    Raises:
        QueryFailed: a variable chooses among the GPUs, or the topology cannot be read.
    """
    if not NODES.is_dir():
        return Inventory("", ())
    chooser = next((name for name in _CHOOSERS if name in environ), None)
    if chooser is not None:
        raise QueryFailed(f"{chooser} chooses among AMD GPUs, and only ROCm knows which these are")
    try:
        numbers = sorted(int(node.name) for node in NODES.iterdir() if node.name.isdecimal())
        targets = [_target((NODES / str(n) / "properties").read_text("ascii")) for n in numbers]
    except (OSError, ValueError) as error:
        raise QueryFailed(f"the kernel's list of AMD GPUs: {error}") from error
    devices = tuple(Device(target, target) for target in targets if target)
    return Inventory(_driver(), devices)


def _target(properties: str) -> str:
    """The kernel's 90402 is gfx942: major, two digits of minor, two of stepping (hexadecimal in the name)."""
    values = dict(line.split(None, 1) for line in properties.splitlines() if " " in line.strip())
    number = int(values.get("gfx_target_version", "0"))
    if not number:
        return ""
    return f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}"


def _driver() -> str:
    try:
        return DRIVER.read_text("ascii").strip()
    except OSError:
        return ""
