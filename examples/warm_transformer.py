"""A small transformer, trained and used for inference: filled into the cache on purpose, saved, and restored.

    cachekeeper warmup examples/warm_transformer.py:step --snapshot transformer     # once, and after each change
    eval "$(cachekeeper restore transformer --export)"                              # in the launch script
    python examples/warm_transformer.py                                             # the job: misses must be 0

Runs on a CPU or a GPU, from random weights. The job prints one JSON object: tokens a second, the loss, seconds until
the first step was done, and what torch counts of its caches.
"""

from __future__ import annotations

import argparse
import functools
import json
import time

import torch
from torch import nn
from torch.nn import functional

import cachekeeper

VOCABULARY, WIDTH, HEADS, LAYERS, LONGEST = 512, 64, 4, 2, 256
SHAPES = ["2x64", "4x128"]


class Layer(nn.Module):
    """Causal attention and an MLP, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, WIDTH) -> the same."""
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Tokens -> scores of the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, length) -> (batch, length, VOCABULARY)."""
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Job:
    """A model on a device, compiled, and its optimizer."""

    def __init__(self, device: str) -> None:
        torch.manual_seed(0)
        self.model = Transformer().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.compiled = torch.compile(self.model, fullgraph=True)

    def scores(self, tokens: torch.Tensor) -> torch.Tensor:
        """The compiled model, with one graph for every batch and length: the second shape of the plan compiles nothing.

        Left alone, torch compiles the first shape for itself and a dynamic graph for the second: which graphs there are
        depends on the order of the shapes, and a job that begins with another one misses. `dynamic=True` is no way out:
        it makes inputs of the norms' `eps` too, which torch 2.13 compiles twice, the first time past its cache.
        """
        torch._dynamo.mark_dynamic(tokens, 0)
        torch._dynamo.mark_dynamic(tokens, 1, min=2, max=LONGEST)
        return self.compiled(tokens)

    def train(self, tokens: torch.Tensor) -> float:
        """One step of training; the loss."""
        scores = self.scores(tokens[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def infer(self, tokens: torch.Tensor) -> torch.Tensor:
        """The likeliest next token at each place."""
        with torch.no_grad():
            return self.scores(tokens[:, :-1]).argmax(-1)


job_on = functools.cache(Job)


@cachekeeper.plan(modes=["train", "infer"], shapes=SHAPES)
def step(device: str, mode: str, shape: tuple[int, int]) -> None:
    """What `cachekeeper warmup` runs: the real job, one step. The loss is not returned: its backward was run here."""
    job = job_on(device)
    (job.train if mode == "train" else job.infer)(make_tokens(device, *shape))


def make_tokens(device: str, batch: int, length: int) -> torch.Tensor:
    """Sequences that count upwards, each from a number of its own: easy to learn."""
    first = torch.randint(VOCABULARY, (batch, 1), device=device)
    return (first + torch.arange(length + 1, device=device)) % VOCABULARY


def run(steps: int, device: str) -> dict[str, object]:
    """Train, alternating between the shapes, and look at the result of it."""
    from torch._dynamo.utils import counters

    began = time.perf_counter()
    job = job_on(device)
    shapes = [tuple(map(int, shape.split("x"))) for shape in SHAPES]
    losses, tokens, first = [], 0, 0.0
    for number in range(steps):
        batch, length = shapes[number % len(shapes)]
        losses.append(job.train(make_tokens(device, batch, length)))
        if number == 0:
            first = time.perf_counter()
        else:
            tokens += batch * length
    seconds = time.perf_counter() - first
    known = make_tokens(device, *shapes[0])
    right = (job.infer(known) == known[:, 1:]).float().mean().item()
    inductor, autograd = counters["inductor"], counters["aot_autograd"]
    return {
        "tok_s": round(tokens / seconds),
        "first_step_seconds": round(first - began, 2),
        "loss": [round(losses[0], 3), round(losses[-1], 3)],
        "right": round(right, 3),
        "hits": inductor["fxgraph_cache_hit"],
        "misses": inductor["fxgraph_cache_miss"]
        + autograd["autograd_cache_miss"]
        + autograd["autograd_cache_guard_miss"],
        "bypasses": inductor["fxgraph_cache_bypass"] + autograd["autograd_cache_bypass"],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="at least 2")
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    print(json.dumps(run(max(2, arguments.steps), arguments.device)))
