"""Graphs: shared, paired by content, paired by what telemetry tells, or on one side only."""

from __future__ import annotations

from cachekeeper.diffing.graphs import graphs
from tests.diffing.samples import components, graph


def pairs(a, b):
    return [(pair.a.key, pair.b.key) for pair in graphs(a, b)[0].pairs]


def test_the_same_key_is_shared():
    found, config = graphs([graph("fa"), graph("fb", content="other")], [graph("fa")])
    assert (found.shared, found.pairs, [one.key for one in found.only_a], found.only_b) == (1, (), ["fb"], ())
    assert config == ()


def test_the_same_content_under_another_key_says_why():
    found, config = graphs([graph("fa")], [graph("fb", components=components(max_autotune=True))])
    (pair,) = found.pairs
    assert pair.because == ("inductor config max_autotune: False -> True",)
    (change,) = config
    assert (change.name, change.a, change.b, change.effect) == (
        "inductor config max_autotune",
        "False",
        "True",
        "faster",
    )
    assert change.words == "in the key of every graph of both"


def test_a_setting_is_said_once_with_the_number_of_graphs():
    a = [graph(f"fa{n}", content=f"c{n}") for n in range(3)]
    b = [graph(f"fb{n}", content=f"c{n}", components=components(max_autotune=n < 2, x=n)) for n in range(3)]
    _, config = graphs(a, b)
    assert {change.name: change.words for change in config}["inductor config max_autotune"] == "in the keys of 2 graphs"


def test_settings_are_told_where_no_graph_is_paired():
    a = [graph(f"fa{n}", content=f"a{n}", components=components(x=n)) for n in range(2)]
    b = [graph(f"fb{n}", content=f"b{n}", components=components(x=n + 5, epilogue_fusion=False)) for n in range(2)]
    found, config = graphs(a, b)
    assert found.pairs == ()
    assert [(change.name, change.a, change.b, change.effect) for change in config] == [
        ("inductor config epilogue_fusion", "True", "False", "slower")
    ]
    # What only some graphs of a side have, or what belongs to one graph, is no setting of the side.
    mixed = [b[0], graph("fb1", content="b1", components=components(epilogue_fusion=True))]
    assert graphs(a, mixed)[1] == ()


def test_autocast_of_one_side_is_told_where_no_graph_is_paired():
    line = "[k] autocast_state[cuda]: (True, torch.bfloat16)"
    _, config = graphs([graph("fa", components=(*components(), line))], [graph("fb", content="b")])
    assert [(change.a, change.b) for change in config] == [("(True, torch.bfloat16)", "off")]


def test_another_device_is_paired_and_said_but_is_no_setting():
    found, config = graphs([graph("fa")], [graph("fb", device="cuda:1", components=components(1))])
    assert found.pairs[0].because == ("input 0: device cuda:0 -> cuda:1",)
    assert config == ()


def test_the_same_device_goes_first():
    a = [graph("fa1", device="cuda:1"), graph("fa0")]
    b = [graph("fb0"), graph("fb1", device="cuda:1")]
    assert pairs(a, b) == [("fa0", "fb0"), ("fa1", "fb1")]


def test_of_several_candidates_the_nearest_by_components():
    a = [graph("fa1", components=components(x=1)), graph("fa2", components=components(x=2))]
    b = [graph("fb2", components=components(x=2)), graph("fb1", components=components(x=1))]
    assert pairs(a, b) == [("fa1", "fb1"), ("fa2", "fb2")]


def test_a_graph_is_paired_once():
    found, _ = graphs([graph("fa")], [graph("fb"), graph("fc")])
    assert len(found.pairs) == 1
    assert len(found.only_b) == 1


def test_another_content_is_no_pair():
    found, _ = graphs([graph("fa")], [graph("fb", content="other")])
    assert (found.pairs, len(found.only_a), len(found.only_b)) == ((), 1, 1)


def test_without_content_function_direction_and_inputs_pair():
    moved = graph("fb", content="", function="forward (model.py:99)")
    assert pairs([graph("fa")], [moved]) == [("fa", "fb")]
    for other in (
        {"function": ""},
        {"direction": "backward"},
        {"inputs": ("bf16[9]",)},
        {"function": "g (model.py:12)"},
    ):
        assert pairs([graph("fa", content="")], [graph("fb", content="", **other)]) == []


def test_without_components_nothing_is_said():
    found, config = graphs([graph("fa")], [graph("fb", components=())])
    assert found.pairs[0].because == ()
    assert config == ()


def test_many_differences_are_cut():
    settings = {f"s{n}": n for n in range(9)}
    found, config = graphs([graph("fa")], [graph("fb", components=components(**settings))])
    assert len(found.pairs[0].because) == 7
    assert found.pairs[0].because[-1] == "and 3 more"
    assert len(config) == 9


def test_long_values_that_begin_alike_are_not_repeated():
    lines = [(*components(), f"[h{n}] custom_pass: {'x' * 300}{n}") for n in range(2)]
    found, _ = graphs([graph("fa", components=lines[0])], [graph("fb", components=lines[1])])
    assert found.pairs[0].because == ("custom_pass differs, past what torch shows of it",)


def test_many_candidates_are_taken_in_order():
    a = [graph(f"fa{n:02}", inputs=(f"bf16[{n:02}]",)) for n in range(20)]
    b = [graph(f"fb{n:02}", inputs=(f"bf16[{n:02}]",)) for n in reversed(range(20))]
    assert pairs(a, b) == [(f"fa{n:02}", f"fb{n:02}") for n in range(20)]
