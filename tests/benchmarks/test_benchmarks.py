"""The benchmarks still run, and the made-up cache is one. What they measure is not judged here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import __main__ as program
from . import diff, growth, measuring, s3, startup, tools, tree


def _contents(directory: Path) -> dict[str, bytes]:
    own = str(directory).encode()
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes().replace(own, b"") for path in files}


def _structure(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cachekeeper", "verify", "--dir", str(directory)], capture_output=True, text=True
    )


def test_tree_is_the_same_again_and_sound(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    assert tree.make(one, 400, 12).files == len(_contents(one)) == 400
    tree.make(other, 400, 12)
    assert _contents(one) == _contents(other)
    assert _structure(one).returncode == 0, _structure(one).stdout


def test_changed_tree_is_the_same_again_and_sound(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other):
        tree.make(directory, 400, 0)
    before = _contents(one)
    changed = [tree.mutate(directory, 0.05) for directory in (one, other)]
    assert changed[0] == changed[1]
    assert _contents(one) == _contents(other)
    assert changed[0][:3] == (14, 4, 2)
    assert sum(data != before.get(path) for path, data in _contents(one).items()) == 18
    assert _structure(one).returncode == 0, _structure(one).stdout


def test_other_seed_other_tree(tmp_path: Path) -> None:
    tree.make(tmp_path / "one", 50, 0)
    tree.make(tmp_path / "other", 50, 0, seed=5)
    assert _contents(tmp_path / "one") != _contents(tmp_path / "other")


def test_whole_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(growth, "SIZES", (50,))
    monkeypatch.setattr(diff, "SIZES", (60,))
    monkeypatch.setattr(startup, "STARTS", 1)
    monkeypatch.setattr(startup, "SNAPSHOTS", 2)
    out = tmp_path / "RESULTS.md"
    only = ",".join(part for part in program.PARTS if part != "s3")
    options = ["--files", "200", "--mb", "5", "--runs", "1", "--only", only]
    program.main([*options, "--out", str(out), "--work", str(tmp_path)])
    text = out.read_text(encoding="utf-8")
    assert capsys.readouterr().out == text
    assert [title for title in tools.OPERATIONS.values() if f"| {title} " not in text] == []
    assert re.search(r"\| 60 files, all of it another +\| +[\d.]+ s \|", text)
    assert "restored" not in text.partition("## Notes")[2]
    assert str(tmp_path) not in text
    assert list(tmp_path.iterdir()) == [out]


def test_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A real server; without aws, which is slow, and without waiting: nothing is timed."""
    monkeypatch.setattr(measuring, "SETTLED_SECONDS", 0.0)
    some = [tool for tool in s3.all_tools() if tool.name != s3.AWS]
    monkeypatch.setattr(s3, "all_tools", lambda: some)
    out = tmp_path / "RESULTS.md"
    options = ["--files", "60", "--mb", "0", "--runs", "1", "--only", "s3"]
    program.main([*options, "--out", str(out), "--work", str(tmp_path)])
    text = out.read_text(encoding="utf-8")
    assert capsys.readouterr().out == text
    assert [title for title in s3.OPERATIONS.values() if f"| {title} " not in text] == []
    notes = text.partition("## Notes")[2]
    assert "restored" not in notes and "failed" not in notes
    assert re.search(r"below 100 requests .*\(60 files\) \| +met \|", text)
    assert str(tmp_path) not in text and "127.0.0.1" not in text
    assert list(tmp_path.iterdir()) == [out]


def test_s3_without_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "found", lambda name: "no-such-program")
    out = tmp_path / "RESULTS.md"
    program.main(["--only", "s3", "--out", str(out), "--work", str(tmp_path)])
    assert "- weed, the S3 server, is not installed: skipped" in out.read_text(encoding="utf-8")
