"""Triton's group files: absolute paths out, absolute paths in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper.inductor import groups
from cachekeeper.inductor.groups import GroupError

NAMES = st.text(min_size=1, max_size=20).filter(lambda name: "/" not in name and name not in (".", ".."))
DIRECTORIES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(lambda text: f"/{text.strip('/')}")


def group(directory: str, *names: str) -> bytes:
    """As triton/runtime/cache.py writes it."""
    return json.dumps({"child_paths": {name: f"{directory}/{name}" for name in names}}).encode()


@given(DIRECTORIES, st.lists(NAMES, unique=True))
def test_out_and_in_gives_the_same_bytes(directory: str, names: list[str]):
    kept, named = groups.normalise_group(group(directory, *names))
    assert named == ({directory} if names else set())
    assert groups.expand_group(kept, directory) == group(directory, *names)


@given(DIRECTORIES, DIRECTORIES, st.lists(NAMES, unique=True))
def test_in_elsewhere_gives_what_triton_would_write_there(old: str, new: str, names: list[str]):
    kept, _ = groups.normalise_group(group(old, *names))
    assert groups.expand_group(kept, new) == group(new, *names)


def test_what_is_kept_names_no_directory():
    kept, _ = groups.normalise_group(group("/tmp/secret/triton/0/H", "k.cubin"))
    assert kept == b'{"child_paths": {"k.cubin": "[REPLACE]/k.cubin"}}'


def test_every_directory_is_told():
    data = json.dumps({"child_paths": {"a": "/one/a", "b": "/two/b"}}).encode()
    assert groups.normalise_group(data)[1] == {"/one", "/two"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"child_pa',
        b"[]",
        b"{}",
        b'{"child_paths": []}',
        b'{"child_paths": {"a": 1}}',
        b'{"child_paths": {"a": "/x/a"}}{"child_paths": {"a": "/x/a"}}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"\x00" * 100,
    ],
)
def test_what_is_no_group(data: bytes):
    for function in (groups.group_children, groups.normalise_group):
        with pytest.raises(GroupError):
            function(data)
    with pytest.raises(GroupError):
        groups.expand_group(data, "/x")


@pytest.mark.parametrize("name", ["", ".", "..", "../k.cubin", "/etc/passwd", "a/b"])
def test_children_outside_the_directory_are_refused(name: str):
    data = json.dumps({"child_paths": {name: "/x/y"}}).encode()
    with pytest.raises(GroupError, match="outside its directory"):
        groups.expand_group(data, "/x")


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("triton/0/H/__grp__k.json", True),
        ("__grp__k.json", True),
        ("triton/0/H/k.json", False),
        ("triton/0/__grp__H.json/k.json", False),
        ("triton/0/H/__grp__k.json.tmp.pid_1_2", False),
    ],
)
def test_is_group(path: str, answer: bool):
    assert groups.is_group(path) is answer
