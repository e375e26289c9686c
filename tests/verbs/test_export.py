"""A snapshot leaves the store whole or not at all, and comes back the same."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import megacache
from cachekeeper.environment.machine import identifier as machine_id
from cachekeeper.errors import (
    DamagedStore,
    EmptyCache,
    EnvironmentMismatch,
    LocalDiskError,
    NotFound,
    UsageError,
)
from cachekeeper.inductor.layout import EXPORTED
from cachekeeper.repository import open_repository
from cachekeeper.testing import make_cache
from cachekeeper.testing.caches import elf, write
from cachekeeper.verbs import export as exporting
from cachekeeper.verbs.import_cache import made_on
from tests import samples

from .conftest import Machine, settle, tree, unplaced

GRAPH = "f" + "ab2" * 17
FORMATS = ("tar.zst", "tar.gz", "tar", "directory")


@pytest.fixture(autouse=True)
def here(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(made_on, "fingerprint", lambda **_: machine.fingerprint)
    monkeypatch.setattr(exporting, "fingerprint", lambda **_: machine.fingerprint)
    return machine


@pytest.fixture
def saved(cache: Path, store: Path) -> str:
    return cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0).snapshot.id


def table(store: Path, reference: str) -> dict[str, str]:
    repository = open_repository(store)
    manifest = repository.manifest(repository.resolve(reference))
    return {file.path: file.sha256 for file in manifest.tables.files}


def spoil(store: Path) -> None:
    """Damage every frame of the one pack."""
    [pack] = (store / "packs").iterdir()
    pack.chmod(0o644)
    pack.write_bytes(bytes(byte ^ 1 if 24 <= at < 40_000 else byte for at, byte in enumerate(pack.read_bytes())))


@pytest.mark.parametrize("kind", FORMATS)
def test_there_and_back_is_the_same(kind: str, saved: str, store: Path, tmp_path: Path):
    result = cachekeeper.export("drafter", tmp_path / "out", store=store, format=kind)
    assert (result.format, result.snapshot.id, result.lacks) == (kind, saved, ())
    again = cachekeeper.import_cache(tmp_path / "out", "back", store=tmp_path / "other")
    assert again.format == kind and again.root == ""
    assert table(tmp_path / "other", "back") == table(store, "drafter")


@pytest.mark.parametrize("kind", FORMATS)
def test_where_it_was_made_travels_with_it(kind: str, cache: Path, store: Path, tmp_path: Path, here: Machine):
    made = samples.fingerprint(torch="2.9.1")
    here.fingerprint = replace(made, id=machine_id(made.must))
    told = {"message": "best", "metrics": {"tok_s": 2.5}, "tags": {"batch": "8"}}
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0, **told)
    cachekeeper.export("drafter", tmp_path / "out", store=store, format=kind)
    made_there, here.fingerprint = here.fingerprint, samples.fingerprint()
    result = cachekeeper.import_cache(tmp_path / "out", "back", store=tmp_path / "other", tags={"batch": "9"})
    assert result.saved
    header = result.saved.snapshot.header
    assert header.fingerprint == made_there and (header.message, header.metrics) == ("best", {"tok_s": 2.5})
    assert header.tags == {"batch": "9"}
    assert result.notes[0].startswith("recorded as made on H200 sm_90 cu130 2.9.1, as out says of itself (")
    assert EXPORTED not in table(tmp_path / "other", "back") and not header.entries_of("other")
    [row] = cachekeeper.ls(store=tmp_path / "other").rows
    assert not row.here.fits
    with pytest.raises(EnvironmentMismatch):
        cachekeeper.restore("back", cache_dir=tmp_path / "new", store=tmp_path / "other")


def test_a_mega_cache_says_that_it_cannot_hold_that(saved: str, store: Path, tmp_path: Path):
    notes = cachekeeper.export("drafter", tmp_path / "x.mega", store=store).notes
    assert any("it cannot hold where it was made: H200 sm_90" in note for note in notes)
    notes = cachekeeper.export("drafter", tmp_path / "x.tar", store=store).notes
    assert notes == ("names and signatures stay behind: `cachekeeper copy` takes all along, to another store",)


@pytest.mark.parametrize(("name", "kind"), [
    ("x.tar.zst", "tar.zst"), ("x.tzst", "tar.zst"), ("x.tar.gz", "tar.gz"), ("x.tgz", "tar.gz"), ("x.tar", "tar"),
    ("x.mega", "mega-cache"), ("x.megacache", "mega-cache"), ("x.bin", "mega-cache"), ("x", "directory"),
    (".x", "directory"), ("x.d/", "directory"), ("there", "directory"), ("there.d", "directory"),
])  # fmt: skip
def test_the_ending_says_the_format(name: str, kind: str, saved: str, store: Path, tmp_path: Path):
    for there in ("there", "there.d"):
        (tmp_path / there).mkdir()
    result = cachekeeper.export("drafter", f"{tmp_path}/{name}", store=store)
    assert result.format == kind and Path(result.destination).is_dir() == (kind == "directory")


def test_an_ending_that_says_none(saved: str, store: Path, tmp_path: Path):
    for name in ("x.zip", "drafter.v1", "x.tar.xz"):
        with pytest.raises(UsageError, match="an ending that says no format"):
            cachekeeper.export("drafter", tmp_path / name, store=store)
    with pytest.raises(UsageError, match="no format 'zip'"):
        cachekeeper.export("drafter", tmp_path / "x", store=store, format="zip")
    with pytest.raises(UsageError, match="destination is empty"):
        cachekeeper.export("drafter", "", store=store)


def test_nothing_is_overwritten(saved: str, store: Path, tmp_path: Path):
    (tmp_path / "file.tar").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "to-empty").symlink_to(tmp_path / "empty")
    before = tree(tmp_path)
    for name, kind in (
        ("file.tar", None),
        ("file.tar", "directory"),
        ("full", None),
        ("link", "tar"),
        ("to-empty", None),
        ("empty", "tar"),
    ):
        with pytest.raises(UsageError, match=r"is there already|is not empty"):
            cachekeeper.export("drafter", tmp_path / name, store=store, format=kind)
    assert tree(tmp_path) == before


def test_what_appears_meanwhile_is_not_overwritten(
    saved: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("x.tar", "x"):
        target = tmp_path / name

        def appear(*step: object, target: Path = target) -> None:
            if not target.exists():
                write(target / "mine" if target.suffix == "" else target, b"mine")

        with pytest.raises(UsageError, match=r"meanwhile|any more"):
            cachekeeper.export("drafter", target, store=store, progress=appear)
    assert (tmp_path / "x.tar").read_bytes() == (tmp_path / "x/mine").read_bytes() == b"mine"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["x.tar.zst", "x.mega", "x"])
def test_damage_in_the_store_leaves_nothing(name: str, saved: str, store: Path, tmp_path: Path):
    spoil(store)
    before = {path for path in tmp_path.rglob("*") if store not in path.parents}
    with pytest.raises(DamagedStore) as caught:
        cachekeeper.export("drafter", tmp_path / name, store=store)
    assert caught.value.facts
    assert {path for path in tmp_path.rglob("*") if store not in path.parents} == before


@pytest.mark.parametrize("name", ["x.tar.zst", "x.tar.gz", "x.tar", "x.mega", "x"])
def test_a_disk_that_fails_leaves_nothing(
    name: str, saved: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*arguments: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fchmod", full)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(LocalDiskError, match="cannot write") as caught:
        cachekeeper.export("drafter", tmp_path / name, store=store)
    assert "free some space" in caught.value.hint
    assert set(tmp_path.rglob("*")) == before


def test_no_directory_to_write_into(saved: str, store: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="there is no directory"):
        cachekeeper.export("drafter", tmp_path / "none/x.tar", store=store)


@pytest.mark.parametrize("kind", ["tar.zst", "tar.gz", "tar", "mega-cache"])
def test_the_same_snapshot_gives_the_same_bytes(kind: str, saved: str, store: Path, tmp_path: Path):
    for name in ("one", "two"):
        cachekeeper.export("drafter", tmp_path / name, store=store, format=kind)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_members_are_sorted_and_without_owner(saved: str, store: Path, cache: Path, tmp_path: Path):
    cachekeeper.export("drafter", tmp_path / "x.tar", store=store)
    with tarfile.open(tmp_path / "x.tar") as tar:
        members = tar.getmembers()
    names = [member.name for member in members]
    assert names == sorted([EXPORTED, *table(store, "drafter")])
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(0, 0, 0, "")}


def test_modes(store: Path, tmp_path: Path):
    write(tmp_path / "c/fxgraph/ab" / GRAPH / "x", b"\x80\x05.")
    for name, mode in (("a", 0o755), ("b", 0o600), ("c", 0o666)):
        write(tmp_path / f"c/{name}", b"x")
        (tmp_path / f"c/{name}").chmod(mode)
    cachekeeper.snapshot("drafter", cache_dir=tmp_path / "c", store=store, wait=0)
    cachekeeper.export("drafter", tmp_path / "out", store=store)
    cachekeeper.export("drafter", tmp_path / "out.tar", store=store)
    with tarfile.open(tmp_path / "out.tar") as tar:
        for name, mode in (("a", 0o755), ("b", 0o600), ("c", 0o664)):
            assert (tmp_path / "out" / name).stat().st_mode & 0o7777 == tar.getmember(name).mode == mode
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "out.tar").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def without_record(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of the cache alone."""
    return {path: data for path, data in files.items() if path != EXPORTED}


