"""Why graphs missed, from what processes told. The components are as torch 2.13 lists them, shortened."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest

from cachekeeper.explaining import Cause, Explanation, explain_run
from cachekeeper.inductor.keys.changes import changes
from cachekeeper.inductor.keys.components import components, differences
from cachekeeper.models import Graph
from cachekeeper.telemetry import Compiled, End, Fallback, Frame, Log, Note, Process, decode, encode

SETTINGS = {
    "cpp_runtime_thread_count": "2",
    "default_dtype": "torch.float32",
    "torch_version": "b'1'",
    "inductor_config[max_autotune]": "False",
    "inductor_config[epilogue_fusion]": "True",
}
PRODUCT = "    mm = torch.ops.aten.mm.default(arg0_1, arg1_1);  arg0_1 = arg1_1 = None\n    return (mm,)\n"


def tensor(shape: str = "8, 4", stride: str = "4, 1", device: str = "'cpu'", **others: str) -> str:
    rest = "".join(f", {name}={value}" for name, value in others.items())
    return (
        f"TensorMetadata(dtype=torch.float32, shape=torch.Size([{shape}]), stride=({stride}), "
        f"device=device(type={device}), layout=torch.strided, memory_format=torch.contiguous_format{rest})"
    )


def cuda(index: int) -> str:
    return f"'cuda', index={index}"


def lines(values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"[{hashlib.sha256(value.encode()).hexdigest()[:51]}] {name}: {value}" for name, value in values.items()
    )


def graph(
    *inputs: str,
    cache: str = "fx",
    state: str = "miss",
    direction: str = "inference",
    function: str = "step (train.py:7)",
    body: str = PRODUCT,
    reason: str = "",
    **settings: str,
) -> Graph:
    """A graph whose key follows from its components, as in torch."""
    values = {"gm": f"<lambda>()\n\n\n\ndef forward(self, arg0_1, arg1_1):\n{body}"}
    values |= {f"example_inputs[{number}]": value for number, value in enumerate(inputs or (tensor(),))}
    if cache == "fx":
        values["fx_kwargs[is_inference]"] = str(direction == "inference")
        values["fx_kwargs[is_backward]"] = str(direction == "backward")
    else:
        direction = ""
        values["grad_enabled"] = "True"
    values |= SETTINGS | {
        name.replace("config_", "inductor_config[") + "]" * ("config_" in name): v for name, v in settings.items()
    }
    listed = lines(values)
    key = cache[0] + hashlib.sha256(repr(listed).encode()).hexdigest()
    return Graph(cache, state, key, reason, function, direction, "", listed)


def told(*graphs: Graph, thread: str = "MainThread", began: float = 0.0, rank: int | None = None, **others: Any) -> Log:
    """A process that was told these answers, one a second."""
    version = others.pop("torch", "2.13.0")
    compiled = tuple(Compiled(began + number, thread, item, 2.0) for number, item in enumerate(graphs))
    return Log(Process(1, "host", began, rank=rank, torch=version), others.pop("compiled", compiled), **others)


def only(explanation: Explanation) -> Cause:
    [cause] = explanation.misses
    return cause


def why(wanted: Graph, *known: Graph) -> tuple[str, ...]:
    return only(explain_run([told(wanted)], told(*known))).words


def test_one_cause_that_kills_many_graphs_is_one_line():
    bodies = [PRODUCT.replace("mm.default", f"op{number}.default") for number in range(200)]
    known = [graph(body=body, function=f"f{n} (a.py:{n})") for n, body in enumerate(bodies)]
    missed = [
        graph(body=body, function=f"f{n} (a.py:{n})", config_max_autotune="True") for n, body in enumerate(bodies)
    ]
    cause = only(explain_run([told(*missed)], told(*known)))
    assert cause.words == ("inductor config max_autotune: False -> True",)
    assert (cause.number, cause.distinct, cause.seconds, len(cause.functions)) == (200, 200, 400.0, 200)
    assert all(not answer.graph.components for answer in cause.graphs) and len(cause.graphs) == 200
    assert "TORCHINDUCTOR" in cause.advice and cause.threads == ("MainThread",)


def test_most_graphs_come_first_then_most_seconds():
    known = told(graph(), graph(body=PRODUCT + " a = b.t()\n"))
    one = [graph(cpp_runtime_thread_count="1")]
    two = [graph(config_max_autotune="True"), graph(body=PRODUCT + " a = b.t()\n", config_max_autotune="True")]
    slow = Compiled(9.0, "MainThread", graph(default_dtype="torch.float64"), 50.0)
    log = told(compiled=(*told(*one, *two).compiled, slow))
    assert [(cause.number, cause.seconds, cause.kinds) for cause in explain_run([log], known).misses] == [
        (2, 4.0, ("setting",)),
        (1, 50.0, ("default dtype",)),
        (1, 2.0, ("threads",)),
    ]


@pytest.mark.parametrize(
    ("name", "before", "after", "words", "kind"),
    [
        ("inductor_config[a.b]", "False", "True", "inductor config a.b: False -> True", "setting"),
        ("inductor_config_comms[x]", "1", "2", "inductor config x: 1 -> 2", "setting"),
        (
            "autograd_config",
            "b'1'",
            "b'2'",
            "a setting of torch._functorch.config (torch does not say which)",
            "setting",
        ),
        (
            "fx_kwargs[cudagraphs]",
            "BoxedBool(value=False)",
            "BoxedBool(value=True)",
            "compile option cudagraphs: False -> True",
            "option",
        ),
        ("fx_kwargs[is_inference]", "True", "False", "grad mode: inference -> training", "gradients"),
        ("grad_enabled", "True", "False", "grad mode: on -> off", "gradients"),
        ("disable_amp", "False", "True", "autocast: off -> on", "autocast"),
        ("autocast_state[cuda]", "", "torch.bfloat16", "autocast of cuda: off -> bfloat16", "autocast"),
        ("cpp_runtime_thread_count", "2", "1", "number of CPU threads: 2 -> 1", "threads"),
        ("default_dtype", "torch.float32", "torch.float64", "default dtype: float32 -> float64", "default dtype"),
        (
            "cuda_matmul_settings",
            "('none', True, True)",
            "('tf32', True, True)",
            "float32 matmul precision: none -> tf32",
            "matmul",
        ),
        (
            "deterministic_algorithms_settings",
            "(False, False, True)",
            "(True, False, True)",
            "deterministic algorithms: off -> on",
            "deterministic",
        ),
        ("cache_key_tag", "", "b", "cache key tag: nothing -> 'b'", "key tag"),
        ("provenance_tracking_level", "0", "1", "provenance tracking: 0 -> 1", "tracing"),
        ("post_grad_custom_post_pass", "None", "b'1'", "post_grad_custom_post_pass: None -> b'1'", "pass"),
        ("torch_version", "b'1'", "b'2'", "torch's source differs", "torch"),
        (
            "system_info[device]",
            "{'name': 'NVIDIA H100'}",
            "{'name': 'NVIDIA H200'}",
            "GPU NVIDIA H100 -> NVIDIA H200",
            "system",
        ),
        (
            "system_info[version]",
            "{'triton': 'a', 'cuda': '12.8'}",
            "{'triton': 'a', 'cuda': '13.0'}",
            "CUDA 12.8 -> 13.0",
            "system",
        ),
        ("system_info[version]", "{'triton': 'a'}", "{'triton': 'b'}", "triton's source differs", "triton"),
        ("system_info[hash]", "a", "b", "GPU, CUDA or Triton differs", "system"),
        (
            "default_cuda_device_index",
            "device(type='cuda', index=0)",
            "device(type='cuda', index=1)",
            "current device: cuda:0 -> cuda:1",
            "current device",
        ),
        ("something_new", "a", "b", "something_new: a -> b", "other"),
    ],
)
def test_each_component_in_words(name: str, before: str, after: str, words: str, kind: str):
    old, new = (components(lines({name: value} if value else {})) for value in (before, after))
    [change] = changes(differences(old, new), old, new)
    assert (change.words, change.kind, change.general) == (
        words,
        kind,
        words if name != "system_info[hash]" else change.general,
    )


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ([tensor("4, 512", "512, 1")], [tensor("4, 512", "1, 4")], ["input 0: stride (512, 1) -> (1, 4)"]),
        ([tensor("8, 4", "4, 1")], [tensor("8, 6", "6, 1")], ["input 0: shape (8, 4) -> (8, 6)"]),
        ([tensor(requires_grad="False")], [tensor(requires_grad="True")], ["input 0: requires_grad False -> True"]),
        ([tensor()], [tensor().replace("float32", "bfloat16")], ["input 0: dtype float32 -> bfloat16"]),
        ([tensor(device=cuda(0))] * 3, [tensor(device=cuda(5))] * 3, ["inputs 0, 1, 2: device cuda:0 -> cuda:5"]),
        ([tensor()], [tensor(), tensor()], ["number of inputs: 1 -> 2"]),
        (
            [tensor(), tensor()],
            ["('s77',)", tensor("s77, 4"), tensor()],
            ["sizes: fixed -> dynamic, as (8, 4) -> (s77, 4)"],
        ),
        ([tensor()], ["('s_0',)", tensor("s77, 4")], ["sizes: fixed -> dynamic, as (8, 4) -> (s77, 4)"]),
        (["('s77',)", tensor("s77, 4")], [tensor("9, 4")], ["sizes: dynamic -> fixed, as (s77, 4) -> (9, 4)"]),
    ],
)
def test_inputs_in_words(before: list[str], after: list[str], words: list[str]):
    assert list(why(graph(*after), graph(*before))) == words


def body(*statements: str) -> str:
    return "".join(f"    {statement}\n" for statement in statements) + "    return (x,)\n"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            ["a = torch.ops.aten.mm.default(x, y)"],
            ["a = torch.ops.aten.mm.default(x, y)", "b = a.t();  a = None"],
            ": more t",
        ),
        (
            ["a = x @ y", "b = torch.relu(a)"],
            ["a = torch._C._nn.linear(x, y)", "b = torch.relu(a)"],
            ": more linear; without @",
        ),
        (
            ["a = torch.ops.aten.mul.Tensor(x, 2)"],
            ["b = torch.ops.aten.mul.Tensor(x, 3)"],
            ": mul.Tensor(x, 2) -> mul.Tensor(x, 3)",
        ),
        (["a = torch.relu(x)"] * 50, ["b = torch.relu(x)"] * 51, " past the first 49, which are all that torch shows"),
    ],
)
def test_operations_in_words(before: list[str], after: list[str], words: str):
    assert why(graph(body=body(*after)), graph(body=body(*before))) == ("the graph's operations differ" + words,)


def test_sizes_and_devices_within_a_graph_follow_from_those_of_its_inputs():
    before = graph(tensor("8, 4", device=cuda(0)), body=body("a = torch.ops.aten.view.default(x, [8, 4])"))
    after = graph(tensor("9, 4", device=cuda(1)), body=body("a = torch.ops.aten.view.default(x, [9, 4])"))
    assert why(after, before) == ("input 0: shape (8, 4) -> (9, 4)", "input 0: device cuda:0 -> cuda:1")


def test_another_torch_brings_other_settings_with_it():
    wanted = graph(torch_version="b'2'", config_of_a_new_one="1", config_max_autotune="True")
    known = told(graph(), torch="2.13.0")
    assert only(explain_run([told(wanted, torch="2.14.1")], known)).words == ("torch 2.13.0 -> 2.14.1",)
    same = only(explain_run([told(wanted, torch="2.13.0")], known))
    assert same.words == ("torch source changed",) and same.advice.startswith("torch, or a file of it,")


def test_a_setting_that_comes_with_another_is_not_said_with_it():
    both = {"deterministic_algorithms_settings": "(True, False, True)", "config_deterministic": "True"}
    base = {"deterministic_algorithms_settings": "(False, False, True)", "config_deterministic": "False"}
    assert why(graph(**both), graph(**base)) == ("deterministic algorithms: off -> on",)
    assert why(graph(**base | {"config_deterministic": "True"}), graph(**base)) == (
        "inductor config deterministic: False -> True",
    )


def test_what_torch_does_not_show_is_not_passed_over():
    one, other = (components([f"[{digest}] example_inputs[0]: {tensor()}"]) for digest in "ab")
    [change] = changes(differences(one, other), one, other)
    assert change.words == "input 0: differs in what torch does not show"
    one, other = (components([f"[{digest}] gm: def forward(self):\n{PRODUCT}"]) for digest in "ab")
    [change] = changes(differences(one, other), one, other)
    assert change.words == "the graph's operations differ"


def test_a_graph_that_missed_in_both_caches_is_one():
    log = told(graph(cache="aot", config_max_autotune="True"), graph(config_max_autotune="True"))
    found = explain_run([log], told(graph(cache="aot"), graph()))
    cause = only(found)
    assert (found.missed, found.traced, cause.number) == (1, 0, 1) and not cause.autograd_only
    assert cause.words == ("inductor config max_autotune: False -> True",)


def test_what_the_function_was_given_says_more_than_what_was_made_of_it():
    """Under autocast the graphs have other operations; why that is so is in AOTAutograd's key alone."""
    cast = PRODUCT + "    a = torch.ops.prims.convert_element_type.default(mm)\n"
    training = graph(direction="forward", body=cast), graph(direction="backward", body=cast + "    b = a.t()\n")
    log = told(graph(cache="aot", **{"autocast_state[cpu]": "torch.bfloat16"}), *training)
    known = told(graph(cache="aot"), graph(direction="forward"), graph(direction="backward"))
    cause = only(explain_run([log], known))
    assert cause.words == ("autocast of cpu: off -> bfloat16",) and cause.number == 2
    assert cause.functions == ("forward of step (train.py:7)", "backward of step (train.py:7)")


