"""What the threads of the stress test compile: small models, each with a probe that only runs where they do not."""

from __future__ import annotations

import threading

import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS = 64, 2
ran_uncompiled: list[tuple[str, str]] = []


def probe(name: str) -> None:
    ran_uncompiled.append((threading.current_thread().name, name))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.LayerNorm(2 * WIDTH))
        self.out = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_dynamo_compiling():
            probe("mlp")
        return self.out(self.layers(x)) + x


class Attention(nn.Module):
    """x (batch, length, WIDTH) -> the same; `attend` is what its subclasses differ in."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        # Three, and copies of what they give: on CPU some versions of flex_attention refuse views of one buffer.
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def split(self, x: torch.Tensor) -> list[torch.Tensor]:
        normed = self.norm(x)
        return [linear(normed).unflatten(-1, (HEADS, -1)).transpose(1, 2).contiguous() for linear in self.qkv]

    def join(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        return x + self.out(attended.transpose(1, 2).flatten(2))


class Block(Attention):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_dynamo_compiling():
            probe("block")
        return self.join(x, plain_attention(self.split(x)))


def plain_attention(parts: list[torch.Tensor]) -> torch.Tensor:
    return nn.functional.scaled_dot_product_attention(*parts, is_causal=True)


def causal(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return query >= key


class Flex(Attention):
    """`plain` computes the same without flex_attention: that compiles by itself where it is called uncompiled."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = False
        self.masks: dict[int, object] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_dynamo_compiling():
            probe("flex")
            if self.plain:
                return self.join(x, plain_attention(self.split(x)))
        return self.join(x, flex_attention(*self.split(x), block_mask=self.masks[x.shape[1]]))


class Clipped(torch.autograd.Function):
    """A function with a gradient of its own, as quantised and clipped training has."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(-2, 2)

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return 0.5 * gradient


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return Clipped.apply(torch.sin(self.first(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_dynamo_compiling():
            probe("checkpointed")
        return self.second(checkpoint(self.inner, x, use_reentrant=False)) + x


MODELS: dict[str, type[nn.Module]] = {"mlp": Mlp, "block": Block, "flex": Flex, "checkpointed": Checkpointed}


def make(name: str, device: str, shapes: list[int]) -> nn.Module:
    """A model with weights that depend on its name alone. Not for several threads at once: it seeds torch."""
    torch.manual_seed(len(name))
    model = MODELS[name]()
    if isinstance(model, Flex):
        model.masks = {n: create_block_mask(causal, None, None, n, n, device=device) for n in shapes}
    return model.to(device)


def inputs(device: str, length: int) -> torch.Tensor:
    """(2, length, WIDTH), the same in every thread."""
    generator = torch.Generator().manual_seed(length)
    return torch.randn(2, length, WIDTH, generator=generator).to(device)


def trains(name: str, device: str) -> bool:
    """Whether Inductor has a backward: on CPU flex_attention has none."""
    return not (name == "flex" and device == "cpu")
