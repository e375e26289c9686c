"""What is read out of torch's structured trace. The events are as torch 2.13 sends them."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from cachekeeper.inside.compiles import Compiles
from cachekeeper.models import Graph


class Torch:
    """Sends events as torch does, to a handler."""

    def __init__(self, compiles: Compiles) -> None:
        self._compiles = compiles

    def send(self, payload: Any = None, frame: int | None = 0, again: int = 0, **metadata: Any) -> None:
        record = logging.LogRecord("torch.__trace", logging.DEBUG, "", 0, "", None, None)
        record.metadata = {"frame_id": frame, "frame_compile_id": again, "attempt": 0, **metadata}
        record.payload = payload
        self._compiles.handle(record)

    def begin(self, *stack: tuple[str, str, int], frame: int = 0, again: int = 0) -> None:
        names: dict[str, int] = {}
        for file, _, _ in stack:
            number = names.setdefault(file, len(names))
            self.send(str=(file, number))
        frames = [{"name": name, "filename": names[file], "line": line} for file, name, line in stack]
        self.send(dynamo_start={"stack": frames}, frame=frame, again=again)

    def artifact(self, name: str, payload: object, frame: int = 0, again: int = 0) -> None:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        self.send(text, frame, again, artifact={"name": name, "encoding": "json"})


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def compiles(heard: list[str]) -> Compiles:
    return Compiles(heard.append, lambda function, reason: heard.append(f"{function} failed: {reason}"))


@pytest.fixture
def torch(compiles: Compiles) -> Torch:
    return Torch(compiles)


def test_a_miss_with_all_that_torch_says(compiles: Compiles, torch: Torch, heard: list[str]):
    torch.begin(("/home/me/train.py", "main", 80), ("/home/me/model.py", "forward", 12))
    lines = [
        "[aa] fx_kwargs[is_backward]: True",
        "[ab] fx_kwargs[is_inference]: False",
        "[ac] example_inputs[0]: TensorMetadata(dtype=torch.float32, device=device(type='cuda', index=5))",
    ]
    torch.artifact("fx_graph_cache_miss", {"key": "fkey", "cache_state": "miss", "components": lines})
    assert compiles.graphs == (
        Graph("fx", "miss", "fkey", "", "forward (model.py:12)", "backward", "cuda:5", tuple(lines)),
    )
    assert heard == ["forward (model.py:12)"]


@pytest.mark.parametrize(
    ("name", "cache", "state"),
    [
        ("fx_graph_cache_hit", "fx", "hit"),
        ("fx_graph_cache_bypass", "fx", "bypass"),
        ("fx_graph_bundled_cache_hit", "fx", "hit"),
        ("aotautograd_cache_hit", "aot", "hit"),
        ("aotautograd_cache_miss", "aot", "miss"),
        ("aotautograd_cache_bypass", "aot", "bypass"),
    ],
)
def test_each_answer(compiles: Compiles, torch: Torch, name: str, cache: str, state: str):
    torch.artifact(name, {"key": None, "cache_bypass_reason": "why" if state == "bypass" else None})
    (graph,) = compiles.graphs
    assert (graph.cache, graph.state, graph.key, graph.reason) == (cache, state, "", "why" if state == "bypass" else "")


def test_no_reason_has_an_address_in_memory(compiles: Compiles, torch: Torch):
    """C66."""
    why = "target <function _enter_autocast at 0x7f2f6ef2d3a0>. Function calls"
    torch.artifact("aotautograd_cache_bypass", {"key": None, "cache_bypass_reason": why})
    torch.artifact("recompile_reasons", ["0/0: L['f'] is not <object at 0x7f2f>"])
    torch.artifact("dynamo_graph_break_reason", "Explanation: <module 'm' at 0x7F2F>")
    (graph,) = compiles.graphs
    assert graph.reason == "target <function _enter_autocast>. Function calls"
    assert "0x" not in "".join((*compiles.recompiles, *compiles.graph_breaks))
    assert len(compiles.recompiles) == len(compiles.graph_breaks) == 1


def test_a_failed_guard_is_the_reason(compiles: Compiles, torch: Torch):
    torch.artifact("aotautograd_cache_miss", {"key": "a", "cache_status_detailed": "guard_miss"})
    assert compiles.graphs[0].reason == "a guard failed"


@pytest.mark.parametrize(
    "name", ["fx_graph_runnable", "aotautograd_cache_pickle_failure", "fx_graph_cache_hash", "torch._functorch.config"]
)
def test_other_artifacts_are_no_answers(compiles: Compiles, torch: Torch, name: str):
    torch.artifact(name, {"key": "a"})
    assert compiles.graphs == ()


def test_a_module_is_called_by_who_calls_it(torch: Torch, heard: list[str]):
    """What is compiled for a module is torch's own wrapper."""
    torch.begin(("/me/train.py", "step", 7), ("/v/site-packages/torch/nn/modules/module.py", "_call_impl", 1800))
    assert heard == ["step (train.py:7)"]


def test_a_backward_is_of_the_function_of_its_forward(compiles: Compiles, torch: Torch):
    """It is compiled lazily, with an id that never began."""
    torch.begin(("/me/train.py", "step", 7), frame=3)
    torch.artifact("fx_graph_cache_hit", {"key": "b"}, frame=3, again=9)
    assert compiles.graphs[0].function == "step (train.py:7)"


