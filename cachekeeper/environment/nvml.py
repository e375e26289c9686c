"""NVIDIA's GPUs as the driver lists them, in PCI order, without creating a CUDA context."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL, c_void_p

# The last two: where container runtimes and WSL put the driver's libraries, often outside the loader's path.
LIBRARIES = (
    "libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
)
_NO_DEVICES = 6
_MIG_NOT_SUPPORTED = 3
_QUERY = "index,name,compute_cap,driver_version,uuid,mig.mode.current"


class QueryFailed(Exception):
    """The driver could not be asked; the text says why."""


@dataclass(frozen=True)
class Device:
    """One GPU: its marketing name, its capability as "sm_90", its UUID, and whether it is split by MIG."""

    name: str
    capability: str
    uuid: str = ""
    mig: bool = False


@dataclass(frozen=True)
class Inventory:
    """What the driver knows: its version, or "", and its GPUs in its own order."""

    driver: str
    devices: tuple[Device, ...]


def query(environ: Mapping[str, str]) -> Inventory | None:
    """Ask NVML, else nvidia-smi; None where neither is there.

    Raises:
        QueryFailed: one of them is there, and gave no answer.
    """
    library = _load()
    failure = ""
    if library is not None:
        try:
            return _ask_library(library)
        except (QueryFailed, AttributeError) as error:
            failure = f"NVML: {error}"
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is not None:
        return _ask_program(program, environ, failure)
    if failure:
        raise QueryFailed(failure)
    return None


def _load() -> CDLL | None:
    import ctypes

    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _ask_library(library: CDLL) -> Inventory:
    import ctypes

    _check(library, library.nvmlInit_v2())
    try:
        count = ctypes.c_uint()
        _check(library, library.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        driver = _text(library, library.nvmlSystemGetDriverVersion)
        return Inventory(driver, tuple(_device(library, index) for index in range(count.value)))
    finally:
        library.nvmlShutdown()


def _device(library: CDLL, index: int) -> Device:
    import ctypes

    handle = ctypes.c_void_p()
    _check(library, library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)))
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(
        library,
        library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)),
    )
    name = _text(library, library.nvmlDeviceGetName, handle)
    uuid = _text(library, library.nvmlDeviceGetUUID, handle)
    return Device(name, f"sm_{major.value}{minor.value}", uuid, _mig(library, handle))


def _mig(library: CDLL, handle: c_void_p) -> bool:
    import ctypes

    current, pending = ctypes.c_uint(), ctypes.c_uint()
    code = library.nvmlDeviceGetMigMode(handle, ctypes.byref(current), ctypes.byref(pending))
    if code == _MIG_NOT_SUPPORTED:
        return False
    _check(library, code)
    return bool(current.value)


def _text(library: CDLL, function: Callable[..., int], *before: c_void_p) -> str:
    import ctypes

    buffer = ctypes.create_string_buffer(128)
    _check(library, function(*before, buffer, ctypes.c_uint(len(buffer))))
    return buffer.value.decode("utf-8", "replace")


def _check(library: CDLL, code: int) -> None:
    if code == 0:
        return
    import ctypes

    library.nvmlErrorString.restype = ctypes.c_char_p
    text: bytes = library.nvmlErrorString(code)
    raise QueryFailed(text.decode("utf-8", "replace"))


def _ask_program(program: str, environ: Mapping[str, str], failure: str) -> Inventory:
    import subprocess

    command = [program, f"--query-gpu={_QUERY}", "--format=csv,noheader"]
    try:
        result = subprocess.run(
            command, env=dict(environ), capture_output=True, text=True, errors="replace", timeout=30
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise QueryFailed(f"nvidia-smi: {error}") from error
    words = result.stdout.strip()
    if result.returncode == _NO_DEVICES or words == "No devices were found":
        return Inventory("", ())
    if result.returncode != 0:
        said = (words or result.stderr.strip() or f"exit code {result.returncode}").splitlines()[0]
        raise QueryFailed("; ".join(filter(None, [failure, f"nvidia-smi: {said}"])))
    return _parsed(words)


def _parsed(text: str) -> Inventory:
    devices, driver = [], ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 5 or not cells[2].replace(".", "").isdecimal():
            raise QueryFailed(f"nvidia-smi: not understood: {line.strip()!r}")
        _, name, capability, driver, uuid = cells[:5]
        devices.append(Device(name, "sm_" + capability.replace(".", ""), uuid, mig=cells[5:6] == ["Enabled"]))
    return Inventory(driver, tuple(devices))
