"""A small model with flex_attention, one a device: what the warmups of the GPU tests run."""

from __future__ import annotations

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import cachekeeper

WIDTH, HEADS = 256, 4
models: dict[str, torch.nn.Module] = {}
kept: list[torch.Tensor] = []


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: object) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        attended = flex_attention(*parts, block_mask=mask)
        return x + self.out(attended.transpose(1, 2).reshape(batch, length, width))


def causal(batch: object, head: object, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return query >= key


@cachekeeper.plan(modes=["train", "infer"], shapes=[256, 512])
def step(device: str, mode: str, shape: int) -> torch.Tensor:
    if device not in models:
        torch.manual_seed(0)
        models[device] = torch.compile(Block().to(device, torch.bfloat16), dynamic=False)
    mask = create_block_mask(causal, None, None, shape, shape, device=device)
    out = models[device](torch.randn(2, shape, WIDTH, device=device, dtype=torch.bfloat16), mask)
    return out.float().pow(2).mean()


def leaky(device: str, mode: str, shape: int) -> torch.Tensor:
    """Leaves 1 GiB behind, on the device."""
    kept.append(torch.empty(1 << 30, dtype=torch.uint8, device=device))
    return step(device, mode, shape)


@torch.compile
def plain(x: torch.Tensor) -> torch.Tensor:
    return x.sin().sum()


def eager(device: str) -> torch.Tensor:
    """Calls two compiled functions, one of them while torch is told to compile nothing."""
    x = torch.randn(8, device=device)
    with torch.compiler.set_stance("force_eager"):
        total = plain(x)
    return torch.compile(torch.cos)(x).sum() + total


def dense(device: str) -> torch.Tensor:
    """Calls flex_attention outside of any compiled function."""
    q = torch.randn(1, 4, 256, 64, device=device)
    return torch.compile(torch.sin)(flex_attention(q, q, q)).sum()
