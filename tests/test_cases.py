"""CASES.md: every public case has its row, and every row the tests that it names."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "tests" / "CASES.md").read_text()
ROWS = [line for line in TEXT.splitlines() if re.match(r"\| C\d", line)]
# Their numbers have gaps.
TRIED = (
    *(1, 2, 3, 4, 6, 7, 9, 10, 11, 13, 14, 15, 16, 17),
    *(18, 19, 20, 21, 22, 23, 24, 25, 28, 29, 30, 31, 32),
    *(33, 34, 35, 36, 38, 39, 40, 42, 43, 44),
    *(47, 48, 49, 50, 51, 52, 53, 54, 55, 56),
    *(57, 59, 60, 61, 62, 63),
    *(64, 65, 66, 67, 69),
    *(71, 73),
)
NAMED = re.compile(r"`(tests/[\w/]+\.py)?::([\w:]+)`")


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


@functools.cache
def defined(path: str) -> frozenset[str]:
    """The tests of a file, as "test_x", and of a class as "TestX::test_x"."""
    names: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return frozenset(names)


def missing(tests: str) -> list[str]:
    """What a cell names and is not there."""
    found, path = [], ""
    for file, name in NAMED.findall(tests):
        path = file or path
        if not name.split("::")[-1].startswith("test_") or not _is_there(path, name):
            found.append(f"{path}::{name}")
    return found


def _is_there(path: str, name: str) -> bool:
    return (ROOT / path).is_file() and name in defined(path)


def test_every_case_is_there_once_and_in_order():
    assert [cells(row)[0] for row in ROWS] == [f"C{number}" for number in TRIED]


def test_there_is_a_table_a_letter():
    assert re.findall(r"^## ([A-Z])\. ", TEXT, re.MULTILINE) == list("ABCDEFG")
    assert TEXT.count("| case | what was done | what the product says | test |\n|---|---|---|---|\n| C") == 7


@pytest.mark.parametrize("row", ROWS, ids=lambda row: cells(row)[0])
def test_a_row_says_all_and_names_tests_that_are_there(row: str):
    _, done, said, tests = cells(row)
    assert done and said
    assert NAMED.search(tests) or tests.startswith("not ours")
    assert missing(tests) == []
    assert "::" not in NAMED.sub("", tests)  # each name is written so that it is found


def test_a_test_that_is_not_there_is_noticed():
    here = "tests/test_cases.py"
    assert missing(f"`{here}::{test_a_test_that_is_not_there_is_noticed.__name__}`, `::test_gone`") == [
        f"{here}::test_gone"
    ]
    assert missing("`::test_x`") == ["::test_x"] and missing("`tests/gone.py::test_x`") == ["tests/gone.py::test_x"]
    assert missing(f"`{here}::defined`") == [f"{here}::defined"]
