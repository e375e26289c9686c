"""The compiler, the C and C++ libraries and the Python that generated code is built and loaded with."""

from __future__ import annotations

import importlib.machinery
import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..models import Fact


def cxx(environ: Mapping[str, str]) -> str:
    """The C++ compiler as Inductor spells it; the spelling, not the program, is in the key of a graph."""
    return environ.get("CXX", "g++")


def compiler_version(environ: Mapping[str, str]) -> str | None:
    """First line of `$CXX --version`, as "g++ (Debian 12.2.0-14) 12.2.0"; None where it does not run."""
    program = shutil.which(cxx(environ), path=environ.get("PATH"))
    if program is None:
        return None
    import subprocess

    try:
        result = subprocess.run(
            [program, "--version"],
            env={**environ, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(result.stdout.splitlines()), "").strip() or None


def glibc() -> Fact:
    """The C library, as "glibc 2.36"; None for another one, as musl."""
    try:
        return Fact(os.confstr("CS_GNU_LIBC_VERSION"))
    except (OSError, ValueError):
        return Fact(None)


def libstdcxx(environ: Mapping[str, str]) -> Fact:
    """Version of the libstdc++ that is loaded where a library names no path, as "6.0.30"; None without one."""
    for directory in _library_directories(environ):
        path = directory / "libstdc++.so.6"
        try:
            name = path.resolve(strict=True).name
        except OSError:
            continue
        match = re.search(r"\.so\.([\d.]+)$", name)
        return Fact(match[1]) if match else Fact(unknown=f"no version in the name {name}")
    return Fact(None)


def python_abi() -> str:
    """What names the extension modules of this Python, as "cpython-311-x86_64-linux-gnu"."""
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    return suffix.removeprefix(".").removesuffix(".so")


def python_include() -> str:
    """Where Python.h is looked for; the path is hashed into the name of a CPU kernel's .so."""
    return sysconfig.get_path("include")


def _library_directories(environ: Mapping[str, str]) -> Iterator[Path]:
    for value in filter(None, environ.get("LD_LIBRARY_PATH", "").split(":")):
        yield Path(value)
    # conda's Python finds its own library before the system's.
    yield Path(sys.base_prefix, "lib")
    machine = platform.machine()
    for value in (
        f"/usr/lib/{machine}-linux-gnu",
        f"/lib/{machine}-linux-gnu",
        "/usr/lib64",
        "/lib64",
        "/usr/lib",
    ):
        yield Path(value)
