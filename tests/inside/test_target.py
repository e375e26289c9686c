""" "train.py:step" -> the function."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachekeeper.errors import NotFound, UsageError
from cachekeeper.inside.target import load, own_traceback, source_hash, wanted_arguments

SOURCE = """
import helper

VALUE = 3


def step(device, mode, shape):
    return helper.NAME, __name__


def stop():
    pass


class Model:
    @staticmethod
    def step():
        return "a method"
"""


@pytest.fixture(autouse=True)
def imports() -> Iterator[None]:
    """What is imported in a test is forgotten afterwards."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """A file that imports its neighbour."""
    directory = tmp_path / "my code"
    directory.mkdir()
    (directory / "helper.py").write_text("NAME = 'neighbour'")
    path = directory / "train.py"
    path.write_text(SOURCE)
    return path


def test_a_file_is_imported_with_its_directory_on_the_path(train: Path):
    assert load(f"{train}:step")(1, 2, 3) == ("neighbour", "train")
    assert sys.path[0] == str(train.parent)


def test_a_relative_file(train: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(train.parent.parent)
    assert load("my code/train.py:step")(1, 2, 3) == ("neighbour", "train")


def test_a_module_is_found_from_the_working_directory(train: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(train.parent)
    assert load("train:step")(1, 2, 3) == ("neighbour", "train")
    assert load("os.path:join")("a", "b") == "a/b"


def test_a_method(train: Path):
    assert load(f"{train}:Model.step")() == "a method"


@pytest.mark.parametrize("target", ["train.py", "step", ":step", "train.py:", ":", ""])
def test_what_is_no_target(target: str):
    with pytest.raises(UsageError, match="not a target") as caught:
        load(target)
    assert "train.py:step" in caught.value.hint


def test_no_such_file(tmp_path: Path):
    for name in ("other.py", "directory.py", "no/python"):
        (tmp_path / "directory.py").mkdir(exist_ok=True)
        with pytest.raises(NotFound, match=str(tmp_path / name)):
            load(f"{tmp_path / name}:step")


@pytest.mark.parametrize("name", ["no_such_module_here", "no_such_module_here.below", ".relative", "..up"])
def test_no_such_module(name: str):
    with pytest.raises(NotFound, match="no module"):
        load(f"{name}:step")


@pytest.mark.parametrize(
    ("name", "part", "meant"),
    [("stpe", "stpe", "step"), ("Model.stop", "stop", "step"), ("VALUE.bit_lenth", "bit_lenth", "bit_length")],
)
def test_no_such_function(train: Path, name: str, part: str, meant: str):
    with pytest.raises(NotFound, match=f"no function '{part}'") as caught:
        load(f"{train}:{name}")
    assert caught.value.hint.startswith("did you mean ") and meant in caught.value.hint


def test_a_name_like_no_other_gets_no_hint(train: Path):
    with pytest.raises(NotFound) as caught:
        load(f"{train}:quantise")
    assert caught.value.hint == ""


def test_a_value_is_no_function(train: Path):
    with pytest.raises(UsageError, match="is no function") as caught:
        load(f"{train}:VALUE")
    assert caught.value.facts == ("it is a int",)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("def (", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_file_that_cannot_be_imported(tmp_path: Path, source: str, said: str):
    path = tmp_path / "broken.py"
    path.write_text(f"\n\n{source}\n")
    with pytest.raises(UsageError, match="cannot be imported") as caught:
        load(f"{path}:step")
    facts = "\n".join(caught.value.facts)
    assert said.partition(":")[0] in caught.value.message
    assert f'File "{path}", line 3' in facts and said in facts
    assert "inside/target.py" not in facts and "importlib" not in facts


def raised(function: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        function()
    return caught.value


def test_a_traceback_tells_what_it_was_raised_from():
    def read() -> None:
        {}["weights"]

    def explicit() -> None:
        try:
            read()
        except KeyError as error:
            raise ValueError("no such checkpoint") from error

    def while_handling() -> None:
        try:
            explicit()
        except ValueError:
            raise RuntimeError("cleaning up failed")  # noqa: B904

    said = own_traceback(raised(while_handling))
    order = ["KeyError: 'weights'", "direct cause", "ValueError: no such", "During handling", "RuntimeError: cleaning"]
    assert [said.find(words) for words in order] == sorted(said.find(words) for words in order)
    assert -1 not in [said.find(words) for words in order]
    assert said.rstrip().splitlines()[-1] == "RuntimeError: cleaning up failed"


def test_frames_of_this_package_are_left_out(train: Path):
    train.with_name("helper.py").write_text("1 / 0")
    error = raised(lambda: load(f"{train}:step"))
    assert isinstance(error, UsageError)
    assert any("helper.py" in line for line in error.facts)
    assert not any("cachekeeper/inside" in line for line in error.facts)


GIVEN = {"device": "cpu", "mode": "train", "shape": 8}


def of_all(device, mode, shape): ...


def of_one(shape): ...


def with_defaults(device, shape=3, *, rate=0.1): ...


def with_anything(*more, **others): ...


def with_others(device, model, data): ...


def of_no_shape(mode): ...


@pytest.mark.parametrize(
    ("function", "given", "wanted"),
    [
        (of_all, GIVEN, {"device", "mode", "shape"}),
        (of_one, GIVEN, {"shape"}),
        (with_defaults, GIVEN, {"device", "shape"}),
        (with_defaults, {"device": "cpu", "mode": "train"}, {"device"}),
        (with_anything, GIVEN, {"device", "mode", "shape"}),
        (of_no_shape, {"device": "cpu", "mode": "train"}, {"mode"}),
        (functools.partial(with_others, model=1, data=2), {"device": "cpu", "mode": "train"}, {"device"}),
        (print, {"device": "cpu"}, set()),
    ],
)
def test_which_arguments_a_function_takes(function: Callable[..., object], given: dict, wanted: set[str]):
    assert wanted_arguments(function, "f", given) == wanted


@pytest.mark.parametrize(
    ("function", "given", "said"),
    [
        (with_others, GIVEN, "needs data, model"),
        (of_all, {"device": "cpu", "mode": "train"}, "needs shape"),
        (of_no_shape, GIVEN, "takes none"),
    ],
)
def test_a_function_that_cannot_be_called_so(function: Callable[..., object], given: dict, said: str):
    with pytest.raises(UsageError, match=said) as caught:
        wanted_arguments(function, "train.py:step", given)
    assert caught.value.hint and "train.py:step" in caught.value.message


def test_a_plan_for_another_target_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cachekeeper.toml").write_text('[warmup."train.py:setp"]\nshapes = [512]\n')
    with pytest.raises(UsageError, match="needs shape") as caught:
        wanted_arguments(of_all, "train.py:step", {"device": "cpu", "mode": "train"})
    assert caught.value.facts == ('[warmup."train.py:setp"] is of another target',)
    assert '[warmup."train.py:step"]; did you mean that by `train.py:setp`?' in caught.value.hint


def test_the_hash_is_that_of_the_file(train: Path):
    step = load(f"{train}:step")
    assert source_hash(step) == hashlib.sha256(train.read_bytes()).hexdigest()
    assert source_hash(functools.wraps(step)(lambda: None)) == source_hash(step)
    assert source_hash(print) == ""
