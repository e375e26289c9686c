"""cachekeeper warmup, and verify --replay, as a person meets them. What they find is tested in tests/torch_cpu."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cachekeeper.cli.output import Output
from cachekeeper.cli.warmup import _say_doubts
from cachekeeper.models import StepReport
from cachekeeper.verbs.warmup import WarmupResult

from .conftest import Command

pytestmark = pytest.mark.torch

# A product of matrices: torch compiles a graph, and g++ has nothing to do.
TARGET = """
import torch
import cachekeeper

@torch.compile(dynamic=False)
def product(x, w):
    return x @ w

@cachekeeper.plan(modes=["infer", "train"], shapes=[4, "2x8"])
def step(device, mode, shape):
    print("the step speaks")
    size = shape if isinstance(shape, tuple) else (shape, 8)
    return product(torch.ones(size, device=device), torch.ones(8, 3, requires_grad=True)).sum()

@torch.compile
def by_itself(x, w):
    return x @ w

def ordered(device, mode, shape):
    return by_itself(torch.ones(shape, 8), torch.ones(8, 3, requires_grad=True)).sum()

def dies(device):
    import os
    os._exit(0)

def broken(device, mode, shape=1):
    if mode == "train":
        raise ValueError("no such head")
    return step(device, mode, 4)
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "job.py").write_text(TARGET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CACHEKEEPER_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("CACHEKEEPER_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: in this one, the fixtures' machine would have a GPU."""
    return subprocess.run([sys.executable, "-m", "cachekeeper", *arguments], capture_output=True, text=True)


def test_from_the_plan_to_a_proven_snapshot(work: Path):
    plan = run("warmup", "job.py:step", "--dry-run")
    assert plan.returncode == 0 and plan.stderr == ""
    assert not (work / "store").exists()
    assert plan.stdout == (
        f"Plan      cpu x infer train x 4 2x8   4 steps in {work}/inductor\n"
        "   1 cpu infer 4\n   2 cpu infer 2x8\n   3 cpu train 4\n   4 cpu train 2x8\n"
    )
    done = run("warmup", "job.py:step", "--snapshot", "drafter", "-m", "first", "--metric", "loss=2.5", "--tag", "a=b")
    assert done.returncode == 0, done
    assert done.stderr.count("the step speaks") == 8 and "the step speaks" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "Plan      cpu x infer train x 4 2x8"
    assert lines[1] == "Warming   4 steps, in a fresh process"
    assert lines[2].split() == ["step", "seconds", "new", "graphs", "autograd", "kernels", "peak", "left"]
    first = lines[3].split()
    assert first[:4] == ["1", "cpu", "infer", "4"] and first[5:8] == ["+3", "0/1/0", "0/1/0"]
    assert "Proving   4 steps, in another fresh process, which must build nothing" in lines
    assert lines[-3].startswith("ok  Proved: 4 steps in a fresh process, 6 graphs found, nothing missed, nothing built")
    assert lines[-2].startswith("ok  Saved ") and "as drafter" in lines[-2]
    assert lines[-1] == "hint: restore it with `cachekeeper restore drafter --verify`"
    assert max(len(line) for line in lines if "recompiled" not in line and "Proved" not in line) <= 80

    shown = json.loads(run("show", "drafter", "--json").stdout)["snapshot"]["header"]
    assert shown["message"] == "first" and shown["metrics"] == {"loss": 2.5}
    assert shown["tags"] == {"a": "b"}
    assert [step["hits"] for step in shown["proof"]["steps"]] == [1, 1, 2, 2]
    assert run("restore", "drafter", "--require-proof", "--cache-dir", "other").returncode == 0

    again = run("verify", "drafter", "--replay", "job.py:step", "--shape", "4", "--json")
    document = json.loads(again.stdout)
    assert again.returncode == 0 and document["schema"] == "cachekeeper.replay/1" and document["ok"]
    assert document["steps"] == [["cpu", "infer", "4"], ["cpu", "train", "4"]]
    missed = run("verify", "drafter", "--replay", "job.py:step", "--shape", "4", "--shape", "5", "--mode", "infer")
    assert missed.returncode == 3
    assert "missed in the graph cache: inference of product (job.py:5) on cpu; against the nearest" in missed.stdout
    assert "input 0: shape (4, 8) -> (5, 8)" in missed.stdout and "NOT proved: in 1 of 2 steps" in missed.stdout


def test_a_step_that_raises_is_told_and_nothing_is_saved(work: Path):
    done = run("warmup", "job.py:broken", "--snapshot", "drafter", "--mode", "train", "--mode", "infer")
    assert done.returncode == 3 and not (work / "store" / "snapshots").exists()
    assert "RAISED ValueError: no such head" in done.stdout
    assert "NOT ok: 1 of 1 steps raised, 1 not run; nothing saved" in done.stdout
    assert 'File "' in done.stderr and "job.py" in done.stderr and "cachekeeper/inside" not in done.stderr
    document = json.loads(run("warmup", "job.py:broken", "--keep-going", "--json").stdout)
    assert not document["ok"] and [bool(report["error"]) for report in document["warmed"]] == [True, False]
    assert document["proof"] is None and document["proved"] == []


def test_where_torch_makes_a_size_dynamic_the_order_is_told(work: Path):
    """As it warms 4 before 8, so must the job call them."""
    arguments = ["job.py:ordered", "--mode", "train", "--mode", "infer", "--shape", "4", "--shape", "8"]
    done = run("warmup", *arguments, "--order", "shape", "--snapshot", "drafter")
    assert done.returncode == 0
    rows = re.findall(r"^ +\d cpu (\w+ \d)", done.stdout, re.MULTILINE)
    assert rows == ["train 4", "infer 4", "train 8", "infer 8"] * 2
    assert "note: in step cpu train 8 torch made a size of forward of by_itself" in done.stdout
    again = run("verify", "drafter", "--replay", "job.py:ordered")
    assert again.returncode == 0 and again.stdout.index("train 8") > again.stdout.index("infer 4")
    other = run("verify", "drafter", "--replay", "job.py:ordered", "--shape", "8", "--shape", "4")
    assert other.returncode == 3


def test_the_arguments_of_a_script_are_its_own(work: Path):
    (work / "parses.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()\n" + TARGET)
    assert run("warmup", "parses.py:step", "--dry-run").returncode == 0


def test_without_a_proof_it_is_said_and_kept_unproven(work: Path):
    done = run("warmup", "job.py:step", "--mode", "infer", "--shape", "4", "--no-prove", "--snapshot", "drafter")
    assert done.returncode == 0 and "nothing is proved (--no-prove)" in done.stdout
    refused = run("restore", "drafter", "--require-proof", "--json", "--cache-dir", "other")
    assert refused.returncode == 3 and json.loads(refused.stderr)["code"] == "unproven"
    assert not (work / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["job.py:stp"], 5, "did you mean `job.py:step`?"),
        (["nojob.py:step"], 5, "no file "),
        (["job.py"], 2, "not a target: 'job.py'"),
        ([], 2, "which target?"),
        (["job.py:step", "--device", "GPU"], 2, "not a device"),
        (["job.py:step", "--order", "size"], 2, "not an axis"),
        (["job.py:step", "--cache-dir", "/etc/passwd"], 8, "cannot make the cache directory"),
        (["job.py:step", "--snapshot", "a", "--read-only"], 6, "read-only"),
        (["job.py:dies", "--mode", "infer"], 3, "ended with exit code 0 in step cpu infer"),
        (["job.py:step", "--device", "cuda:63"], 5, "no device cuda:63 on this machine"),
        (["job.py:step", "--device", "gpu:0"], 5, "did you mean `cuda:0`?"),
        (["job.py:step", "--snapshot", "a/latest@"], 2, "not a name for a snapshot"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_compiled(
    work: Path, arguments: list[str], code: int, said: str
):
    done = run("warmup", *arguments)
    assert done.returncode == code and said in done.stderr, done
    assert not list((work / "inductor").glob("*"))


def test_options_of_a_plan_go_with_a_replay(command: Command, home: Path):
    assert command("verify", "drafter", "--shape", "4").code == 2
    assert command("verify", "--all", "--replay", "job.py:step").code == 2


def test_a_warmup_that_filled_nothing_says_where_it_looked(capfd: pytest.CaptureFixture[str]):
    """C42: the function compiles within torch's fresh_cache()."""

    def said(entries: int) -> str:
        report = StepReport(0, "cpu", "infer", "", new_entries=entries)
        doubts = {"cpu infer": ("missed in the graph cache: inference of step",)}
        _say_doubts(Output(False, False), WarmupResult("job.py:step", Path("/cache"), (), (report,), (report,), doubts))
        return "".join(capfd.readouterr())

    assert "no entry appeared in /cache: does the code choose another cache directory" in said(0)
    assert "what missed is cached now" in said(1) and "no entry appeared" not in said(1)
