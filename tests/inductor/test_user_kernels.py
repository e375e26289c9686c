from __future__ import annotations

import pytest

from cachekeeper.inductor.keys.changes import in_words
from cachekeeper.inductor.keys.components import components, differences
from cachekeeper.inductor.keys.user_kernels import difference

SOURCE = "def softcap(source, target, cap, SIZE: tl.constexpr):\\n    at = tl.program_id(0)\\n"


def value(source: str = SOURCE, warps: int = 8, constants: str = "{}") -> str:
    """As torch 2.11 lists it."""
    options = ", ".join(rf'''"(\'{name}\', {number})"''' for name, number in (("num_stages", 3), ("num_warps", warps)))
    return f"('{source}', {constants}, '[[{options}]]')"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (value(), value(warps=1), "own Triton kernel softcap: num_warps 8 -> 1"),
        (value(), value(source=SOURCE + "    pass\\n"), "own Triton kernel softcap: another source"),
        (value(), value(constants="{'SIZE': 4}"), "own Triton kernel softcap: other constants or launch options"),
        (None, value(), "own Triton kernel softcap: new in the graph"),
        (value(), None, "own Triton kernel softcap: no longer in the graph"),
        ("(" * 500, value(), "own Triton kernel softcap: another source"),
        ("cut by tor...", "cut by torch...", "own Triton kernel: another source"),
    ],
)
def test_what_differs_is_said_in_words(before: str | None, after: str | None, words: str):
    assert difference(before, after) == words


def test_a_key_says_it():
    old, new = (
        components([f"[{hash}] user_defined_triton_source[0]: {text}"])
        for hash, text in (("a", value()), ("b", value(warps=1)))
    )
    assert in_words(differences(old, new), old, new) == ["own Triton kernel softcap: num_warps 8 -> 1"]