def test_a_graph_that_is_compiled_without_asking_missed(compiles: Compiles, torch: Torch):
    """TORCHINDUCTOR_FX_GRAPH_CACHE=0: torch says nothing of a cache that is off."""
    torch.begin(("/me/train.py", "step", 7))
    torch.artifact("before_post_grad_graph", "def forward(): ...")
    torch.artifact("aotautograd_cache_bypass", {"cache_bypass_reason": "FX graph cache is not enabled"})
    bypassed, missed = compiles.graphs
    assert bypassed.state == "bypass"
    assert (missed.cache, missed.state, missed.function) == ("fx", "miss", "step (train.py:7)")
    assert "off" in missed.reason
    compiles.clear()
    assert compiles.graphs == ()


@pytest.mark.parametrize("state", ["miss", "bypass"])
def test_one_that_is_compiled_after_asking_is_counted_once(compiles: Compiles, torch: Torch, state: str):
    torch.begin(("/me/train.py", "step", 7))
    for key in "ab":  # forward, and its backward
        torch.artifact("before_post_grad_graph", "def forward(): ...")
        torch.artifact(f"fx_graph_cache_{state}", {"key": key})
    assert [(graph.key, graph.state) for graph in compiles.graphs] == [("a", state), ("b", state)]


def test_older_torch_has_no_artifact_of_it(compiles: Compiles, torch: Torch):
    torch.send("def forward(): ...", before_post_grad_graph={})
    assert [graph.state for graph in compiles.graphs] == ["miss"]


def test_why_something_was_compiled_again(compiles: Compiles, torch: Torch):
    torch.begin(("/me/train.py", "step", 7))
    torch.artifact("recompile_reasons", ["0/0: size mismatch ", "0/1: other"], again=1)
    assert compiles.recompiles == ["step (train.py:7): 0/0: size mismatch"]
    torch.artifact("recompile_reasons", "no list", frame=8)
    assert compiles.recompiles[1] == "no list"


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("Graph break in user code at a.py:3\nGraph Break Reason: Unsupported\n  Explanation: no.\nTrace", "no."),
        (
            "Graph break in user code at a.py:3\nReason: Unsupported: builtin\nUser code traceback:\n x",
            "Unsupported: builtin",
        ),
        ("something\nlast words\n", "last words"),
        ("", "no reason given"),
    ],
)
def test_why_a_graph_broke(compiles: Compiles, torch: Torch, payload: str, said: str):
    torch.artifact("dynamo_graph_break_reason", payload)
    assert compiles.graph_breaks == [said]


def test_a_function_that_torch_gave_up(torch: Torch, heard: list[str]):
    metrics = {"co_name": "step", "co_filename": "/me/train.py", "co_firstlineno": 7, "fail_type": "Unsupported"}
    torch.send(compilation_metrics={**metrics, "fail_reason": "Data dependent\n  Explanation: no.\n  Hint: x"})
    torch.send(compilation_metrics={**metrics, "fail_reason": None})
    torch.send(compilation_metrics={**metrics, "fail_type": None})
    assert heard == [
        "step (train.py:7) failed: Data dependent Explanation: no.",
        "step (train.py:7) failed: Unsupported",
    ]


def test_a_function_at_the_limit_has_no_name_yet(torch: Torch, heard: list[str]):
    torch.begin(("/me/train.py", "step", 7), frame=4)
    torch.send(frame=4, again=8, compilation_metrics={"co_name": None, "fail_type": "Unsupported"})
    torch.send(frame=5, compilation_metrics={"fail_type": "Unsupported"})
    assert heard[1:] == ["step (train.py:7) failed: Unsupported", "a function failed: Unsupported"]


def test_one_that_was_found_was_not_compiled(compiles: Compiles, torch: Torch):
    torch.artifact("fx_graph_runnable", "")
    torch.artifact("inductor_post_grad_graph", "")  # torch keeps it beside the graph, and tells of it
    torch.artifact("fx_graph_cache_hit", {"key": "a"})
    assert [graph.state for graph in compiles.graphs] == ["hit"]


def test_what_makes_no_sense_is_passed_over(compiles: Compiles, torch: Torch, heard: list[str]):
    torch.artifact("fx_graph_cache_miss", "{no json")
    torch.artifact("fx_graph_cache_miss", "[]")
    torch.send(dynamo_start={})
    torch.send(dynamo_start={"stack": [{"filename": 0}]})
    torch.send(str=5)
    torch.send(artifact={})
    torch.send(compilation_metrics=5)
    compiles.handle(logging.LogRecord("torch.__trace", logging.DEBUG, "", 0, "no metadata", None, None))
    assert (compiles.graphs, compiles.recompiles, heard) == ((), [], [])
    torch.artifact("fx_graph_cache_hit", {"key": "a", "components": ["[aa] b: c", 5]})
    assert compiles.graphs[0].components == ("[aa] b: c",)


def test_long_components_are_cut(compiles: Compiles, torch: Torch):
    torch.artifact("fx_graph_cache_hit", {"components": ["[aa] gm: " + "x" * 10_000]})
    assert len(compiles.graphs[0].components[0]) == 2000


def test_clearing_forgets_answers_but_not_names(compiles: Compiles, torch: Torch):
    torch.begin(("/me/train.py", "step", 7))
    torch.artifact("fx_graph_cache_hit", {"key": "a"})
    torch.artifact("recompile_reasons", ["r"])
    torch.artifact("dynamo_graph_break_reason", "b")
    compiles.clear()
    assert (compiles.graphs, compiles.recompiles, compiles.graph_breaks) == ((), [], [])
    torch.artifact("fx_graph_cache_hit", {"key": "b"})
    assert compiles.graphs[0].function == "step (train.py:7)"
