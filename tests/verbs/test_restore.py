"""Bring a snapshot back: merge, exact, only, repair; here and elsewhere; or not at all."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.environment import model_hash
from cachekeeper.errors import (
    Busy,
    CheckFailed,
    DamagedStore,
    EmptyCache,
    EnvironmentMismatch,
    LocalDiskError,
    NotFound,
    UsageError,
)
from cachekeeper.inductor import classify
from cachekeeper.manifest import Tables
from cachekeeper.repository import open_repository
from cachekeeper.testing import make_cache, make_triton_entry
from cachekeeper.verbs.restore import RestoreResult
from tests import samples

from .conftest import Machine, kernels, settle, tree, unplaced

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def saved(cache: Path, store: Path) -> str:
    """The id of a snapshot of the cache, which is "drafter" too."""
    return cachekeeper.snapshot("drafter", cache_dir=cache, store=store).snapshot.id


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A directory that is not there yet."""
    return tmp_path / "out"


def restore(target: Path, store: Path, reference: str | None = "drafter", **options: object) -> RestoreResult:
    return cachekeeper.restore(reference, cache_dir=target, store=store, **options)


def counts(result: RestoreResult) -> tuple[int, int, int]:
    return result.new, result.same, result.replaced


def everything(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    """Whatever is in a directory, with what would show that it was touched."""
    return {
        str(path): (path.read_bytes() if path.is_file() else b"", path.lstat().st_mtime_ns, path.lstat().st_mode)
        for path in [directory, *directory.rglob("*")]
    }


def set_aside(result: RestoreResult) -> dict[str, bytes]:
    assert result.aside is not None
    return {p.relative_to(result.aside).as_posix(): p.read_bytes() for p in result.aside.rglob("*") if p.is_file()}


# Into an empty place


def test_every_file_comes_back(cache: Path, store: Path, saved: str, out: Path):
    result = restore(out, store)
    assert unplaced(out) == unplaced(cache)
    assert counts(result) == (len(tree(cache)), 0, 0)
    assert result.snapshot and result.snapshot.id == saved
    assert result.cache_dir == out
    assert result.aside is None and result.moved_aside == 0 and result.left_out == result.mended == ()


def test_into_the_same_place_after_it_was_wiped(cache: Path, store: Path, saved: str):
    before = tree(cache)
    shutil.rmtree(cache)
    restore(cache, store)
    assert tree(cache) == before


def test_an_id_in_a_launch_script(cache: Path, store: Path, saved: str, out: Path):
    restore(out, store, saved)
    assert unplaced(out) == unplaced(cache)


def test_modes_are_kept(cache: Path, store: Path, out: Path):
    library = next(cache.glob("??/*.so")).relative_to(cache)
    module = next(cache.glob("??/*.py")).relative_to(cache)
    (cache / library).chmod(0o755)
    (cache / module).chmod(0o600)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    restore(out, store)
    assert (out / library).stat().st_mode & 0o777 == 0o755
    assert (out / module).stat().st_mode & 0o777 == 0o600


def test_nothing_is_world_writable(cache: Path, store: Path, out: Path):
    """C56."""
    for path in cache.rglob("*"):
        path.chmod(0o777)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    restore(out, store)
    assert not [path for path in [out, *out.rglob("*")] if path.stat().st_mode & 0o002]


def test_times_are_fresh(store: Path, saved: str, out: Path):
    """C21. What cleans up by age must not take a restored file for an old one."""
    began = time.time() - 1
    restore(out, store)
    assert all(path.stat().st_mtime > began for path in out.rglob("*"))


def test_the_directory_is_the_owners_alone(store: Path, saved: str, out: Path):
    restore(out, store)
    assert out.stat().st_mode & 0o777 == 0o700


def test_progress_is_told_and_ends(cache: Path, store: Path, saved: str, out: Path):
    for target in (out, cache):
        told: list[tuple[str, int, int]] = []
        restore(target, store, verify=True, progress=lambda *step, told=told: told.append(step))
        ends = {stage: (done, total) for stage, done, total in told}
        assert {"Comparing", "Verifying"} <= set(ends) <= {"Comparing", "Restoring", "Verifying"}
        assert all(done == total for done, total in ends.values())
        assert ends["Verifying"][1] > 0


def test_a_marker_says_what_was_restored(store: Path, saved: str, out: Path):
    restore(out, store)
    marker = json.loads((out / ".cachekeeper" / "restored.json").read_text())
    assert (marker["snapshot"], marker["store"]) == (saved, store.as_uri())


def test_nothing_else_is_left_behind(store: Path, saved: str, out: Path):
    restore(out, store)
    assert [path.name for path in (out / ".cachekeeper").iterdir()] == ["restored.json"]


def test_verify_reads_everything_again(cache: Path, store: Path, saved: str, out: Path):
    assert restore(out, store).verified is None
    assert restore(out, store, verify=True).verified == len(tree(cache))


def test_verify_notices_what_does_not_read_back(store: Path, saved: str, out: Path, monkeypatch: pytest.MonkeyPatch):
    from cachekeeper.staging import Stage

    mark = Stage.mark

    def spoil(stage: Stage, data: bytes) -> None:
        next(out.glob("??/*.py")).write_bytes(b"spoiled")
        next(out.glob("??/*.so")).unlink()
        mark(stage, data)

    monkeypatch.setattr(Stage, "mark", spoil)
    with pytest.raises(CheckFailed, match="does not read back") as caught:
        restore(out, store, verify=True)
    assert caught.value.exit_code == 3
    assert len(caught.value.facts) == 2 and caught.value.facts[1].endswith(".so  missing")


# Into a place with something in it


def test_what_is_right_is_left_alone(store: Path, saved: str, out: Path):
    restore(out, store)
    before = {path: path.stat().st_ino for path in out.rglob("*") if path.name != "restored.json"}
    result = restore(out, store)
    assert counts(result) == (0, len(tree(out)), 0)
    assert {path: path.stat().st_ino for path in before} == before


def test_what_is_not_in_it_stays(store: Path, saved: str, out: Path):
    make_cache(out, seed=7, kernels=1, graphs=1)
    extra = tree(out)
    result = restore(out, store)
    assert extra.items() <= tree(out).items()
    assert result.moved_aside == 0


def test_a_wrong_file_is_replaced_and_put_aside(cache: Path, store: Path, saved: str):
    before = tree(cache)
    library = next(cache.glob("??/*.so"))
    library.write_bytes(b"wrong")
    result = restore(cache, store)
    assert tree(cache) == before
    assert counts(result) == (0, len(before) - 1, 1)
    assert set_aside(result) == {library.relative_to(cache).as_posix(): b"wrong"}
    assert len(result.mended) == 1


def test_a_damaged_kernel_is_replaced_whole(cache: Path, store: Path, saved: str):
    """C3, C7: good files beside a bad one would keep torch from healing it."""
    before = tree(cache)
    kernel, sound = kernels(cache)[:2]
    inode = sound.stat().st_ino
    next(kernel.glob("*.cubin")).write_bytes(b"")
    result = restore(cache, store)
    assert tree(cache) == before
    assert result.mended == (f"triton/0/{kernel.name}: 0 bytes instead of {len(before[cubin(kernel)]):,}",)
    assert len(set_aside(result)) == 7
    assert sound.stat().st_ino == inode


def cubin(kernel: Path) -> str:
    return f"triton/0/{kernel.name}/triton_poi_fused_add_0.cubin"


def test_files_that_are_gone_come_back(cache: Path, store: Path, saved: str):
    """C19: triton/ purged, fxgraph/ kept."""
    before = tree(cache)
    shutil.rmtree(cache / "triton")
    next(cache.glob("??/*.best_config")).unlink()
    result = restore(cache, store)
    assert tree(cache) == before
    assert counts(result) == (22, len(before) - 22, 0)
    assert result.aside is None


def test_a_file_where_a_directory_must_be(store: Path, saved: str, out: Path, cache: Path):
    out.mkdir()
    (out / "triton").write_bytes(b"in the way")
    result = restore(out, store)
    assert unplaced(out) == unplaced(cache)
    assert set_aside(result) == {"triton": b"in the way"}


def test_a_group_that_points_elsewhere_is_put_right(cache: Path, store: Path, saved: str, out: Path):
    shutil.copytree(cache, out)
    result = restore(out, store)
    assert result.replaced == 3
    assert all("points to another directory: " in line for line in result.mended)
    assert unplaced(out) == unplaced(cache)


def test_exact_moves_extras_aside_and_deletes_nothing(cache: Path, store: Path, saved: str):
    before = tree(cache)
    extra = make_triton_entry(cache / "triton" / "0", seed=99)
    (cache / "zz").mkdir()
    (cache / "zz" / "mine.py").write_bytes(b"# mine\n")
    lost = {path: data for path, data in tree(cache).items() if path not in before}
    result = restore(cache, store, exact=True)
    assert tree(cache) == before
    assert set_aside(result) == lost
    assert result.moved_aside == 2 and not extra.exists()


def test_a_dry_run_of_exact_says_what_would_move(cache: Path, store: Path, saved: str):
    extra = make_triton_entry(cache / "triton" / "0", seed=99)
    (cache / "zz").mkdir()
    (cache / "zz" / "mine.py").write_bytes(b"# mine\n")
    before = tree(cache)
    planned = restore(cache, store, exact=True, dry_run=True)
    assert planned.extras == (extra.relative_to(cache).as_posix(), "zz/mine.py") and planned.moved_aside == 2
    assert tree(cache) == before
    assert restore(cache, store, exact=True).extras == planned.extras


@pytest.mark.parametrize("dry_run", [False, True])
def test_exact_leaves_a_project_alone_that_holds_a_cache(cache: Path, store: Path, saved: str, dry_run: bool):
    """diffusers-torchao PR#31 (C20): a job once took the working directory for its cache."""
    for path in (".git/HEAD", "src/model.py", "README.md"):
        (cache / path).parent.mkdir(exist_ok=True)
        (cache / path).write_text("mine")
    next(cache.glob("fxgraph/*/*/*")).unlink()
    before = tree(cache)
    with pytest.raises(UsageError, match="not only a compile cache") as caught:
        restore(cache, store, exact=True, dry_run=dry_run)
    assert caught.value.facts == (".git", "README.md", "src") and tree(cache) == before
    restore(cache, store)
    assert (cache / ".git" / "HEAD").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_replaced_by_our_own(
    cache: Path, store: Path, saved: str, monkeypatch: pytest.MonkeyPatch
):
    library, cubin = next(cache.glob("??/*.so")), next(kernels(cache)[0].glob("*.cubin"))
    before = tree(cache)
    for path in (library, cubin):
        os.chown(path, 54321, -1)
    planned = restore(cache, store, dry_run=True)
    assert planned.replaced == 2 and all(line.endswith(": another user's") for line in planned.mended)
    monkeypatch.setenv("CACHEKEEPER_TRUSTED_OWNERS", "54321")
    assert restore(cache, store, dry_run=True).replaced == 0
    monkeypatch.delenv("CACHEKEEPER_TRUSTED_OWNERS")
    result = restore(cache, store, verify=True)
    assert result.replaced == 2 and tree(cache) == before
    assert [path.stat().st_uid for path in (library, cubin)] == [0, 0]
    assert library.relative_to(cache).as_posix() in set_aside(result)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_project_is_not_filled_with_a_cache(store: Path, saved: str, out: Path, dry_run: bool):
    for path in (".git/HEAD", "ui/app.py", "setup.py"):
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes(b"mine\n")
    before = everything(out)
    with pytest.raises(UsageError, match="nothing of a compile cache") as caught:
        restore(out, store, dry_run=dry_run)
    assert caught.value.facts == ("setup.py",)
    assert everything(out) == before


def test_what_is_put_aside_for_a_directory_is_named(cache: Path, store: Path, saved: str, tmp_path: Path):
    (cache / "fxgraph").rename(tmp_path / "elsewhere")
    (cache / "fxgraph").symlink_to(tmp_path / "elsewhere")
    result = restore(cache, store)
    assert result.mended == ("fxgraph: a symbolic link in its place (put aside)",)
    assert (result.aside / "fxgraph").is_symlink() and not (cache / "fxgraph").is_symlink()
    assert restore(cache, store).mended == ()


@pytest.mark.parametrize("within", [".inductor_cache", "sub", "a/b"])
def test_nor_is_one_with_a_cache_somewhere_below(cache: Path, store: Path, saved: str, out: Path, within: str):
    out.mkdir()
    (out / "train.py").write_bytes(b"mine\n")
    shutil.copytree(cache, out / within)
    before = everything(out)
    with pytest.raises(UsageError, match="nothing of a compile cache at its top") as caught:
        restore(out, store)
    assert f"`--cache-dir {out / within}`" in caught.value.hint and "train.py" in caught.value.facts
    assert everything(out) == before


@pytest.mark.parametrize(
    "there",
    [
        *("precompiled_headers/c.h.gch", f"{'A' * 52}/kernel.cubin", ".nfs0001", "lost+found/x", ".git/HEAD"),
        *("locks/a.lock", "triton/0/x", ".cachekeeper/restored.json"),
    ],
)
def test_what_may_lie_in_a_cache_is_no_project(store: Path, saved: str, out: Path, there: str):
    (out / there).parent.mkdir(parents=True)
    (out / there).write_bytes(b"")
    assert restore(out, store).new


def test_a_cache_with_a_strange_file_in_it_is_filled(cache: Path, store: Path, saved: str):
    (cache / "NOTES.txt").write_bytes(b"mine\n")
    shutil.rmtree(cache / "fxgraph")
    assert restore(cache, store).new
    for part in [path for path in cache.iterdir() if path.is_dir() and path.name != ".cachekeeper"]:
        shutil.rmtree(part)
    assert restore(cache, store).new  # it was restored here before


def test_allowed_secrets_are_noted(cache: Path, store: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef0123456789abcdef01234567")
    next(cache.glob("??/*.py")).write_text("key = '0123456789abcdef0123456789abcdef01234567'\n")
    settle(cache)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, allow_secrets=True)
    assert "this snapshot holds 1 file with what looks like secrets" in restore(out, store).notes


def test_exact_with_only_leaves_other_kinds_alone(cache: Path, store: Path, saved: str):
    make_triton_entry(cache / "triton" / "0", seed=99)
    (cache / "zz").mkdir()
    (cache / "zz" / "mine.py").write_bytes(b"# mine\n")
    result = restore(cache, store, exact=True, only=["triton"])
    assert result.moved_aside == 1 and (cache / "zz" / "mine.py").exists()


def test_exact_leaves_scratch_alone(cache: Path, store: Path, saved: str):
    """C29: torch may hold a lock right now."""
    before = sorted(path.name for path in (cache / "locks").iterdir())
    restore(cache, store, exact=True)
    assert sorted(path.name for path in (cache / "locks").iterdir()) == before


def test_exact_refuses_while_somebody_uses_it(cache: Path, store: Path, saved: str):
    """C18."""
    (cache / "zz").mkdir()
    (cache / "zz" / "mine.py").write_bytes(b"# mine\n")
    before = tree(cache)
    code = f"import sys; f = open({str(cache / 'zz' / 'mine.py')!r}); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        with pytest.raises(Busy) as caught:
            restore(cache, store, exact=True)
        assert caught.value.facts == (f"process {process.pid}",) and caught.value.exit_code == 7
        next(cache.glob("??/*.so")).write_bytes(b"wrong")
        assert any(f"process {process.pid} has files of it open" in note for note in restore(cache, store).notes)
        process.kill()
    assert tree(cache) == before


def test_only_some_kinds(cache: Path, store: Path, saved: str, out: Path):
    restore(out, store, only=["fxgraph", "aotautograd"])
    assert {classify(path).kind for path in tree(out)} == {"fxgraph", "aotautograd"}
    assert set(tree(out)) == {path for path in tree(cache) if path.startswith(("fxgraph", "aotautograd"))}


@pytest.mark.parametrize("dry_run", [False, True])
def test_kinds_of_which_there_is_nothing(store: Path, saved: str, out: Path, dry_run: bool):
    """C17: a restore of nothing is no success."""
    with pytest.raises(EmptyCache, match="holds nothing of these kinds: precompile, headers") as caught:
        restore(out, store, only=["precompile", "headers"], dry_run=dry_run)
    assert caught.value.exit_code == 5 and "fxgraph" in caught.value.hint and not out.exists()


def test_an_unknown_kind_is_refused_with_the_kinds(store: Path, saved: str, out: Path):
    with pytest.raises(UsageError, match="no kind 'cubins'") as caught:
        restore(out, store, only=["cubins"])
    assert "fxgraph, aotautograd, triton" in caught.value.hint


def test_repair_moves_damage_aside_that_the_snapshot_does_not_have(cache: Path, store: Path, saved: str):
    before = tree(cache)
    damaged = make_triton_entry(cache / "triton" / "0", seed=98)
    next(damaged.glob("*.json")).write_bytes(b"{")
    sound = make_triton_entry(cache / "triton" / "0", seed=99)
    (cache / "zz").mkdir()
    (cache / "zz" / "x.best_config").write_bytes(b"{}{}")
    (cache / "zz" / "y.best_config").write_bytes(b"{}")
    assert restore(cache, store).moved_aside == 0 and damaged.exists()
    result = restore(cache, store, repair=True)
    assert result.moved_aside == 2
    assert not damaged.exists() and not (cache / "zz" / "x.best_config").exists()
    assert sound.exists() and (cache / "zz" / "y.best_config").exists()
    assert before.items() <= tree(cache).items()
    assert len(set_aside(result)) == 8
    assert cachekeeper.verify(directory=cache).ok


# Not at all


def test_dry_run_changes_nothing_and_says_what_would_be(cache: Path, store: Path, saved: str):
    next(cache.glob("??/*.so")).write_bytes(b"wrong")
    shutil.rmtree(kernels(cache)[0])
    (cache / "zz").mkdir()
    (cache / "zz" / "x.best_config").write_bytes(b"{")
    before = everything(cache)
    would = restore(cache, store, dry_run=True, repair=True)
    assert everything(cache) == before
    did = restore(cache, store, repair=True)
    assert would.dry_run and not did.dry_run
    assert counts(would) == counts(did) == (7, len(tree(cache)) - 8, 1)
    assert would.mended == did.mended


def test_dry_run_makes_no_directory(store: Path, saved: str, out: Path, cache: Path):
    assert counts(restore(out, store, dry_run=True)) == (len(tree(cache)), 0, 0)
    assert not out.exists()


def test_no_store_at_all(store: Path, out: Path):
    with pytest.raises(NotFound, match="no snapshots in"):
        restore(out, store)
    assert not out.exists() and not store.exists()


def test_no_such_snapshot(store: Path, saved: str, out: Path):
    with pytest.raises(NotFound) as caught:
        restore(out, store, "draftr")
    assert caught.value.hint == "did you mean `drafter`?"


@pytest.mark.parametrize("reference", [None, "drafter", "latest", "deadbeef"])
def test_missing_is_fine_on_request(store: Path, out: Path, reference: str | None):
    result = restore(out, store, reference, missing_ok=True)
    assert result.snapshot is None and result.notes and counts(result) == (0, 0, 0)
    assert not out.exists()


def test_missing_ok_does_not_excuse_damage(store: Path, saved: str, out: Path):
    spoil(store)
    with pytest.raises(DamagedStore):
        restore(out, store, missing_ok=True)


def test_a_snapshot_of_nothing_is_refused(store: Path, out: Path):
    """C17."""
    repository = open_repository(store)
    repository.prepare()
    empty = repository.commit(samples.header(counts={}), Tables((), (), (), ()))
    with pytest.raises(EmptyCache, match="holds nothing"):
        restore(out, store, empty.id)


# The environment


def test_another_environment_is_refused(store: Path, saved: str, out: Path, machine: Machine):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    with pytest.raises(EnvironmentMismatch) as caught:
        restore(out, store)
    assert caught.value.facts == ("torch  2.11.0   here 2.12.0   (torch would ignore every entry)",)
    assert not out.exists()


def test_another_gpu_is_refused(store: Path, saved: str, out: Path, machine: Machine):
    """C47."""
    machine.fingerprint = samples.fingerprint(capability="sm_80")
    with pytest.raises(EnvironmentMismatch) as caught:
        restore(out, store)
    assert [fact.split()[0] for fact in caught.value.facts] == ["gpu", "kernels"]


def test_another_environment_on_request(cache: Path, store: Path, saved: str, out: Path, machine: Machine):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    result = restore(out, store, allow_mismatch=True)
    assert unplaced(out) == unplaced(cache)
    assert result.comparison and [item.name for item in result.comparison.must] == ["torch"]


def test_latest_is_the_newest_that_fits(cache: Path, store: Path, saved: str, out: Path, machine: Machine):
    here = machine.fingerprint
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    newer = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0).snapshot.id
    assert restored(out, store, "latest") == restored(out, store, None) == newer
    machine.fingerprint = here
    assert restored(out, store, "latest") == restored(out, store, None) == saved


