"""Gone, damaged, or left alone: a cache of every kind of entry against the snapshot of it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from cachekeeper.manifest import Manifest
from cachekeeper.mending import with_one_kernel_directory
from cachekeeper.repository import open_repository
from cachekeeper.testing import make_cache, make_triton_entry
from cachekeeper.verbs.snapshot import snapshot
from cachekeeper.watching.looking import Look, Looker
from tests.verbs.conftest import settle


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return settle(make_cache(tmp_path / "inductor", kernels=3, graphs=3))


@pytest.fixture
def manifest(cache: Path, tmp_path: Path) -> Manifest:
    saved = snapshot(cache_dir=cache, store=tmp_path / "store", wait=0)
    return with_one_kernel_directory(open_repository(tmp_path / "store").manifest(saved.snapshot.id))


@pytest.fixture
def looker(manifest: Manifest, cache: Path) -> Looker:
    made = Looker(manifest, manifest.tables.files, cache)
    with pytest.MonkeyPatch.context() as patch:
        make_old(patch)
        assert made.look() == Look()
    return made


def make_old(patch: pytest.MonkeyPatch) -> None:
    """Nothing was touched of late: our clock is an hour ahead."""
    now = time.time
    patch.setattr("cachekeeper.watching.looking.time.time", lambda: now() + 3600)


def first(cache: Path, pattern: str) -> str:
    return str(min(cache.glob(pattern)).relative_to(cache))


def rewrite(cache: Path, pattern: str, data: bytes) -> str:
    """Write other bytes into a file; its path."""
    path = first(cache, pattern)
    (cache / path).write_bytes(data)
    return path


@pytest.fixture
def old(looker: Looker, monkeypatch: pytest.MonkeyPatch) -> None:
    make_old(monkeypatch)


@pytest.mark.parametrize("pattern", ["fxgraph/*/f*/[!.]*", "aotautograd/*/*", "??/*.so", "??/*.py", "cache/*"])
def test_a_file_that_is_gone(cache: Path, looker: Looker, pattern: str):
    path = first(cache, pattern)
    (cache / path).unlink()
    assert looker.look() == Look(gone=frozenset({path})) == looker.look({path})
    assert looker.look({"top", path}).gone == {path}


def test_a_directory_that_is_gone(cache: Path, looker: Looker):
    shutil.rmtree(cache)
    assert looker.look().gone == looker.files.keys()
    assert looker.look({first_of(looker)}).gone == looker.files.keys()
    cache.write_text("a file in its place")
    assert looker.look().gone == looker.files.keys()


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("step", ["LiveCache", "compare_live", "ordered"])
def test_a_directory_that_goes_while_it_is_looked_at(
    cache: Path, looker: Looker, step: str, monkeypatch: pytest.MonkeyPatch
):
    import cachekeeper.watching.looking as module

    rewrite(cache, "??/*.so", b"")
    original = getattr(module, step)

    def go(*arguments: object, **options: object) -> object:
        shutil.rmtree(cache)
        return original(*arguments, **options)

    monkeypatch.setattr(module, step, go)
    found = looker.look()
    monkeypatch.undo()
    assert found.gone and (found.gone == looker.files.keys() or step != "LiveCache")
    assert looker.look().gone == looker.files.keys()


def first_of(looker: Looker) -> str:
    return min(looker.files)


DAMAGE = [
    ("triton/0/*/*.cubin", b"", "empty file"),
    ("triton/0/*/triton*.json", b'{"hash": ', "JSON does not parse"),
    ("??/*.so", b"\x7fELF\x02\x01\x01" + bytes(30), "cut: shorter than an ELF header"),
    ("??/*.best_config", b'{"num_warps": 4}{', "JSON does not parse"),
    ("triton/0/*/__grp__*", b"nonsense", "JSON does not parse"),
    ("??/*.py", b"", "empty file"),
]


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize(("pattern", "data", "reason"), DAMAGE)
def test_a_file_that_torch_would_load_broken(cache: Path, looker: Looker, pattern: str, data: bytes, reason: str):
    path = rewrite(cache, pattern, data)
    found = looker.look()
    assert looker.entries(found.damaged) == {looker.entry(path)} and not found.gone
    assert any(words.startswith(reason) for words in found.damaged.values())
    assert looker.look() == found  # it is, until it is not
    assert looker.still_wrong(found.wrong) == found.wrong


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize(
    ("pattern", "data"),
    [
        ("fxgraph/*/f*/[!.]*", b"\x80\x05another pickle."),
        ("??/*.py", b"# AOT ID: ['0_inference']\nx = 77\n"),
        ("??/*.best_config", b'{"num_warps": 8}'),
        ("triton/0/*/*.ttir", b"module { other }\n"),
    ],
)
def test_a_sound_file_with_other_bytes_is_torchs_own(cache: Path, looker: Looker, pattern: str, data: bytes):
    path = rewrite(cache, pattern, data)
    assert looker.look() == Look(other=(path,))
    assert looker.look() == Look()  # told once


@pytest.mark.usefixtures("old")
def test_the_same_bytes_written_again_are_right(cache: Path, looker: Looker):
    for path in cache.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes())
    assert looker.look() == Look()


def test_what_was_touched_a_moment_ago_is_judged_later(cache: Path, looker: Looker):
    path = rewrite(cache, "??/*.so", b"")
    found = looker.look({path})
    assert found.wrong == frozenset() and found.later is not None and 0 < found.later <= 2.0


def test_a_kernel_in_whose_directory_somebody_writes_is_left_alone_for_a_moment(cache: Path, looker: Looker):
    """Triton is about to rename what it has in there: the directory must not be replaced under it."""
    path = first(cache, "triton/0/*/*.ptx")
    (cache / path).unlink()
    (cache / path).parent.joinpath("tmp.pid_7_abc").mkdir()
    found = looker.look({path})
    assert found.gone == frozenset() and found.later is not None
    assert looker.still_wrong({path}) == set()


@pytest.mark.usefixtures("old")
def test_a_kernel_that_lacks_a_file(cache: Path, looker: Looker):
    path = first(cache, "triton/0/*/*.ptx")
    (cache / path).unlink()
    found = looker.look({path})
    assert found.gone == {path} and not found.damaged
    whole = {file.path for file in looker.whole(found.wrong)}
    assert whole == {other for other in looker.files if looker.entry(other) == looker.entry(path)} and len(whole) == 7


@pytest.mark.usefixtures("old")
def test_a_kernel_that_triton_made_anew_with_fewer_files_is_its_own(cache: Path, looker: Looker):
    kernel = min(cache.glob("triton/0/*"))
    group = min(kernel.glob("__grp__*"))
    document = json.loads(group.read_bytes())
    (llir,) = kernel.glob("*.llir")
    del document["child_paths"][llir.name]
    group.write_text(json.dumps(document))
    llir.unlink()
    found = looker.look()
    assert not found.wrong and found.other == (str(group.relative_to(cache)),)
    (cubin,) = kernel.glob("*.cubin")
    cubin.write_bytes(b"")  # but torch would load that
    assert looker.entries(looker.look().wrong) == {str(kernel.relative_to(cache))}


@pytest.mark.usefixtures("old")
def test_while_torch_compiles_nothing_is_called_damaged(cache: Path, looker: Looker):
    path, gone = rewrite(cache, "??/*.so", b""), first(cache, "??/*.py")
    (cache / gone).unlink()
    with open(min((cache / "locks").iterdir()), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = looker.look()
        assert found.gone == {gone} and not found.damaged and found.later
    assert looker.look().wrong == {path, gone}


@pytest.mark.usefixtures("old")
def test_what_the_snapshot_does_not_have_is_nothing_to_look_at(cache: Path, looker: Looker):
    make_triton_entry(cache / "triton" / "0", seed=77)
    make_cache(cache, seed=5, kernels=1, graphs=1)
    shutil.rmtree(cache / "locks")
    (min(cache.glob("triton/0/*")) / "extra.txt").write_bytes(b"")
    assert not looker.look().wrong


@pytest.mark.usefixtures("old")
def test_a_link_in_the_place_of_a_file_is_damage(cache: Path, looker: Looker, tmp_path: Path):
    path = first(cache, "??/*.so")
    (cache / path).rename(tmp_path / "library")
    (cache / path).symlink_to(tmp_path / "library")
    assert list(looker.look().damaged) == [path] == list(looker.look().damaged)
    assert looker.still_wrong([path]) == {path}


@pytest.mark.usefixtures("old")
def test_a_file_that_nobody_may_read_is_damaged(cache: Path, looker: Looker):
    if not os.geteuid():
        pytest.skip("root reads everything")
    path = first(cache, "??/*.so")
    (cache / path).chmod(0)
    assert looker.look().damaged.keys() == {path}


def test_a_module_and_its_library_are_two_entries_of_one_path(cache: Path, looker: Looker):
    module = first(cache, "??/*.py")
    library = module.replace(".py", ".main.so")
    stem = module.removesuffix(".py")
    assert looker.entries([module, library]) == {f"{stem} (module)", f"{stem} (native)"}
