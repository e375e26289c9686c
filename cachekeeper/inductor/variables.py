"""The environment variables by which a job finds its caches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

# variable -> where the program looks when it is not set
CACHE_VARIABLES = {
    "TRITON_CACHE_DIR": "~/.triton/cache",
    "VLLM_CACHE_ROOT": "~/.cache/vllm",
    "SGLANG_CACHE_DIR": "~/.cache/sglang",
    "CUDA_CACHE_PATH": "~/.nv/ComputeCache",
    "FLASHINFER_WORKSPACE_BASE": "~",
    "DG_JIT_CACHE_DIR": "~/.deep_gemm",
    "TILELANG_CACHE_DIR": "~/.tilelang/cache",
    "TORCH_EXTENSIONS_DIR": "~/.cache/torch_extensions",
    "HELION_CACHE_DIR": "~/.cache/helion",
}


def variable_of(directory: Path, environ: Mapping[str, str]) -> str:
    """The variable that names a directory, by its value or else by its default; "" for none that is known."""
    for variable in CACHE_VARIABLES:
        if environ.get(variable) and Path(os.path.abspath(environ[variable])) == directory:
            return variable
    for variable, default in CACHE_VARIABLES.items():
        if variable not in environ and Path(os.path.expanduser(default)) == directory:
            return variable
    return ""


def fullest(triton_dirs: Mapping[str, int]) -> str:
    """The directory of kernels that `TRITON_CACHE_DIR` is to name: the one with the most entries.

    A kernel's hash holds the architecture and not the device, so that one directory serves every device.
    """
    return max(triton_dirs, key=lambda name: (triton_dirs[name], name), default="triton/shared")


def job_environment(
    cache_dir: Path, triton_dirs: Mapping[str, int], also: Iterable[tuple[str, Path]]
) -> dict[str, str]:
    """Variables that must be set *before* the job imports torch.

    `TRITON_CACHE_DIR` is always among them: where it is not set, the first thread to compile decides for the whole
    process, and by its own device, where every device's kernels go (torch/_inductor/runtime/triton_heuristics.py).

    Args:
        cache_dir: the restored directory, absolute.
        triton_dirs: directories of kernels below it -> number of entries, as {"triton/0": 285}.
        also: (label, directory) of the caches restored beside it.
    """
    variables = {name: str(path) for name, path in also if name in CACHE_VARIABLES}
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(cache_dir)
    variables["TRITON_CACHE_DIR"] = str(cache_dir / fullest(triton_dirs))
    return variables
