"""A drafter for speculative decoding: flex_attention, trained by a Python thread a GPU, each graph warmed on purpose.

    cachekeeper warmup examples/warm_flex_drafter.py:step --snapshot drafter        # every GPU; or --device cuda:0 ...
    eval "$(cachekeeper restore drafter --export)"                                  # in the launch script
    python examples/warm_flex_drafter.py --threads 3 --steps 10                     # the job: misses must be 0

No weights are needed: the model is random, and so are the states of the target model that it reads. On a CPU
flex_attention knows inference only, and the model is a small one: add `--device cpu --mode infer --shape 128` to the
warmup, `--mode infer --shape 128` to the job. The job prints one JSON object: tokens a second and peak memory of each
device, what torch counts of its caches, and how often attention ran dense, which ends it with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import cachekeeper

SHAPES = [512, 1024, 2048, 4096, 8192]
WINDOW = 16  # tokens that are drafted at once
DOCUMENTS = 4  # packed into each sequence
MOST_GRAPHS = 256
dense_calls: list[str] = []


@dataclass(frozen=True)
class Size:
    """What the model is made of; each group of query heads shares a head of keys and values."""

    width: int
    heads: int
    kv_heads: int
    layers: int
    vocabulary: int
    dtype: torch.dtype

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.width // self.heads


ON_GPU = Size(width=1024, heads=8, kv_heads=2, layers=3, vocabulary=8192, dtype=torch.bfloat16)
ON_CPU = Size(width=128, heads=4, kv_heads=2, layers=2, vocabulary=256, dtype=torch.float32)


def drafter_mask(documents: torch.Tensor) -> BlockMask:
    """What each place of the draft may see: the states of its document before its window, and all of its window.

    Args:
        documents: (length,), the number of each place's document. The keys are 2 * length: states, then the draft.
    """
    (length,) = documents.shape

    def visible(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        place, window = key % length, query // WINDOW
        before, same = place < window * WINDOW, place // WINDOW == window
        return torch.where(key < length, before, same) & (documents[query] == documents[place])

    return create_block_mask(visible, None, None, length, 2 * length, device=documents.device)


class Layer(nn.Module):
    """Attention from the draft to the target's states and to the draft itself, and an MLP."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.norm1, self.norm2 = nn.RMSNorm(size.width), nn.RMSNorm(size.width)
        self.q = nn.Linear(size.width, size.width, bias=False)
        self.kv = nn.Linear(size.width, 2 * size.kv_heads * size.head, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)
        self.up = nn.Linear(size.width, 4 * size.width, bias=False)
        self.down = nn.Linear(4 * size.width, size.width, bias=False)

    def forward(self, x: torch.Tensor, states: torch.Tensor, turn: torch.Tensor, mask: BlockMask) -> torch.Tensor:
        """x and the states are (1, length, width), turn is (length, head / 2) radians -> (1, length, width)."""
        if not torch.compiler.is_dynamo_compiling():  # folded away in a graph: what is left runs uncompiled
            dense_calls.append(str(x.device))
        normed = self.norm1(x)
        q = split(self.q(normed), self.size.heads)
        k, v = split(self.kv(torch.cat([states, normed], 1)), 2 * self.size.kv_heads).chunk(2, 1)
        attended = flex_attention(
            rotated(q, turn), rotated(k, torch.cat([turn, turn])), v, block_mask=mask, enable_gqa=True
        )
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(functional.silu(self.up(self.norm2(x))))


