"""Which plan a target has."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachekeeper.errors import NotFound, UsageError
from cachekeeper.plans import Axes
from cachekeeper.targets import declared, for_people

TABLE = """
[warmup."train.py:step"]
devices = ["cuda:0", "cuda:1"]
modes = "train"
shapes = [512, [8, 2048], "4x64"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cachekeeper.toml").write_text(TABLE)
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    return tmp_path


def test_the_one_declared_target_is_the_default(project: Path):
    target, axes = declared(None, Axes())
    assert target == f"{project}/train.py:step"
    assert axes == Axes(("cuda:0", "cuda:1"), ("train",), (512, (8, 2048), (4, 64)))


@pytest.mark.parametrize("given", ["../train.py:step", "{project}/train.py:step"])
def test_a_target_is_known_however_its_file_is_named(project: Path, given: str):
    assert declared(given.format(project=project), Axes())[1].modes == ("train",)


def test_what_is_given_wins(project: Path):
    assert declared("../train.py:step", Axes(devices=("cpu",)))[1] == Axes(
        ("cpu",), ("train",), (512, (8, 2048), (4, 64))
    )


def test_another_target_has_nothing_of_it(project: Path):
    assert declared("../train.py:other", Axes())[1] == Axes()
    assert declared("train.py:step", Axes())[1] == Axes()


def test_in_pyproject_beside_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = '[tool.cachekeeper]\nname = "drafter"\n[tool.cachekeeper.warmup."job.steps:one"]\nshapes = 512\n'
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert declared(None, Axes()) == ("job.steps:one", Axes(shapes=(512,)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "which target"),
        (TABLE + '[warmup."b.py:f"]\n', "which target"),
        ('warmup = "train.py:step"', "no table of tables"),
        ('[warmup]\ntarget = "train.py:step"', "no table of tables"),
        ('[warmup."a.py:f"]\nshape = 3\n', "has no 'shape'"),
        ('[warmup."a.py:f"]\ndevices = 3\n', "not a device"),
        ('[warmup."a.py:f"]\nmodes = true\n', "not a mode"),
        ('[warmup."a.py:f"]\nshapes = [-1]\n', "not a shape"),
    ],
)
def test_what_makes_no_sense_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str):
    (tmp_path / "cachekeeper.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        declared(None, Axes())


def test_a_person_reads_the_short_path(project: Path):
    assert for_people(f"{project}/deep/train.py:step") == "train.py:step"
    assert for_people("package.module:step") == "package.module:step"


@pytest.mark.parametrize(
    ("device", "meant"), [("gpu:0", "cuda:0"), ("cud:1", "cuda:1"), ("cpus", "cpu"), ("mps", "cuda")]
)
def test_a_kind_of_device_that_there_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, meant: str):
    """Nothing of the target is imported for that: there is none."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match=f"no device {device}: a warmup runs on cpu, cuda and xpu") as caught:
        declared("train.py:step", Axes((device,)))
    assert caught.value.hint == f"did you mean `{meant}`?"
    (tmp_path / "cachekeeper.toml").write_text(f'[warmup."train.py:step"]\ndevices = ["{device}"]\n')
    with pytest.raises(NotFound, match=f"no device {device}"):
        declared("train.py:step", Axes())
    assert declared("train.py:step", Axes(("cpu", "cuda:5", "xpu"))) == (
        "train.py:step",
        Axes(("cpu", "cuda:5", "xpu")),
    )
