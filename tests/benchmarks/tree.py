"""A made-up Inductor cache: the layout, names and sizes of a real one, the same bytes for the same arguments.

    python -m tests.benchmarks.tree DIR --files 10000 --mb 405     10,000 files, 359 MB
    python -m tests.benchmarks.tree DIR --mutate 0.01              70 % of it rewritten, 20 % added, 10 % removed

Sizes are log-normal (median 4 KB, sigma 1.4); what they leave of the budget goes to files of 1 to 5 MB, of which those
drawn for a file that cannot be large (JSON, a lock) are lost. Text compresses about 5x, binaries 2.3x at zstd -3.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PICKLE = b"\x80\x05\x95"
ELF = b"\x7fELF\x02\x01\x01"
KERNEL_PARTS = ("json", "group", "ttir", "ttgir", "llir", "ptx", "cubin")
KERNEL_SHARE = 0.11

_REGISTERS = ["%f", "%r", "%rd", "%p", "%rs"]
_PTX = [
    "add.f32",
    "mul.f32",
    "fma.rn.f32",
    "ld.global.L1::evict_last.v4.b32",
    "st.global.v4.b32",
    "mov.u32",
    "mad.lo.s32",
    "setp.lt.s32",
    "selp.b32",
    "cvt.rn.bf16.f32",
    "shl.b32",
    "xor.b32",
    "bar.sync",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
    "cp.async.cg.shared.global",
]
_LLVM = [
    "add",
    "mul nsw",
    "getelementptr float, ptr addrspace(1)",
    "insertvalue { i32, i32, i32, i32 }",
    "extractvalue { i32, i32, i32, i32 }",
    "icmp slt",
    "and",
    "shl nuw nsw",
]
_CALLS = [
    "tl.load",
    "tl.where",
    "triton_helpers.maximum",
    "libdevice.rsqrt",
    "tl.broadcast_to",
    "extern_kernels.mm",
    "aten.view.default",
    "assert_size_stride",
    "reinterpret_tensor",
]
_ARGUMENTS = ["in_ptr0 + (x0)", "out_ptr1 + (x2 + 1024*y3)", "buf17", "primals_42", "arg9_1"]
_REMARKS = [
    "torch.bfloat16",
    "torch.float32",
    "Topologically Sorted Source Nodes: [add, mul]",
    "origins=aten.native_layer_norm",
]


class Made(NamedTuple):
    """What was written."""

    files: int
    bytes: int


class Changed(NamedTuple):
    """What a mutation did, in files and in bytes written."""

    rewritten: int
    added: int
    removed: int
    bytes: int


class Contents:
    """Texts and binaries that compress as those of a cache do."""

    def __init__(self) -> None:
        rng = random.Random(12345)
        self._lines = {
            "ptx": [_ptx_line(rng) for _ in range(60_000)],
            "llvm": [_llvm_line(rng) for _ in range(60_000)],
            "python": [_python_line(rng) for _ in range(30_000)],
        }
        rng = random.Random(777)
        self._instructions = [rng.randbytes(12) for _ in range(3_000)]

    def text(self, language: str, size: int, rng: random.Random) -> bytes:
        """Lines of a language, cut to a size."""
        lines = self._lines[language]
        data = "".join(rng.choices(lines, k=size // 38 + 2)).encode()
        while len(data) < size:
            data += "".join(rng.choices(lines, k=200)).encode()
        return data[:size]

    def binary(self, size: int, rng: random.Random) -> bytes:
        """Machine code: instructions of 12 bytes that come again, 2 that do not, 2 that are zero."""
        count = size // 16 + 1
        instructions = rng.choices(self._instructions, k=count)
        control = rng.randbytes(count * 2)
        code = b"".join(part + control[2 * i : 2 * i + 2] + b"\0\0" for i, part in enumerate(instructions))
        return (ELF + code)[:size]


def _ptx_line(rng: random.Random) -> str:
    operation = rng.choice(_PTX)
    first, second, third = (f"{rng.choice(_REGISTERS)}{rng.randrange(1500)}" for _ in range(3))
    return f"\t{operation} \t{first}, {second}, {third};\n"


def _llvm_line(rng: random.Random) -> str:
    result, operation, operand = rng.randrange(3000), rng.choice(_LLVM), rng.randrange(3000)
    return f"  %{result} = {operation} i32 %{operand}, {rng.randrange(4096)}, !dbg !{rng.randrange(300)}\n"


def _python_line(rng: random.Random) -> str:
    result, call, argument, operand = rng.randrange(400), rng.choice(_CALLS), rng.choice(_ARGUMENTS), rng.randrange(400)
    return f"    tmp{result} = {call}({argument}, tmp{operand}, {rng.randrange(8192)})  # {rng.choice(_REMARKS)}\n"


class Key(NamedTuple):
    """The hash that names an entry, spelled as torch and Triton spell it."""

    hexadecimal: str
    upper: str

    @classmethod
    def of(cls, text: str) -> Key:
        """The key of a text."""
        digest = hashlib.sha256(text.encode()).digest()
        return cls(digest.hex(), base64.b32encode(digest).decode().rstrip("="))

    @property
    def lower(self) -> str:
        """52 characters in lower case."""
        return self.upper.lower()

    def module(self, suffix: str) -> str:
        """The path of a generated module, source or library."""
        return f"{self.lower[:2]}/c{self.lower[:51]}{suffix}"


class _File(NamedTuple):
    path: str
    data: bytes


class _Maker:
    """The files of one tree, in order. Every draw from the generator counts: the order of calls is the content."""

    def __init__(self, directory: Path, files: int, megabytes: float, seed: int) -> None:
        self.directory, self.count, self.seed = directory, files, seed
        self.rng = random.Random(seed)
        self.contents = Contents()
        self.sizes = [_small_size(self.rng) for _ in range(files)]
        left = megabytes * 1e6 - sum(self.sizes)
        large = sorted(self.rng.sample(range(files), max(0, min(files, int(left / 3e6)))))
        self.large = {number: int(self.rng.uniform(1e6, 5e6)) for number in large}
        self.sources: list[bytes] = []

    def files(self) -> Iterator[_File]:
        number = 0
        while number < self.count:
            draw, key = self.rng.random(), Key.of(f"{self.seed}/{number}")
            whole = draw < KERNEL_SHARE and number + len(KERNEL_PARTS) <= self.count
            made = self._kernel(number, key) if whole else iter((self._single(number, key, draw),))
            for file in made:
                self._remember(file.data, whole)
                yield file
                number += 1

    def _remember(self, data: bytes, of_kernel: bool) -> None:
        if not of_kernel and len(self.sources) < 200 and b"tmp" in data[:200]:
            self.sources.append(data)

    def _size(self, number: int) -> int:
        return self.large.get(number, self.sizes[number])

    def _kernel(self, number: int, key: Key) -> Iterator[_File]:
        directory = f"triton/0/{key.upper}"
        name = f"triton_poi_fused_add_mul_{self.rng.randrange(200)}"
        for offset, part in enumerate(KERNEL_PARTS):
            if part == "json":
                yield _File(f"{directory}/{name}.json", self._metadata(name, key, self._size(number)))
            elif part == "group":
                yield _File(f"{directory}/__grp__{name}.json", self._group(directory, name))
            else:
                yield _File(f"{directory}/{name}.{part}", self._kernel_part(part, number + offset))

    def _kernel_part(self, part: str, number: int) -> bytes:
        if part == "cubin" or number in self.large:
            return self.contents.binary(self._size(number), self.rng)
        return self.contents.text("ptx" if part == "ptx" else "llvm", self._size(number), self.rng)

    def _metadata(self, name: str, key: Key, size: int) -> bytes:
        document = {
            "hash": key.hexadecimal,
            "target": {"backend": "cuda", "arch": 90, "warp_size": 32},
            "num_warps": 4,
            "num_stages": 3,
            "shared": self.rng.randrange(65536),
            "name": name,
            "pad": "x" * max(0, min(size, 2000) - 200),
        }
        return json.dumps(document).encode()

    def _group(self, directory: str, name: str) -> bytes:
        children = [f"{name}.{suffix}" for suffix in ("ttir", "ttgir", "llir", "ptx", "cubin", "json")]
        paths = {child: f"{self.directory}/{directory}/{child}" for child in children}
        return json.dumps({"child_paths": paths}).encode()

    def _single(self, number: int, key: Key, draw: float) -> _File:
        size = self._size(number)
        if number in self.large:
            return _File(key.module(".so"), self.contents.binary(size, self.rng))
        if draw < 0.65:
            return _File(key.module(".py" if draw < 0.50 else ".cpp"), self.contents.text("python", size, self.rng))
        if draw < 0.85:
            return _File(f"fxgraph/{key.lower[:2]}/f{key.lower[:51]}/{key.lower}", self._graph(size))
        if draw < 0.93:
            data = PICKLE + self.contents.text("llvm", size, self.rng)
            return _File(f"aotautograd/a{key.lower[:51]}/{key.lower}", data)
        if draw < 0.96:
            return _File(f"locks/{key.lower}.lock", b"")
        if draw < 0.99 and self.sources:
            return _File(key.module(".py"), self.rng.choice(self.sources))
        return _File(f"{key.lower[:2]}/{key.lower[:40]}.best_config", self._choice(key))

    def _graph(self, size: int) -> bytes:
        text = self.contents.text("python", size // 2, self.rng)
        return PICKLE + text + self.contents.binary(size // 2, self.rng)

    def _choice(self, key: Key) -> bytes:
        document = {
            "XBLOCK": self.rng.choice([128, 256, 512]),
            "num_warps": 4,
            "configs_hash": key.hexadecimal,
            "time_taken_ms": self.rng.random(),
        }
        return json.dumps(document).encode()


def _small_size(rng: random.Random) -> int:
    return max(64, min(900_000, int(rng.lognormvariate(math.log(4096), 1.4))))


def make(directory: Path, files: int = 10_000, megabytes: float = 405, seed: int = 1) -> Made:
    """Write a tree; the same arguments write the same bytes, but for the absolute paths in Triton's group files."""
    directory = Path(os.path.abspath(directory))
    total = 0
    for file in _Maker(directory, files, megabytes, seed).files():
        _write(directory / file.path, file.data)
        total += len(file.data)
    return Made(files, total)


