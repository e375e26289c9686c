"""The same facts from torch itself, asked in a process of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping

from ..models import Fact

TIMEOUT_SECONDS = 300.0
_MARK = "cachekeeper-facts:"

# torch makes its cache directory on import and when asked for its name, and compiles into it to try out instruction
# sets. Nobody's cache may change by asking, so it works in a scratch directory and only names the real one.
_PROBE = """
import json, os, shutil, sys, tempfile
sys.path[:] = json.loads(sys.argv[1])
answers = {}

def ask(name, question):
    try:
        answers[name] = {"value": question()}
    except BaseException as error:
        answers[name] = {"unknown": f"{type(error).__name__}: {error}".splitlines()[0][:300]}

def cache_dir():
    from torch._inductor.runtime.runtime_utils import cache_dir
    make = os.makedirs
    os.makedirs, tempfile.tempdir = (lambda *args, **options: None), None
    settle(given)
    try:
        return os.path.abspath(cache_dir())
    finally:
        os.makedirs, tempfile.tempdir = make, scratch
        settle(scratch)

def settle(directory):
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)
    if directory is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = directory

def triton():
    try:
        import triton
    except ImportError:
        return None
    return triton.__version__

def gpu():
    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        if torch.version.hip:
            name = capability = properties.gcnArchName.split(":")[0]
        else:
            name, capability = properties.name, f"sm_{properties.major}{properties.minor}"
        devices.append({"name": name, "capability": capability})
    return devices

def instruction_set():
    from torch._inductor import cpu_vec_isa, exc
    try:
        isa = cpu_vec_isa.pick_vec_isa()
    except exc.InvalidCxxCompiler:
        return "none"
    names = {"VecAMX": "amx", "VecAVX512VNNI": "avx512_vnni", "VecAVX512": "avx512", "VecAVX2": "avx2",
             "VecNEON": "neon", "VecVSX": "vsx", "VecZVECTOR": "zvector", "InvalidVecISA": "none"}
    kind = type(isa).__name__
    flags = isa.build_arch_flags()
    extras = [extra for flag, extra in (("-mavx512bf16", "bf16"), ("-mamx-fp16", "fp16")) if flag in flags]
    return "+".join([f"sve{isa.bit_width()}" if kind == "VecSVE" else names.get(kind, kind), *extras])

def cxx():
    from torch._inductor.cpp_builder import get_cpp_compiler
    return get_cpp_compiler()

def torch_key():
    from torch._inductor.codecache import torch_key
    return torch_key().hex()

given = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
scratch = tempfile.tempdir = tempfile.mkdtemp(prefix="cachekeeper-deep-")
settle(scratch)
try:
    import torch
    ask("cache_dir", cache_dir)
    ask("torch", lambda: str(torch.__version__))
    ask("torch_git", lambda: torch.version.git_version)
    ask("torch_path", lambda: os.path.dirname(torch.__file__))
    ask("cuda", lambda: torch.version.cuda)
    ask("hip", lambda: torch.version.hip)
    ask("triton", triton)
    ask("gpu", gpu)
    ask("gpu_count", torch.cuda.device_count)
    ask("threads", torch.get_num_threads)
    ask("instruction_set", instruction_set)
    ask("cxx", cxx)
    ask("torch_key", torch_key)
except ImportError as error:
    answers["torch"] = {"unknown": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
finally:
    shutil.rmtree(scratch, ignore_errors=True)
print("\\n" + MARK + json.dumps(answers), flush=True)
os._exit(0)
"""


def asked_torch(environ: Mapping[str, str] | None = None) -> dict[str, Fact]:
    """What torch says about itself, fact by fact; takes as long as importing torch (2 to 15 s).

    Covers torch, torch_git, torch_path, cuda, hip, triton, gpu, gpu_count, threads, instruction_set, cxx,
    cache_dir and torch_key (hex). A question that torch answers with an error is unknown, with the error. The
    process creates a CUDA context, and compiles into a temporary directory that it removes.

    Args:
        environ: the environment of that process; that of this one by default.
    """
    import subprocess

    command = [sys.executable, "-c", _PROBE.replace("MARK", repr(_MARK)), json.dumps(sys.path)]
    environ = dict(os.environ if environ is None else environ)
    try:
        result = subprocess.run(
            command, env=environ, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        return {"torch": Fact(unknown=f"torch could not be asked: {error}")}
    return _read(result.stdout) or {"torch": Fact(unknown=_last_words(result.stderr, result.returncode))}


def _read(output: str) -> dict[str, Fact]:
    from .gpu import collapsed

    lines = [line for line in output.splitlines() if line.startswith(_MARK)]
    if not lines:
        return {}
    answers = json.loads(lines[-1].removeprefix(_MARK))
    facts = {name: Fact(answer.get("value"), answer.get("unknown", "")) for name, answer in answers.items()}
    gpu = facts.get("gpu")
    if gpu is not None and isinstance(gpu.value, list):
        facts["gpu"] = Fact(collapsed(gpu.value))
    return facts


def _last_words(stderr: str, code: int) -> str:
    last = (stderr.strip().splitlines() or [""])[-1]
    return f"torch could not be asked: exit code {code} {last}".strip()
