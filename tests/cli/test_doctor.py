"""The command: the same result for a person, as JSON, and quiet; exit 3 only for errors."""

import json
import sys

import pytest

from cachekeeper.cli import main
from cachekeeper.testing import make_cache


@pytest.fixture
def cache(tmp_path, monkeypatch):
    directory = make_cache(tmp_path / "cache")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(directory))
    monkeypatch.setenv("CACHEKEEPER_STORE", str(tmp_path / "store"))
    return directory


def test_screen(cache, capsys):
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == f"Cache directory  {cache}   TORCHINDUCTOR_CACHE_DIR"
    assert lines[1] == f"Store            {(cache.parent / 'store').as_uri()}"
    assert f"ok       cache-dir: torch would use {cache} (TORCHINDUCTOR_CACHE_DIR)" in lines
    note = next(number for number, line in enumerate(lines) if line.startswith("note     store: "))
    assert lines[note + 1] == "         fix: cachekeeper snapshot NAME"
    assert lines[-1].startswith("ok  ready: 0 errors, ")


def test_error_is_exit_3_in_every_mode(cache, capsys):
    store = ["--store", str(cache / "store")]
    assert main(["doctor", *store]) == 3
    out, err = capsys.readouterr()
    assert any(line.startswith("error    store: ") for line in out.splitlines())
    assert out.splitlines()[-1].startswith("NOT ready: 1 error, ")
    assert err == ""

    assert main(["doctor", *store, "--json"]) == 3
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert err == ""
    assert document["schema"] == "cachekeeper.doctor/1"
    assert document["ok"] is False
    assert (document["cache_dir"], document["source"]) == (str(cache), "TORCHINDUCTOR_CACHE_DIR")
    [error] = [finding for finding in document["findings"] if finding["level"] == "error"]
    assert error["check"] == "store"
    assert error["fix"].startswith("export CACHEKEEPER_STORE=")

    assert main(["doctor", *store, "--quiet"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: store: ")
    assert err.count("\n") == 1


def test_warnings_are_exit_0_and_quiet_is_silent(cache, capsys, monkeypatch):
    monkeypatch.setenv("TORCH_COMPILE_DEBUG", "1")
    assert main(["doctor", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["doctor"]) == 0
    assert "warning  switches: TORCH_COMPILE_DEBUG=1" in capsys.readouterr().out


def test_cache_dir_option(cache, tmp_path, capsys):
    other = make_cache(tmp_path / "other")
    assert main(["doctor", "--cache-dir", str(other), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["cache_dir"], document["source"]) == (str(other), "given")


def test_terminal_is_wrapped_and_fixes_are_not(cache, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    long = [line for line in lines if len(line) > 80]
    # What cannot be wrapped: a fix, which is to be pasted, and a path that is longer than the line.
    assert [line for line in long if "fix: " not in line and str(cache.parent) not in line] == []
    assert any(line.startswith("         ") and "fix:" not in line for line in lines)


def test_bad_setting_is_a_usage_error(cache, tmp_path, capsys, monkeypatch):
    (tmp_path / "cachekeeper.toml").write_text("stoer = 'x'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CACHEKEEPER_STORE")
    assert main(["doctor"]) == 2
    assert "did you mean `store`?" in capsys.readouterr().err


def test_help_has_examples(capsys):
    assert main(["doctor", "--help"]) == 0
    out = capsys.readouterr().out
    assert "Examples:\n    cachekeeper doctor\n" in out
    assert all(option in out for option in ("--cache-dir", "--store", "--json", "--quiet"))


def test_fix_prints_a_script_and_runs_nothing(cache, capsys):
    before = sorted(cache.parent.rglob("*"))
    assert main(["doctor", "--fix"]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "\ncachekeeper snapshot NAME\n" in out
    assert all(len(line) <= 80 for line in out.splitlines() if line.startswith("# ") and "/" not in line)
    assert main(["doctor", "--fix", "--json"]) == 0
    document = json.loads(capsys.readouterr()[0])
    assert document["schema"] == "cachekeeper.doctor-fix/1"
    assert "cachekeeper snapshot NAME" in [line for item in document["remedies"] for line in item["commands"]]
    assert sorted(cache.parent.rglob("*")) == before
