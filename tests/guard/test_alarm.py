"""What is said, once, or raised, in its thread."""

from __future__ import annotations

import threading

import pytest

from cachekeeper.guard import RanUncompiled
from cachekeeper.guard.alarm import Alarm


def make(mode: str) -> tuple[Alarm, list[tuple[str, str]]]:
    told: list[tuple[str, str]] = []
    return Alarm(mode, lambda function, reason: told.append((function, reason))), told


def test_it_is_said_once_and_told_each_time(capsys: pytest.CaptureFixture[str]):
    alarm, told = make("warn")
    for _ in range(3):
        alarm.found("flex_attention", "dense", False)
    alarm.found("flex_attention", "dense, larger", False)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "cachekeeper: UNCOMPILED  flex_attention in thread MainThread runs uncompiled: dense"
    assert len(lines) == 2 and len(told) == 4


def test_what_a_compile_gave_up_comes_when_it_is_over(capsys: pytest.CaptureFixture[str]):
    alarm, told = make("warn")
    alarm.found("step (train.py:7)", "recompile_limit (8) reached", True)
    alarm.found("step (train.py:7)", "Dynamo recompile limit exceeded", True)  # said of the same, and says less
    assert told == [] and capsys.readouterr().err == ""
    alarm.compile_ended()
    alarm.compile_ended()
    assert told == [("step (train.py:7)", "recompile_limit (8) reached")]
    assert capsys.readouterr().err.count("UNCOMPILED") == 1


def test_what_raised_did_not_run():
    alarm, told = make("error")
    alarm.found("step", "the backend failed", True)
    alarm.compile_raised()
    alarm.compile_ended()
    assert told == []


def test_each_thread_has_its_own(capsys: pytest.CaptureFixture[str]):
    alarm, told = make("error")
    alarm.found("step", "limit", True)
    thread = threading.Thread(target=alarm.compile_ended)
    thread.start()
    thread.join()
    assert told == []
    with pytest.raises(RanUncompiled, match="step in thread MainThread runs uncompiled: limit"):
        alarm.compile_ended()


def test_error_raises_before_it_runs_and_each_time(capsys: pytest.CaptureFixture[str]):
    alarm, told = make("error")
    for _ in range(2):
        with pytest.raises(RanUncompiled):
            alarm.found("flex_attention", "dense", False)
    assert len(told) == 2 and capsys.readouterr().err == ""


def test_off_is_silent_and_told(capsys: pytest.CaptureFixture[str]):
    alarm, told = make("off")
    alarm.found("flex_attention", "dense", False)
    assert len(told) == 1 and capsys.readouterr().err == ""


def test_a_flood_is_cut(capsys: pytest.CaptureFixture[str]):
    alarm, _ = make("warn")
    for number in range(100):
        alarm.found(f"step {number}", "dense", False)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21 and "not said" in lines[-1]
