"""Files of a snapshot back into a live cache: what is asked for, whole kernels, and where the rest goes."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pytest

import cachekeeper
from cachekeeper import restored, staging
from cachekeeper.disk import locked, rename_new
from cachekeeper.errors import DamagedStore, LocalDiskError, UsageError
from cachekeeper.inductor import Place
from cachekeeper.manifest import Manifest
from cachekeeper.mending import Mending, put_back, take_away, torn_kernels, unit_of_row, whole_entries
from cachekeeper.repository import Repository, open_repository
from cachekeeper.restored import Restored
from cachekeeper.staging import Stage
from cachekeeper.testing import make_cache, make_triton_entry

Tree = dict[str, bytes]


class Saved(NamedTuple):
    """A live cache, and a snapshot of it as it was."""

    cache: Path
    repository: Repository
    manifest: Manifest
    right: Tree


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    cache = make_cache(tmp_path / "cache", kernels=2, graphs=2)
    made = cachekeeper.snapshot("drafter", cache_dir=cache, store=tmp_path / "store", wait=0)
    repository = open_repository(tmp_path / "store")
    return Saved(cache, repository, repository.manifest(made.snapshot.id), files(cache))


def files(directory: Path) -> Tree:
    found = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return {path: data for path, data in found.items() if not path.startswith(".cachekeeper/")}


def mend(saved: Saved, *paths: Path, **options: object) -> Mending:
    with locked(saved.cache):
        names = [str(path.relative_to(saved.cache)) for path in paths]
        return put_back(saved.repository, saved.manifest, saved.cache, names, **options)  # type: ignore[arg-type]


def library(saved: Saved) -> Path:
    return min(saved.cache.glob("??/*.so"))


def kernel(saved: Saved) -> Path:
    return min((saved.cache / "triton/0").iterdir())


def spoil_store(saved: Saved) -> None:
    for pack in (saved.cache.parent / "store").glob("packs/*"):
        pack.chmod(0o644)
        pack.write_bytes(bytes(pack.stat().st_size))


def test_only_what_was_asked_for_is_written(saved: Saved):
    other = max(saved.cache.glob("??/*.so"))
    other.write_bytes(b"also wrong")
    library(saved).write_bytes(b"wrong")
    done = mend(saved, library(saved))
    size = library(saved).stat().st_size
    assert (done.files, done.bytes, done.moved_aside, done.left_out) == (1, size, 1, ())
    entry = str(library(saved).relative_to(saved.cache)).partition(".")[0]
    assert done.entries == (f"{entry} (native)",)
    assert done.aside and done.aside.parent == saved.cache / ".cachekeeper" / "aside"
    assert files(done.aside) == {str(library(saved).relative_to(saved.cache)): b"wrong"}
    assert other.read_bytes() == b"also wrong"
    assert files(saved.cache) == saved.right | {str(other.relative_to(saved.cache)): b"also wrong"}


def test_a_kernel_goes_back_whole(saved: Saved):
    for path in kernel(saved).iterdir():
        path.write_bytes(b"wrong")
    done = mend(saved, next(kernel(saved).glob("*.cubin")))
    assert files(saved.cache) == saved.right
    assert (done.files, done.moved_aside) == (7, 1)
    wanted = whole_entries(saved.manifest, [str(next(kernel(saved).glob("*.ptx")).relative_to(saved.cache))])
    assert {unit_of_row(saved.manifest, file) for file in wanted} == {f"triton/0/{kernel(saved).name}"}


def test_nothing_to_write_moves_all_the_same(saved: Saved):
    extra = make_triton_entry(saved.cache / "triton" / "0", seed=99)
    done = mend(saved, move_away=[f"triton/0/{extra.name}", "zz/is-gone-already"])
    assert (done.files, done.moved_aside) == (0, 1) and not extra.exists()
    assert done.aside and len(files(done.aside)) == 7
    assert files(saved.cache) == saved.right


def test_nothing_at_all_leaves_nothing(saved: Saved):
    assert mend(saved) == Mending()
    assert os.listdir(saved.cache / ".cachekeeper") == ["restored.json"]


def test_the_place_and_the_evidence(saved: Saved):
    library(saved).write_bytes(b"wrong")
    done = mend(saved, library(saved), place="quarantine", evidence=b'{"why": 1}')
    assert done.aside and done.aside.parent.name == "quarantine"
    assert files(done.aside) == {"evidence.json": b'{"why": 1}', str(library(saved).relative_to(saved.cache)): b"wrong"}


def test_a_file_of_the_evidences_name_finds_another_place(saved: Saved):
    (saved.cache / "evidence.json").write_bytes(b"mine")
    done = mend(saved, move_away=["evidence.json"], place="quarantine", evidence=b"why")
    kept = [path.read_bytes() for path in (saved.cache / ".cachekeeper" / "quarantine").rglob("evidence.json")]
    assert sorted(kept) == [b"mine", b"why"] and done.moved_aside == 1


def test_the_evidence_is_there_before_anything_moves(saved: Saved, monkeypatch: pytest.MonkeyPatch):
    library(saved).write_bytes(b"wrong")
    extra = make_triton_entry(saved.cache / "triton" / "0", seed=99)
    seen: list[bytes] = []

    def look(stage: Stage, directory: int, name: str, aside: int) -> None:
        seen.extend(path.read_bytes() for path in saved.cache.rglob("evidence.json"))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Stage, "_put_aside", look)
    with pytest.raises(LocalDiskError):
        mend(saved, library(saved), move_away=[f"triton/0/{extra.name}"], evidence=b"why")
    assert seen == [b"why"]


def test_the_marker_is_written_on_request(saved: Saved):
    said = restored.now(saved.manifest.id, "/store")
    mend(saved, mark=lambda left_out: said)
    assert restored.read_in(saved.cache) == said
    library(saved).write_bytes(b"wrong")
    mend(saved, library(saved))
    assert restored.read_in(saved.cache) == said


def test_the_marker_hears_what_was_left_out(saved: Saved):
    library(saved).unlink()
    spoil_store(saved)
    heard: list[tuple[Place, ...]] = []

    def mark(left_out: tuple[Place, ...]) -> Restored:
        heard.append(left_out)
        return restored.now(saved.manifest.id, "/store")

    mend(saved, library(saved), allow_damaged=True, mark=mark)
    assert heard == [(Place("native", str(library(saved).relative_to(saved.cache)).partition(".")[0]),)]


def test_a_damaged_store_is_refused_and_nothing_moves(saved: Saved):
    library(saved).write_bytes(b"wrong")
    spoil_store(saved)
    before = files(saved.cache)
    with pytest.raises(DamagedStore):
        mend(saved, library(saved), move_away=["triton"], evidence=b"why")
    assert files(saved.cache) == before and os.listdir(saved.cache / ".cachekeeper") == ["restored.json"]


@pytest.mark.parametrize("drop", [False, True])
def test_what_the_store_has_no_good_copy_of_is_left_or_dropped(saved: Saved, drop: bool):
    cubin = next(kernel(saved).glob("*.cubin"))
    for path in (library(saved), cubin):
        path.write_bytes(b"wrong")
    spoil_store(saved)
    before = files(saved.cache)
    done = mend(saved, library(saved), cubin, allow_damaged=True, drop_damaged=drop)
    assert (done.files, done.bytes, done.entries, len(done.left_out)) == (0, 0, (), 2)
    assert f"triton/0/{cubin.parent.name}" in done.left_out
    assert (done.moved_aside, cubin.parent.exists()) == ((2, False) if drop else (0, True))
    assert (files(saved.cache) == before) is not drop
    assert files(saved.cache) | (files(done.aside) if done.aside else {}) == before


def test_progress_ends_at_what_was_written(saved: Saved):
    told: list[int] = []
    next(kernel(saved).glob("*.cubin")).write_bytes(b"")
    done = mend(saved, next(kernel(saved).glob("*.cubin")), progress=told.append)
    assert told[-1] == done.bytes > 0


def test_take_away_needs_no_snapshot(saved: Saved):
    extra = make_triton_entry(saved.cache / "triton" / "0", seed=99)
    with locked(saved.cache):
        done = take_away(saved.cache, [f"triton/0/{extra.name}"], place="quarantine", evidence=json.dumps({}).encode())
    assert files(saved.cache) == saved.right
    assert done.aside and (done.moved_aside, len(files(done.aside))) == (1, 8)


# Kernels of which files are missing


def names(paths: Collection[Path], saved: Saved) -> list[str]:
    return [str(path.relative_to(saved.cache)) for path in paths]


def torn(saved: Saved, lost: Collection[Path]) -> frozenset[str]:
    return torn_kernels(saved.manifest, names(lost, saved), ())


def test_which_kernels_are_torn(saved: Saved):
    unit, some = f"triton/0/{kernel(saved).name}", names(sorted(kernel(saved).iterdir()), saved)
    assert torn_kernels(saved.manifest, some[:2], ()) == {unit}
    assert torn_kernels(saved.manifest, some, ()) == torn_kernels(saved.manifest, (), ()) == frozenset()
    assert torn_kernels(saved.manifest, some[:2], some[2:3]) == frozenset()
    assert torn_kernels(saved.manifest, names([library(saved)], saved), ()) == frozenset()


def test_a_torn_kernel_gets_what_it_lacks_and_keeps_what_it_has(saved: Saved, monkeypatch: pytest.MonkeyPatch):
    lost = [next(kernel(saved).glob(pattern)) for pattern in ("__grp__*", "*.ptx", "*.cubin")]
    for path in lost:
        path.unlink()
    (kernel(saved) / "launcher.so").write_bytes(b"Triton's own")
    there = {path: path.stat().st_ino for path in kernel(saved).iterdir()}
    moved: list[str] = []

    def rename(source: str, target: str, source_root: int, target_root: int) -> None:
        rename_new(source, target, source_root, target_root)
        moved.append(target)

    monkeypatch.setattr(staging, "rename_new", rename)
    done = mend(saved, *lost, torn=torn(saved, lost))
    assert {path: path.stat().st_ino for path in there} == there
    own = {f"triton/0/{kernel(saved).name}/launcher.so": b"Triton's own"}
    assert files(saved.cache) == saved.right | own
    assert (done.moved_aside, done.aside) == (0, None) and os.listdir(saved.cache / ".cachekeeper") == ["restored.json"]
    assert [name.partition(".")[2] for name in moved] == ["cubin", "ptx", "json"] and moved[-1].startswith("__grp__")


@pytest.mark.parametrize("kind", ["bytes", "link", "directory", "pipe"])
def test_a_kernel_that_is_not_only_torn_is_replaced_whole(saved: Saved, tmp_path: Path, kind: str):
    """It was found torn, and changed since."""
    lost, other = (next(kernel(saved).glob(f"*.{suffix}")) for suffix in ("ptx", "cubin"))
    (tmp_path / "elsewhere").write_bytes(other.read_bytes())
    unit = torn(saved, [lost])
    lost.unlink()
    if kind == "bytes":
        other.write_bytes(bytes(other.stat().st_size))
    else:
        other.unlink()
        make = {"link": lambda: other.symlink_to(tmp_path / "elsewhere"), "directory": other.mkdir}
        make.get(kind, lambda: os.mkfifo(other))()
    done = mend(saved, lost, torn=unit)
    assert files(saved.cache) == saved.right and done.moved_aside == 1 and done.aside
    assert not other.is_symlink() and len(list((done.aside / next(iter(unit))).iterdir())) == 6


def test_what_triton_writes_meanwhile_stays(saved: Saved, monkeypatch: pytest.MonkeyPatch):
    lost = next(kernel(saved).glob("*.ptx"))
    lost.unlink()

    def rename(source: str, target: str, source_root: int, target_root: int) -> None:
        if target == lost.name:
            lost.write_bytes(b"Triton's")
        rename_new(source, target, source_root, target_root)

    monkeypatch.setattr(staging, "rename_new", rename)
    mend(saved, lost, torn=torn(saved, [lost]))
    assert lost.read_bytes() == b"Triton's" and files(saved.cache).keys() == saved.right.keys()


def test_a_directory_that_is_something_else_is_not_filled(saved: Saved, tmp_path: Path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "setup.py").write_bytes(b"mine")
    elsewhere = saved._replace(cache=project)
    with pytest.raises(UsageError, match="nothing of a compile cache"):
        mend(elsewhere, project / library(saved).relative_to(saved.cache))
    assert [path.name for path in project.iterdir()] == ["setup.py"]
