"""The verb: this machine's fingerprint, its cache directory, and torch's own word."""

import pytest

from cachekeeper import environment
from cachekeeper.models import Fact
from cachekeeper.verbs.fingerprint import fingerprint


def test_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    config = tmp_path / "config.json"
    config.write_text('{"layers": 2}')
    report = fingerprint(model_config=config)
    assert report.fingerprint.model.config == str(config)
    assert report.cache_dir.path == tmp_path
    assert report.deep == ()
    assert report.agrees
    assert capsys.readouterr() == ("", "")


def test_disagreement_is_shown(monkeypatch):
    torch = environment.fingerprint().must["torch"]
    answers = {"torch": torch, "threads": Fact(999), "gpu": Fact(unknown="RuntimeError: x"), "torch_key": Fact("ab")}
    monkeypatch.setattr(environment, "asked_torch", lambda: answers)
    report = fingerprint(deep=True)
    assert {check.name: check.agree for check in report.deep} == {
        "torch": True,
        "threads": False,
        "gpu": False,
        "torch_key": True,
    }
    assert not report.agrees
    by_name = {check.name: check for check in report.deep}
    assert by_name["threads"].torchs == "999"
    assert by_name["torch_key"].ours == "only torch knows"


@pytest.mark.torch
def test_torch_agrees_here():
    report = fingerprint(deep=True)
    assert [check for check in report.deep if not check.agree] == []
    assert {"gpu", "gpu_count", "torch_key", "cache_dir"} <= {check.name for check in report.deep}
