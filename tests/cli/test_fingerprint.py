"""The command."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachekeeper import environment
from cachekeeper.models import Fact
from tests import samples

from .conftest import Command


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "fingerprint", lambda **_: samples.fingerprint())


def test_in_every_mode(home: Path, command: Command):
    words = command("fingerprint")
    assert words.code == 0 and words.err == ""
    assert words.out.startswith("fingerprint  0123456789ab   H200 sm_90 cu130 2.11.0\n")
    assert f"cache dir    {home}/inductor   (TORCHINDUCTOR_CACHE_DIR)\n" in words.out
    assert command("fingerprint", "-q").out == "0123456789ab\n"
    document = command("fingerprint", "--json").json
    assert document["schema"] == "cachekeeper.fingerprint/1"
    assert document["fingerprint"]["must"]["torch"]["value"] == "2.11.0"
    assert document["cache_dir"]["path"] == str(home / "inductor") and document["agrees"] is True


def test_a_contradiction_of_torch_is_exit_3(home: Path, command: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "asked_torch", lambda: {"torch": Fact("2.12.0")})
    said = command("fingerprint", "--deep")
    assert said.code == 3 and "torch DISAGREES  torch            2.12.0   here 2.11.0\n" in said.out
    assert command("fingerprint", "--deep", "--json").json["agrees"] is False
    monkeypatch.setattr(environment, "asked_torch", lambda: {"torch": Fact("2.11.0")})
    assert command("fingerprint", "--deep").code == 0


def test_a_config_that_is_not_there_is_exit_2(home: Path, command: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    assert command("fingerprint", "--model-config", home / "none.json").code == 2