def restored(out: Path, store: Path, reference: str | None) -> str:
    snapshot = restore(out, store, reference).snapshot
    assert snapshot
    return snapshot.id


def test_the_configured_name_is_the_default(
    cache: Path, store: Path, saved: str, out: Path, monkeypatch: pytest.MonkeyPatch
):
    cachekeeper.snapshot("other", cache_dir=cache, store=store, message="newer", wait=0)
    monkeypatch.setenv("CACHEKEEPER_NAME", "drafter")
    assert restored(out, store, None) == saved


def test_a_name_as_it_was_before(cache: Path, store: Path, saved: str, out: Path):
    make_cache(cache, seed=9)
    newer = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0).snapshot.id
    assert restored(out, store, "drafter@{1}") == saved
    assert restored(out, store, "drafter") == newer


def test_notes(cache: Path, store: Path, out: Path, machine: Machine):
    theirs = samples.fingerprint()
    machine.fingerprint = samples.Fingerprint(theirs.id, theirs.must, {"driver": samples.Fact("580")}, {})
    make_cache(cache)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    machine.fingerprint = theirs
    notes = restore(out, store).notes
    assert "driver 580 -> 570.86.10 (Triton's launchers may be rebuilt)" in notes
    assert any("taken while the cache was in use: files were written" in note for note in notes)