def test_a_backward_that_is_compiled_later_is_of_its_forward():
    given = {"config_max_autotune": "True"}
    first = Compiled(0.0, "MainThread", graph(cache="aot", **given)), Compiled(0.1, "MainThread", graph(**given))
    later = Compiled(9.0, "autograd", graph(direction="backward", body=PRODUCT + "    c = d.t()\n", **given), 1.0)
    cause = only(explain_run([told(compiled=(*first, later))], told(graph(cache="aot"), graph())))
    assert cause.words == ("inductor config max_autotune: False -> True",) and cause.number == 2


def test_what_only_autograd_missed_was_traced_again():
    log = told(graph(cache="aot", grad_enabled="False"), graph(state="hit"))
    found = explain_run([log], told(graph(cache="aot"), graph()))
    assert (found.found, found.missed, found.traced) == (1, 0, 1)
    assert only(found).words == ("grad mode: on -> off",) and only(found).autograd_only


def test_a_process_that_ends_before_inductor_is_asked_has_not_traced_again():
    """As one that `assert_warm` ends at AOTAutograd's miss; not where the compile came to its end."""
    asked = graph(cache="aot", grad_enabled="False")
    found = explain_run([told(graph(state="hit"), asked)], told(graph(cache="aot"), graph()))
    assert (found.missed, found.traced) == (1, 0) and not only(found).autograd_only
    whole = told(asked, frames=(Frame(0.5, "MainThread", "step (train.py:7)", 1.0),))
    assert explain_run([whole], told(graph(cache="aot"))).traced == 1


