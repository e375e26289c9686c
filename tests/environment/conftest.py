"""Fake installations and GPUs, and an environment without anything of ours or torch's in it."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cachekeeper.environment import gpu, nvml

CLEARED = ("CACHEKEEPER_", "TORCH", "TRITON_", "INDUCTOR_", "CUDA_", "OMP_", "MKL_", "ATEN_", "CI", "CXX")
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(CLEARED):
            monkeypatch.delenv(name)


@pytest.fixture
def run_python():
    """Run code in a fresh interpreter that can import cachekeeper; gives its output."""

    def run(code, *, environ=None, path=(), cwd=None, user=None):
        base = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        base.update({"PYTHONPATH": os.pathsep.join([*map(str, path), str(ROOT)])})
        base.update(environ or {})
        result = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={name: value for name, value in base.items() if value is not None},
            cwd=cwd,
            user=user,
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    return run


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a fake torch (and Triton) first on sys.path; gives the directory they are in."""
    site = tmp_path / "site"

    def make(version="2.11.0+cu130", *, cuda="13.0", hip=None, record=True, triton=None, extra="x = 1\n"):
        files = {
            "torch/__init__.py": "raise RuntimeError('torch was imported')\n",
            "torch/version.py": _version_file(version, cuda, hip),
            "torch/_inductor/cpu_vec_isa.py": "class VecAVX512VNNI: ...\n",
            "torch/_inductor/config.py": extra,
        }
        _write(site, "torch", version, files, record)
        if triton:
            files = {
                "triton/__init__.py": f"__version__ = {triton!r}\n",
                "triton/backends/nvidia/bin/ptxas": "ptxas of " + triton,
                "triton/backends/nvidia/lib/libdevice.10.bc": "libdevice of " + triton,
            }
            _write(site, "pytorch_triton", triton, files, record)
        return site

    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    return make


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A machine whose only source on GPUs is a script; gives the environ that finds it."""
    monkeypatch.setattr(nvml, "LIBRARIES", ())
    devices = tmp_path / "dev"
    devices.mkdir()
    monkeypatch.setattr(gpu, "DEVICES", devices)
    programs = tmp_path / "bin"
    programs.mkdir()

    def make(*lines, code=0, files=("nvidia0",)):
        for name in files:
            (devices / name).touch()
        script = programs / "nvidia-smi"
        output = "\n".join(lines)
        script.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {code}\n")
        script.chmod(0o755)
        return {"PATH": f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin"}

    return make


def _version_file(version, cuda, hip):
    return (
        f"from typing import Optional\n__version__ = {version!r}\ndebug = False\n"
        f"cuda: Optional[str] = {cuda!r}\ngit_version = 'abc123'\nhip: Optional[str] = {hip!r}\n"
    )


def _write(site, name, version, files, record):
    import base64
    import hashlib

    info = site / f"{name}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    lines = [f"../../bin/torchrun,sha256={os.urandom(4).hex()},10", f"{info.name}/RECORD,,"]
    for path, text in files.items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(text)}")
    if record:
        (info / "RECORD").write_text("\n".join(lines) + "\n")
