"""Answers that this machine remembers for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachekeeper.stores.remembered import Remembered


def answer(seconds: float = 60.0, place: str = "here") -> bool | None:
    return Remembered("topic", place, seconds).value


def test_an_answer_is_remembered_for_its_place_and_its_time(own_environment: Path):
    assert answer() is None
    Remembered("topic", "here", 60).save(False)
    assert answer() is False
    assert answer(place="there") is None
    assert answer(seconds=0) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"answer": 1, "when": 9e99}', '{"answer": "yes", "when": 0}', "\xff"]
)
def test_what_is_damaged_is_not_known(own_environment: Path, text: str):
    Remembered("topic", "here", 60).save(True)
    [file] = (own_environment / "cache").rglob("*.json")
    file.write_text(text, encoding="latin-1")
    assert answer() is None


def test_where_nothing_can_be_written_nothing_is_remembered(own_environment: Path):
    (own_environment / "cache").write_text("a file")
    known = Remembered("topic", "here", 60)
    known.save(True)
    assert known.value is True and answer() is None
