"""A job that compiles on the CPU, for the tests to start in a fresh process: `job.py block scale ...`.

Prints one JSON object: seconds, the SHA-256 of everything computed, what torch counts, and the files that appeared in
its cache directory. Parts, done in the order given:

    block        a step of training: LayerNorm, attention, MLP, forward and backward
    attend       flex_attention, inference
    scale        one small graph; the factor SCALE is found again among the bytes of its library
    threads      `block` and `scale` first called by four threads at once
    chdir=DIR    change the working directory
    loop=FILE    `scale` for other shapes, until FILE is there
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

SCALE = 3.1417236328125  # a float32, and not a number that a library has anyway
SHAPE = (64, 33)


def files_in(directory: Path) -> dict[str, tuple[int, int]]:
    """Path -> (inode, mtime) of what torch keeps: no locks, nothing of cachekeeper's own."""
    found = {}
    for path in directory.rglob("*"):
        name = str(path.relative_to(directory))
        if path.is_file() and not name.startswith((".cachekeeper", "locks/")) and path.suffix != ".lock":
            found[name] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return found


def digest(tensors: Iterator[Any]) -> str:
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.detach().contiguous().numpy().tobytes())
    return sha.hexdigest()


def make_block() -> Any:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int = 64, heads: int = 4) -> None:
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, length, width = x.shape
            parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
            return x + self.mlp(self.norm2(x))

    torch.manual_seed(0)
    return torch.compile(Block())


def step(block: Any) -> Iterator[Any]:
    import torch

    x = torch.linspace(-1, 1, 2 * 32 * 64).reshape(2, 32, 64)
    y = block(x)
    gradients = torch.autograd.grad(y.square().mean(), list(block.parameters()))
    yield y
    yield from gradients


def attend() -> Iterator[Any]:
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    def causal(score: torch.Tensor, b: int, h: int, q: int, k: int) -> torch.Tensor:
        return torch.where(q >= k, score, -float("inf"))

    q = torch.linspace(-1, 1, 2 * 128 * 32).reshape(1, 2, 128, 32)
    with torch.no_grad():
        yield torch.compile(flex_attention)(q, q, q, score_mod=causal)


def make_scale() -> Any:
    import torch

    return torch.compile(lambda x: torch.relu(x * SCALE) + 1, dynamic=False)


def scaled(scale: Any, shape: tuple[int, ...] = SHAPE) -> Iterator[Any]:
    import torch

    with torch.no_grad():
        yield scale(torch.linspace(-2, 2, shape[0] * shape[1]).reshape(shape))


def threads() -> Iterator[str]:
    """One digest a part, which every thread must agree on."""
    block, scale = make_block(), make_scale()
    found: list[tuple[str, str]] = []
    started = [Thread(target=lambda: found.append((digest(step(block)), digest(scaled(scale))))) for _ in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if len(found) != 4 or len(set(found)) != 1:
        raise SystemExit(f"the threads do not agree: {found}")
    yield from found[0]


def loop(until: Path) -> Iterator[str]:
    scale = make_scale()
    for width in range(34, 1000):
        if until.exists():
            return
        yield digest(scaled(scale, (64, width)))
        print(width, file=sys.stderr, flush=True)


def outputs(part: str) -> Iterator[str]:
    name, _, value = part.partition("=")
    if name == "chdir":
        os.chdir(value)
    elif name == "block":
        yield digest(step(make_block()))
    elif name == "attend":
        yield digest(attend())
    elif name == "scale":
        yield digest(scaled(make_scale()))
    elif name == "threads":
        yield from threads()
    elif name == "loop":
        yield from loop(Path(value))
    else:
        raise SystemExit(f"no part {part!r}")


def main(parts: list[str]) -> None:
    cache = Path(os.path.abspath(os.environ["TORCHINDUCTOR_CACHE_DIR"]))
    before = files_in(cache)
    from torch._dynamo.utils import counters

    began = time.perf_counter()
    found = [output for part in parts for output in outputs(part)]
    seconds = time.perf_counter() - began
    inductor, autograd = counters["inductor"], counters["aot_autograd"]
    after = files_in(cache)
    print(
        json.dumps(
            {
                "seconds": round(seconds, 2),
                "outputs": found,
                "hits": inductor["fxgraph_cache_hit"],
                "misses": inductor["fxgraph_cache_miss"]
                + autograd["autograd_cache_miss"]
                + autograd["autograd_cache_guard_miss"],
                "bypasses": inductor["fxgraph_cache_bypass"] + autograd["autograd_cache_bypass"],
                "new_files": sorted(path for path in after if after[path] != before.get(path)),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
