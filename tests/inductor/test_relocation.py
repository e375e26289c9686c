"""Files that name their directory, out of one place and into another."""

from __future__ import annotations

import json
import pickle

import pytest

from cachekeeper.inductor import expand, names_its_directory, normalise

MODULE = "c" + "a2" * 25 + "b.py"
CONFIG = "0123456789abcdef" * 4 + ".best_config"


def group(directory: str) -> bytes:
    return json.dumps({"child_paths": {"k.cubin": f"{directory}/k.cubin"}}).encode()


def entry(root: str) -> bytes:
    return pickle.dumps({"filename": f"{root}/ab/{MODULE}", "config": f"{root}/ab/{CONFIG}", "other": f"{root}/x"})


@pytest.mark.parametrize(
    ("kind", "path", "answer"),
    [
        ("fxgraph", "fxgraph/ab/fx/y", True),
        ("aotautograd", "aotautograd/ax/y", True),
        ("triton", "triton/0/H/__grp__k.json", True),
        ("triton", "triton/0/H/k.json", False),
        ("native", "ab/x.so", False),
        ("other", "__grp__k.json", False),
    ],
)
def test_what_may_have_to_be_rewritten(kind: str, path: str, answer: bool):
    assert names_its_directory(kind, path) is answer


def test_a_group_moves():
    kept, foreign = normalise("triton", group("/old/triton/0/H"), "/old", "/old/triton/0/H")
    assert foreign == "" and b"/old" not in kept
    assert expand("triton", kept, "/new", "/new/triton/0/H") == group("/new/triton/0/H")


@pytest.mark.parametrize("kind", ["fxgraph", "aotautograd"])
def test_a_pickled_entry_moves(kind: str):
    kept, foreign = normalise(kind, entry("/old"), "/old", "/old/fxgraph/ab/fx")
    assert foreign == ""
    moved = pickle.loads(expand(kind, kept, "/a/longer/place", "/anywhere"))
    assert moved["filename"] == f"/a/longer/place/ab/{MODULE}"
    assert moved["config"] == f"/a/longer/place/ab/{CONFIG}"
    assert moved["other"] == "/old/x"
    assert expand(kind, kept, "/old", "/anywhere") == entry("/old")


def test_a_foreign_directory_is_noticed():
    assert normalise("triton", group("/old/triton/0/H"), "/new", "/new/triton/0/H")[1] == "/old/triton/0/H"
    assert normalise("fxgraph", entry("/old"), "/new", "/new/fxgraph/ab/fx")[1] == "/old"


def test_a_misdirected_file_is_kept_as_a_right_one():
    wrong, _ = normalise("triton", group("/old/triton/0/H"), "/new", "/new/triton/0/H")
    right, _ = normalise("triton", group("/new/triton/0/H"), "/new", "/new/triton/0/H")
    assert wrong == right


@pytest.mark.parametrize("kind", ["fxgraph", "aotautograd", "triton"])
@pytest.mark.parametrize("data", [b"", b"not it", b"\x80\x05half", b'{"child_pa', b'{"child_paths": {"../x": "/x"}}'])
def test_what_is_damaged_stays_as_it_is(kind: str, data: bytes):
    assert normalise(kind, data, "/old", "/old/x") == (data, "")
    assert expand(kind, data, "/new", "/new/x") == data
