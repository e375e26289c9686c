"""The variables by which a job finds its caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachekeeper.inductor import job_environment
from cachekeeper.inductor.variables import CACHE_VARIABLES, fullest, variable_of


def test_triton_is_always_told():
    assert job_environment(Path("/c"), {}, []) == {
        "TORCHINDUCTOR_CACHE_DIR": "/c",
        "TRITON_CACHE_DIR": "/c/triton/shared",
    }


@pytest.mark.parametrize(
    ("dirs", "best"),
    [
        ({"triton/0": 5}, "triton/0"),
        ({"triton/0": 5, "triton/1": 7}, "triton/1"),
        ({"triton/0": 5, "triton/1": 5}, "triton/1"),
        ({"triton/0": 5, "also/TRITON_CACHE_DIR": 9}, "also/TRITON_CACHE_DIR"),
        ({}, "triton/shared"),
    ],
)
def test_the_fullest_directory_is_the_one(dirs: dict[str, int], best: str):
    assert fullest(dirs) == best


def test_only_known_variables_are_exported():
    also = [("VLLM_CACHE_ROOT", Path("/c/also/VLLM_CACHE_ROOT")), ("LD_PRELOAD", Path("/c/also/LD_PRELOAD"))]
    found = job_environment(Path("/c"), {"triton/0": 1}, also)
    assert found == {
        "VLLM_CACHE_ROOT": "/c/also/VLLM_CACHE_ROOT",
        "TORCHINDUCTOR_CACHE_DIR": "/c",
        "TRITON_CACHE_DIR": "/c/triton/0",
    }


@pytest.mark.parametrize("variable", CACHE_VARIABLES)
def test_a_directory_is_known_by_its_variable(variable: str, tmp_path: Path):
    assert variable_of(tmp_path, {variable: f"{tmp_path}/."}) == variable


def test_a_directory_is_known_by_the_default(own_environment: Path):
    assert variable_of(own_environment / ".triton/cache", {}) == "TRITON_CACHE_DIR"
    assert variable_of(own_environment / ".triton/cache", {"TRITON_CACHE_DIR": "/elsewhere"}) == ""
    assert variable_of(own_environment / "work", {}) == ""
