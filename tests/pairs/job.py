"""A small job that trains, in the variants that the pairs of snapshots are made of: `VARIANT=warps python job.py`.

It prints a line of JSON with what it measured after everything was compiled.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

WIDTH, HEADS, LENGTH, BATCH = 256, 4, 512, 64


class Block(torch.nn.Module):
    def __init__(self, warps: int) -> None:
        from own_kernel import capped

        super().__init__()
        self.capped = capped
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
        self.warps = warps

    def forward(self, x: torch.Tensor, mask: object) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        attended = flex_attention(*parts, block_mask=mask)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return self.capped(x + self.down(torch.nn.functional.gelu(self.up(x))), self.warps)


def causal(batch: object, head: object, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return query >= key


def training(variant: str, device: str) -> Callable[[], object]:
    """A step of the block: "default", "warps", "forward" (its backward never runs), "infer", "two" (devices)."""
    model = Block(1 if variant == "warps" else 8).to(device, torch.bfloat16)
    compiled = torch.compile(model, dynamic=False)
    mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device=device)
    x = torch.randn(BATCH, LENGTH, WIDTH, device=device, dtype=torch.bfloat16)

    def train() -> None:
        loss = compiled(x, mask).float().pow(2).mean()
        if variant != "forward":
            loss.backward()

    def infer() -> None:
        with torch.no_grad():
            compiled(x, mask)

    return infer if variant == "infer" else train


def attention(variant: str, device: str) -> Callable[[], object]:
    """flex_attention of float32 numbers, with tensor cores ("tf32") or without ("ieee")."""
    torch.set_float32_matmul_precision("high" if variant == "tf32" else "highest")
    q = torch.randn(BATCH, HEADS, LENGTH, 64, device=device)
    mask = create_block_mask(causal, None, None, LENGTH, LENGTH, device=device)
    compiled = torch.compile(flex_attention, dynamic=False)
    return lambda: compiled(q, q, q, block_mask=mask)


def products(variant: str, device: str) -> Callable[[], object]:
    """Two products of matrices: "plain", or with max-autotune, "tuned-1" and "tuned-2" alike."""
    x = torch.randn(BATCH * LENGTH, WIDTH, device=device, dtype=torch.bfloat16)
    up, down = (
        torch.randn(*size, device=device, dtype=torch.bfloat16) for size in ((WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
    )

    def multiply(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ up) @ down

    mode = None if variant == "plain" else "max-autotune-no-cudagraphs"
    compiled = torch.compile(multiply, dynamic=False, mode=mode)
    return lambda: compiled(x, up, down)


def on_cpu(variant: str, device: str) -> Callable[[], object]:
    """A small step on a CPU: the same in "cpu", "cpu-scalar" (no vectors) and "cpu-other" (another torch)."""
    a = torch.randn(64, WIDTH, requires_grad=True)

    def step(a: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.sigmoid(a) * 3 + a.sin(), -1).square().sum()

    compiled = torch.compile(step, dynamic=False)
    return lambda: compiled(a).backward()


JOBS = {"cpu": on_cpu, "cpu-scalar": on_cpu, "cpu-other": on_cpu}
JOBS |= {"tf32": attention, "ieee": attention, "plain": products, "tuned-1": products, "tuned-2": products}


def main(variant: str) -> None:
    calls = []
    for number in range(2 if variant == "two" else 1):
        torch.manual_seed(0)
        calls.append(JOBS.get(variant, training)(variant, f"cuda:{number}"))
    for call in calls:
        for _ in range(3):
            call()
    wait = (lambda: None) if variant.startswith("cpu") else torch.cuda.synchronize
    wait()
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(50):
            calls[0]()
        wait()
        best = min(best, (time.perf_counter() - began) / 50)
    print(json.dumps({"step_ms": round(best * 1e3, 4), "tok_s": round(BATCH * LENGTH / best)}))


if __name__ == "__main__":
    main(os.environ["VARIANT"])