def mutate(directory: Path, share: float = 0.01, seed: int = 2) -> Changed:
    """Change a share of a tree's files, and leave it a cache that torch could use.

    Texts and FX graphs are rewritten at their length, modules added, modules and sources removed.
    """
    rng, contents = random.Random(seed), Contents()
    paths = sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())
    count = max(3, round(len(paths) * share))
    sources = [path for path in paths if path.endswith((".py", ".cpp"))]
    texts = [path for path in paths if path.endswith((".py", ".cpp", ".llir")) or path.startswith("fxgraph/")]
    removed = rng.sample(sources, min(len(sources), max(1, count // 10)))
    rewritable = sorted(set(texts) - set(removed))
    rewritten = rng.sample(rewritable, min(len(rewritable), max(1, count * 7 // 10)))
    added = [Key.of(f"m{seed}/{number}").module(".py") for number in range(max(1, count // 5))]
    total = sum(_rewrite(directory / path, contents, rng) for path in rewritten)
    total += sum(_write(directory / path, contents.text("python", _small_size(rng), rng)) for path in added)
    for path in removed:
        (directory / path).unlink()
    return Changed(len(rewritten), len(added), len(removed), total)


def _rewrite(path: Path, contents: Contents, rng: random.Random) -> int:
    size = path.stat().st_size
    if "fxgraph" in path.parts:
        return _write(path, PICKLE + contents.text("python", size - len(PICKLE), rng))
    return _write(path, contents.text("llvm" if path.suffix == ".llir" else "python", size, rng))


def _write(path: Path, data: bytes) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(data)


def main() -> None:
    """Make or change a tree, and say what was done."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.tree", description="Make or change a tree.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--mb", type=float, default=405)
    parser.add_argument("--mutate", type=float, metavar="SHARE")
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    if options.mutate:
        changed = mutate(options.directory, options.mutate, options.seed or 2)
        print(*(f"{count} {word}" for word, count in changed._asdict().items()), sep=", ")
    else:
        made = make(options.directory, options.files, options.mb, options.seed or 1)
        print(f"{made.files} files, {made.bytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
