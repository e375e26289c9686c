"""A job on one GPU (`job.py 1` for cuda:1): training through flex_attention, an MLP, and a kernel of Triton's own.

Prints one JSON object: seconds, hits and misses as torch counts them, and the files that appeared below the cache.
"""

import json
import os
import sys
import time
from pathlib import Path


def files() -> set[str]:
    root = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    return {
        str(p.relative_to(root))
        for p in root.rglob("*")
        if p.is_file() and ".lock" not in p.name and ".cachekeeper" not in str(p)
    }


def step(device: str) -> float:
    import torch
    from torch import nn
    from torch.nn.attention.flex_attention import flex_attention

    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 256)).to(device)
    attend = torch.compile(flex_attention)
    q, k, v = (torch.randn(1, 4, 256, 64, device=device, requires_grad=True) for _ in range(3))

    def causal(score, b, h, i, j):
        return torch.where(i >= j, score, -float("inf"))

    attended = attend(q, k, v, score_mod=causal)
    out = torch.compile(mlp)(attended.reshape(-1, 256))
    out.square().mean().backward()
    with torch.no_grad():
        attend(q, k, v, score_mod=causal)
    return float(out.float().square().mean())


def main() -> None:
    before = files()
    from torch._dynamo.utils import counters

    began = time.perf_counter()
    value = step(f"cuda:{sys.argv[1] if len(sys.argv) > 1 else 0}")
    seconds = time.perf_counter() - began
    inductor, autograd = counters["inductor"], counters["aot_autograd"]
    print(
        json.dumps(
            {
                "seconds": round(seconds, 2),
                "value": value,
                "hits": inductor["fxgraph_cache_hit"],
                "misses": inductor["fxgraph_cache_miss"] + autograd["autograd_cache_miss"],
                "bypasses": inductor["fxgraph_cache_bypass"] + autograd["autograd_cache_bypass"],
                "new_files": sorted(files() - before),
            }
        )
    )


if __name__ == "__main__":
    main()
