"""Paths in pickles, rewritten without unpickling. What a test pickled itself, it may unpickle."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper.inductor.pickles import rewrite_paths

BASE32 = "abcdefghijklmnopqrstuvwxyz234567"
OLD = "/tmp/torchinductor_me"
MODULE = "ab/c" + "a2" * 25 + "b.py"
CONFIG = "3v/" + "0123456789abcdef" * 4 + ".best_config"

inner = st.one_of(
    st.text(BASE32, min_size=53, max_size=53).map(lambda key: f"{key[:2]}/c{key[2:]}.py"),
    st.text("0123456789abcdef", min_size=64, max_size=64).map(lambda key: f"{key[:2]}/{key}.best_config"),
)
roots = st.one_of(
    st.just("[REPLACE]"),
    st.just("/" + "x" * 300),
    st.text(min_size=1, max_size=40).map(lambda text: "/" + text.strip("/")),
)
others = st.one_of(
    st.text(max_size=80),
    inner,  # a relative path is none of ours
    inner.map(lambda path: f"{OLD}/{path} # and more"),
    inner.map(lambda path: f"open('{OLD}/{path}')"),
    inner.map(lambda path: f"={OLD}/{path}".encode()),
    st.integers(),
    st.binary(max_size=50),
    st.just(b"\x00" * 70_000),  # beyond a frame
    st.just("y" * 70_000),
    st.none(),
)


def values(paths: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.one_of(paths, others),
        lambda inside: st.one_of(
            st.lists(inside, max_size=6),
            st.tuples(inside, inside),
            st.dictionaries(st.one_of(paths, st.text(max_size=5)), inside, max_size=4),
        ),
        max_leaves=12,
    )


def moved(value: Any, root: str) -> Any:
    """The value with every path below OLD below another root."""
    if isinstance(value, str):
        name = value[len(OLD) + 1 :]
        is_path = value.startswith(f"{OLD}/") and re.fullmatch(
            r"[a-z0-9]{2}/c[a-z2-7]{51}\.py|[a-z0-9]{2}/[0-9a-f]{64}\.best_config", name
        )
        return f"{root}/{name}" if is_path else value
    if isinstance(value, dict):
        return {moved(key, root): moved(item, root) for key, item in value.items()}
    return type(value)(moved(item, root) for item in value) if isinstance(value, (list, tuple)) else value


@given(values(inner.map(lambda path: f"{OLD}/{path}")), st.sampled_from([2, 3, 4, 5]), roots)
def test_a_rewritten_pickle_is_the_value_elsewhere(value: Any, protocol: int, root: str):
    data = pickle.dumps(value, protocol)
    rewritten, named = rewrite_paths(data, root)
    assert pickle.loads(rewritten) == moved(value, root)
    assert named <= {OLD} and bool(named) == (moved(value, "/elsewhere") != value)
    assert rewrite_paths(rewritten, OLD)[0] == data


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_it_is_what_pickle_would_have_written_there(protocol: int):
    for root in ("/r", "/" + "long" * 40, "/" + "x" * 300, "[REPLACE]"):
        rewritten, _ = rewrite_paths(pickle.dumps([f"{OLD}/{MODULE}", 1, f"{OLD}/{CONFIG}"], protocol), root)
        assert rewritten == pickle.dumps([f"{root}/{MODULE}", 1, f"{root}/{CONFIG}"], protocol)


@pytest.mark.parametrize("size", [100, 65_000, 65_500, 66_000, 300_000])
def test_frames_stay_right_around_and_beyond_64_kib(size: int):
    value = [f"{OLD}/{MODULE}", *("z" * 50 + str(number) for number in range(size // 60)), f"{OLD}/{CONFIG}"]
    data = pickle.dumps(value, 4)
    for root in ("/r", "/" + "longer" * 60):
        rewritten, _ = rewrite_paths(data, root)
        # The unpickler in Python, unlike the one in C, complains of frames that end too early or too late.
        assert pickle._loads(rewritten) == pickle.loads(rewritten) == moved(value, root)
        assert rewrite_paths(rewritten, OLD)[0] == data


def test_a_string_that_is_there_twice_is_shared_still():
    path = f"{OLD}/{MODULE}"
    first, second = pickle.loads(rewrite_paths(pickle.dumps([path, path]), "/new")[0])
    assert first == f"/new/{MODULE}" and first is second


def test_every_directory_that_was_named_is_told():
    data = pickle.dumps([f"/one/{MODULE}", f"/two/{CONFIG}", f"[REPLACE]/{MODULE}"])
    assert rewrite_paths(data, "/new")[1] == {"/one", "/two", "[REPLACE]"}


def test_a_pickle_without_such_paths_is_the_same_object():
    data = pickle.dumps({"x": f"{OLD}/other", "y": MODULE})
    assert rewrite_paths(data, "/new") == (data, frozenset())
    assert rewrite_paths(data, "/new")[0] is data


def test_a_directory_with_odd_characters():
    for root in ("/a b/ü", "/new\nline", "/q'\"", "/\udcff"):
        data = pickle.dumps([f"{root}/{MODULE}"])
        kept, named = rewrite_paths(data, "[REPLACE]")
        assert named == {root} and rewrite_paths(kept, root)[0] == data


WHOLE = pickle.dumps([f"{OLD}/{MODULE}", b"\x00" * 1000, f"{OLD}/{CONFIG}"])


@given(st.integers(0, len(WHOLE) - 1))
def test_a_cut_pickle_comes_back_as_it_is(length: int):
    assert rewrite_paths(WHOLE[:length], "/new") == (WHOLE[:length], frozenset())


@given(st.binary(), st.binary(max_size=20))
def test_what_is_no_pickle_comes_back_as_it_is(before: bytes, after: bytes):
    data = b"\xff" + before + f"{OLD}/{MODULE}".encode() + b"\x94" + after
    assert rewrite_paths(data, "/new") == (data, frozenset())


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_flipped_byte_never_raises(position: int, bits: int):
    data = bytearray(WHOLE)
    data[position] ^= bits
    rewrite_paths(bytes(data), "/new")


def test_nothing_is_executed(capfd: pytest.CaptureFixture[str]):
    path = f"{OLD}/{MODULE}".encode()
    hostile = b"\x80\x04cos\nsystem\n\x8c\x09echo pwnd\x85R0\x8c" + bytes([len(path)]) + path + b"\x94."
    rewritten, named = rewrite_paths(hostile, "/new")
    assert named == {OLD} and b"/new/" in rewritten and b"echo pwnd" in rewritten
    assert capfd.readouterr().out == ""
