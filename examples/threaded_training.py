"""Three Python threads, each training a small drafter on a device of its own, with no warmup: one line makes it safe.

    python examples/threaded_training.py
    cachekeeper run --name drafter --snapshot-on-success -- python examples/threaded_training.py

The second form restores the compile cache `drafter` first, if there is one, and saves what was new in the end: the next
start traces, but compiles nothing. `cachekeeper stats` then shows what each thread compiled, or found.

Without the guard the threads break each other in their first steps: on GPUs they may wait for each other for ever
(`--no-guard` shows it), and a warm cache does not help. With it they need nothing else: no warmup in the main thread,
no lock, no order of starts. The drafter reads the last 128 tokens through flex_attention. On a CPU that has no
backward; there the same attention is written out, and all threads share the CPU. It prints a JSON list, an object for
each thread: tokens a second, loss of the first and the last step, seconds of the first step.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

if "--no-guard" not in sys.argv:
    import cachekeeper.guard

    cachekeeper.guard.install()

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

GPUS = torch.cuda.device_count()
WIDTH, HEADS, LAYERS, LENGTH, BATCH = (1024, 8, 3, 2048, 2) if GPUS else (64, 2, 1, 128, 4)
VOCABULARY, WINDOW = 512, 128


def visible(batch: object, head: object, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Whether a place sees another one: itself, and those up to WINDOW before it."""
    return (query >= key) & (query - key < WINDOW)


def attention(device: str) -> Callable[..., torch.Tensor]:
    """A function of queries, keys and values, (batch, HEADS, LENGTH, WIDTH / HEADS) each."""
    if device != "cpu":
        mask = create_block_mask(visible, None, None, LENGTH, LENGTH, device=device)
        return lambda q, k, v: flex_attention(q, k, v, block_mask=mask)
    places = torch.arange(LENGTH)
    seen = visible(None, None, places[:, None], places)
    return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


class Layer(nn.Module):
    """Attention and an MLP, each behind a norm."""

    def __init__(self, attend: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.attend = attend
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, LENGTH, WIDTH) -> the same."""
        normed = self.norm1(x)
        q, k, v = (part(normed).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Drafter(nn.Module):
    """Tokens (batch, LENGTH) -> scores of the next one (batch, LENGTH, VOCABULARY)."""

    def __init__(self, device: str) -> None:
        super().__init__()
        attend = attention(device)
        self.tokens, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.layers = nn.Sequential(*(Layer(attend) for _ in range(LAYERS)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.tokens(tokens)))


def train(device: str, steps: int) -> dict[str, object]:
    """What one thread does."""
    model = Drafter(device).to(device)
    # fullgraph=True raises where it would go on in plain Python, which for flex_attention is the whole matrix.
    compiled = torch.compile(model, dynamic=False, fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, ends = [], [time.perf_counter()]
    for _ in range(steps):
        first = torch.randint(VOCABULARY, (BATCH, 1), device=device)
        tokens = (first + torch.arange(LENGTH + 1, device=device)) % VOCABULARY  # the next one is one more
        scores = compiled(tokens[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())  # waits for the device
        ends.append(time.perf_counter())
    return {
        "device": device,
        "tok_s": round((steps - 1) * BATCH * LENGTH / (ends[-1] - ends[1])),
        "loss": [round(losses[0], 3), round(losses[-1], 3)],
        "first_step_seconds": round(ends[1] - ends[0], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=3, help="each has the next device; default: 3")
    parser.add_argument("--steps", type=int, default=30, help="of each thread, at least 2; default: 30")
    parser.add_argument("--no-guard", action="store_true", help="to see what happens without it")
    arguments = parser.parse_args()
    devices = [f"cuda:{number % GPUS}" if GPUS else "cpu" for number in range(arguments.threads)]
    with ThreadPoolExecutor(len(devices)) as pool:
        print(json.dumps(list(pool.map(train, devices, [max(2, arguments.steps)] * len(devices)))))


if __name__ == "__main__":
    main()
