"""Single bits of a store flipped: each flip is detected, and no bad byte is ever restored."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import packs, seen
from cachekeeper.disk import open_directory, walk
from cachekeeper.errors import CachekeeperError
from cachekeeper.packs import read_index
from cachekeeper.repository import locations, open_repository
from cachekeeper.seen import SeenFiles

from .scene import Scene, Tree, build_scene, simple_scene, tree

_FLIPS = 250


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """A file with one bit flipped, for a while."""
    data = path.read_bytes()
    wrong = bytearray(data)
    wrong[bit // 8] ^= 1 << bit % 8
    os.chmod(path, 0o644)
    path.write_bytes(wrong)
    try:
        yield
    finally:
        path.write_bytes(data)


def _objects(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.is_file())


def _detected(scene: Scene) -> bool:
    try:
        return not cachekeeper.verify(every=True, store=scene.store).ok
    except CachekeeperError:
        return True


def _restored(scene: Scene, reference: str, target: Path) -> Tree | None:
    """What a restore brought back, or None where it refused."""
    shutil.rmtree(target, ignore_errors=True)
    try:
        cachekeeper.restore(reference, cache_dir=target, store=scene.store)
    except CachekeeperError:
        assert tree(target) == {} if target.exists() else True
        return None
    return tree(target)


def _still_says_the_same(path: Path, truth: object) -> bool:
    """True for a manifest that decodes to what it said before: zstd ignores a bit of a frame's header."""
    return path.name.endswith(".json.zst") and _manifest(path) == truth


def _manifest(path: Path) -> object:
    repository = open_repository(path.parent.parent)
    return repository.manifest(path.name.partition(".")[0])


@pytest.mark.parametrize("part", range(2))
def test_random_flips(place: Path, part: int) -> None:
    scene = build_scene(place)
    chooser = random.Random(part)
    objects = _objects(scene.store)
    by_size = chooser.choices(objects, [path.stat().st_size for path in objects], k=_FLIPS // 2)
    truths = {path: _manifest(path) for path in objects if path.name.endswith(".json.zst")}
    for path in [*by_size, *chooser.choices(objects, k=_FLIPS // 2)]:
        bit = chooser.randrange(path.stat().st_size * 8)
        reference, right = chooser.choice(list(scene.older.items()))
        with flipped(path, bit):
            where = f"bit {bit} of {path.relative_to(scene.store)}"
            if not _detected(scene):
                assert _still_says_the_same(path, truths.get(path)), f"{where} was not detected"
            found = _restored(scene, reference, place / "target")
            assert found in (None, right), f"{where}: bad bytes were restored"
    assert not _detected(scene)


def test_every_flip_in_format_json(place: Path) -> None:
    scene, identifier = simple_scene(place)
    path = scene.store / "format.json"
    for bit in range(path.stat().st_size * 8):
        with flipped(path, bit):
            assert _detected(scene), f"bit {bit}"
            assert _restored(scene, identifier, place / "target") is None


def test_flips_in_every_byte_of_a_name_are_detected(place: Path) -> None:
    """Every third bit: two or three of each byte, and each place in a byte many times."""
    scene, _ = simple_scene(place)
    (path,) = (scene.store / "names").rglob("0*")
    missed = [bit for bit in range(0, path.stat().st_size * 8, 3) if not _detected_flip(scene, path, bit)]
    text = path.read_bytes()
    assert not missed, f"{len(missed)} bits, in {sorted({chr(text[bit // 8]) for bit in missed})}"


def _detected_flip(scene: Scene, path: Path, bit: int) -> bool:
    with flipped(path, bit):
        return _detected(scene)


def test_a_flip_in_a_name_never_restores_something_else(place: Path) -> None:
    scene = build_scene(place)
    right = list(scene.older.values())[-1]
    path = sorted((scene.store / "names").rglob("0*"))[-1]
    for bit in random.Random(0).sample(range(path.stat().st_size * 8), 150):
        with flipped(path, bit):
            assert _restored(scene, "drafter", place / "target") in (None, right), f"bit {bit}"


def test_a_damaged_name_hides_no_other_snapshot(place: Path) -> None:
    """`ls` and `verify --every` name what is damaged, and go on with the rest."""
    scene = build_scene(place)
    path = sorted((scene.store / "names").rglob("0*"))[0]
    with flipped(path, 0):
        assert len(cachekeeper.ls(store=scene.store).rows) == 2
        result = cachekeeper.verify(every=True, store=scene.store)
        assert set(result.snapshots) == set(scene.older)
        assert any("drafter" in key for key in result.damaged)


def test_an_old_damaged_move_leaves_the_name_usable(place: Path) -> None:
    scene = build_scene(place)
    path = sorted((scene.store / "names").rglob("0*"))[0]
    with flipped(path, 0):
        assert _restored(scene, "drafter", place / "target") == list(scene.older.values())[-1]


@pytest.mark.parametrize("place_of_damage", ["snapshots", "names"])
def test_a_damaged_store_can_be_saved_into(place: Path, place_of_damage: str) -> None:
    """What is damaged is old; the good cache that is there now must still be savable, under the same name."""
    scene = build_scene(place)
    newest = list(scene.older)[-1]
    paths = {
        "snapshots": scene.store / "snapshots" / f"{newest}.json.zst",
        "names": sorted((scene.store / "names").rglob("0*"))[-1],
    }
    with flipped(paths[place_of_damage], 100):
        saved = cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=scene.store, wait=0, full=True)
        assert saved.name_moved
        assert _restored(scene, saved.snapshot.id, place / "target") == scene.now


def test_no_snapshot_builds_on_a_damaged_index(place: Path) -> None:
    """What a pack's index says after a flip is the truth or nothing: else new snapshots would point to wrong bytes."""
    scene, _ = simple_scene(place)
    (path,) = (scene.store / "packs").iterdir()
    repository = open_repository(scene.store)
    truth, data = locations(repository.store), path.read_bytes()
    read_index(lambda start, length: data[start : start + length], len(data))
    tail = packs._TAIL.size
    begin = len(data) - tail - packs._TAIL.unpack(data[-tail:])[0]
    wrong = []
    for bit in random.Random(1).sample(range(begin * 8, len(data) * 8), 1500):
        with flipped(path, bit):
            found = locations(repository.store)
        wrong += [bit] if not found.items() <= truth.items() else []
    assert not wrong, f"{len(wrong)} of 1500 flips in an index went unnoticed"


def test_flips_in_what_the_last_snapshot_saw(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The private memory of file hashes is the truth or nothing."""
    monkeypatch.setattr(seen, "_FRESH_NS", -(1 << 62))
    scene, _ = simple_scene(place)
    (path,) = Path(os.environ["XDG_CACHE_HOME"], "cachekeeper", "seen").iterdir()
    with open_directory(scene.cache) as root:
        files, *_ = walk(root, lambda path: True, lambda name: True)
    truth = {file: SeenFiles(scene.cache).get(file.path, file) for file in files}
    assert any(truth.values())
    wrong = []
    for bit in random.Random(2).sample(range(path.stat().st_size * 8), 1500):
        with flipped(path, bit):
            memory = SeenFiles(scene.cache)
            wrong += [bit] if any(memory.get(file.path, file) not in (None, truth[file]) for file in files) else []
    assert not wrong, f"{len(wrong)} of 1500 flips went unnoticed"
