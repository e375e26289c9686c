"""Do both do the same work?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachekeeper.diffing.models import Graphs
from cachekeeper.diffing.work import work
from cachekeeper.models import ModelHash
from tests.diffing.samples import graph, run, side
from tests.samples import fingerprint

SHARED = Graphs(shared=1)


def compare(a, b, graphs=SHARED):
    return work(side(**a), side("b", **b), graphs)


def said(found):
    return [(change.name, change.a, change.b) for change in found.differences]


def test_nothing_recorded_is_unknown():
    found = compare({}, {})
    assert (found.comparable, found.differences, found.same) == ("unknown", (), ())
    assert found.unknown == ("model", "command", "processes", "shapes")


def test_another_tag_is_another_work():
    found = compare({"tags": {"dataset": "c4", "who": "me"}}, {"tags": {"dataset": "pile", "who": "me"}})
    assert (found.comparable, said(found), found.same) == ("no", [("tag dataset", "c4", "pile")], ("tag who",))


def test_a_tag_on_one_side_is_unknown():
    found = compare({"tags": {"dataset": "c4"}}, {})
    assert (found.comparable, found.differences) == ("unknown", ())
    assert "tag dataset" in found.unknown


def test_models_processes_and_shapes():
    def recorded(model, processes, shapes):
        print_of = replace(fingerprint(), model=ModelHash(model * 64))
        return {"fingerprint": print_of, "world_size": processes, "shapes": shapes}

    same = compare(recorded("a", 8, ("512",)), recorded("a", 8, ("512",)))
    assert (same.comparable, same.same) == ("yes", ("model", "processes", "shapes"))
    other = compare(recorded("a", 8, ("512",)), recorded("b", 4, ("512", "1024")))
    assert other.comparable == "no"
    assert said(other) == [
        ("model", "a" * 12, "b" * 12),
        ("processes", "8", "4"),
        ("shapes", "512", "512, 1024"),
    ]


@pytest.mark.parametrize(
    ("a", "b", "comparable"),
    [
        (("/opt/venv/bin/python3", "train.py"), ("/usr/bin/python3.12", "train.py"), "yes"),
        (("python", "train.py", "--lr", "1"), ("python", "train.py", "--lr", "2"), "no"),
        (("python", "train.py", "--lr=1"), ("python", "train.py", "--lr=2"), "no"),
        (("python", "train.py", "--output-dir", "a"), ("python", "train.py", "--output-dir", "b"), "yes"),
        (("python", "train.py", "--run-name=a"), ("python", "train.py", "--run-name=b"), "yes"),
        (("python", "train.py", "--dataset-name=a"), ("python", "train.py", "--dataset-name=b"), "no"),
        (("python", "train.py"), ("python", "eval.py"), "no"),
        (("./train.sh",), ("./train.sh",), "yes"),
    ],
)
def test_commands(a, b, comparable):
    assert compare({"run": run(*a)}, {"run": run(*b)}).comparable == comparable


def other(a, b, **of_side):
    """Nothing is shared; the graphs take these inputs."""
    one, two = graph("fa", inputs=a, **of_side), graph("fb", inputs=b, **of_side)
    return compare({"tags": {"data": "c4"}}, {"tags": {"data": "c4"}}, Graphs(only_a=(one,), only_b=(two,)))


def test_other_sizes_of_one_function_are_another_work():
    found = other(("bf16[8]",), ("bf16[9]",))
    assert (found.comparable, said(found)) == ("no", [("inputs", "bf16[8]", "bf16[9]")])
    assert found.differences[0].words == "other sizes of inputs"


@pytest.mark.parametrize(
    ("a", "b", "of_side"),
    [
        (("bf16[8]",), ("bf16[9]",), {"function": ""}),  # nobody says that it is one function
        (("bf16[8]",), ("f32[8]",), {}),
        (("bf16[8]",), ("bf16[s0]",), {}),
        (("bf16[8]",), ("bf16[8]", "bf16[9]"), {}),
    ],
)
def test_other_inputs_are_a_hint_and_an_equal_tag_does_not_make_them_comparable(a, b, of_side):
    found = other(a, b, **of_side)
    assert (found.comparable, said(found)) == ("unknown", [("inputs", ", ".join(a), ", ".join(b))])
    assert found.differences[0].words.startswith("a hint only")


def test_other_inputs_say_nothing_where_a_graph_is_the_same():
    a, b = graph("fa", inputs=("bf16[8]",)), graph("fb", inputs=("bf16[9]",))
    assert compare({}, {}, Graphs(shared=1, only_a=(a,), only_b=(b,))).differences == ()
    assert compare({}, {}, Graphs(only_a=(a,), only_b=(a,))).differences == ()
    assert compare({}, {}, Graphs(only_a=(a,))).differences == ()