# Files that name their directory


def groups(files: dict[str, bytes]) -> set[str]:
    """The directories that Triton's groups name, without the kernel's part."""
    found = [json.loads(data)["child_paths"] for path, data in files.items() if "__grp__" in path]
    return {path.partition("/triton/")[0] for children in found for path in children.values()}


def test_a_directory_is_a_cache_that_is_in_its_place(saved: str, store: Path, cache: Path, tmp_path: Path):
    result = cachekeeper.export("drafter", tmp_path / "out", store=store)
    assert result.for_dir == tmp_path / "out" and result.placed == 3
    assert unplaced(tmp_path / "out") == unplaced(cache) and (tmp_path / "out" / EXPORTED).is_file()
    assert groups(tree(tmp_path / "out")) == {str(tmp_path / "out")}
    assert not (tmp_path / "out/.cachekeeper").exists()
    assert cachekeeper.verify("drafter", live=tmp_path / "out", store=store).ok


def unpack(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def test_an_archive_is_for_where_the_cache_was_made_or_as_told(saved: str, store: Path, cache: Path, tmp_path: Path):
    result = cachekeeper.export("drafter", tmp_path / "x.tar", store=store)
    assert result.for_dir == cache and result.placed == 3
    assert without_record(unpack(tmp_path / "x.tar")) == tree(cache)
    result = cachekeeper.export("drafter", tmp_path / "y.tar", store=store, for_dir="/some/where")
    assert result.for_dir == Path("/some/where")
    assert groups(unpack(tmp_path / "y.tar")) == {"/some/where"}
    with pytest.raises(UsageError, match="--for-dir is empty"):
        cachekeeper.export("drafter", tmp_path / "z.tar", store=store, for_dir="")


def test_what_was_imported_is_for_this_machines_own_directory(
    saved: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cachekeeper.export("drafter", tmp_path / "x.tar", store=store)
    cachekeeper.import_cache(tmp_path / "x.tar", "back", store=store)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/default/here")
    result = cachekeeper.export("back", tmp_path / "y.tar", store=store)
    assert result.for_dir == Path("/default/here") and groups(unpack(tmp_path / "y.tar")) == {"/default/here"}


def test_graphs_that_name_their_modules(store: Path, tmp_path: Path):
    module = f"ab/c{'a' * 51}.py"
    write(tmp_path / "c/fxgraph/ab" / GRAPH / "x", pickle.dumps([f"{tmp_path}/c/{module}"], protocol=4))
    cachekeeper.snapshot("drafter", cache_dir=tmp_path / "c", store=store, wait=0)
    result = cachekeeper.export("drafter", tmp_path / "x.mega", store=store, for_dir="/far")
    [artifact] = megacache.parse((tmp_path / "x.mega").read_bytes()).artifacts
    assert pickle.loads(artifact.content) == [f"/far/{module}"] and result.placed == 1
    cachekeeper.export("drafter", tmp_path / "out", store=store)
    assert pickle.loads((tmp_path / "out/fxgraph/ab" / GRAPH / "x").read_bytes()) == [f"{tmp_path}/out/{module}"]


def test_kernels_of_a_directory_beside_the_cache(cache: Path, store: Path, tmp_path: Path):
    make_cache(tmp_path / "more", seed=5, graphs=0)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0, also=[tmp_path / "more/triton/0"])
    cachekeeper.export("drafter", tmp_path / "out", store=store)
    [label] = os.listdir(tmp_path / "out/also")
    for path in (tmp_path / "out/also" / label).rglob("__grp__*"):
        assert set(json.loads(path.read_bytes())["child_paths"].values()) == {
            str(child) for child in path.parent.iterdir() if child != path
        }
    result = cachekeeper.export("drafter", tmp_path / "x.mega", store=store)
    assert "28 files of caches saved beside it" in result.lacks


# Mega-Cache


def test_a_mega_cache_and_what_it_lacks(saved: str, store: Path, cache: Path, tmp_path: Path):
    result = cachekeeper.export("drafter", tmp_path / "x.mega", store=store)
    assert result.artifacts == {"inductor": 3, "aot_autograd": 3, "autotune": 3}
    assert set(result.lacks) == {
        "3 C++ libraries",
        "3 Triton kernels, but for those in the bundles of graphs",
        "1 max-autotune timing",
    }
    found = megacache.parse((tmp_path / "x.mega").read_bytes())
    assert found.types == result.artifacts and found.lost_by_torch == 0
    files = tree(cache)
    for artifact in found.artifacts:
        assert artifact.content in files.values()
    assert {artifact.key for artifact in found.artifacts if artifact.type == "inductor"} == {
        path.split("/")[2] for path in files if path.startswith("fxgraph/")
    }
    assert result.size == (tmp_path / "x.mega").stat().st_size


def test_a_snapshot_of_which_a_mega_cache_carries_nothing(store: Path, tmp_path: Path):
    settle(make_cache(tmp_path / "c", graphs=0))
    cachekeeper.snapshot("drafter", cache_dir=tmp_path / "c", store=store, wait=0)
    with pytest.raises(EmptyCache, match="nothing that a Mega-Cache carries") as caught:
        cachekeeper.export("drafter", tmp_path / "x.mega", store=store)
    assert "4 Triton kernels" in caught.value.facts[1]
    assert not (tmp_path / "x.mega").exists()


# References, standard output


def test_references(saved: str, store: Path, tmp_path: Path, here: Machine):
    for number, reference in enumerate([saved, saved[:8], "drafter", "latest"]):
        assert cachekeeper.export(reference, tmp_path / f"{number}.tar", store=store).snapshot.id == saved
    for reference in ("draftr", "drafter@{1}"):
        with pytest.raises(NotFound):
            cachekeeper.export(reference, tmp_path / "x.tar", store=store)
    with pytest.raises(NotFound):
        cachekeeper.export("drafter", tmp_path / "x.tar", store=tmp_path / "none")
    assert not (tmp_path / "x.tar").exists()


def test_it_needs_no_environment(saved: str, store: Path, tmp_path: Path, here: Machine, monkeypatch):
    monkeypatch.setattr(exporting, "fingerprint", lambda **_: pytest.fail("it looked"))
    assert cachekeeper.export("drafter", tmp_path / "x.tar", store=store).snapshot.id == saved


@pytest.mark.parametrize("kind", [None, "tar.gz", "mega-cache"])
def test_to_standard_output(kind: str | None, saved: str, store: Path, tmp_path: Path, monkeypatch):
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", out)
    result = cachekeeper.export("drafter", "-", store=store, format=kind)
    data = out.buffer.getvalue()  # type: ignore[attr-defined]
    cachekeeper.export("drafter", tmp_path / "x", store=store, format=kind or "tar.zst")
    assert data == (tmp_path / "x").read_bytes() and result.size == len(data) and result.destination == "-"
    with pytest.raises(UsageError, match="does not go to standard output"):
        cachekeeper.export("drafter", "-", store=store, format="directory")


def test_large_files_and_empty_ones(store: Path, tmp_path: Path):
    write(tmp_path / "c/fxgraph/ab" / GRAPH / "x", b"\x80\x05.")
    write(tmp_path / f"c/ab/c{'a' * 51}.main.so", large := elf(os.urandom(20_000_000)))
    write(tmp_path / "c/empty", b"")
    cachekeeper.snapshot("drafter", cache_dir=tmp_path / "c", store=store, wait=0)
    for name in ("out", "x.tar.zst"):
        cachekeeper.export("drafter", tmp_path / name, store=store)
        cachekeeper.import_cache(tmp_path / name, name, store=tmp_path / "other")
        assert table(tmp_path / "other", name) == table(store, "drafter")
    assert (
        hashlib.sha256((tmp_path / f"out/ab/c{'a' * 51}.main.so").read_bytes()).digest()
        == hashlib.sha256(large).digest()
    )


def test_progress_is_told(saved: str, store: Path, tmp_path: Path):
    told: list[tuple[str, int, int]] = []
    cachekeeper.export("drafter", tmp_path / "x.tar", store=store, progress=lambda *step: told.append(step))
    assert told[-1][0] == "Exporting" and told[-1][1] == told[-1][2] > 0


def test_what_nobody_trusted_vouches_for_is_not_exported(
    cache: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from cachekeeper.errors import Unsigned

    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    cachekeeper.keygen(tmp_path / "key")
    monkeypatch.setenv("CACHEKEEPER_REQUIRE_SIGNATURE", str(tmp_path / "key.pub"))
    with pytest.raises(Unsigned):
        cachekeeper.export("drafter", tmp_path / "out.tar", store=store)
    assert not (tmp_path / "out.tar").exists()
    cachekeeper.sign("drafter", key=tmp_path / "key", store=store)
    assert cachekeeper.export("drafter", tmp_path / "out.tar", store=store).files
