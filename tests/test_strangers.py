"""Files of other programs that name a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachekeeper import strangers
from cachekeeper.disk import open_directory

OLD = {"/old": Path("/new")}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    with open_directory(tmp_path) as descriptor:
        yield descriptor


def found(root: int, tmp_path: Path, files: dict[str, bytes], *names: str) -> tuple[str, ...]:
    for path, data in files.items():
        (tmp_path / path).write_bytes(data)
    sizes = [(path, len(data)) for path, data in files.items()]
    return strangers.naming(root, sizes, dict.fromkeys(names, tmp_path))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        *(
            (b"/old/x", True),
            (b'"/old"', True),
            (b"\x8c\x04/old\x94", True),
            (b"/old", True),
            (b"x" * 70_000 + b"/old\n", True),
        ),
        *((b"/older", False), (b"/old.bak", False), (b"/old-2/x", False), (b"old/x", False), (b"", False)),
    ],
)
def test_a_directory_is_named_by_itself_or_below_it(root: int, tmp_path: Path, data: bytes, told: bool):
    assert bool(found(root, tmp_path, {"a": data}, "/old")) is told


def test_one_in_another_is_the_one_that_is_named(root: int, tmp_path: Path):
    [note] = found(root, tmp_path, {"a": b"/old/in/x"}, "/old", "/old/in")
    assert note == "1 file of other programs names /old/in (a): paths in them are not rewritten"


def test_many_are_not_all_listed(root: int, tmp_path: Path):
    [note] = found(root, tmp_path, dict.fromkeys("abcde", b"/old"), "/old")
    assert note.startswith("5 files of other programs name /old (a, b, c and 2 more)")


def test_a_directory_that_is_still_there_by_another_name_is_not_old(root: int, tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert found(root, tmp_path, {"a": f"{tmp_path}/link".encode()}, f"{tmp_path}/link") == ()
    assert found(root, tmp_path, {"a": str(tmp_path).encode()}, str(tmp_path)) == ()


@pytest.mark.parametrize("name", ["", "/", "//", "relative", "x/y", "/a\0b", "/\ud800", "/(["])
def test_what_is_no_directory_of_a_cache_is_in_no_file(root: int, tmp_path: Path, name: str):
    assert found(root, tmp_path, {"a": b"/ // relative x/y"}, name) == ()


def test_what_cannot_be_read_or_is_long_is_passed_over(root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a").write_bytes(b"/old")
    os.symlink("a", tmp_path / "link")
    os.mkfifo(tmp_path / "fifo")
    assert strangers.naming(root, [("gone", 4), ("link", 4), ("fifo", 4), ("a", (16 << 20) + 1)], OLD) == ()
    monkeypatch.setattr(strangers, "_MOST_FILES", 2)
    assert strangers.naming(root, [("gone", 4), ("gone", 4), ("a", 4)], OLD) == ()
    monkeypatch.setattr(strangers, "_ALL_BYTES", 5)
    assert strangers.naming(root, [("gone", 4), ("a", 4)], OLD) == ()
