"""Misses on GPUs, each with one thing changed on purpose. `pytest tests/gpu/test_explain.py -s` shows the screen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.explaining import Explanation

GPUS = (
    len(subprocess.run(["nvidia-smi", "-L"], capture_output=True).stdout.splitlines())
    if shutil.which("nvidia-smi")
    else 0
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPUS == 0, reason="no NVIDIA GPU"),
    pytest.mark.timeout(550),
]
REPOSITORY = Path(__file__).parents[2]
NAMES = ("same", "moved", "turned", "larger", "tuned")
# The graph itself names a device, too, and sizes; that is to follow from the inputs, and not to be said.
FUNCTION = """
def {name}(x, w):
    n = torch.arange(x.shape[0], device=x.device)
    return torch.tanh((x @ w) * {number}.5 + n[:, None])
"""
JOB = """
import sys
import cachekeeper.guard
cachekeeper.guard.install()
import torch, torch._inductor.config
{functions}
def call(of, device="cuda:0", size=256, turned=False):
    x, w = torch.randn(size, 512, device=device), torch.randn(512, 128, device=device, requires_grad=True)
    x = x.t().contiguous().t() if turned else x
    torch.compile(of, dynamic=False)(x, w).square().mean().backward()

second = sys.argv[1] == "second"
other = f"cuda:{{min(1, torch.cuda.device_count() - 1)}}"
call(same)
call(moved, device=other if second else "cuda:0")
call(turned, turned=second)
call(larger, size=300 if second else 256)
with torch._inductor.config.patch(max_autotune=second):
    call(tuned)
"""
EXPECTED = {
    "moved": "inputs 0, 1: device cuda:0 -> cuda:1",
    "turned": "input 0: stride (512, 1) -> (1, 256)",
    "larger": "input 0: shape (256, 512) -> (300, 512)",
    "tuned": "inductor config max_autotune: False -> True",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Explanation:
    """The explanation of a second run, with what the first one left in the cache."""
    work = tmp_path_factory.mktemp("explain")
    functions = "".join(FUNCTION.format(name=name, number=number) for number, name in enumerate(NAMES))
    (work / "job.py").write_text(JOB.format(functions=functions))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CACHEKEEPER_RUNS", str(work / "runs"))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(work / "inductor"))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH")))))
        for word in ("first", "second"):
            done = subprocess.run([sys.executable, "job.py", word], cwd=work, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-3000:]
        subprocess.run([sys.executable, "-m", "cachekeeper", "explain"], cwd=work, check=True)
        return cachekeeper.explain().explanation


@pytest.mark.parametrize("function", EXPECTED)
def test_what_was_changed_is_named_alone(found: Explanation, function: str):
    if function == "moved" and GPUS < 2:
        pytest.skip("needs two GPUs")
    [cause] = [cause for cause in found.misses if any(f"{function} (" in name for name in cause.functions)]
    assert cause.words == (EXPECTED[function],)
    # Forward and backward.
    assert cause.number == 2 and cause.seconds > 0
    assert cause.devices == ("cuda:1" if function == "moved" else "cuda:0",)
    if function == "moved":
        assert cause.advice.endswith("`cachekeeper warmup --device cuda:1`")


def test_what_did_not_change_is_found(found: Explanation):
    assert not [cause for cause in found.misses if any("same (" in name for name in cause.functions)]
    assert found.found == (2 if GPUS > 1 else 4) and found.missed == (8 if GPUS > 1 else 6)