def test_an_edited_source_of_the_model_is_another_model(
    cache: Path, store: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """C52: torch's keys do not see the backward of a custom operator."""
    for verb in (import_module("cachekeeper.verbs.restore"), import_module("cachekeeper.verbs.snapshot")):
        monkeypatch.setattr(
            verb,
            "fingerprint",
            lambda model_config=None, model_sources=(): replace(
                samples.fingerprint(), model=model_hash(model_config, model_sources)
            ),
        )
    source = tmp_path / "operator.py"
    source.write_text("def backward(grad):\n    return grad\n")
    monkeypatch.setenv("CACHEKEEPER_MODEL_SOURCES", str(source))
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    assert restore(out, store).new > 0
    source.write_text("def backward(grad):\n    return 2 * grad\n")
    with pytest.raises(EnvironmentMismatch) as caught:
        restore(out, store)
    assert caught.value.facts[0].startswith("model  ")
    other = tmp_path / "other.py"
    other.write_text("x = 1\n")
    with pytest.raises(EnvironmentMismatch):
        restore(out, store, model_sources=[other])


# Elsewhere


MODULE = "ab/c" + "a2" * 25 + "b.py"


def add_pickled_entries(cache: Path) -> None:
    """Entries as of kernels that were autotuned: they name their module by its absolute path."""
    for place in ("fxgraph/ab/fkey/entry", "aotautograd/akey/entry"):
        path = cache / place
        path.parent.mkdir(parents=True)
        path.write_bytes(pickle.dumps({"filename": f"{cache}/{MODULE}", "code": "x" * 70_000}))


@pytest.mark.parametrize("name", ["o", "a much longer name than it had before" * 5, "odd 'name' \"ü\""])
def test_elsewhere_nothing_names_the_old_directory(cache: Path, store: Path, tmp_path: Path, name: str):
    """C36."""
    add_pickled_entries(cache)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    out = tmp_path / name
    restore(out, store)
    assert not [path for path, data in tree(out).items() if str(cache).encode() in data or b"[REPLACE]" in data]
    for place in ("fxgraph/ab/fkey/entry", "aotautograd/akey/entry"):
        assert pickle.loads((out / place).read_bytes())["filename"] == f"{out}/{MODULE}"
    groups = [json.loads(path.read_text()) for path in out.rglob("__grp__*")]
    children = [path for group in groups for path in group["child_paths"].values()]
    assert len(children) == 18 and all(path.startswith(f"{out}/triton/0/") for path in children)
    assert all(os.path.exists(path) for path in children)


def test_elsewhere_the_files_of_others_that_name_the_old_directory_are_told(
    cache: Path, store: Path, tmp_path: Path, out: Path
):
    """C36: who wrote them knows what the paths in them are; a restore to where they were says nothing."""
    served = tmp_path / "served"
    (served / "artifacts").mkdir(parents=True)
    (served / "artifacts" / "index.json").write_text(json.dumps({"graph": f"{served}/artifacts/a"}))
    (served / "relative.json").write_text(json.dumps({"graph": "artifacts/a", "else": f"{served}-2", "x": f"{cache}2"}))
    (cache / "plan.pkl").write_bytes(pickle.dumps({"module": f"{cache}/{MODULE}"}))
    settle(cache)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0, also=[served])
    told = (
        f"2 files of other programs name {cache}, {served} (also/served/artifacts/index.json, plan.pkl): "
        "paths in them are not rewritten"
    )
    assert told not in restore(out, store, dry_run=True).notes
    assert told in restore(out, store).notes
    assert told in restore(out, store).notes  # they still do
    assert not [note for note in restore(tmp_path / "o", store, only=["triton"]).notes if "other programs" in note]
    [here] = [note for note in restore(cache, store).notes if "other programs" in note]
    assert here.startswith(f"1 file of other programs names {served} (also/served/artifacts/index.json)")


