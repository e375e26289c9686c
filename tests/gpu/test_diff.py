"""What `diff` reads in cubins against what the driver says of them, and a slowdown made on purpose.

`pytest tests/gpu/test_diff.py -s` shows the numbers. The job is that of tests/pairs.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import cachekeeper
from cachekeeper.inductor.cubin import resources

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU"),
    pytest.mark.timeout(550),
]
JOB = Path(__file__).parents[1] / "pairs/job.py"
VARIANTS = ("default", "warps")
# CUfunction_attribute
SHARED, LOCAL, REGISTERS = 1, 3, 4


class Made(NamedTuple):
    cache: Path
    step_ms: float


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """Caches of the job, and how long its step takes."""
    work = tmp_path_factory.mktemp("diff")
    found = {}
    for variant in VARIANTS:
        cache = work / variant
        environ = {**os.environ, "VARIANT": variant, "TORCHINDUCTOR_CACHE_DIR": str(cache)}
        environ["TRITON_CACHE_DIR"] = str(cache / "triton/shared")
        done = subprocess.run([sys.executable, str(JOB)], env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        found[variant] = Made(cache, json.loads(done.stdout.splitlines()[-1])["step_ms"])
    return found


def test_the_driver_says_the_same_of_every_kernel(made: dict[str, Made]):
    import torch

    torch.zeros(1, device="cuda")  # a context
    cuda = ctypes.CDLL("libcuda.so.1")
    checked = spilling = 0
    for path in (path for one in made.values() for path in one.cache.rglob("*.cubin")):
        name = json.loads(path.with_suffix(".json").read_text())["name"]
        truth = of_driver(cuda, path.read_bytes(), name)
        read = resources(path.read_bytes(), name)
        assert read is not None
        assert (read.registers, read.local_bytes, read.static_shared) == truth, path
        checked += 1
        spilling += truth[1] > 0
    print(f"\n{checked} cubins, {spilling} of them spill")
    assert checked > 40 and spilling


def of_driver(cuda: ctypes.CDLL, data: bytes, name: str) -> tuple[int, ...]:
    """Registers, local bytes and static shared bytes."""
    module, function, value = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    assert cuda.cuModuleLoadData(ctypes.byref(module), data) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()) == 0
    found = []
    for attribute in (REGISTERS, LOCAL, SHARED):
        assert cuda.cuFuncGetAttribute(ctypes.byref(value), attribute, function) == 0
        found.append(value.value)
    cuda.cuModuleUnload(module)
    return tuple(found)


def test_the_kernel_that_was_made_slow_is_named(made: dict[str, Made], tmp_path: Path):
    store = tmp_path / "store"
    for variant, one in made.items():
        cachekeeper.snapshot(variant, cache_dir=one.cache, store=store, metrics={"step_ms": one.step_ms}, wait=0)
    found = cachekeeper.diff("default", "warps", store=store).difference
    print(f"\nstep {made['default'].step_ms} -> {made['warps'].step_ms} ms: {found.verdict}")
    assert "softcap_0" in found.suspects[0].words and "spills" in found.suspects[0].words
    assert made["warps"].step_ms > made["default"].step_ms and found.suspects[0].likelihood == "likely"
