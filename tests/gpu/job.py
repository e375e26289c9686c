"""A job on one GPU (`job.py 1` for cuda:1): training through flex_attention, an MLP, and a kernel of Triton's own.

`load=FILE` gives torch the Mega-Cache of a file first, `save=FILE` writes torch's own at the end, `length=512` is
another shape: other graphs and kernels. Prints one JSON object: seconds, hits and misses as torch counts them, and the
files that appeared below the cache.
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


def step(device: str, length: int = 256) -> float:
    import torch
    from torch import nn
    from torch.nn.attention.flex_attention import flex_attention

    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 256)).to(device)
    attend = torch.compile(flex_attention)
    q, k, v = (torch.randn(1, 4, length, 64, device=device, requires_grad=True) for _ in range(3))

    def causal(score, b, h, i, j):
        return torch.where(i >= j, score, -float("inf"))

    attended = attend(q, k, v, score_mod=causal)
    out = torch.compile(mlp)(attended.reshape(-1, 256))
    out.square().mean().backward()
    with torch.no_grad():
        attend(q, k, v, score_mod=causal)
    return float(out.float().square().mean())


def load(path: Path) -> "dict[str, int] | None":
    """How many artifacts of each type torch took; None where it refused them."""
    import torch

    info = torch.compiler.load_cache_artifacts(path.read_bytes())
    return info and {kind: len(keys) for kind, keys in info.artifacts.items()}


def main() -> None:
    before = files()
    from torch._dynamo.utils import counters

    device, *files_of = sys.argv[1:] or ["0"]
    paths = dict(word.split("=", 1) for word in files_of)
    loaded = load(Path(paths["load"])) if "load" in paths else None
    began = time.perf_counter()
    value = step(f"cuda:{device}", int(paths.get("length", 256)))
    seconds = time.perf_counter() - began
    if "save" in paths:
        import torch

        Path(paths["save"]).write_bytes(torch.compiler.save_cache_artifacts()[0])
    inductor, autograd = counters["inductor"], counters["aot_autograd"]
    print(
        json.dumps(
            {
                "seconds": round(seconds, 2),
                "loaded": loaded,
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
