"""The example of threads, on the CPU: cold, and again on what it left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..conftest import _PREFIXES

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "threaded_training.py"
pytestmark = [
    pytest.mark.torch,
    pytest.mark.xdist_group("examples"),
    pytest.mark.skipif(not shutil.which("g++"), reason="no g++"),
]


def train(cache: Path, *arguments: str) -> list[dict[str, Any]]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIXES)} | {
        "PYTHONPATH": str(REPOSITORY),
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "CACHEKEEPER_RUNS": str(cache.with_name("runs")),
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run([sys.executable, str(EXAMPLE), *arguments], env=env, capture_output=True, text=True)
    print(done.stdout, done.stderr[-3000:], sep="\n")
    assert done.returncode == 0
    assert "uncompiled" not in done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(said, list)
    return said


def built(cache: Path) -> set[Path]:
    return {path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_three_threads_train_and_the_next_start_builds_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cold = train(cache)
    before = built(cache)
    warm = train(cache)
    for threads in (cold, warm):
        assert [thread["device"] for thread in threads] == ["cpu"] * 3
        assert all(thread["loss"][1] < thread["loss"][0] - 1 and thread["tok_s"] > 0 for thread in threads)
    assert built(cache) == before and any(path.suffix == ".so" for path in before)