def test_the_entry_of_a_known_key_is_gone():
    found = explain_run([told(graph(cache="aot"), graph())], told(graph(cache="aot"), graph()))
    cause = only(found)
    assert cause.kinds == ("gone",) and "restore" in cause.advice and cause.number == 1
    assert only(explain_run([told(graph())], None, [told(graph(state="hit"))])).kinds == ("gone",)


def test_what_every_run_misses_is_not_saved():
    assert only(explain_run([told(graph())], None, [told(graph()), told(graph())])).kinds == ("unsaved",)
    twice = explain_run([told(graph(), graph(body=PRODUCT + " a = b.t()\n"), graph())])
    assert [(cause.kinds, cause.number) for cause in twice.misses] == [(("cold",), 2), (("unsaved",), 1)]


def test_what_the_run_itself_compiled_is_not_gone():
    """One process compiles it, the next finds it: before the run it was not there."""
    found = explain_run([told(graph()), told(graph(state="hit"), began=9.0)])
    assert only(found).kinds == ("cold",) and found.found == 1
    gone = explain_run([told(graph(state="hit")), told(graph(), began=9.0)])
    assert only(gone).kinds == ("gone",)


def test_torch_asks_twice_for_the_graph_of_an_entry_that_it_found():
    """fxgraph/ is gone and aotautograd/ is not: what is in the entry is asked for, then all is compiled anew."""
    backward = graph(direction="backward")
    log = told(graph(), graph(cache="aot"), graph(), backward)
    cause = only(explain_run([log], told(graph(), graph(cache="aot"), backward)))
    assert cause.kinds == ("gone",) and cause.number == 2


