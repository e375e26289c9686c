"""Which environment variables decide a cache key or the generated code, and which do not."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

# Inductor puts its whole config into the key of a graph, except `_cache_config_ignore_prefix`
# (torch/_inductor/config.py), and AOTAutograd the whole of torch/_functorch/config.py. So a variable counts
# unless the table below says why it does not, even one that looks harmless, as a log path.
_PREFIXES = (
    "TORCHINDUCTOR_",
    "TORCH_INDUCTOR_",
    "TORCHDYNAMO_",
    "TORCH_DYNAMO_",
    "TORCH_COMPILE_",
    "TRITON_",
    "INDUCTOR_",
    "AOT_",
    "AOTI_",
    "AOTINDUCTOR_",
)

_NAMES = frozenset(
    [
        # Triton's own list of what invalidates a kernel (get_cache_invalidating_env_vars of libtriton 3.6, 3.8)
        # beyond the prefix, and ptxas' options, which are among the options of a kernel.
        "ALLOW_LHS_TMEM_LAYOUT_CONVERSION",
        "AMDGCN_ENABLE_DUMP",
        "AMDGCN_USE_BUFFER_ATOMICS",
        "AMDGCN_USE_BUFFER_OPS",
        "DISABLE_LLVM_OPT",
        "DISABLE_MMA_V3",
        "DISABLE_MMA_V5",
        "DISABLE_PTXAS_OPT",
        "LLVM_ENABLE_TIMING",
        "LLVM_EXTRACT_DI_LOCAL_VARIABLES",
        "LLVM_IR_ENABLE_DUMP",
        "LLVM_PASS_PLUGIN_PATH",
        "MLIR_DISABLE_MULTITHREADING",
        "MLIR_DUMP_PATH",
        "MLIR_ENABLE_DIAGNOSTICS",
        "MLIR_ENABLE_DUMP",
        "MLIR_ENABLE_TIMING",
        "NVPTX_ENABLE_DUMP",
        "PTXAS_OPTIONS",
        "USE_IR_LOC",
        # Read by config.py of torch/_inductor, torch/_dynamo and torch/_functorch, and by config_comms.py.
        "CUTEDSL_ENABLE_AUTOTUNING",
        "CUTLASS_EPILOGUE_FUSION",
        "ENABLE_PERSISTENT_TMA_MATMUL",
        "ENABLE_TEMPLATE_TMA_STORE",
        "ENABLE_TMA_LOAD_FOR_TEMPLATE_EPILOGUE",
        "FAKE_ALLOW_META",
        "LOG_TLPARSE",
        "PARTITIONER_MEMORY_BUDGET_PARETO",
        "PARTITIONER_MEMORY_BUDGET_PARETO_DIR",
        "PYTORCH_REORDER_COLLECTIVES_LIMIT",
        "PYTORCH_ROCM_ARCH",
        "PYTORCH_SINK_WAITS_LIMIT",
        "TENSORIFY_PYTHON_SCALARS",
        "TORCH_CACHING_PRECOMPILE",
        "TORCH_COMPILER_COLLECTIVES",
        "TORCH_STRICT_PRECOMPILE",
        "UNSAFE_SKIP_FSDP_MODULE_GUARDS",
        # The precision of matrix products is in the key, and decides which kernel wins an autotuning.
        "NVIDIA_TF32_OVERRIDE",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    ]
)

# torch only asks whether it is set (error_on_custom_op_aliasing in torch/_functorch/config.py, the choice of
# flex_attention configurations in torch/_inductor/template_heuristics/triton.py).
_PRESENCE = frozenset(["CI"])

_WITHOUT_EFFECT: dict[str, str] = {
    # Places. What lies there is found again after a restore, or is a fact of its own (ptxas, libdevice).
    "TORCHINDUCTOR_CACHE_DIR": "place",
    "TRITON_CACHE_DIR": "place",
    "TRITON_HOME": "place",
    "TRITON_DUMP_DIR": "place",
    "TRITON_PTXAS_PATH": "its content is the fact ptxas",
    "TRITON_LIBDEVICE_PATH": "its content is the fact libdevice",
    "TRITON_LIBCUDA_PATH": "place of the driver's library",
    "TRITON_LIBHIP_PATH": "place of the driver's library",
    "TRITON_CUDACRT_PATH": "place of headers for Triton's launcher",
    "TRITON_CUDART_PATH": "place of headers for Triton's launcher",
    "TRITON_CUOBJDUMP_PATH": "tool for people",
    "TRITON_NVDISASM_PATH": "tool for people",
    "TORCHINDUCTOR_CUTLASS_DIR": "in _cache_config_ignore_prefix",
    # How the compiling is done, in _cache_config_ignore_prefix.
    "TORCHINDUCTOR_COMPILE_THREADS": "in _cache_config_ignore_prefix",
    "TORCHINDUCTOR_WORKER_START": "in _cache_config_ignore_prefix",
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": "in _cache_config_ignore_prefix",
    "TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE": "in _cache_config_ignore_prefix",
    # Where a remote cache is; read outside the configs (torch/_inductor/remote_cache.py, triton/knobs.py).
    "TORCHINDUCTOR_REDIS_URL": "remote cache",
    "TORCHINDUCTOR_REDIS_HOST": "remote cache",
    "TORCHINDUCTOR_REDIS_PORT": "remote cache",
    "TRITON_REDIS_HOST": "remote cache",
    "TRITON_REDIS_PORT": "remote cache",
    "TRITON_REDIS_KEY_FORMAT": "remote cache",
    "TRITON_REMOTE_CACHE_BACKEND": "remote cache",
    "TRITON_CACHE_MANAGER": "where Triton keeps kernels, not which",
    # Differ from job to job; they name the profile of dynamic shapes (torch/compiler/config.py), not a graph.
    "TORCH_COMPILE_JOB_ID": "name of the job",
    "TORCH_COMPILE_STICKY_PGO_KEY": "name of the job",
    "TORCH_COMPILE_STICKY_PGO_READ": "name of the job",
    "TORCH_COMPILE_STICKY_PGO_WRITE": "name of the job",
    # More words for people, read outside the configs that enter a key, or in its ignored `trace` part.
    "TORCHDYNAMO_VERBOSE": "log",
    "TORCHDYNAMO_EXTENDED_ADVICE": "log",
    "TORCHDYNAMO_PRINT_MISSING": "log",
    "TORCH_COMPILE_CPROFILE": "profile",
    "TORCH_COMPILE_DYNAMO_PROFILER": "profile",
    "TORCH_COMPILE_DEBUG_SAVE_REAL": "trace",
    "TORCHINDUCTOR_MM_LOGGING_FILE": "log",
    "TORCHINDUCTOR_CONV_LOGGING_FILE": "log",
    "TORCHINDUCTOR_FLEX_ATTENTION_LOGGING_FILE": "log",
    "TORCHINDUCTOR_WRITE_MISSING_OPS": "log",
    "TORCHINDUCTOR_AUTOTUNE_POOL_INACTIVITY_TIMEOUT": "how long a helper process waits",
    "TRITON_PRINT_AUTOTUNING": "log",
    "INDUCTOR_POST_FUSION_SVG": "trace",
    "INDUCTOR_POST_FUSION_GRAPH": "trace",
    "INDUCTOR_ORIG_FX_SVG": "trace",
    "INDUCTOR_ORIG_FX_GRAPH": "trace",
    "INDUCTOR_DOT_GRAPH_SHAPE_SVG": "trace",
    "INDUCTOR_LOG_URL_FOR_GRAPH_XFORM": "trace",
    "INDUCTOR_WRITE_SCHEDULER_GRAPH": "trace",
}

_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|JWT|(^|_)(API|ACCESS|PRIVATE)?_?KEY(_|$)")
_NOT_SECRET = frozenset(["TORCH_COMPILE_CACHE_KEY_TAG", "TORCH_COMPILE_STICKY_PGO_KEY"])
_URL_PASSWORD = re.compile(r"(\w+://)[^/@\s]+@")


def deciding(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that change keys or generated code, secrets replaced by the start of their SHA-256."""
    found = {name: safe(name, value) for name, value in environ.items() if _decides(name)}
    found.update({name: "set" for name in _PRESENCE if environ.get(name)})
    return dict(sorted(found.items()))


def without_effect(environ: Mapping[str, str]) -> dict[str, str]:
    """The compile-related variables that are set and do not count; for people."""
    return {name: safe(name, environ[name]) for name in sorted(_WITHOUT_EFFECT) if name in environ}


def safe(name: str, value: str) -> str:
    """A variable's value as it may be stored: "sha256:1a2b3c4d" for a secret, no password in an address."""
    if name not in _NOT_SECRET and _SECRET.search(name.upper()):
        return "sha256:" + hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return _URL_PASSWORD.sub(r"\1***@", value)


def _decides(name: str) -> bool:
    return name in _NAMES or (name.startswith(_PREFIXES) and name not in _WITHOUT_EFFECT)