def test_elsewhere_and_back_gives_the_same_bytes(cache: Path, store: Path, out: Path):
    add_pickled_entries(cache)
    first = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    before = tree(cache)
    restore(out, store)
    again = cachekeeper.snapshot("again", cache_dir=out, store=store, wait=0)
    assert again.stored == 0
    tables = open_repository(store).manifest
    assert tables(again.snapshot.id).tables.files == tables(first.snapshot.id).tables.files
    shutil.rmtree(cache)
    restore(cache, store, "again")
    assert tree(cache) == before


def test_the_job_is_told_where(store: Path, saved: str, out: Path):
    assert restore(out, store).environment == {
        "TORCHINDUCTOR_CACHE_DIR": str(out),
        "TRITON_CACHE_DIR": f"{out}/triton/0",
    }


def test_home_is_expanded_and_relative_paths_made_absolute(
    store: Path, saved: str, own_environment: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    assert restore(Path("~/x"), store, dry_run=True).cache_dir == own_environment / "x"
    monkeypatch.chdir(tmp_path)
    assert restore(Path("x"), store, dry_run=True).cache_dir == tmp_path / "x"


def test_through_a_link(cache: Path, store: Path, saved: str, tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    restore(tmp_path / "link", store)
    assert set(tree(tmp_path / "real")) == set(tree(cache))


@pytest.mark.parametrize("what", ["file", "below a file"])
def test_a_target_that_cannot_be_a_directory(store: Path, saved: str, tmp_path: Path, what: str):
    (tmp_path / "file").write_text("mine")
    target = tmp_path / "file" if what == "file" else tmp_path / "file" / "x"
    with pytest.raises(LocalDiskError, match="cannot"):
        restore(target, store)
    assert (tmp_path / "file").read_text() == "mine"


# Several devices


def test_kernels_of_every_device_are_in_the_directory_that_the_job_is_told(cache: Path, store: Path, out: Path):
    for number in range(4):
        make_triton_entry(cache / "triton" / "1", seed=500 + number)
    settle(cache)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store)
    result = restore(out, store, verify=True)
    assert result.environment and result.environment["TRITON_CACHE_DIR"] == f"{out}/triton/1"
    names = {kernel.name for device in ("triton/0", "triton/1") for kernel in kernels(cache, device)}
    assert {kernel.name for kernel in kernels(out, "triton/1")} == names and len(names) == 7
    assert {kernel.name for kernel in kernels(out, "triton/0")} == {kernel.name for kernel in kernels(cache)}
    for path in out.rglob("__grp__*"):
        children = json.loads(path.read_text())["child_paths"].values()
        assert {os.path.dirname(child) for child in children} == {str(path.parent)}
    assert any("kernels of 2 directories are also in triton/1" in note for note in result.notes)
    assert cachekeeper.verify(directory=out).ok


def test_a_kernel_that_two_devices_have_is_not_doubled(cache: Path, store: Path, out: Path):
    (cache / "triton" / "1").mkdir()
    for kernel in kernels(cache):
        shutil.copytree(kernel, cache / "triton" / "1" / kernel.name)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    result = restore(out, store)
    assert result.new == len(tree(cache))


# Directories beside the cache


def test_directories_beside_it_come_back_inside_it(cache: Path, store: Path, out: Path, tmp_path: Path):
    for number in range(5):
        make_triton_entry(tmp_path / "kernels", seed=500 + number)
    served = make_cache(tmp_path / "served", seed=4, kernels=0, graphs=1)
    also = [tmp_path / "kernels", served]
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, also=also, wait=0)
    shutil.rmtree(tmp_path / "kernels")
    result = restore(out, store, verify=True)
    assert not (tmp_path / "kernels").exists()
    assert unplaced(out / "also/served") == unplaced(served)
    assert len(list((out / "also/kernels").iterdir())) == 8  # with those of triton/0
    assert result.environment == {
        "TORCHINDUCTOR_CACHE_DIR": str(out),
        "TRITON_CACHE_DIR": f"{out}/also/kernels",
    }
    assert cachekeeper.verify(directory=out).ok


