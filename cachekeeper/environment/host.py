"""What is recorded for people and never compared."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from ..masking import without_secrets
from ..models import Fact
from . import cpu, variables
from .directories import CacheDirectory, cache_directory, user_name

# Not all of SLURM_*: there is an authentication token among them.
_JOB = (
    *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK"),
    *("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NNODES"),
)
_DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
)


def recorded_facts(environ: Mapping[str, str]) -> dict[str, Fact]:
    """Host, user, command, packages, place in a distributed job and so on."""
    directory = _cache_directory(environ)
    return {
        "host": Fact(socket.gethostname()),
        "user": Fact(user_name(environ)),
        "cpu": Fact(cpu.cpu_model()),
        "kernel": Fact(platform.release()),
        "os": Fact(_os_name()),
        "python": Fact(platform.python_version()),
        "executable": Fact(sys.executable),
        "command": Fact(list(without_secrets(sys.argv))),
        "packages": Fact(dict(packages())),
        "job": Fact(_present(environ, _JOB)),
        "visible_devices": Fact(_present(environ, _DEVICES)),
        "variables_without_effect": Fact(dict(variables.without_effect(environ))),
        "cache_dir": directory if isinstance(directory, Fact) else Fact(str(directory.path)),
        "cache_dir_source": directory if isinstance(directory, Fact) else Fact(directory.source),
    }


def packages() -> dict[str, str]:
    """Installed distributions, name -> version, from the names of their metadata directories only."""
    found: dict[str, str] = {}
    for entry in sys.path:
        try:
            names = [item.name for item in os.scandir(entry or ".")]
        except OSError:
            continue
        for name in names:
            match = re.match(r"(.+?)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info$", name)
            if match:
                found.setdefault(match[1].lower().replace("_", "-"), match[2])
    return dict(sorted(found.items()))


def _present(environ: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: environ[name] for name in names if name in environ}


def _cache_directory(environ: Mapping[str, str]) -> CacheDirectory | Fact:
    try:
        return cache_directory(environ)
    except OSError as error:
        return Fact(unknown=str(error))


def _os_name() -> str:
    try:
        text = Path("/etc/os-release").read_text("utf-8", "replace")
    except OSError:
        return platform.system()
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)', text, re.MULTILINE)
    return match[1] if match else platform.system()
