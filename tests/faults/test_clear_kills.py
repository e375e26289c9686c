"""`clear`, its undo, the emptying of its trash and `move`, killed at every step: the cache is somewhere, whole.

In its place, in the trash, or for `move` in the new place as well; and the same command again completes it.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cachekeeper.clearing import trash as trashing
from cachekeeper.clearing.items import Item
from cachekeeper.clearing.trash import Trash
from cachekeeper.testing import make_cache
from cachekeeper.verbs.clear import bring_back, clear, empty_trash
from cachekeeper.verbs.move import move

from .children import dies_at
from .scene import Tree, files_in, tree

_MOST_STEPS = 2_000
ways = pytest.mark.parametrize("way", ["swap", "two renames", "contents"])


@pytest.fixture(autouse=True)
def configured_store(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CACHEKEEPER_STORE", str(place / "store"))


def set_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*names: object) -> bool:
        raise OSError(16, "Device or resource busy")

    if way == "two renames":
        monkeypatch.setattr(trashing, "exchange", lambda *names: False)
    elif way == "contents":
        monkeypatch.setattr(trashing, "exchange", refused)


def make(place: Path, seed: int = 0) -> Path:
    return make_cache(place / "work" / "inductor", seed=seed, kernels=1, graphs=1)


def everything(place: Path) -> list[bytes]:
    """The contents of all files, wherever they are."""
    return sorted(files_in(place / "work").values())


def in_cache(cache: Path) -> Tree:
    return files_in(cache, skip=("cleared",)) if cache.is_dir() else {}


@ways
def test_clear(place: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    set_way(way, monkeypatch)
    steps = 0
    for step in itertools.count(1):
        cache = make(place)
        before, contents = in_cache(cache), everything(place)
        died = dies_at(step, lambda cache=cache: clear(cache))
        assert everything(place) == contents
        if way != "contents":
            assert [found for found in (in_cache(cache), *map(files_in_item, Trash(cache).items())) if found] == [
                before
            ]
        if not died:
            break
        steps += 1
        if in_cache(cache):
            clear(cache)
        [item] = Trash(cache).items()
        assert files_in_item(item) == before and in_cache(cache) == {}
        assert everything(place) == contents
        shutil.rmtree(place / "work")
    assert 2 <= steps < _MOST_STEPS


def files_in_item(item: Item) -> Tree:
    return files_in(item.path)


@ways
@pytest.mark.parametrize("over", [False, True], ids=["empty", "another"])
def test_undo(place: Path, monkeypatch: pytest.MonkeyPatch, way: str, over: bool) -> None:
    set_way(way, monkeypatch)
    steps = 0
    for step in itertools.count(1):
        cache = make(place)
        before = in_cache(cache)
        item = clear(cache).item
        later = in_cache(make(place, seed=5)) if over else {}
        contents = everything(place)
        died = dies_at(step, lambda cache=cache, item=item: bring_back(cache, item))
        assert everything(place) == contents
        if not died:
            break
        steps += 1
        for _ in range(2):
            # What was killed may have renamed it, or completed the work.
            trash = Trash(cache)
            trash.settle()
            wanted = [item for item in trash.items() if files_in_item(item) == before]
            if in_cache(cache) != before and wanted:
                bring_back(cache, wanted[0].name)
        assert in_cache(cache) == before
        assert [files_in_item(item) for item in Trash(cache).items()] == ([later] if over else [])
        assert everything(place) == contents
        shutil.rmtree(place / "work")
    assert 1 <= steps < _MOST_STEPS


def test_emptying(place: Path) -> None:
    """The cache and what is outside stay as they are, and the same again deletes the rest."""
    steps = 0
    for step in itertools.count(1):
        cache = make(place)
        clear(cache)
        make(place, seed=4)
        (cache / ".cachekeeper" / "aside" / "20260101T000000Z-000000" / "ab").mkdir(parents=True)
        (cache / ".cachekeeper" / "aside" / "20260101T000000Z-000000" / "ab" / "x").write_text("x")
        before = tree(cache)
        died = dies_at(step, lambda cache=cache: empty_trash(cache))
        assert tree(cache) == before
        if not died:
            break
        steps += 1
        empty_trash(cache)
        assert tree(cache) == before and not (cache / ".cachekeeper").exists()
        assert os.listdir(place / "work") == ["inductor"]
        shutil.rmtree(place / "work")
    assert 10 <= steps < _MOST_STEPS


@pytest.mark.parametrize("part", range(3))
def test_move(place: Path, part: int) -> None:
    steps = 0
    for step in itertools.count(1 + part, 3):
        cache, target = make(place), place / "work" / "elsewhere" / "inductor"
        before = tree(cache)
        (cache / ".cachekeeper").mkdir()
        marker = b'{"snapshot": "%s", "store": "/s", "when": "2026-01-31T08:15:00Z"}' % (b"a" * 64)
        (cache / ".cachekeeper" / "restored.json").write_bytes(marker)
        died = dies_at(step, moving(cache, target))
        whole = [place for place in (cache, target, *(item.path for item in Trash(cache).items())) if place.is_dir()]
        assert before in [unplaced(place, cache) for place in whole]
        if tree(cache) == {}:
            assert tree(target) == before
        if not died:
            break
        steps += 1
        if tree(cache):
            move(cache, target)
        assert tree(target) == before and tree(cache) == {}
        assert (target / ".cachekeeper" / "restored.json").read_bytes() == marker
        assert set(os.listdir(target / ".cachekeeper")) <= {"restored.json", "aside"}
        [item] = Trash(cache).items()
        assert unplaced(item.path, cache) == before
        shutil.rmtree(place / "work")
    assert 10 <= steps < _MOST_STEPS


def moving(cache: Path, target: Path) -> Callable[[], object]:
    return lambda: move(cache, target)


def unplaced(place: Path, cache: Path) -> Tree:
    """As `tree`, of a cache that was at `cache` and is in the trash now."""
    return {path: data.replace(str(cache).encode(), b"@") for path, data in tree(place).items()}