def test_they_are_saved_again_and_come_back_again(
    cache: Path, store: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for number in range(5):
        make_triton_entry(tmp_path / "kernels", seed=500 + number)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    first = restore(out, store)
    assert first.environment and first.environment["TRITON_CACHE_DIR"] == f"{out}/also/TRITON_CACHE_DIR"
    monkeypatch.setenv("TRITON_CACHE_DIR", first.environment["TRITON_CACHE_DIR"])
    again = cachekeeper.snapshot("again", cache_dir=out, store=store, wait=0)
    assert again.snapshot.header.also == {"TRITON_CACHE_DIR": f"{out}/also/TRITON_CACHE_DIR"}
    assert again.stored == 0
    second = restore(tmp_path / "third", store, "again")
    assert unplaced(tmp_path / "third") == unplaced(out)
    assert second.environment and second.environment["TRITON_CACHE_DIR"] == f"{tmp_path}/third/also/TRITON_CACHE_DIR"


# Damage in the store


def spoil(store: Path) -> None:
    """Flip a byte in the middle of the largest pack."""
    pack = max(store.glob("packs/*"), key=lambda path: path.stat().st_size)
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 0xFF
    pack.chmod(0o644)
    pack.write_bytes(data)


def test_damage_in_the_store_changes_nothing(cache: Path, store: Path, saved: str):
    next(cache.glob("??/*.so")).write_bytes(b"wrong")
    shutil.rmtree(cache / "triton")
    shutil.rmtree(cache / "fxgraph")
    spoil(store)
    before, workshop = tree(cache), everything(cache / ".cachekeeper")
    with pytest.raises(DamagedStore, match="is damaged in the store") as caught:
        restore(cache, store)
    assert tree(cache) == before
    assert caught.value.exit_code == 3 and caught.value.facts
    assert everything(cache / ".cachekeeper").keys() == workshop.keys()


def test_a_lost_pack_is_damage(store: Path, saved: str, out: Path):
    for pack in store.glob("packs/*"):
        pack.unlink()
    with pytest.raises(DamagedStore) as caught:
        restore(out, store)
    assert any("it is not in the store" in fact for fact in caught.value.facts)


def test_whole_entries_of_a_damaged_snapshot_on_request(cache: Path, store: Path, out: Path):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store)
    (cache / "other").mkdir()
    (cache / "other" / "large").write_bytes(os.urandom(1 << 20))
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    spoil(store)
    result = restore(out, store, allow_damaged=True, verify=True)
    assert result.left_out == ("other/large",)
    expected = unplaced(cache)
    del expected["other/large"]
    assert unplaced(out) == expected
    assert result.verified == result.new == len(expected)


