"""Real jobs through `cachekeeper run`: cold, warm, with several ranks, and stopped at the first miss."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cachekeeper import runs

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("torch")]

# A product of matrices: torch compiles a graph, and g++ has nothing to do.
JOB = """
import sys
import torch
import cachekeeper  # the job can, though it is not on its path

@torch.compile(dynamic=False)
def product(x, w):
    return x @ w

def step(device, shape):
    return product(torch.ones(int(shape), 8), torch.ones(8, 3, requires_grad=True)).sum()

if __name__ == "__main__":
    for shape in sys.argv[1:]:
        step("cpu", shape).backward()
    print("done", *sys.argv[1:])
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "job.py").write_text(JOB)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("CACHEKEEPER_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("CACHEKEEPER_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("CACHEKEEPER_NAME", "products")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # torchrun sets it, and the number of threads is in torch's keys
    return tmp_path


def run(*arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, object]]:
    """The command, and its report."""
    command = [sys.executable, "-m", "cachekeeper", "run", "--report", "said.json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done, json.loads(Path("said.json").read_text())


def test_from_cold_to_warm_to_stopped(work: Path):
    script = f'"{sys.executable}" job.py 4 & "{sys.executable}" job.py 6; wait'
    done, said = run("--snapshot-on-success", "--", "bash", "-c", script)
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == ["done 4", "done 6"]
    totals = said["compiled"]["totals"]
    # Each process looks for a graph forward and one backward; the other one may have made the same already.
    assert said["compiled"]["processes"] == 2 and totals["hits"] + totals["misses"] == 4 and totals["misses"] >= 2
    assert said["new_entries"] and said["saved"]["name_moved"] and totals["seconds"] > 0
    assert said["compiled"]["incomplete"] == 0
    assert re.search(r"hint: `cachekeeper explain [0-9a-f]{6}` says why graphs missed\nok  Saved ", done.stderr)
    assert len(done.stderr.splitlines()) <= 8 and max(map(len, done.stderr.splitlines()[2:])) <= 80
    assert {path.name for path in runs.find().directory.glob("loaded-*")} == {"loaded-python", "loaded-torch"}

    shutil.rmtree(work / "inductor")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "job.py", "4", "6")
    done, said = run("--assert-warm", "--snapshot-on-success", "--", sys.executable, *torchrun)
    assert done.returncode == 0, done
    totals = said["compiled"]["totals"]
    assert (totals["hits"], totals["misses"], said["compiled"]["processes"]) == (8, 0, 2)
    assert said["new_entries"] == 0 and said["saved"] is None and said["restored"]["new"] > 0
    assert {log.process.rank for log in runs.logs(runs.find())} == {0, 1}

    done, said = run("--assert-warm", "--", "sh", "-c", f'"{sys.executable}" job.py 4 5; echo done')
    assert done.returncode == 3 and "done" not in done.stdout, done
    assert "product (job.py:" in said["stopped"]["graph"] and said["stopped"]["why"]
    assert "warning: NOT WARM, so the job was ended: " in done.stderr
    assert runs.find().exit_code == 3


def test_a_warmup_before_the_job(work: Path):
    """Nothing was saved yet: the warmup makes it, on the cache that the job has, and it is saved with the proof."""
    (work / "work" / "cachekeeper.toml").write_text('[warmup."job.py:step"]\nmodes = ["train"]\nshapes = [4]\n')
    show = 'echo "$TORCHINDUCTOR_CACHE_DIR"; ls -d "$TORCHINDUCTOR_CACHE_DIR"/fxgraph/*/* | wc -l'
    done, said = run("--warmup", "job.py:step", "--snapshot-on-success", "--", "sh", "-c", show)
    assert done.returncode == 0 and done.stdout.split() == [f"{work}/inductor", "2"], done
    assert said["troubles"] == [] and said["new_entries"] == 0
    assert "; warming up first; its cache is saved" in said["notes"][0]
    assert said["saved"]["snapshot"]["header"]["proof"]["target"] == "job.py:step"
