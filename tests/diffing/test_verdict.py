"""The verdict's line and the suspects: each rule where it holds, and where it just does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachekeeper.diffing.compare import compare
from cachekeeper.inventory.models import Coverage, Kernel
from cachekeeper.models import Fact
from tests.diffing.samples import (
    SLOW,
    SOURCE,
    binary,
    components,
    cpp,
    differ,
    first,
    graph,
    inventory,
    kernel,
    kinds,
    product,
    run,
    winner,
)
from tests.samples import fingerprint

FAST = ({"tok_s": 80.0}, {"tok_s": 100.0})
SAME = ({"tok_s": 100.0}, {"tok_s": 100.4})
SPILLS = inventory(kernels=(kernel(binary=binary("B", local_bytes=4144)),))


def test_no_difference():
    found = differ(inventory())
    assert (found.verdict, found.suspects, found.differs) == ("no difference", (), False)


def test_slower_and_nothing_explains_it():
    found = differ(inventory(), metrics=SLOW)
    assert found.verdict == "b is slower by 20 % (tok_s 100 -> 80): nothing that explains it"
    assert (found.suspects, found.differs) == ((), True)


def test_spills():
    found = differ(SPILLS, metrics=SLOW)
    assert found.verdict == "b is slower by 20 % (tok_s 100 -> 80): likely spills in triton_poi_fused_add_2"
    assert kinds(found) == [("likely", "slower")]
    assert first(found).evidence[0].startswith("triton_poi_fused_add_2: spills none -> 4,144 bytes")
    assert first(found).advice == "`cachekeeper diff a b --kernel triton_poi_fused_add_2` shows it"


@pytest.mark.parametrize(("local", "likelihood"), [(64, "likely"), (63, "possible")])
def test_few_spills_are_only_possible(local, likelihood):
    found = differ(inventory(kernels=(kernel(binary=binary("B", local_bytes=local)),)), metrics=SLOW)
    assert first(found).likelihood == likelihood


def test_a_kernel_that_no_graph_launches_is_only_possible():
    kernels = [
        (kernel(graphs=(), binary=binary(digest, local_bytes=local)),) for digest, local in (("A", 0), ("B", 800))
    ]
    found = differ(inventory(kernels=kernels[1]), inventory(kernels=kernels[0]), metrics=SLOW)
    assert kinds(found) == [("possible", "slower")]


@pytest.mark.parametrize(
    ("metrics", "verdict"),
    [
        (({}, {}), "may be slower: spills in triton_poi_fused_add_2"),
        (SAME, "as fast as before (tok_s within 1 %)"),
        (({"loss": 1.0}, {"loss": 2.0}), "may be slower: spills in triton_poi_fused_add_2"),
    ],
)
def test_without_a_slowdown_none_is_claimed(metrics, verdict):
    found = differ(SPILLS, metrics=metrics)
    assert found.verdict == verdict
    assert kinds(found) == [("possible", "slower")]


def test_what_makes_slower_is_no_cause_of_faster():
    found = differ(SPILLS, metrics=FAST)
    assert found.verdict == "b is faster by 25 % (tok_s 80 -> 100): nothing that explains it"
    assert found.suspects == ()
    found = differ(inventory(), SPILLS, metrics=FAST)
    assert found.verdict.endswith("likely fewer spills in triton_poi_fused_add_2")
    assert kinds(found) == [("likely", "faster")]


def test_another_work_goes_before_any_number():
    found = differ(SPILLS, metrics=SLOW, run=run("python", "train.py", "--data", "pile"))
    assert not found.verdict.startswith("not")  # a has no command
    a, b = (replace(side, tags={"dataset": data}) for side, data in ((found.a, "c4"), (found.b, "pile")))
    found = compare(a, b, inventory(), SPILLS)
    assert found.verdict == "not the same work: tag dataset c4 -> pile; tok_s 100 -> 80"
    assert kinds(found) == [("likely", ""), ("possible", "slower")]
    assert first(found).evidence == ("tag dataset c4 -> pile",)


def test_tensor_cores_gone_with_the_setting_that_did_it():
    settings = [f"[{value}] cuda_matmul_settings: ('{value}', True, True)" for value in ("tf32", "ieee")]
    graphs = [(graph(key, components=(*components(), line)),) for key, line in zip(("fa", "fb"), settings, strict=True)]
    a = inventory(graphs=graphs[0])
    b = inventory(graphs=graphs[1], kernels=(kernel(graphs=("fb",), binary=binary("B", mix={"float": 9})),))
    found = differ(b, a, metrics=({"step_ms": 0.057}, {"step_ms": 0.257}))
    assert found.verdict == (
        "b is 4.5 times slower (step_ms 0.057 -> 0.257): likely tensor-core instructions gone from "
        "triton_poi_fused_add_2 (float32 matmul precision tf32 -> ieee)"
    )
    assert first(found).advice.startswith("call torch.set_float32_matmul_precision")


def test_fewer_tensor_instructions_are_none_gone():
    found = differ(inventory(kernels=(kernel(binary=binary("B", mix={"tensor": 1})),)), metrics=SLOW)
    assert found.suspects == ()


def test_new_fallbacks():
    found = differ(inventory(), metrics=SLOW, fallbacks=("forward (model.py:12): recompile limit",), run=run("x"))
    assert kinds(found) == [("possible", "slower")]  # what ran uncompiled in a is not known
    assert "forward (model.py:12): recompile limit ran uncompiled" in first(found).words
    assert "recompile_limit" in first(found).advice


def test_a_fallback_on_another_line_is_the_same():
    found = differ(inventory(), metrics=SLOW)
    a, b = (
        replace(s, run=run("x"), fallbacks=(f"f (m.py:{line}): limit",)) for s, line in ((found.a, 1), (found.b, 2))
    )
    assert compare(a, b, inventory(), inventory()).suspects == ()
    none = compare(replace(a, fallbacks=()), b, inventory(), inventory())
    assert kinds(none) == [("likely", "slower")]
    assert none.verdict.endswith("likely f (m.py:2) ran uncompiled")


LOST = inventory(graphs=(), kernels=(), coverage=(), entries={})


def test_lost_graphs_slow_the_start():
    found = differ(LOST)
    assert found.verdict == "may start slower: the forward graph gone from the cache"
    assert kinds(found) == [("possible", "slower start")]
    assert first(found).advice.startswith("`cachekeeper restore a`")
    found = differ(LOST, metrics=({"cold_s": 1.0}, {"cold_s": 9.0}))
    assert found.verdict == "b starts 9.0 times slower (cold_s 1 -> 9): likely the forward graph gone from the cache"


def test_lost_graphs_do_not_explain_slow_steps():
    found = differ(LOST, metrics=SLOW)
    assert found.verdict.endswith(": nothing that explains it; may start slower: the forward graph gone from the cache")
    assert kinds(found) == [("possible", "slower start")]


def test_lost_graphs_are_told_where_the_step_is_faster():
    assert kinds(differ(LOST, metrics=tuple(reversed(SLOW)))) == [("possible", "slower start")]


def test_more_graphs_are_new():
    more = inventory(
        graphs=(graph(), graph("fb", content="b")), coverage=(Coverage("cuda:0", 1), Coverage("cuda:1", 1))
    )
    assert differ(more).verdict == "nothing that explains a difference; new: device cuda:1"


def other_graph(*lines, **changes):
    """A graph that is not on the other side, with these lines in its key."""
    names = {name_of(line) for line in lines}
    kept = [line for line in components() if name_of(line) not in names]
    return graph("fz", content="z", components=(*lines, *kept), **changes)


def name_of(line):
    return line.partition("] ")[2].partition(": ")[0]


WIDER = (
    "[w] example_inputs[0]: TensorMetadata(dtype=torch.bfloat16, shape=torch.Size([8, 1024]), stride=(1024, 1), "
    "device=device(type='cuda', index=0))"
)


def test_other_graphs_are_a_cause():
    a = inventory(graphs=(graph(function=""),))
    found = differ(inventory(graphs=(other_graph(WIDER, function="", inputs=("bf16[8, 1024]",)),)), a, metrics=SLOW)
    assert found.verdict.startswith("b is slower by 20 % (tok_s 100 -> 80): likely other graphs: size 512 -> 1024")
    assert found.work.comparable == "unknown"
    suspect = first(found)
    assert (suspect.likelihood, suspect.effect) == ("likely", "")
    assert suspect.evidence == ("the forward graph on cuda:0: input 0: shape (8, 512) -> (8, 1024)",)


def test_graphs_of_other_operations_are_a_cause():
    code = "add = torch.ops.aten.add.Tensor(x, 0.5);  x = None\n    return add"
    more = f"[w] gm: <lambda>() def forward(self, x):\n    {code}"
    found = differ(inventory(graphs=(other_graph(more),)), metrics=SLOW)
    assert "likely other graphs: the graph's operations differ" in found.verdict
    assert found.work.comparable == "unknown"


def test_other_sizes_of_one_function_are_another_work():
    found = differ(inventory(graphs=(other_graph(WIDER, inputs=("bf16[8, 1024]",)),)), metrics=SLOW)
    assert found.verdict == "not the same work: inputs bf16[8, 512] -> bf16[8, 1024]; tok_s 100 -> 80"


def test_without_a_key_inputs_and_operators_are_compared():
    a = inventory(graphs=(graph(components=(), operations={"aten.mm": 1}),))
    other = graph("fz", content="z", components=(), inputs=("f32[8, 512]",), operations={"aten.mm": 1, "aten.add": 2})
    found = differ(inventory(graphs=(other,)), a, metrics=SLOW)
    (line,) = first(found).evidence
    assert line.endswith("input 0: bf16[8, 512] -> f32[8, 512]; the graph's operations differ: more 2 aten.add")


def test_where_most_graphs_are_shared_some_others_are_no_cause():
    shared = tuple(graph(f"f{n}") for n in range(2))
    a, b = inventory(graphs=(graph(content="y"), *shared)), inventory(graphs=(other_graph(WIDER), *shared))
    assert not any("graphs are others" in suspect.words for suspect in differ(b, a, metrics=SLOW).suspects)


def test_all_graphs_gone_where_as_many_are_new():
    found = differ(inventory(graphs=(other_graph(direction="backward"),)))
    assert found.verdict == "may start slower: the graph of a gone from the cache"
    assert kinds(found) == [("possible", "slower start")]


def test_files_that_could_not_be_read_are_said_and_nothing_is_called_the_same():
    found = differ(inventory(unread=2))
    assert (found.verdict, found.differs) == ("no difference in what could be read; 2 files could not be read", True)
    assert found.notes == ("b: 2 files could not be read: `cachekeeper verify b` says whether the store is damaged",)
    slow = differ(inventory(unread=1), metrics=SLOW)
    assert slow.verdict.endswith(": nothing that explains it; 1 file could not be read")


def test_a_choice_that_neither_side_records_is_said_and_is_not_the_same():
    """C71: each start makes it anew, so the same files may run at another speed."""
    both = inventory(kernels=(kernel(winner=winner(config=None, how="")),))
    found = differ(both, both)
    assert found.verdict == "no difference in what is recorded; no recorded choice for 1 kernel"
    assert not found.differs
    slow = differ(both, both, metrics=SLOW)
    assert slow.verdict.endswith(": nothing that explains it; no recorded choice for 1 kernel")


def test_kernels_that_were_passed_over_are_said():
    named = Kernel("triton_poi_fused_mul_1", "c9", "pointwise", graphs=("fa",), device="cuda:0", read=False)
    both = inventory(kernels=(kernel(), named))
    found = differ(both, both)
    assert found.verdict == "no difference; 1 of 2 kernels looked at (--full looks at all)"
    assert (found.kernels.unread, found.differs) == (1, False)


def test_other_code_under_one_key_is_a_cause():
    kernels = [(kernel(binary=binary("A", code=code)),) for code in ("7a520d9a5560", "bf730c8b0053")]
    found = differ(inventory(kernels=kernels[1]), inventory(kernels=kernels[0]))
    assert (found.verdict, found.differs) == ("may matter: other machine code of triton_poi_fused_add_2", True)
    assert first(found).advice.startswith("`cachekeeper verify a` and `cachekeeper verify b` say which is damaged")


def test_code_that_is_gone_is_built_again():
    gone = inventory(kernels=(kernel(built="gone", binary=None, compiled=0),))
    found = differ(gone, inventory(kernels=(kernel(built="there"),)))
    assert (found.verdict, kinds(found)) == ("may start slower: no binary of 1 kernel", [("possible", "slower start")])
    assert first(found).evidence == ("triton_poi_fused_add_2: binary there -> gone (built again at the next start)",)


def test_the_same_code_under_other_keys_is_built_again():
    a, b = (inventory(kernels=(kernel(binary=binary(key, code="7a520d9a5560")),)) for key in "AB")
    found = differ(b, a)
    assert (found.verdict, found.differs) == ("may start slower: another key of Triton's for 1 kernel", True)


def test_a_metric_that_falls_below_zero_is_no_times_slower():
    found = differ(inventory(), metrics=({"tok_s": 1000.0}, {"tok_s": -5.0}))
    assert found.verdict == "b is slower (tok_s 1,000 -> -5): nothing that explains it"


def test_what_to_do_about_narrower_vectors():
    found = differ(inventory(kernels=(cpp(vector_bits=0),)), inventory(kernels=(cpp(),)), metrics=SLOW)
    for word in ("ATEN_CPU_CAPABILITY", "torch._inductor.config.cpp.simdlen", "instruction set", "--kernel"):
        assert word in first(found).advice


def test_a_choice_that_is_lost_is_made_again():
    found = differ(inventory(kernels=(kernel(winner=winner(config=None, how="")),)))
    assert found.verdict == "may start slower: no recorded choice for 1 kernel"


def test_another_gpu_and_torch():
    found = differ(inventory(), metrics=SLOW, fingerprint=fingerprint("2.13.0", "sm_100"))
    assert kinds(found) == [("likely", ""), ("possible", "")]
    assert found.verdict.endswith("likely GPU NVIDIA H200 sm_90 -> NVIDIA H200 sm_100")
    words = "The software is another one: torch 2.11.0 -> 2.13.0, which makes every key another one"
    assert found.suspects[1].words == words


def tuned(*times):
    options = sorted(
        zip(("triton_mm BLOCK_M=64", "triton_mm BLOCK_M=128"), times, strict=True), key=lambda item: item[1]
    )
    return inventory(products=(product(*options),))


def test_slower_choices_of_max_autotune():
    found = differ(tuned(0.121, 0.120), tuned(0.100, 0.120), metrics=SLOW)
    assert found.verdict.endswith("likely a slower mm by max-autotune's choice")
    assert kinds(found) == [("likely", "slower")]


def test_choices_within_noise_are_unlikely():
    found = differ(tuned(0.102, 0.101), tuned(0.100, 0.102), metrics=SLOW)
    assert found.verdict.endswith(": nothing that explains it")
    assert kinds(found) == [("unlikely", "")]


@pytest.mark.parametrize(("milliseconds", "found"), [(0.110, [("likely", "slower")]), (0.104, [])])
def test_timed_winners(milliseconds, found):
    a = inventory(kernels=(kernel(winner=winner(milliseconds=0.100)),))
    b = inventory(kernels=(kernel(winner=winner(config={"XBLOCK": 64}, milliseconds=milliseconds)),))
    assert kinds(differ(b, a, metrics=SLOW)) == found


@pytest.mark.parametrize(("bits", "found"), [(0, [("likely", "slower")]), (512, []), (None, [])])
def test_narrower_vectors(bits, found):
    b = inventory(kernels=(cpp(vector_bits=bits),)) if bits != 512 else inventory(kernels=(cpp(),))
    assert kinds(differ(b, inventory(kernels=(cpp(),)), metrics=SLOW)) == found


def test_settings():
    tuned_graph = graph("fb", components=components(max_autotune=True))
    found = differ(inventory(), inventory(graphs=(tuned_graph,)), metrics=SLOW)
    assert found.verdict.endswith("likely inductor config max_autotune True -> False")
    meant = differ(inventory(graphs=(tuned_graph,)), metrics=SLOW)
    assert kinds(meant) == [("possible", "")]
    assert meant.suspects[0].words.endswith("max_autotune False -> True, which is meant to be faster")
    other = differ(inventory(graphs=(graph("fb", components=components(some=1)),)), metrics=SLOW)
    assert kinds(other) == [("possible", "")]


def test_products_that_leave_the_library():
    in_library = graph(calls={"extern_kernels.mm": 2}, kernels=("triton_poi_fused_gelu_0",))
    in_triton = graph(
        "fb", calls={}, kernels=("triton_tem_fused_mm_0", "triton_poi_fused_gelu_1", "triton_tem_fused_mm_2")
    )
    tuned = inventory(
        graphs=(in_triton,),
        products=(product(("triton_mm BLOCK_M=64", 0.04), ("mm", 0.06), inputs="f32[9, 8] x f32[8, 9]"),),
    )
    found = differ(tuned, inventory(graphs=(in_library,)), metrics=SLOW)
    (suspect,) = (one for one in found.suspects if "library" in one.words)
    assert (suspect.likelihood, suspect.effect) == ("possible", "")
    assert suspect.words == "2 products run in Triton's templates, no longer in the library"
    assert "mm f32[9, 8] x f32[8, 9]: measured triton_mm BLOCK_M=64 0.04 ms, the library mm 0.06 ms" in suspect.evidence
    back = differ(inventory(graphs=(in_library,)), inventory(graphs=(in_triton,)), metrics=SLOW)
    assert "2 products run in the library, no longer in Triton's templates" in [one.words for one in back.suspects]


def test_as_many_calls_of_the_library_are_none_that_left_it():
    calls = {"extern_kernels.mm": 2}
    found = differ(inventory(graphs=(graph("fb", calls=calls),)), inventory(graphs=(graph(calls=calls),)), metrics=SLOW)
    assert not any("library" in suspect.words for suspect in found.suspects)


@pytest.mark.parametrize(("registers", "found"), [(128, [("possible", "slower")]), (31, [])])
def test_occupancy(registers, found):
    assert kinds(differ(inventory(kernels=(kernel(binary=binary("B", registers=registers)),)), metrics=SLOW)) == found


def test_other_launches_without_a_timing():
    found = differ(inventory(kernels=(kernel(winner=winner(config={"XBLOCK": 64, "num_warps": 8})),)), metrics=SLOW)
    assert found.verdict.endswith("possibly other launch parameters of triton_poi_fused_add_2")
    assert kinds(found) == [("possible", "")]


def test_another_source():
    changed = kernel(module="c2", source=SOURCE.replace("+ 1", "+ 2"))
    found = differ(inventory(kernels=(changed,)), metrics=SLOW)
    assert found.verdict.endswith("possibly another source of triton_poi_fused_add_2")


def test_less_fusion():
    found = differ(inventory(graphs=(graph("fb", kernels=("a", "b", "c")),)), metrics=SLOW)
    assert (
        first(found).words
        == "More kernels and calls are launched by the forward graph of forward (model.py:12) on cuda:0"
    )
    assert first(found).evidence[0].endswith("1 kernel, 1 extern_kernels.mm -> 3 kernels, 1 extern_kernels.mm")


def test_a_driver_is_unlikely():
    found = differ(inventory(), metrics=SLOW, fingerprint=replace(fingerprint(), should={"driver": Fact("999")}))
    assert kinds(found) == [("unlikely", "")]
    assert found.verdict.endswith(": nothing that explains it")


def test_at_most_five_suspects_likeliest_first():
    spilling = kernel(
        module="c2",
        source=SOURCE + "\n",
        winner=winner(config={"XBLOCK": 64, "num_warps": 8}),
        binary=binary("B", local_bytes=800, mix={}, registers=128),
    )
    b = inventory(
        kernels=(spilling,), graphs=(graph("fa2", components=components(max_autotune=True, z=1)),), coverage=()
    )
    found = differ(b, metrics=SLOW, fingerprint=fingerprint("2.13.0", "sm_100"))
    assert len(found.suspects) == 5
    order = ["likely", "possible", "unlikely"]
    ranks = [order.index(likelihood) for likelihood, _ in kinds(found)]
    assert ranks == sorted(ranks)


def test_numbers_that_disagree():
    metrics = ({"tok_s": 100.0, "step_ms": 1.0}, {"tok_s": 80.0, "step_ms": 0.5})
    found = differ(SPILLS, metrics=metrics)
    assert found.verdict.startswith(
        "b is slower by 20 % (tok_s 100 -> 80, though other numbers say otherwise): possibly"
    )
