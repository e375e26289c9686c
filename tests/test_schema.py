"""JSON from a store as values of our types; nothing else gets through."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from cachekeeper.schema import parse


class Row(NamedTuple):
    name: str
    size: int


@dataclass(frozen=True)
class Inner:
    value: float


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    many: tuple[str, ...]
    table: Mapping[str, Inner]
    maybe: Inner | None = None
    flag: bool = False


WHOLE = {"name": "x", "inner": {"value": 1.5}, "many": ["a"], "table": {"k": {"value": 2}}}


def read(**changes: object) -> Outer:
    found = parse(Outer, json.dumps({**WHOLE, **changes}).encode())
    assert isinstance(found, Outer)
    return found


def test_a_dataclass():
    assert read() == Outer("x", Inner(1.5), ("a",), {"k": Inner(2.0)})
    assert read(maybe={"value": 3}, flag=True).maybe == Inner(3.0)
    assert read(maybe=None).maybe is None


def test_rows():
    found = parse(tuple[tuple[Row, ...], tuple[Row, ...]], b'[[["a",1],["b",2]],[]]')
    assert [list(map(Row._make, rows)) for rows in found] == [[Row("a", 1), Row("b", 2)], []]


def test_keys_that_nobody_knows_are_passed_over():
    assert read(more=1) == read()


@pytest.mark.parametrize(
    "changes",
    [
        {"name": 1},
        {"name": None},
        {"inner": 1},
        {"inner": {}},
        {"inner": {"value": "1.5"}},
        {"many": "abc"},
        {"many": [1]},
        {"table": []},
        {"flag": 1},
        {"flag": "yes"},
    ],
    ids=str,
)
def test_other_types_are_refused(changes: dict[str, object]):
    with pytest.raises(ValueError):
        read(**changes)


@pytest.mark.parametrize(
    "raw", [b'[["a"]]', b'[["a",1,2]]', b'[["a","1"]]', b'[["a",1.5]]', b'[["a",true]]', b"{}", b"", b"[" * 10_000]
)
def test_rows_of_another_form_are_refused(raw: bytes):
    with pytest.raises(ValueError):
        parse(tuple[Row, ...], raw)


@pytest.mark.parametrize("raw", [b'{"value": NaN}', b'{"value": Infinity}', b'{"value": 1e999}', b'{"value": 1}x'])
def test_numbers_that_json_does_not_have(raw: bytes):
    with pytest.raises(ValueError):
        parse(Inner, raw)