def split(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(1, length, heads * head) -> (1, heads, length, head)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def rotated(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Rotary places: (1, heads, length, head) turned by (length, head / 2) radians."""
    one, two = x.chunk(2, -1)
    cos, sin = turn.cos().to(x.dtype), turn.sin().to(x.dtype)
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


class Drafter(nn.Module):
    """The first token of each window, and the target's states before it -> scores of the window's other tokens."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.tokens = nn.Embedding(size.vocabulary + 1, size.width)  # the last one is a token to be drafted
        self.states = nn.Linear(size.width, size.width, bias=False)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.norm, self.head = nn.RMSNorm(size.width), nn.Linear(size.width, size.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, states: torch.Tensor, mask: BlockMask) -> torch.Tensor:
        """(1, length) and (1, length, width) -> (1, length, vocabulary)."""
        places = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
        turn = places[:, None] * 1e4 ** -torch.linspace(0, 1, self.size.head // 2, device=tokens.device)
        known = torch.arange(tokens.shape[1], device=tokens.device) % WINDOW == 0
        x, states = self.tokens(torch.where(known, tokens, self.size.vocabulary)), self.states(states)
        for layer in self.layers:
            x = layer(x, states, turn, mask)
        return self.head(self.norm(x))


def allow_many_graphs() -> dict[str, int]:
    """A graph for each shape, mode and device: more than the 8 after which torch goes back to plain Python.

    torch.compile takes the limit from torch 2.13 on. Before, it is a setting, which holds in all threads up to 2.11 and
    in the thread that sets it in 2.12: so every thread calls this.

    Returns:
        Arguments for torch.compile.
    """
    if "recompile_limit" in inspect.signature(torch.compile).parameters:
        return {"recompile_limit": MOST_GRAPHS}
    torch._dynamo.config.recompile_limit = MOST_GRAPHS
    return {}


class Drafting:
    """A drafter on a device, compiled, with its optimizer and what stands in for the target model."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.size = ON_CPU if device == "cpu" else ON_GPU
        torch.manual_seed(0)
        self.model = Drafter(self.size).to(device, self.size.dtype)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.target = torch.randn(self.size.vocabulary, self.size.width, device=device, dtype=self.size.dtype)
        # dynamic=False: each shape has its own graph, whatever was called before. Otherwise the order in which the
        # threads come decides what is static, and that is in every key. fullgraph=True raises where it would go on in
        # plain Python, which for flex_attention means the whole matrix of scores.
        self.compiled: Callable[..., torch.Tensor] = torch.compile(
            self.model, dynamic=False, fullgraph=True, **allow_many_graphs()
        )

    def batch(self, length: int) -> tuple[torch.Tensor, torch.Tensor, BlockMask]:
        """Tokens that count upwards, the target's states for them, and the mask of some random documents."""
        places = torch.arange(length, device=self.device)
        first = torch.randint(self.size.vocabulary, (), device=self.device)
        tokens = ((first + places) % self.size.vocabulary)[None]
        cuts = torch.randint(1, length // WINDOW, (DOCUMENTS - 1,), device=self.device) * WINDOW
        return tokens, self.target[tokens], drafter_mask((places[:, None] >= cuts).sum(1))

    def train(self, length: int) -> None:
        """One step of training. Nothing is kept but the model and its optimizer."""
        tokens, states, mask = self.batch(length)
        scores = self.compiled(tokens, states, mask)
        drafted = torch.arange(length, device=self.device) % WINDOW != 0
        loss = functional.cross_entropy(scores[0].float(), torch.where(drafted, tokens[0], -100))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def infer(self, length: int) -> None:
        """Draft all windows of a sequence."""
        with torch.no_grad():
            self.compiled(*self.batch(length)).argmax(-1)


drafters: dict[str, Drafting] = {}


@cachekeeper.plan(modes=["train", "infer"], shapes=SHAPES)
def step(device: str, mode: str, shape: int) -> None:
    """What `cachekeeper warmup` runs: one step of the real job. The backward of the loss was run here."""
    with torch.cuda.device(device) if device != "cpu" else contextlib.nullcontext():
        if device not in drafters:
            drafters[device] = Drafting(device)
        (drafters[device].train if mode == "train" else drafters[device].infer)(shape)


def synchronise(device: str) -> None:
    """Wait until a device has done what it was given."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def work(device: str, modes: Sequence[str], shapes: Sequence[int], steps: int) -> dict[str, float]:
    """What one thread does, on a device of its own."""
    allow_many_graphs()
    found: dict[str, float] = {}
    for mode in modes:
        synchronise(device)
        began = time.perf_counter()
        for number in range(steps):
            step(device, mode, shapes[number % len(shapes)])
        synchronise(device)
        tokens = sum(shapes[number % len(shapes)] for number in range(steps))
        found[f"{mode}_tok_s"] = round(tokens / (time.perf_counter() - began))
    if device != "cpu":
        found["peak_mib"] = round(torch.cuda.max_memory_allocated(device) / 2**20)
    return found


def run(devices: Sequence[str], modes: Sequence[str], shapes: Sequence[int], steps: int) -> dict[str, object]:
    """Call every graph in this thread, then give each device to a thread."""
    from torch._dynamo.utils import counters

    began = time.perf_counter()
    # Before torch 2.14 a thread that traces breaks the compiled calls of the others, and a warm cache does not spare
    # the tracing: it has to be over before they start.
    for device in devices:
        for mode in modes:
            for shape in shapes:
                step(device, mode, shape)
        synchronise(device)
    first_calls = time.perf_counter() - began
    with ThreadPoolExecutor(len(devices)) as pool:
        found = list(pool.map(lambda device: work(device, modes, shapes, steps), devices))
    inductor, autograd = counters["inductor"], counters["aot_autograd"]
    return {
        "first_calls_seconds": round(first_calls, 2),
        "devices": dict(zip(devices, found, strict=True)),
        "hits": inductor["fxgraph_cache_hit"],
        "misses": inductor["fxgraph_cache_miss"]
        + autograd["autograd_cache_miss"]
        + autograd["autograd_cache_guard_miss"],
        "bypasses": inductor["fxgraph_cache_bypass"] + autograd["autograd_cache_bypass"],
        "dense_calls": len(dense_calls),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="that many GPUs, a thread each")
    parser.add_argument("--steps", type=int, default=10, help="of each mode, in each thread")
    parser.add_argument("--mode", action="append", choices=["train", "infer"], help="may be repeated; default: both")
    parser.add_argument("--shape", action="append", type=int, help=f"tokens, may be repeated; default: {SHAPES}")
    arguments = parser.parse_args()
    there = [f"cuda:{number}" for number in range(torch.cuda.device_count())] or ["cpu"]
    if not 1 <= arguments.threads <= len(there):
        parser.error(f"{arguments.threads} threads, and devices for 1 to {len(there)}")
    devices, modes = there[: arguments.threads], arguments.mode or ["train", "infer"]
    result = run(devices, modes, arguments.shape or SHAPES, arguments.steps)
    print(json.dumps(result))
    sys.exit(1 if dense_calls else 0)


if __name__ == "__main__":
    main()
