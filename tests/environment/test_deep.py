"""What cachekeeper finds out against what torch says, on this machine."""

import os

import pytest

from cachekeeper.environment import asked_torch, cache_directory, fingerprint, shown
from cachekeeper.models import Fact

ASKED = {"torch", "torch_path", "cuda", "hip", "triton", "gpu", "gpu_count", "threads", "instruction_set", "cxx"}


@pytest.mark.torch
@pytest.mark.parametrize("environ", [{}, {"ATEN_CPU_CAPABILITY": "avx2"}, {"CXX": "/usr/bin/g++"}], ids=str)
def test_torch_agrees(tmp_path, environ):
    environ = {**os.environ, **environ, "TMPDIR": str(tmp_path)}
    found, answers = fingerprint(environ=environ), asked_torch(environ)
    ours = {**found.must, **found.should}
    wrong = {
        name: (shown(name, ours[name]), shown(name, answers[name]))
        for name in ASKED
        if not ours[name].same(answers[name])
    }
    assert wrong == {}
    assert answers["torch_git"].same(found.recorded["torch_git"])
    assert answers["cache_dir"].value == str(cache_directory(environ).path)
    assert len(answers["torch_key"].value) == 64
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("torchinductor_")] == []
    assert not cache_directory(environ).path.exists()


def test_torch_that_does_not_import(install):
    install()
    answers = asked_torch()
    assert set(answers) == {"torch"}
    assert "torch was imported" in answers["torch"].unknown


def test_no_python_to_ask(monkeypatch):
    monkeypatch.setattr("sys.executable", "/no/such/python")
    assert asked_torch()["torch"].unknown.startswith("torch could not be asked")
    assert isinstance(asked_torch()["torch"], Fact)
