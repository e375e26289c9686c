"""Stores of every released format must restore for ever."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import cachekeeper
from tests.golden.make_store import tree

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "store-v1.json").read_text())


@pytest.fixture
def target() -> Path:
    """The directory that the expected files were restored to: some of them name it."""
    path = Path(EXPECTED["restored_to"])
    shutil.rmtree(path, ignore_errors=True)
    yield path
    shutil.rmtree(path.parent, ignore_errors=True)


@pytest.mark.xdist_group("golden")
@pytest.mark.parametrize("reference", EXPECTED["trees"])
def test_a_store_of_format_1_restores(reference: str, target: Path) -> None:
    cachekeeper.restore(reference, cache_dir=target, store=HERE / "store-v1", allow_mismatch=True, verify=True)
    assert tree(target) == EXPECTED["trees"][reference]


def test_a_store_of_format_1_verifies() -> None:
    result = cachekeeper.verify(every=True, store=HERE / "store-v1")
    assert result.ok and len(result.snapshots) == 2


def test_what_its_header_says_is_still_understood() -> None:
    header = cachekeeper.show("team/first@{1}", store=HERE / "store-v1").snapshot.header
    assert header.metrics == {"tok_s": 21500.0}
    assert header.fingerprint.should["driver"].unknown == "no driver"
    assert header.entries_of("triton") == 5 and header.entries_of("fxgraph") == 2
    assert header.triton_dirs == {"triton/0": 2, "triton/1": 2, "also/kernels/triton/0": 1}