def test_a_guard_that_failed_is_said():
    reason = "a guard failed: 2 <= L['t0'] and L['t0'] <= 10 and 2 <= L['t1']"
    for known in (None, told(graph())):
        cause = only(explain_run([told(graph(reason=reason))], known))
        assert cause.words == ("a guard failed: t0 <= 10",) and "mark_dynamic" in cause.advice
    assert only(explain_run([told(graph(reason="a guard failed"))])).words == ("a guard failed",)


def test_a_cache_that_is_off():
    log = told(Graph("fx", "miss", "", "torch did not ask: the cache is off", "step (train.py:7)"))
    cause = only(explain_run([log], told(graph())))
    assert cause.words == ("torch did not ask: the cache is off",) and "TORCHINDUCTOR_FX_GRAPH_CACHE" in cause.advice


def test_what_was_never_seen_before():
    other = graph(body=PRODUCT + "    t = mm.t()\n", function="other (b.py:1)")
    cause = only(explain_run([told(other)], told(graph())))
    assert cause.words == ("new: nothing like it is known",) and "warmup" in cause.advice
    cold = only(explain_run([told(graph())]))
    assert cold.kinds == ("cold",) and "--snapshot-on-success" in cold.advice


def test_a_function_is_known_by_its_name_after_an_edit():
    other = graph(body=PRODUCT + "    t = mm.t()\n", function="step (train.py:19)")
    assert why(other, graph()) == ("the graph's operations differ: more t",)
    elsewhere = graph(body=PRODUCT + "    t = mm.t()\n", function="step (other.py:7)")
    assert why(elsewhere, graph()) == ("new: nothing like it is known",)