def test_what_is_already_right_is_not_fetched(cache: Path, store: Path, saved: str):
    """A damaged store does no harm to a cache that needs nothing of it."""
    spoil(store)
    assert counts(restore(cache, store)) == (0, len(tree(cache)), 0)


@pytest.mark.parametrize("options", [{"only": ["native"]}, {"allow_mismatch": True}, {"allow_damaged": True}])
def test_a_proof_is_of_the_whole_in_its_environment(cache: Path, store: Path, tmp_path: Path, options: dict):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0, proof=samples.proof())
    with pytest.raises(UsageError, match="a proof is of all of a snapshot"):
        cachekeeper.restore("drafter", cache_dir=tmp_path / "new", store=store, require_proof=True, **options)
    assert not (tmp_path / "new").exists()


def test_a_restore_holds_one_lease(saved: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In the store's directory each costs two writes that are synced."""
    from cachekeeper.stores import LocalStore

    written: list[str] = []
    create = LocalStore.create
    monkeypatch.setattr(
        LocalStore, "create", lambda self, key, *parts: written.append(key) or create(self, key, *parts)
    )
    cachekeeper.restore(saved, cache_dir=tmp_path / "new", store=store)
    assert [key.partition("/")[0] for key in written] == ["leases"]
    assert not list((store / "leases").iterdir())


# Where the store is damaged, what else there is


def test_latest_passes_over_what_is_damaged_in_the_store(cache: Path, store: Path, saved: str, out: Path):
    packs = set(store.glob("packs/*"))
    newer = cachekeeper.snapshot("other", cache_dir=cache, store=store, wait=0, full=True).snapshot.id
    spoil_pack(next(pack for pack in store.glob("packs/*") if pack not in packs))
    result = restore(out, store, None)
    assert result.snapshot and result.snapshot.id == saved and result.passed_over == (newer,)
    assert unplaced(out) == unplaced(cache)
    spoil_pack(*packs)
    with pytest.raises(DamagedStore, match=newer[:8]):
        restore(out.with_name("new"), store, "latest")


def test_the_error_of_a_damaged_name_tells_of_its_earlier_move(cache: Path, store: Path, saved: str, out: Path):
    with pytest.raises(DamagedStore) as only:
        spoil(store)
        restore(out, store)
    assert "drafter@" not in only.value.hint
    newer = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0, message="another").snapshot.id
    spoil_pack(*store.glob("packs/*"))
    with pytest.raises(DamagedStore, match=newer[:8]) as caught:
        restore(out, store)
    assert "`cachekeeper verify 'drafter@{1}'`" in caught.value.hint
    with pytest.raises(DamagedStore, match=newer[:8]) as caught:
        restore(out, store, newer)
    assert "drafter@" not in caught.value.hint


def spoil_pack(*packs: Path) -> None:
    for pack in packs:
        data = bytearray(pack.read_bytes())
        data[len(data) // 2] ^= 1
        pack.chmod(0o644)
        pack.write_bytes(data)
