"""Which processes are compilers that build something."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachekeeper.inside.launches import Launches, is_build

BUILDS = [
    "g++ a.cpp -o a.so -shared",
    "/usr/bin/x86_64-linux-gnu-g++-12 -c a.cpp -o a.o",
    "clang++-18 a.cpp -MMD -o a.so",
    "gcc main.c -O3 -shared -o cuda_utils.so",
    "nvcc -v -t=1 a.cu -o a.o",
    # Source: triton/backends/nvidia/compiler.py
    "/t/bin/ptxas -lineinfo -v --gpu-name=sm_90 a.ptx -o a.o",
    "ccache g++ a.cpp -o a.so",
    "/usr/bin/env gcc a.c -o a",
    "g++ -x c++-header a.h -o a.h.gch",
]
NO_BUILDS = [
    "",
    "g++",
    "g++ --version",
    "g++ -v",
    "ptxas --version",
    "ptxas -V",
    "gcc -print-search-dirs",
    "gcc -dumpversion",
    "g++ -x c++ -E -P -o out in.h",
    "g++ -MM a.cpp",
    "ccache --version",
    "env",
    "python -c g++",
    "clang-format a.cpp",
    "nvidia-smi -o a",
    "ldconfig -p",
]


@pytest.mark.parametrize("command", BUILDS)
def test_what_builds(command: str):
    assert is_build(command.split())


@pytest.mark.parametrize("command", NO_BUILDS)
def test_what_does_not(command: str):
    assert not is_build(command.split())


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    path = tmp_path / "g++"
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o755)
    return path


HOOK = """
import os, subprocess, sys
from cachekeeper.inside.launches import Launches
launches = Launches()
launches.install()
compiler = sys.argv[1]
subprocess.run([compiler, "a.cpp", "-o", "a.so"])
subprocess.run(f"{compiler} 'b c.cpp' -o b.so", shell=True)
os.system(f"{compiler} d.cpp -o d.so")
subprocess.run([compiler, "--version"])
subprocess.run([compiler.encode(), b"c\\xff.cpp"])
subprocess.run(["true"])
print([line.encode("utf-8", "replace") for line in launches.compilers])
launches.clear()
print(launches.compilers)
"""


def test_launches_are_noticed(compiler: Path):
    """In a process of its own, since an audit hook stays."""
    done = subprocess.run([sys.executable, "-c", HOOK, str(compiler)], capture_output=True, text=True, check=True)
    before, after = map(eval, done.stdout.splitlines())
    assert before == [b"g++ a.cpp -o a.so", b"g++ b c.cpp -o b.so", b"g++ d.cpp -o d.so", b"g++ c?.cpp"]
    assert after == []


@pytest.fixture
def knobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.SimpleNamespace]:
    """What Launches uses of triton.knobs, with somebody listening already."""
    heard: list[bool] = []
    before = lambda **said: heard.append(said["cache_hit"])  # noqa: E731
    knobs = types.SimpleNamespace(compilation=types.SimpleNamespace(listener=before), heard=heard)
    monkeypatch.setitem(sys.modules, "triton", types.ModuleType("triton"))
    monkeypatch.setitem(sys.modules, "triton.knobs", knobs)  # type: ignore[arg-type]
    yield knobs


def test_kernels_are_counted_and_told_on(knobs: types.SimpleNamespace):
    launches = Launches()
    launches.listen_to_triton()
    for hit in (True, False, False):
        knobs.compilation.listener(src=None, metadata={}, metadata_group={}, times=None, cache_hit=hit)
    assert launches.triton_listens
    assert (launches.triton_hits, launches.triton_built) == (1, 2)
    assert knobs.heard == [True, False, False]
    launches.clear()
    assert (launches.triton_hits, launches.triton_built) == (0, 0)


def test_without_triton_nothing_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "triton", None)  # importing it fails
    launches = Launches()
    launches.listen_to_triton()
    assert not launches.triton_listens
