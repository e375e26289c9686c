"""What is written down of what moves: which files, what was found, and what should have been there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cachekeeper.disk import Skipped
from cachekeeper.evidence import evidence, in_the_way, moving
from cachekeeper.livecache import LiveCache, Scan
from cachekeeper.manifest import FileRow
from cachekeeper.testing import make_cache


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make_cache(tmp_path / "cache", kernels=2, graphs=2)


@pytest.fixture
def scan(cache: Path) -> Iterator[Scan]:
    with LiveCache(cache) as live:
        yield live.scan()


def unit(cache: Path) -> str:
    return str(min((cache / "triton/0").iterdir()).relative_to(cache))


def name(cache: Path, pattern: str) -> str:
    return str(min(cache.glob(pattern)).relative_to(cache))


def test_a_unit_moves_whole_and_a_file_alone(cache: Path, scan: Scan):
    library = name(cache, "??/*.so")
    found = {source.path for source in moving(scan.files, {unit(cache), library}, ())}
    assert found == {library, *(str(path.relative_to(cache)) for path in (cache / unit(cache)).iterdir())}


def test_a_file_where_a_directory_must_be_moves_too(cache: Path, scan: Scan):
    [other] = moving(scan.files, (), [name(cache, "??/*.so") + "/deeper/file"])
    assert other.path == name(cache, "??/*.so")
    links = [Skipped("triton", "a symbolic link"), Skipped("ab/x.so", "a symbolic link"), Skipped("zz", "a pipe")]
    assert in_the_way(links, ["triton/0/X/y.cubin", "ab/x.so"]) == links[:2]


def test_what_it_says(cache: Path):
    kernel = cache / unit(cache)
    cubin, group = min(kernel.glob("*.cubin")), min(kernel.glob("__grp__*"))
    cubin.write_bytes(b"wrong")
    expected = FileRow(f"{unit(cache)}/{cubin.name}", 0o644, 3000, "e" * 64, 0, 0, 0)
    with LiveCache(cache) as live:
        sources = moving(live.scan().files, [unit(cache)], ())
        wrong = {expected.path: "it is not right", "ab/x.so": "a symbolic link"}
        link = [Skipped("ab/x.so", "a symbolic link")]
        data = evidence(cache, sources, link, wrong, {expected.path: expected}, "a" * 64, "/store")
    document: dict[str, Any] = json.loads(data or b"")
    assert document["schema"] == "cachekeeper.quarantine/1" and document["directory"] == str(cache)
    assert (document["snapshot"], document["store"]) == ("a" * 64, "/store")
    about = {file["path"]: file for file in document["files"]}
    assert len(about) == 8
    bad = about[expected.path]
    assert (bad["wrong"], bad["expected"]) == ("it is not right", {"size": 3000, "sha256": "e" * 64})
    assert bad["structure"] != "sound" and bad["found"]["size"] == 5
    assert bad["found"]["sha256"] == hashlib.sha256(b"wrong").hexdigest()
    beside = about[f"{unit(cache)}/{group.name}"]
    assert beside["wrong"] == "nothing: it moves with its kernel" and beside["expected"] is None
    assert about["ab/x.so"] == {"path": "ab/x.so", "wrong": "a symbolic link", "expected": None, "found": None}


def test_where_nothing_moves_nothing_is_written(cache: Path):
    assert evidence(cache, (), (), {}, {}) is None


def test_a_file_that_has_just_gone(cache: Path):
    with LiveCache(cache) as live:
        sources = moving(live.scan().files, [name(cache, "??/*.so")], ())
        min(cache.glob("??/*.so")).unlink()
        [file] = json.loads(evidence(cache, sources, (), {}, {}) or b"")["files"]
    assert file["found"]["sha256"] is None and file["found"]["size"] > 0