def test_the_nearest_has_the_same_operations_and_direction():
    known = [graph(direction="backward"), graph(config_max_autotune="2", default_dtype="torch.float64"), graph()]
    assert why(graph(config_max_autotune="True"), *known) == ("inductor config max_autotune: False -> True",)
    other_operations = graph(body=PRODUCT + "    t = mm.t()\n", config_max_autotune="True")
    assert why(graph(config_max_autotune="True"), other_operations, graph()) == (
        "inductor config max_autotune: False -> True",
    )


def test_of_two_that_are_as_near_the_last_seen_is_the_nearest():
    """In whatever order they are told of, and though the last seen may be known for long."""
    old = graph(config_max_autotune="2"), graph(config_max_autotune="3")
    wanted = graph(config_max_autotune="True")
    for logs in ([told(*old)], [told(old[1], began=9.0), told(old[0])], [told(old[0]), told(old[1], began=9.0)]):
        cause = only(explain_run([told(wanted, began=20.0)], None, logs))
        assert cause.words == ("inductor config max_autotune: 3 -> True",)
    again = [told(*old), told(graph(config_max_autotune="2", state="hit"), began=9.0)]
    assert only(explain_run([told(wanted, began=20.0)], None, again)).words == (
        "inductor config max_autotune: 2 -> True",
    )


def test_a_graph_that_was_told_without_components_at_first_is_compared():
    bare = Graph(**{**vars(graph()), "components": ()})
    cause = only(explain_run([told(graph(config_max_autotune="True"))], None, [told(bare), told(graph())]))
    assert cause.words == ("inductor config max_autotune: False -> True",)


def test_a_backward_is_compared_with_a_backward():
    """Though more differs from that than from the forward."""
    given = {"config_max_autotune": "2", "cpp_runtime_thread_count": "1", "default_dtype": "torch.float64"}
    known = graph(direction="forward"), graph(tensor("9, 4"), direction="backward", **given)
    wanted = graph(direction="backward", body=PRODUCT + "    t = mm.t()\n")
    assert "the graph's operations differ: more t" in why(wanted, *known)
    assert why(wanted, known[0]) == ("a backward, of which none was known",)


