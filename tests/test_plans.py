"""The plan of a warmup."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import cachekeeper
from cachekeeper.errors import UsageError
from cachekeeper.plans import ATTRIBUTE, Axes, Step, axes, shape_text


def test_what_people_write():
    assert axes(["cuda:0", "cuda:1"], ["train"], [512, "8x2048", [8, 64], (4,), "long", "16"]) == Axes(
        ("cuda:0", "cuda:1"), ("train",), (512, (8, 2048), (8, 64), (4,), "long", 16)
    )


def test_one_value_needs_no_list():
    assert axes("cuda", "infer", 512) == Axes(("cuda",), ("infer",), (512,))
    assert axes(shapes="8x16") == Axes(shapes=((8, 16),))


def test_what_comes_twice_is_run_once():
    assert axes(["cpu", "cpu"], ["train", "infer", "train"], ["8x16", (8, 16), [8, 16], 3, "3"]) == Axes(
        ("cpu",), ("train", "infer"), ((8, 16), 3)
    )


@pytest.mark.parametrize("device", ["", "cuda:", ":0", "CUDA:0", "cuda:0:1", "cuda 0", 0, None, "cuda:x"])
def test_no_device(device: object):
    with pytest.raises(UsageError, match="not a device"):
        axes(devices=[device])


@pytest.mark.parametrize("mode", ["", "-train", "a b", 1, None, "tr/ain", "train\n"])
def test_no_mode(mode: object):
    with pytest.raises(UsageError, match="not a mode"):
        axes(modes=[mode])


@pytest.mark.parametrize(
    "shape", ["", -1, True, 1.5, None, [], [-1], [1.0], [True], [[1]], ["8"], {}, "a\nb", "\x1b[0m"]
)
def test_no_shape(shape: object):
    with pytest.raises(UsageError, match="not a shape"):
        axes(shapes=[shape])


@pytest.mark.parametrize("values", [5.0, None, object()])
def test_no_list(values: object):
    with pytest.raises(UsageError, match="not a list") as caught:
        axes(devices=values)  # type: ignore[arg-type]
    assert caught.value.hint


@pytest.mark.parametrize(("shape", "text"), [(None, ""), (0, "0"), (512, "512"), ((8, 512), "8x512"), ("long", "long")])
def test_a_shape_as_on_the_command_line(shape: int | tuple[int, ...] | str | None, text: str):
    assert shape_text(shape) == text
    if shape is not None:
        assert axes(shapes=[text]).shapes == (shape,)


def test_every_step_device_by_device():
    assert Axes(("a", "b"), ("train", "infer"), (1, 2)).steps() == tuple(
        Step(device, mode, shape) for device in "ab" for mode in ("train", "infer") for shape in (1, 2)
    )
    assert Axes(("a",), ("train",)).steps() == (Step("a", "train", None),)
    assert Axes().steps() == ()


def test_another_axis_may_change_last():
    two = Axes(("a", "b"), ("train", "infer"), (1, 2), order=("shape", "mode"))
    assert [str(step) for step in two.steps()] == [
        f"{device} {mode} {shape}" for shape in (1, 2) for mode in ("train", "infer") for device in ("a", "b")
    ]
    assert [str(step) for step in Axes(("a",), ("m", "n"), (1, 2), ("shape",)).steps()] == [
        "a m 1",
        "a n 1",
        "a m 2",
        "a n 2",
    ]
    assert axes(order="shape").over(Axes(order=("mode",))).order == ("shape",)
    with pytest.raises(UsageError, match="not an axis"):
        axes(order=["size"])


def test_a_step_in_words():
    assert str(Step("cuda:0", "train", (8, 512))) == "cuda:0 train 8x512"
    assert str(Step("cpu", "infer")) == "cpu infer"
    assert str(Step("cpu", "infer", 0)) == "cpu infer 0"


def test_what_one_leaves_open_another_says():
    flags, file, decorator = Axes(shapes=(1,)), Axes(modes=("train",), shapes=(2,)), Axes(("cpu",), ("infer",), (3,))
    assert flags.over(file).over(decorator) == Axes(("cpu",), ("train",), (1,))
    assert Axes().over(Axes()) == Axes()


def test_the_decorator_leaves_the_function_alone():
    def step(device: str) -> str:
        return device

    declared = cachekeeper.plan(devices=["cuda:1"], shapes=[8, "4x4"])(step)
    assert declared is step and declared("x") == "x"
    assert getattr(step, ATTRIBUTE) == Axes(("cuda:1",), (), (8, (4, 4)))


@pytest.mark.parametrize("values", [{"devices": ["nowhere!"]}, {"modes": [3]}, {"shapes": [-1]}])
def test_the_decorator_refuses_what_makes_no_sense(values: dict[str, Iterable[object]]):
    with pytest.raises(UsageError):
        cachekeeper.plan(**values)
