"""A job that compiles on the CPU, for the tests to start in a fresh process: `job.py block attend scale`.

Prints one JSON object: seconds, the SHA-256 of what each part computed, what torch counts, and the files that were
written in its cache directory. Parts, done in the order given:

    block         a step of training: LayerNorm, attention, MLP, forward and backward
    attend        flex_attention, inference
    scale         one small graph; the bytes of FACTOR are found again in its library
    scale=WIDTH   the same graph for another shape
    threads       `block` and `scale`, first called by four threads at once
    chdir=DIR     change the working directory
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

FACTOR = 3.1417236328125  # a float32 that no library has by chance


def files_in(directory: Path) -> dict[str, tuple[int, int]]:
    """Path -> (inode, mtime_ns), of everything but locks and what is cachekeeper's own."""
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

    y = block(torch.linspace(-1, 1, 2 * 32 * 64).reshape(2, 32, 64))
    yield y
    yield from torch.autograd.grad(y.square().mean(), list(block.parameters()))


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

    return torch.compile(lambda x: torch.relu(x * FACTOR) + 1, dynamic=False)


def scaled(scale: Any, width: int = 33) -> Iterator[Any]:
    import torch

    with torch.no_grad():
        yield scale(torch.linspace(-2, 2, 64 * width).reshape(64, width))


def threads() -> dict[str, str]:
    """What four threads computed, which must agree."""
    block, scale = make_block(), make_scale()
    found: list[dict[str, str]] = []

    def work() -> None:
        found.append({"block": digest(step(block)), "scale": digest(scaled(scale))})

    started = [Thread(target=work) for _ in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if len(found) != 4 or any(one != found[0] for one in found):
        raise SystemExit(f"the threads do not agree: {found}")
    return found[0]


PARTS: dict[str, Callable[[str], dict[str, str]]] = {
    "block": lambda _: {"block": digest(step(make_block()))},
    "attend": lambda _: {"attend": digest(attend())},
    "scale": lambda width: {f"scale{width}": digest(scaled(make_scale(), int(width or 33)))},
    "threads": lambda _: threads(),
    "chdir": lambda directory: os.chdir(directory) or {},
}


def main(parts: list[str]) -> None:
    cache = Path(os.path.abspath(os.environ["TORCHINDUCTOR_CACHE_DIR"]))
    before = files_in(cache)
    import torch._dynamo.utils  # noqa: F401  before the clock starts

    began = time.perf_counter()
    outputs: dict[str, str] = {}
    for part in parts:
        print(f"part {part}", file=sys.stderr, flush=True)
        name, _, value = part.partition("=")
        outputs |= PARTS[name](value)
    print(json.dumps({"outputs": outputs, **measured(cache, before, time.perf_counter() - began)}))


def measured(cache: Path, before: dict[str, tuple[int, int]], seconds: float) -> dict[str, Any]:
    """What a job took, what torch counts, and the files that differ from those `before`."""
    from torch._dynamo.utils import counters

    inductor, autograd = counters["inductor"], counters["aot_autograd"]
    after = files_in(cache)
    return {
        "seconds": round(seconds, 2),
        "hits": inductor["fxgraph_cache_hit"],
        "misses": inductor["fxgraph_cache_miss"]
        + autograd["autograd_cache_miss"]
        + autograd["autograd_cache_guard_miss"],
        "bypasses": inductor["fxgraph_cache_bypass"] + autograd["autograd_cache_bypass"],
        "new_files": sorted(path for path in after if after[path] != before.get(path)),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