def test_without_components_only_the_key_tells():
    bare = Graph("fx", "miss", "f1", function="step (train.py:7)")
    assert why(bare, graph()) == ("new: nothing like it is known",)
    assert why(bare, bare) == ("the entry is gone from the cache: its key is known",)


def test_a_setting_that_another_thread_does_not_see():
    main = told(graph(config_max_autotune="True", state="hit")).compiled
    worker = Compiled(5.0, "worker", graph(), 1.0)
    found = explain_run([told(compiled=(*main, worker))])
    assert only(found).words == ("inductor config max_autotune: True -> False",)
    assert only(found).advice.startswith("thread worker sees another value than thread MainThread")
    assert "carry=True" in only(found).advice
    apart = explain_run([told(*(item.graph for item in main)), told(graph(), thread="worker", began=9.0)])
    assert "carry=True" not in only(apart).advice


def test_in_a_first_run_a_setting_of_a_thread_shows_as_well():
    compiled = (*told(graph(config_max_autotune="True")).compiled, Compiled(5.0, "worker", graph(), 1.0))
    cold, setting = sorted(explain_run([told(compiled=compiled)]).misses, key=lambda cause: cause.within)
    assert cold.kinds == ("cold",) and setting.within
    assert setting.words == ("inductor config max_autotune: True -> False",)
    # Another size is no setting: it was to be compiled, too.
    sizes = explain_run([told(graph(), graph(tensor("9, 4")))])
    assert only(sizes).kinds == ("cold",) and only(sizes).number == 2


def test_ranks_that_ask_for_the_same():
    logs = [told(graph(tensor("9, 4")), began=rank / 10, rank=rank) for rank in range(8)]
    cause = only(explain_run(logs, told(graph())))
    assert (cause.number, cause.distinct, cause.ranks) == (8, 1, tuple("01234567"))
    assert cause.words == ("input 0: shape (8, 4) -> (9, 4)",)


def test_a_device_is_one_cause_for_graphs_of_any_number_of_inputs():
    bodies = [PRODUCT + f"    a = torch.ops.aten.op{n}.default(b)\n" for n in range(3)]
    known, wanted = (
        [graph(*[tensor(device=cuda(index))] * (n + 1), body=body) for n, body in enumerate(bodies)] for index in (0, 5)
    )
    cause = only(explain_run([told(*wanted)], told(*known)))
    assert cause.words == ("device cuda:0 -> cuda:5",) and cause.number == 3
    assert cause.details[0] == "input 0: device cuda:0 -> cuda:5" and len(cause.details) == 3


def test_many_sizes_are_one_cause():
    cause = only(explain_run([told(*(graph(tensor(f"{size}, 4")) for size in range(10, 50)))], told(graph())))
    assert cause.words == ("size 8 -> 10, 11, 12, 13, 14, 15 and 34 more",) and cause.number == 40
    assert "mark_dynamic" in cause.advice and "--shape" in cause.advice


def test_the_device_to_warm_is_named():
    wanted = graph(tensor(device=cuda(5)))
    found = only(
        explain_run([told(Graph(**{**vars(wanted), "device": "cuda:5"}))], told(graph(tensor(device=cuda(0)))))
    )
    assert found.advice == "a compiled graph is for one device: warm each one, as `cachekeeper warmup --device cuda:5`"


def test_seconds_are_those_of_the_whole_compile():
    answers = told(graph(direction="forward"), graph(direction="backward")).compiled
    frames = (Frame(1.5, "MainThread", "step (train.py:7)", 10.0), Frame(1.2, "other", "step", 99.0))
    log = told(compiled=answers, frames=frames)
    found = explain_run([log])
    assert found.lost == 10.0 and found.seconds == 109.0
    assert explain_run([told(compiled=answers)]).lost == 4.0
    late = told(compiled=answers, frames=(Frame(500.0, "MainThread", "step (train.py:7)", 10.0),))
    assert explain_run([late]).lost == 4.0


