"""Kernels: matched from the certain to the likely, one to one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachekeeper.diffing.kernels import kernels
from cachekeeper.diffing.models import GraphPair, Graphs
from cachekeeper.inventory.models import Kernel
from tests.diffing.samples import SOURCE, binary, cpp, graph, kernel, winner

NO_GRAPHS = Graphs()
PAIR = Graphs(pairs=(GraphPair(graph("fa"), graph("fb"), ()),))


def matched(a, b, graphs=NO_GRAPHS):
    found = kernels(a, b, graphs)
    return [(pair.a.name, pair.b.name, pair.matched) for pair in found.changed]


# What is matched differs in its choice, so that each pair is listed.
UNRECORDED = winner(config=None, how="")
OTHER = winner(config={"XBLOCK": 1024, "num_warps": 8})


def test_the_same_module():
    name = "triton_poi_fused_add_2"
    assert matched([kernel()], [kernel(winner=OTHER)]) == [(name, name, "module")]


def test_the_same_name_and_source_in_another_module():
    found = kernels([kernel()], [kernel(module="cother", winner=OTHER)], NO_GRAPHS)
    assert (found.changed[0].matched, found.changed[0].source) == ("name and source", ())


def test_a_renumbered_kernel():
    other = kernel("triton_poi_fused_add_3", module="cother", winner=OTHER)
    found = kernels([kernel()], [other], NO_GRAPHS)
    assert (found.changed[0].matched, found.changed[0].source) == ("source", ())


def test_a_renumbered_kernel_alone_is_the_same():
    found = kernels([kernel()], [kernel("triton_poi_fused_add_3", module="cother")], NO_GRAPHS)
    assert (found.same, found.changed) == (1, ())


def test_another_source_in_paired_graphs():
    other = kernel(module="cother", source=SOURCE.replace("+ 1", "+ 2"), graphs=("fb",))
    found = kernels([kernel()], [other], PAIR)
    assert found.changed[0].matched == "name"
    assert [line for line in found.changed[0].source if line[0] in "+-"] == [
        "-    tl.store(out_ptr0 + (xoffset), tmp0 + 1, None)",
        "+    tl.store(out_ptr0 + (xoffset), tmp0 + 2, None)",
    ]


def test_another_source_in_other_graphs_is_matched_by_name_and_device():
    other = kernel(module="cother", source=SOURCE.replace("+ 1", "+ 2"), graphs=("fc",))
    found = kernels([kernel()], [other], PAIR)
    assert (found.changed[0].matched, found.only_a, found.only_b) == ("name", (), ())
    assert "-    tl.store(out_ptr0 + (xoffset), tmp0 + 1, None)" in found.changed[0].source
    elsewhere = kernels([kernel()], [replace(other, device="cuda:1")], PAIR)
    assert (elsewhere.changed, len(elsewhere.only_a), len(elsewhere.only_b)) == ((), 1, 1)


def test_several_of_one_name_are_matched_in_the_order_of_their_graphs():
    def side(letter, *functions):
        graphs = [graph(f"f{letter}{n}", function=name, content=letter) for n, name in enumerate(functions)]
        found = [
            kernel(module=f"c{one.key}", source=f"{letter} = {one.function!r}", graphs=(one.key,)) for one in graphs
        ]
        return tuple(graphs), found

    (graphs_a, a), (graphs_b, b) = side("a", "f", "g"), side("b", "g", "f", "h")
    found = kernels(a, b, Graphs(only_a=graphs_a, only_b=graphs_b))
    assert {pair.matched for pair in found.changed} == {"name"}
    assert sorted((pair.a.source[4:], pair.b.source[4:]) for pair in found.changed) == [("'f'", "'f'"), ("'g'", "'g'")]
    assert [left.source for left in found.only_b] == ["b = 'h'"]


def test_what_was_passed_over_is_matched_by_name_and_is_neither_the_same_nor_on_one_side():
    named = Kernel("triton_poi_fused_add_2", "c1", "pointwise", graphs=("fa",), device="cuda:0", read=False)
    found = kernels([named], [replace(named, module="c2", graphs=("fb",))], NO_GRAPHS)
    assert (found.same, found.changed, found.only_a, found.only_b, found.unread) == (0, (), (), (), 1)
    assert kernels([named], [named], NO_GRAPHS).unread == 1


def test_the_same_code_under_another_key_is_the_same_and_counted():
    a, b = (kernel(binary=binary(digest, code="7a520d9a5560")) for digest in "AB")
    found = kernels([a], [b], NO_GRAPHS)
    assert (found.same, found.changed, found.rekeyed) == (1, (), 1)
    assert kernels([a], [a], NO_GRAPHS).rekeyed == 0
    other = kernel(binary=binary("B", code="bf730c8b0053", code_bytes=8192))
    assert kernels([a], [other], NO_GRAPHS).rekeyed == 0


def test_another_source_and_number_in_paired_graphs_where_only_one_can_be_meant():
    source = SOURCE.replace("+ 1", "+ 2")
    other = kernel("triton_poi_fused_add_3", module="cother", source=source, graphs=("fb",))
    assert matched([kernel()], [other], PAIR) == [("triton_poi_fused_add_2", "triton_poi_fused_add_3", "name")]
    second = kernel("triton_poi_fused_add_4", module="cthird", source=source + "\n", graphs=("fb",))
    assert matched([kernel()], [other, second], PAIR) == []


def test_a_kernel_with_a_name_of_its_own_is_matched_by_that():
    a, b = (kernel("softcap", module="", type="triton", source=text, graphs=()) for text in ("a = 1", "a = 2"))
    assert matched([a], [b]) == [("softcap", "softcap", "name")]


def test_the_same_device_goes_first():
    a = [kernel(device="cuda:1", module="c1"), kernel(device="cuda:0", module="c0")]
    b = [kernel(device="cuda:0", module="d0", winner=OTHER), kernel(device="cuda:1", module="d1", winner=OTHER)]
    found = kernels(a, b, NO_GRAPHS)
    assert {(pair.a.device, pair.b.device) for pair in found.changed} == {("cuda:0",) * 2, ("cuda:1",) * 2}


def test_the_same_size_hints_go_first():
    a = [kernel(size_hints={"x": size}, module=f"c{size}") for size in (1, 2)]
    b = [kernel(size_hints={"x": size}, module=f"d{size}") for size in (2, 1)]
    found = kernels(a, b, NO_GRAPHS)
    assert (found.same, found.changed) == (2, ())


def test_one_to_one():
    found = kernels([kernel()], [kernel(module="c1"), kernel(module="c2")], NO_GRAPHS)
    assert (found.same, len(found.only_a), len(found.only_b)) == (1, 0, 1)


def test_a_graph_named_twice_is_no_trap():
    other = kernel(module="cother", source="x = 2", graphs=("fb", "fb"))
    assert len(matched([kernel(graphs=("fa", "fa"))], [other], PAIR)) == 1


@pytest.mark.parametrize("changes", [{"winner": UNRECORDED}, {"winner": UNRECORDED, "binary": None}])
def test_what_is_not_recorded_is_not_the_same(changes):
    found = kernels([kernel(**changes)], [kernel(**changes)], NO_GRAPHS)
    assert (found.same, found.changed, found.unrecorded) == (0, (), ("triton_poi_fused_add_2",))


def test_the_same_choice_is_the_same_where_its_binary_cannot_be_told():
    found = kernels([kernel(binary=None)], [kernel(binary=None)], NO_GRAPHS)
    assert (found.same, found.unrecorded) == (1, ())


def test_a_choice_that_is_recorded_no_more():
    found = kernels([kernel()], [kernel(winner=winner(config=None, how=""))], NO_GRAPHS)
    (change,) = found.changed[0].changes
    assert (change.name, change.a, change.b, change.effect) == ("choice", "recorded", "no recorded choice", "")
    assert found.unrecorded == ("triton_poi_fused_add_2",)


def test_what_was_not_read_because_both_sides_have_it_alike_is_the_same():
    named = kernel(source="", winner=winner(config=None, how=""), binary=None, compiled=0, bytes=0)
    assert kernels([named], [named], NO_GRAPHS).same == 1


def test_a_kernel_in_c_plus_plus_needs_no_choice():
    found = kernels([cpp()], [cpp()], NO_GRAPHS)
    assert (found.same, found.unrecorded) == (1, ())


def test_the_slower_come_first():
    a = [kernel(f"triton_poi_fused_{n}", module=f"c{n}", source=f"x = {n}") for n in range(3)]
    changes = ({"winner": OTHER}, {"binary": binary("B", local_bytes=80)}, {"winner": OTHER})
    b = [kernel(f"triton_poi_fused_{n}", module=f"c{n}", source=f"x = {n}", **changes[n]) for n in range(3)]
    assert [pair.b.name[-1] for pair in kernels(a, b, NO_GRAPHS).changed] == ["1", "0", "2"]


def test_long_sources_are_compared_roughly():
    a = kernel("mine", module="", source="\n".join(["x = 1"] * 2000 + ["y = 1"] + ["z = 1"] * 2000))
    b = kernel("mine", module="", source=a.source.replace("y = 1", "y = 2"))
    (pair,) = kernels([a], [b], NO_GRAPHS).changed
    assert pair.source == ("@@ -2001,1 +2001,1 @@", "-y = 1", "+y = 2")


def test_a_kernel_that_was_not_read_on_one_side_is_no_difference():
    read = kernel()
    named = Kernel(read.name, read.module, read.type, graphs=read.graphs, device=read.device)
    assert read.module
    for pair in ((read, named), (named, read)):
        found = kernels([pair[0]], [pair[1]], NO_GRAPHS)
        assert (found.same, found.changed, found.unrecorded, found.unread) == (0, (), (), 1)
