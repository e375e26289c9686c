"""This machine, put together into a fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..models import Fact, Facts, Fingerprint
from . import cpu, gpu, host, installation, toolchain, variables
from .installation import Package
from .model import model_hash

ID_DIGITS = 12
_TORCHS_PTXAS = re.compile(r"parents\[([0-9])\] / \"bin\" / \"ptxas\"")


def fingerprint(
    *,
    model_config: Path | None = None,
    model_sources: Sequence[Path] = (),
    environ: Mapping[str, str] | None = None,
) -> Fingerprint:
    """Look at this machine and this Python, without importing torch and without touching a GPU.

    A fact that cannot be found out is unknown, with the reason, and never an error.

    Args:
        model_config: a JSON or TOML file to hash, see `model_hash`.
        model_sources: Python files, or directories of them, whose content belongs to the model.
        environ: the job's environment variables; those of this process by default.

    Raises:
        UsageError: the model's config or sources cannot be read.
    """
    environ = dict(os.environ if environ is None else environ)
    torch, triton = installation.find_torch(), installation.find_triton()
    compiler = toolchain.compiler_version(environ)
    cuda, hip = (installation.runtime_fact(torch, name) for name in ("cuda", "hip"))
    gpus = gpu.gpu_facts(environ, cuda=cuda, hip=hip)
    must = {
        "torch": installation.version_fact(torch),
        "torch_source": installation.source_fact(torch, Fact(unknown=installation.NO_TORCH)),
        "cuda": cuda,
        "hip": hip,
        "gpu": gpus["gpu"],
        **_triton_facts(torch, triton, environ),
        "python_abi": Fact(toolchain.python_abi()),
        **_cpu_facts(torch, compiler, environ),
        "environment": Fact(dict(variables.deciding(environ))),
    }
    should = {
        "driver": gpus["driver"],
        "gpu_count": gpus["gpu_count"],
        "compiler": Fact(compiler),
        "glibc": toolchain.glibc(),
        "libstdcxx": toolchain.libstdcxx(environ),
    }
    model = model_hash(model_config, model_sources) if model_config or model_sources else None
    recorded = host.recorded_facts(environ)
    recorded["torch_git"] = Fact(torch.values.get("git_version") if torch else None)
    return Fingerprint(id=identifier(must), must=must, should=should, recorded=recorded, model=model)


def identifier(must: Facts) -> str:
    """12 hex digits over the facts; with an unknown one among them, digits that never come again."""
    facts = {
        name: {"unknown": os.urandom(16).hex()} if fact.unknown else {"value": fact.value}
        for name, fact in must.items()
    }
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:ID_DIGITS]


def intact(theirs: Fingerprint) -> bool:
    """False for a stored fingerprint whose `must` facts were changed after its id was made.

    With an unknown fact there is nothing to check against, and the answer is True.
    """
    if any(fact.unknown for fact in theirs.must.values()):
        return True
    return identifier(theirs.must) == theirs.id


def _triton_facts(torch: Package | None, triton: Package | None, environ: Mapping[str, str]) -> dict[str, Fact]:
    ptxas = environ.get("TRITON_PTXAS_PATH")
    return {
        "triton": installation.triton_fact(triton),
        "triton_source": installation.source_fact(triton, Fact(None)),
        "ptxas": _torchs_ptxas(torch, triton, ptxas) or _tool(triton, ptxas, "backends/nvidia/bin/ptxas"),
        "libdevice": _tool(triton, environ.get("TRITON_LIBDEVICE_PATH"), "backends/nvidia/lib/libdevice.10.bc"),
    }


def _torchs_ptxas(torch: Package | None, triton: Package | None, chosen: str | None) -> Fact | None:
    """The ptxas that torch brings along, to which it sets TRITON_PTXAS_PATH at its first kernel where that is not set.

    Source: _set_triton_ptxas_path in torch/_inductor/runtime/compile_tasks.py, which looks beside a directory above it.
    """
    if torch is None or triton is None or chosen is not None:
        return None
    source = torch.root / "_inductor" / "runtime" / "compile_tasks.py"
    above = _TORCHS_PTXAS.search(_text(source))
    ptxas = source.parents[int(above[1])] / "bin" / "ptxas" if above else None
    if ptxas is None or not ptxas.is_file() or not os.access(ptxas, os.X_OK) or torch.root not in ptxas.parents:
        return None
    return Fact(installation.recorded_hash(torch, ptxas.relative_to(torch.root).as_posix()))


def _tool(triton: Package | None, chosen: str | None, inner: str) -> Fact:
    """The SHA-256 of a file that Triton compiles with: the chosen one where it can be read, else its own."""
    if triton is None:
        return Fact(None)
    hashed = installation.file_hash(Path(chosen)) if chosen else None
    return Fact(hashed or installation.recorded_hash(triton, inner))


def _cpu_facts(torch: Package | None, compiler: str | None, environ: Mapping[str, str]) -> dict[str, Fact]:
    machine = platform.machine()
    if torch is None:
        unknown = Fact(unknown=installation.NO_TORCH)
        facts = {"instruction_set": unknown, "torch_path": unknown}
    else:
        facts = {
            "instruction_set": cpu.instruction_set(
                cpu.cpu_flags(),
                environ,
                machine=machine,
                compiler=compiler,
                torch_source=_text(torch.root / "_inductor" / "cpu_vec_isa.py"),
            ),
            "torch_path": Fact(str(torch.root)),
        }
    return {
        **facts,
        "threads": cpu.threads(environ, machine=machine),
        "cxx": Fact(toolchain.cxx(environ)),
        "python_include": Fact(toolchain.python_include()),
    }


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
