"""Cache directories that look like Inductor's, made without compiling anything."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import struct
from pathlib import Path


def make_cache(directory: Path | str, *, seed: int = 0, kernels: int = 4, graphs: int = 4, devices: int = 1) -> Path:
    """Fill a directory with every kind of entry that Inductor writes, and with scratch.

    Args:
        seed: other seeds give other contents.
        kernels: Triton entries for each device.
        graphs: FX graphs, each with an AOTAutograd entry, a module, a library and an autotune result.
    """
    directory = Path(directory)
    random_bytes = random.Random(seed).randbytes
    for device in range(devices):
        for number in range(kernels):
            make_triton_entry(directory / "triton" / str(device), seed=seed * 1000 + device * 100 + number)
    for number in range(graphs):
        key = _base32(f"{seed}/{number}").lower()[:51]
        write(directory / "fxgraph" / key[:2] / f"f{key}" / key, b"\x80\x05" + random_bytes(3000) + b".")
        write(directory / "aotautograd" / f"a{key}" / key, b"\x80\x05" + random_bytes(2000) + b".")
        write(directory / key[:2] / f"c{key}.py", f"# AOT ID: ['{number}_inference']\nx = {seed}\n".encode())
        write(directory / key[:2] / f"c{key}.main.cpp", f"int f() {{ return {seed + number}; }}\n".encode())
        write(directory / key[:2] / f"c{key}.main.so", elf(random_bytes(4000)))
        write(directory / key[:2] / f"{_hex(key)}.best_config", json.dumps({"num_warps": 4, "seed": seed}).encode())
        write(directory / "locks" / f"c{key}.lock", b"")
    write(directory / "cache" / _hex(str(seed)), json.dumps({"system": {}, "cache": {}}).encode())
    write(directory / "fxgraph" / "aa" / "fkey" / ".123.456.tmp", b"half")
    return directory


def make_triton_entry(directory: Path, *, seed: int = 0, arch: int = 90, name: str = "triton_poi_fused_add_0") -> Path:
    """One kernel as Triton writes it, in a hash directory of its own below `directory`."""
    entry = directory / _base32(f"kernel/{seed}")[:52]
    metadata = {"hash": _hex(str(seed)), "target": {"backend": "cuda", "arch": arch, "warp_size": 32}, "num_warps": 4}
    contents = {
        f"{name}.ttir": b"module { tt.func public @kernel() }\n",
        f"{name}.ttgir": b"#blocked = #ttg.blocked\n",
        f"{name}.llir": b"; ModuleID = 'LLVMDialectModule'\n",
        f"{name}.ptx": b".version 8.4\n.target sm_90a\n",
        f"{name}.cubin": elf(random.Random(seed).randbytes(3000)),
        f"{name}.json": json.dumps(metadata).encode(),
    }
    for file, data in contents.items():
        write(entry / file, data)
    group = {"child_paths": {file: str(entry / file) for file in contents}}
    write(entry / f"__grp__{name}.json", json.dumps(group).encode())
    return entry


def elf(body: bytes) -> bytes:
    """A 64-bit ELF file with nothing but a header, a body, and a section table at its end."""
    table = bytes(64)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    fields = struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 1, 0)
    return header + fields + body + table


def write(path: Path, data: bytes) -> None:
    """Write a file, with the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _base32(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
