"""A small real job: a transformer block, trained for a step, and flex_attention for inference; both compiled.

Prints one JSON object: seconds, graph hits and misses as torch counts them, and the files that appeared in the cache
directory, since hits alone do not prove that nothing was built.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path


def files_in(directory: str) -> set[Path]:
    return {path for path in Path(directory).rglob("*") if path.is_file() and path.suffix != ".lock"}


def run() -> dict[str, object]:
    before = files_in(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    import torch
    from torch import nn
    from torch._dynamo.utils import counters
    from torch.nn.attention.flex_attention import flex_attention

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

    def causal(score: torch.Tensor, b: int, h: int, q: int, k: int) -> torch.Tensor:
        return torch.where(q >= k, score, -float("inf"))

    started = time.perf_counter()
    torch.manual_seed(0)
    block = torch.compile(Block())
    block(torch.randn(2, 32, 64)).square().mean().backward()
    attend = torch.compile(flex_attention)
    with torch.no_grad():
        q = torch.randn(1, 2, 128, 32)
        attend(q, q, q, score_mod=causal)
    seconds = time.perf_counter() - started
    inductor, autograd = counters["inductor"], counters["aot_autograd"]
    return {
        "seconds": round(seconds, 2),
        "hits": inductor["fxgraph_cache_hit"],
        "misses": inductor["fxgraph_cache_miss"] + autograd["autograd_cache_miss"],
        "new_files": len(files_in(os.environ["TORCHINDUCTOR_CACHE_DIR"]) - before),
    }


if __name__ == "__main__":
    print(json.dumps(run()))
