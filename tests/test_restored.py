"""The marker of a restored cache: what it says, what it is good for, and that nothing in its place does harm."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cachekeeper
from cachekeeper import restored
from cachekeeper.disk import open_directory
from cachekeeper.inductor import Place
from cachekeeper.manifest import Manifest
from cachekeeper.repository import open_repository
from cachekeeper.restored import MARKER, Restored, encode, read_in
from cachekeeper.testing import make_cache

ID = "a" * 64
GOOD: dict[str, Any] = {"snapshot": ID, "store": "/s", "when": "2026-01-31T08:15:00Z"}
WHOLE = Restored(ID, "/s", 1769847300.0)
PLACE = {"kind": "native", "entry": "ab/cx"}


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    path = tmp_path / "cache" / MARKER
    path.parent.mkdir(parents=True)
    return path


def said(marker: Path) -> Restored | None:
    return read_in(marker.parent.parent)


def test_what_was_said_is_read(marker: Path):
    for what in (
        WHOLE,
        Restored(ID, "s3://bucket/store", 0.0, ("fxgraph", "triton")),
        Restored(ID, "/s", 1769847300.0, (), (Place("module", "ab/cx"), Place("native", "ab/cx"))),
        Restored(ID, "/s", 1769847300.0, saved=True, older=("b" * 64, "c" * 64)),
    ):
        marker.write_bytes(encode(what))
        assert said(marker) == what
    assert json.loads(encode(WHOLE)) == GOOD  # as of a cache restored by an older version


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b"null", b"5", b'{"snapshot": 5}', b"[" * 60_000, b"\xff\xfe", b"9" * 5000),
        *(
            json.dumps({**GOOD, **changed}).encode()
            for changed in (
                *({"snapshot": "../x"}, {"snapshot": ID + "\n"}, {"snapshot": None}, {"snapshot": ["a"] * 64}),
                *({"store": 5}, {"store": None}, {"store": "/s\0"}, {"when": "yesterday"}, {"when": 1769847300}),
                *({"only": "triton"}, {"only": [5]}, {"only": {"triton": 1}}, {"only": None}),
                *({"left_out": "ab"}, {"left_out": ["ab"]}, {"left_out": [{**PLACE, "entry": 5}]}, {"left_out": [[]]}),
                *({"left_out": [{"kind": "native"}]}, {"older": ID}, {"older": ["../x"]}, {"older": [5]}),
            )
        ),
    ],
)
def test_what_makes_no_sense_is_none(marker: Path, data: bytes):
    marker.write_bytes(data)
    assert said(marker) is None


def test_a_file_longer_than_any_marker_is_none(marker: Path):
    marker.write_bytes(json.dumps(GOOD).encode() + b" " * (4 << 20))
    assert said(marker) is None
    with open(marker, "wb") as file:
        file.truncate(1 << 40)
    assert said(marker) is None


def test_what_is_no_regular_file_is_none(marker: Path, tmp_path: Path):
    (tmp_path / "good").write_text(json.dumps(GOOD))
    marker.symlink_to(tmp_path / "good")
    assert said(marker) is None
    marker.unlink()
    os.mkfifo(marker)
    assert said(marker) is None
    marker.unlink()
    marker.mkdir()
    descriptors = len(os.listdir("/proc/self/fd"))
    assert said(marker) is None
    assert len(os.listdir("/proc/self/fd")) == descriptors
    marker.rmdir()
    marker.write_text(json.dumps(GOOD))
    assert said(marker) == WHOLE


def test_a_workshop_that_is_a_link_is_none(marker: Path, tmp_path: Path):
    marker.write_text(json.dumps(GOOD))
    marker.parent.rename(tmp_path / "elsewhere")
    marker.parent.symlink_to(tmp_path / "elsewhere")
    assert said(marker) is None


def test_where_there_is_no_directory(tmp_path: Path):
    (tmp_path / "file").touch()
    assert read_in(tmp_path / "nothing") is read_in(tmp_path / "file") is None


def test_it_is_carried_as_it_is(marker: Path):
    data = json.dumps({**GOOD, "from": "a later version"}).encode()
    marker.write_bytes(data)
    with open_directory(marker.parent.parent) as root:
        assert restored.carried(root) == data
        marker.write_bytes(b"{}")
        assert restored.carried(root) is None


# Which files belong there


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    cache = make_cache(tmp_path / "cache", kernels=2, graphs=2)
    made = cachekeeper.snapshot("drafter", cache_dir=cache, store=tmp_path / "store", wait=0)
    return open_repository(tmp_path / "store").manifest(made.snapshot.id)


def kinds(manifest: Manifest, what: Restored) -> set[str]:
    return {manifest.tables.entries[file.entry].kind for file in what.files(manifest)}


def test_all_or_some_kinds(manifest: Manifest):
    assert WHOLE.files(manifest) == list(manifest.tables.files)
    assert kinds(manifest, Restored(ID, "/s", 0.0, ("triton", "native"))) == {"triton", "native"}


def test_what_was_left_out_does_not_belong_there(manifest: Manifest):
    native = next(entry for entry in manifest.tables.entries if entry.kind == "native")
    others = [file for file in manifest.tables.files if manifest.tables.entries[file.entry] != native]
    assert Restored(ID, "/s", 0.0, (), (Place(*native),)).files(manifest) == others
    assert Restored(ID, "/s", 0.0, ("triton",), (Place(*native),)).files(manifest) == [
        file for file in others if manifest.tables.entries[file.entry].kind == "triton"
    ]
    assert any(manifest.tables.entries[file.entry].path == native.path for file in others)  # its module


# One restore after another


def test_the_last_whole_restore_counts(manifest: Manifest):
    for before in (None, Restored(ID, "/s", 1.0, ("triton",)), Restored("b" * 64, "/s", 1.0)):
        assert WHOLE.after(before) == WHOLE


def test_a_restore_of_some_kinds_adds_them():
    triton = Restored(ID, "/s", 9.0, ("triton",))
    assert triton.after(None) == triton
    assert triton.after(Restored("b" * 64, "/s", 1.0)) == triton
    assert triton.after(Restored(ID, "/s", 1.0, ("fxgraph",))) == Restored(ID, "/s", 1.0, ("fxgraph", "triton"))
    assert triton.after(Restored(ID, "/s", 1.0)) == Restored(ID, "/s", 1.0)  # all of it was there


def test_what_was_left_out_of_other_kinds_still_is():
    library, kernel = Place("native", "ab/cx"), Place("triton", "triton/0/X")
    before = Restored(ID, "/s", 1.0, (), (library, kernel))
    assert Restored(ID, "/s", 9.0, ("triton",)).after(before) == Restored(ID, "/s", 1.0, (), (library,))
    assert Restored(ID, "/s", 9.0, ("triton",), (kernel,)).after(before) == before


def test_what_was_saved_there_is_no_restore(marker: Path):
    saved = replace(WHOLE, saved=True)
    marker.write_bytes(encode(saved))
    assert read_in(marker.parent.parent) == saved != WHOLE