def test_compiles_are_kept_apart_by_their_ends():
    """Two compiles of one function: what AOTAutograd said in the first says nothing of the second."""
    answers = (
        Compiled(1.0, "MainThread", graph(cache="aot", **{"autocast_state[cpu]": "torch.bfloat16"})),
        Compiled(1.0, "MainThread", graph(body=PRODUCT + "    c = d.t()\n")),
        Compiled(5.0, "MainThread", graph(cpp_runtime_thread_count="1")),
    )
    frames = tuple(Frame(at, "MainThread", "step (train.py:7)", 1.0) for at in (1.0, 5.0))
    log = told(compiled=answers, frames=frames)
    found = explain_run([log], told(graph(cache="aot"), graph()))
    assert sorted(cause.words for cause in found.misses) == [
        ("autocast of cpu: off -> bfloat16",),
        ("number of CPU threads: 2 -> 1",),
    ]


@pytest.mark.parametrize(
    ("cache", "reason", "advice"),
    [
        ("aot", "Unsupported call_function target autograd_function_apply.", "torch.autograd.Function of your own"),
        ("aot", "Cannot cache a graph with freezing enabled", "TORCHINDUCTOR_FREEZING"),
        ("aot", "FX graph cache is not enabled", "TORCHINDUCTOR_FX_GRAPH_CACHE"),
        ("aot", "something else", "traces the graph in every process"),
        ("fx", "something else", "compiles the graph in every process"),
    ],
)
def test_what_torch_never_keeps(cache: str, reason: str, advice: str):
    bypassed = [Graph(cache, "bypass", "", reason, f"f{number} (a.py:{number})") for number in range(3)]
    found = explain_run([told(*bypassed)])
    [cause] = found.bypasses
    assert (cause.words, cause.number, found.bypassed, found.misses) == ((reason,), 3, 3, ())
    assert advice in cause.advice and cause.functions[0] == "f0 (a.py:0)"


def test_a_reason_is_one_wherever_its_objects_lie_in_memory():
    """C66: torch puts the address of a function into it, which is another in every process."""
    ranks = [
        told(
            Graph(
                "aot", "bypass", "", f"Unsupported call_function target <function _enter_autocast at 0x7f{rank}2fa0>."
            ),
            fallbacks=(Fallback(1.0, "MainThread", "step", f"<object object at 0x7f{rank}2fb0> has no source"),),
            rank=rank,
        )
        for rank in range(2)
    ]
    found = explain_run([decode(encode(log).splitlines(keepends=True)) for log in ranks])
    [bypass], [fallback] = found.bypasses, found.fallbacks
    assert bypass.words == ("Unsupported call_function target <function _enter_autocast>.",)
    assert fallback.words == ("<object object> has no source",)
    assert (bypass.number, fallback.number, bypass.ranks) == (2, 2, ("0", "1"))


def test_what_ran_uncompiled_is_one_cause_a_reason():
    reasons = [f"recompile_limit (8) reached; {n}/7: size mismatch" for n in range(4)]
    dense = Fallback(9.0, "worker", "flex_attention", "dense, the whole matrix of scores: 4 GiB")
    fallbacks = (*(Fallback(1.0, "MainThread", f"f{n}", reason) for n, reason in enumerate(reasons)), dense)
    limit, other = explain_run([told(fallbacks=fallbacks, rank=3)]).fallbacks
    assert limit.words == (reasons[0],) and limit.number == 4 and "recompile_limit in every thread" in limit.advice
    assert limit.functions == ("f0", "f1", "f2", "f3") and limit.ranks == ("3",)
    assert other.threads == ("worker",) and "flex_attention only compiled" in other.advice


def test_notes_are_those_of_the_processes():
    logs = [told(notes=(Note(1.0, "worker", "settings differ"),), end=End(2.0, 3)), told(end=End(2.0, 2))]
    assert explain_run(logs).notes == (
        "settings differ",
        "5 events had no room in the telemetry, and are not counted",
    )


def test_nothing_told_explains_nothing():
    assert explain_run([]) == Explanation()
    assert explain_run([told(graph(state="hit"))]) == Explanation(found=1, seconds=2.0, processes=1)
