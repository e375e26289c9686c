"""A small real job for many nodes: a compiled MLP, forward and backward, its gradients averaged over all ranks.

Runs on GPUs with NCCL, and on CPUs with gloo. Each rank prints one JSON object: where its cache is, graph hits and
misses as torch counts them, the files that appeared in its cache directory meanwhile, and the loss.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
import warm_start
from torch import nn


def make_model(width: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


def train(device: torch.device, steps: int) -> float:
    model = make_model().to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    loss = torch.zeros((), device=device)
    for _ in range(steps):
        loss = compiled(torch.randn(16, 32, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
    return loss.item()


def files_in(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file() and path.suffix != ".lock"}


def report(start: warm_start.Start, new_files: int, loss: float) -> None:
    from torch._dynamo.utils import counters

    inductor, autograd = counters["inductor"], counters["aot_autograd"]
    facts = {
        "rank": dist.get_rank(),
        "snapshot": start.id,
        "cache": str(start.directory),
        "hits": inductor["fxgraph_cache_hit"],
        "misses": inductor["fxgraph_cache_miss"] + autograd["autograd_cache_miss"],
        "new_files": new_files,
        "loss": loss,
    }
    print(json.dumps(facts) + "\n", end="", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    steps = parser.parse_args().steps
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    start = warm_start.agree()
    before = files_in(start.directory)
    loss = train(device, steps)
    report(start, len(files_in(start.directory) - before), loss)
    warm_start.save(start)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
