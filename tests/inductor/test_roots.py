"""Where cache directories begin among files."""

from __future__ import annotations

import pytest

from cachekeeper.inductor.roots import cache_roots


@pytest.mark.parametrize(("paths", "roots"), [
    (["fxgraph/ab/fk/x", "ab/y"], {"": 2}),
    (["t/fxgraph/ab/fk/x", "t/y", "z"], {"t": 2}),
    (["a/b/aotautograd/ak/x", "a/b/fxgraph/aa/fz/y", "a/c"], {"a/b": 2}),
    ([f"t/triton/0/{'A2' * 26}/k.json"], {"t": 1}),
    ([f"t/triton/0/{'0f' * 32}/k.json"], {"t": 1}),
    ([f"t/6s/c{'a' * 51}.py", f"t/6s/c{'b' * 51}.main.so"], {"t": 2}),
    (["one/fxgraph/ab/fk/x", "two/fxgraph/ab/fk/x", "two/y", "three"], {"one": 1, "two": 2}),
    (["t/fxgraph/ab/fk/x", "t/also/L/fxgraph/ab/fk/x"], {"t": 2}),
    (["fxgraph/ab/fk/x", "also/L/aotautograd/ak/x", "other"], {"": 3}),
    (["t/fxgraph/ab/fk/x", "tt/x"], {"t": 1}),
    (["site-packages/triton/compiler/code.py", "ab/code.py", "fxgraph/x"], {}),
    ([], {}),
])  # fmt: skip
def test_where_a_cache_begins(paths: list[str], roots: dict[str, int]):
    assert cache_roots(paths) == roots
