"""verify --repair: everything damaged is in quarantine with the evidence, mended if it can be, and nothing is lost."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cachekeeper
from cachekeeper.disk import locked
from cachekeeper.errors import EmptyCache, EnvironmentMismatch, NotFound, UnsafePath, Unsigned, UsageError
from cachekeeper.testing import make_cache, make_triton_entry
from cachekeeper.verbs.verify import VerifyResult, judging
from tests import samples
from tests.faults.scene import check_nothing_lost
from tests.faults.scene import tree as plain_tree

from .conftest import Machine, kernels, settle, tree

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def saved(cache: Path, store: Path) -> str:
    """The id of a snapshot of the cache, which is "drafter" too."""
    return cachekeeper.snapshot("drafter", cache_dir=cache, store=store).snapshot.id


@pytest.fixture
def repair(cache: Path, store: Path) -> Callable[..., VerifyResult]:
    """Repairs the cache, checks that nothing was lost, that the result says what is so, and that a second finds it."""

    def work(reference: str | None = "drafter", **where: Path) -> VerifyResult:
        settle(cache)
        before = plain_tree(cache)
        place = where or {"live": cache}
        result = cachekeeper.verify(None if where else reference, store=store, repair=True, **place)
        check_nothing_lost(cache, before)
        assert result.repair and result.ok == (not result.unmended and not result.damaged_in_store)
        settle(cache)
        again = cachekeeper.verify(None if where else reference, store=store, repair=True, **place)
        assert again.quarantine is None and again.mended == again.dropped == {} and again.put_back == ()
        return result

    return work


Repair = Callable[..., VerifyResult]


def name(path: Path, cache: Path) -> str:
    return path.relative_to(cache).as_posix()


def entry(path: Path, cache: Path) -> str:
    """What the entry of a module or a library is called, which share their paths here."""
    return f"{name(path, cache).partition('.')[0]} ({'module' if path.suffix == '.py' else 'native'})"


def flip(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0x10
    path.write_bytes(data)


def evidence(result: VerifyResult) -> dict[str, Any]:
    assert result.quarantine
    document = json.loads((result.quarantine / "evidence.json").read_text())
    assert isinstance(document, dict)
    return document


def about(result: VerifyResult) -> dict[str, dict[str, Any]]:
    return {file["path"]: file for file in evidence(result)["files"]}


# Against a snapshot


def empty_cubin(cache: Path) -> Path:
    path = next(kernels(cache)[0].glob("*.cubin"))
    path.write_bytes(b"")
    return path


def cut_library(cache: Path) -> Path:
    path = min(cache.glob("??/*.so"))
    path.write_bytes(path.read_bytes()[:100])
    return path


def flip_library(cache: Path) -> Path:
    path = min(cache.glob("??/*.so"))
    flip(path)
    return path


def break_group(cache: Path) -> Path:
    path = next(kernels(cache)[1].glob("__grp__*"))
    path.write_bytes(b'{"child_pa')
    return path


def point_elsewhere(cache: Path) -> Path:
    path = next(kernels(cache)[1].glob("__grp__*"))
    path.write_bytes(path.read_bytes().replace(str(cache).encode(), b"/somewhere/else"))
    return path


def tear_graph(cache: Path) -> Path:
    path = next(path for path in sorted(cache.glob("fxgraph/*/*/*")) if not path.name.startswith("."))
    path.write_bytes(path.read_bytes()[:1000])
    return path


def edit_module(cache: Path) -> Path:
    path = min(cache.glob("??/*.py"))
    path.write_bytes(path.read_bytes() + b"import os\n")
    return path


DAMAGES = (empty_cubin, cut_library, flip_library, break_group, point_elsewhere, tear_graph, edit_module)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_each_damage_is_mended_and_kept(
    cache: Path, saved: str, repair: Repair, damage: Callable[[Path], Path], store: Path
):
    right = tree(cache)
    path = damage(cache)
    wrong = path.read_bytes()
    dry = cachekeeper.verify("drafter", live=cache, store=store)
    result = repair()
    assert tree(cache) == right
    assert list(result.damaged) == [name(path, cache)] and result.damaged == dry.damaged and not dry.ok
    [(mended, reason)] = result.mended.items()
    assert name(path, cache).startswith(mended.partition(" ")[0]) and reason == result.damaged[name(path, cache)]
    assert result.ok and result.dropped == result.unmended == {} and result.put_back == ()
    assert result.quarantine and result.quarantine.parent == cache / ".cachekeeper" / "quarantine"
    assert (result.quarantine / name(path, cache)).read_bytes() == wrong


def test_the_evidence_says_everything(cache: Path, store: Path, saved: str, repair: Repair):
    library, right = min(cache.glob("??/*.so")), min(cache.glob("??/*.so")).read_bytes()
    flip(library)
    settle(cache)
    os.utime(library, ns=(0, 1_700_000_000_123_456_789))
    wrong = library.read_bytes()
    result = cachekeeper.verify("drafter", live=cache, store=store, repair=True)
    document = evidence(result)
    assert document["schema"] == "cachekeeper.quarantine/1"
    assert (document["snapshot"], document["store"], document["directory"]) == (saved, store.as_uri(), str(cache))
    assert document["host"] == os.uname().nodename and document["when"].endswith("Z")
    [file] = document["files"]
    assert file == {
        "path": name(library, cache),
        "kind": "native",
        "entry": name(library, cache).partition(".")[0],
        "wrong": "its bytes are different",
        "structure": "sound",
        "expected": {"size": len(right), "sha256": hashlib.sha256(right).hexdigest()},
        "found": {
            "size": len(wrong),
            "sha256": hashlib.sha256(wrong).hexdigest(),
            "mtime": "2023-11-14T22:13:20.123456789Z",
        },
    }
    assert (Path(result.quarantine or "") / "evidence.json").stat().st_mode & 0o777 == 0o600


def test_every_file_of_a_kernel_is_in_the_evidence(cache: Path, saved: str, repair: Repair):
    cubin = empty_cubin(cache)
    found = about(repair())
    assert len(found) == 7 and found[name(cubin, cache)]["structure"] == "empty file"
    moved = found[name(next(cubin.parent.glob("*.ptx")), cache)]
    assert (
        moved["wrong"] == "nothing: it moves with its kernel"
        and moved["expected"]["sha256"] == moved["found"]["sha256"]
    )


def test_what_is_missing_is_put_back_and_needs_no_quarantine(cache: Path, saved: str, repair: Repair):
    right = tree(cache)
    shutil.rmtree(kernels(cache)[0])
    library = min(cache.glob("??/*.so"))
    library.unlink()
    result = repair()
    assert tree(cache) == right and result.ok
    assert set(result.put_back) == {f"triton/0/{sorted_first(right)}", entry(library, cache)}
    assert result.quarantine is None and result.mended == {} and len(result.missing) == 8


def sorted_first(right: dict[str, bytes]) -> str:
    return min(path.split("/")[2] for path in right if path.startswith("triton/0/"))


def test_a_kernel_that_lacks_files_gets_just_these(cache: Path, saved: str, repair: Repair):
    right, kernel = tree(cache), kernels(cache)[0]
    for pattern in ("*.ptx", "__grp__*"):
        next(kernel.glob(pattern)).unlink()
    there = {path: path.stat().st_ino for path in kernel.iterdir()}
    result = repair()
    assert tree(cache) == right and result.put_back == (f"triton/0/{kernel.name}",)
    assert {path: path.stat().st_ino for path in there} == there
    assert result.quarantine is None and not (cache / ".cachekeeper" / "aside").exists()


@pytest.mark.parametrize("how", ["wrong", "link", "stray"])
def test_a_kernel_that_lacks_a_file_and_has_a_wrong_one_is_replaced_whole(
    cache: Path, saved: str, repair: Repair, how: str
):
    right, kernel = tree(cache), kernels(cache)[0]
    next(kernel.glob("*.ptx")).unlink()
    cubin = next(kernel.glob("*.cubin"))
    if how == "wrong":
        flip(cubin)
    elif how == "link":
        cubin.unlink()
        cubin.symlink_to("/nowhere")
    else:
        (kernel / "more.cubin").write_bytes(b"")
    result = repair()
    assert tree(cache) == right and result.ok
    assert len(about(result)) == {"wrong": 6, "link": 6, "stray": 7}[how]


@pytest.mark.parametrize("lack", ["cubin", "group"])
def test_a_damaged_kernel_that_no_snapshot_has_is_dropped(
    cache: Path, store: Path, saved: str, repair: Repair, lack: str
):
    right = tree(cache)
    stray, sound = (make_triton_entry(cache / "triton" / "0", seed=seed) for seed in (98, 99))
    next(stray.glob("*.cubin" if lack == "cubin" else "__grp__*")).unlink()
    settle(cache)
    dry = cachekeeper.verify("drafter", live=cache, store=store)
    assert not dry.ok and all(reason.endswith("(not in the snapshot)") for reason in dry.damaged.values())
    result = repair()
    assert tree(cache) == right | {path: data for path, data in tree(cache).items() if sound.name in path}
    assert sound.is_dir() and not stray.exists()
    [(unit, reason)] = result.dropped.items()
    assert unit == f"triton/0/{stray.name}" and "incomplete group" in reason
    assert result.ok and all(file["expected"] is None for file in about(result).values()) and len(about(result)) == 6


def test_a_damaged_stray_file_inside_a_kernel_of_the_snapshot(cache: Path, saved: str, repair: Repair):
    """The kernel is put back as it was saved; what was added to it is in quarantine."""
    right = tree(cache)
    (kernels(cache)[0] / "launcher.so").write_bytes(b"")
    result = repair()
    assert tree(cache) == right and result.mended == {f"triton/0/{kernels(cache)[0].name}": "empty file"}


def test_sound_strays_stay(cache: Path, saved: str, repair: Repair):
    make_triton_entry(cache / "triton" / "0", seed=99)
    (kernels(cache)[0] / "launcher.so.note").write_bytes(b"x")
    (cache / "notes.so").write_bytes(b"of no kind that torch reads")
    before = tree(cache)
    result = repair()
    assert tree(cache) == before and result.ok and result.quarantine is None


def test_where_the_stores_copy_is_damaged_too_the_entry_is_dropped(
    cache: Path, store: Path, saved: str, repair: Repair
):
    [old] = store.glob("packs/*")
    make_cache(cache, seed=5, kernels=1, graphs=1)
    settle(cache)
    new = {path: data for path, data in tree(cache).items() if path not in files_of(store, saved)}
    newer = cachekeeper.snapshot("drafter", cache_dir=cache, store=store).snapshot.id
    old.chmod(0o644)
    old.write_bytes(bytes(old.stat().st_size))
    first = min(path for path in files_of(store, saved) if path.endswith(".so"))
    gone = max(path for path in files_of(store, saved) if path.endswith(".best_config"))
    second = min(path for path in new if path.endswith(".so"))
    for path in (first, second):
        (cache / path).write_bytes(b"wrong")
    (cache / gone).unlink()
    cubin = next((cache / min(p for p in files_of(store, saved) if p.endswith(".cubin"))).parent.glob("*.cubin"))
    cubin.write_bytes(b"")
    torn = next(
        kernel for kernel in kernels(cache) if kernel.name in str(files_of(store, saved)) and kernel != cubin.parent
    )
    next(torn.glob("*.ptx")).unlink()
    settle(cache)
    before = plain_tree(cache)
    result = cachekeeper.verify(newer, live=cache, store=store, repair=True)
    check_nothing_lost(cache, before)
    assert (cache / second).read_bytes() == new[second] and list(result.mended) == [entry(cache / second, cache)]
    assert not (cache / first).exists() and not cubin.parent.exists()
    assert set(result.damaged_in_store) == result.dropped.keys() | result.lost.keys()
    assert set(result.dropped) == {entry(cache / first, cache), name(cubin.parent, cache), name(torn, cache)}
    assert result.dropped[name(torn, cache)] == "files of it are missing; the store's copy is damaged too"
    assert result.lost == {gone: "missing; the store's copy is damaged"} and not torn.exists()
    assert not result.ok and result.unmended == {} and set(about(result)) >= {first, second, name(cubin, cache)}


def files_of(store: Path, snapshot: str) -> set[str]:
    from cachekeeper.repository import open_repository

    return {file.path for file in open_repository(store).manifest(snapshot).tables.files}


def test_links_and_files_in_the_way_go_to_quarantine_as_they_are(cache: Path, store: Path, saved: str, tmp_path: Path):
    right = tree(cache)
    library = min(cache.glob("??/*.so"))
    (tmp_path / "precious").write_bytes(b"precious")
    library.unlink()
    library.symlink_to(tmp_path / "precious")
    shutil.rmtree(cache / "aotautograd")
    (cache / "aotautograd").write_bytes(b"in the way")
    settle(cache)
    result = cachekeeper.verify("drafter", live=cache, store=store, repair=True)
    assert tree(cache) == right and not library.is_symlink() and result.ok
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert os.readlink(Path(result.quarantine or "") / name(library, cache)) == str(tmp_path / "precious")
    assert about(result)[name(library, cache)]["wrong"] == "a symbolic link"
    assert about(result)["aotautograd"]["found"]["size"] == 10


def test_a_wiped_directory_is_filled_and_marked(cache: Path, store: Path, saved: str, repair: Repair):
    right = tree(cache)
    shutil.rmtree(cache)
    cache.mkdir()
    result = repair()
    assert tree(cache) == right and result.ok and result.quarantine is None
    assert json.loads((cache / ".cachekeeper" / "restored.json").read_text())["snapshot"] == saved


def test_of_a_restore_of_some_kinds_the_others_are_not_missed(cache: Path, store: Path, saved: str, repair: Repair):
    right = tree(cache)
    shutil.rmtree(cache)
    cachekeeper.restore("drafter", cache_dir=cache, store=store, only=["triton"])
    kept = tree(cache)
    assert cachekeeper.verify("drafter", live=cache, store=store).ok
    assert repair().put_back == () and tree(cache) == kept
    library = next(path for path in right if path.endswith(".so"))
    (cache / library).parent.mkdir()
    (cache / library).write_bytes(b"")
    settle(cache)
    [reason] = cachekeeper.verify("drafter", live=cache, store=store).damaged.values()
    assert reason.endswith("(not restored)")
    assert list(repair().dropped) == [library] and tree(cache) == kept
    shutil.rmtree(cache / "triton")
    assert len(repair().put_back) == len(kernels(cache)) and tree(cache) == kept
    assert json.loads((cache / ".cachekeeper" / "restored.json").read_text())["only"] == ["triton"]


def test_a_repair_of_a_part_says_nothing_of_a_restore(cache: Path, saved: str, repair: Repair):
    (cache / ".cachekeeper" / "restored.json").unlink()
    cut_library(cache)
    repair()
    assert not (cache / ".cachekeeper" / "restored.json").exists()


def test_a_wiped_directory_of_another_machine_stays_empty(cache: Path, store: Path, saved: str, machine: Machine):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    cut_library(cache)
    assert cachekeeper.verify("drafter", live=cache, store=store, repair=True).ok  # its own: a login node may mend it
    shutil.rmtree(cache)
    cache.mkdir()
    with pytest.raises(EnvironmentMismatch):
        cachekeeper.verify("drafter", live=cache, store=store, repair=True)
    assert list(cache.iterdir()) == []


def test_the_wrong_directory_is_refused(store: Path, saved: str, tmp_path: Path):
    home = tmp_path / "home"
    (home / "lib").mkdir(parents=True)
    (home / "lib" / "libc.so").write_bytes(b"/* GNU ld script */")
    for where in ({"live": home}, {"directory": home}):
        with pytest.raises(UsageError, match="does not look like a compile cache"):
            cachekeeper.verify(store=store, repair=True, **where)
    assert [path.name for path in home.rglob("*")] == ["lib", "libc.so"]


def test_a_directory_that_holds_the_store_is_refused(cache: Path, saved: str, store: Path):
    for where in ({"live": store.parent}, {"directory": store.parent}):
        with pytest.raises(UsageError, match="the store"):
            cachekeeper.verify(store=store, repair=True, **where)


def test_a_directory_that_every_user_may_change_is_refused(cache: Path, store: Path, saved: str):
    cut_library(cache)
    cache.chmod(0o777)
    before = tree(cache)
    for where in ({"live": cache}, {"directory": cache}):
        with pytest.raises(UnsafePath):
            cachekeeper.verify(store=store, repair=True, **where)
    assert tree(cache) == before


def test_where_signatures_are_required_nothing_else_mends(
    cache: Path, store: Path, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    key = cachekeeper.keygen(tmp_path / "key").file
    monkeypatch.setenv("CACHEKEEPER_REQUIRE_SIGNATURE", f"{key}.pub")
    library = cut_library(cache)
    settle(cache)
    before = tree(cache)
    for reference in ("drafter", "latest", saved, None):
        with pytest.raises(Unsigned):
            cachekeeper.verify(reference, live=cache, store=store, repair=True)
    assert tree(cache) == before
    cachekeeper.sign("drafter", key=key, store=store)
    for reference in ("drafter", "latest", saved, None):
        library.write_bytes(b"wrong")
        assert cachekeeper.verify(reference, live=cache, store=store, repair=True).ok


def test_a_directory_that_is_not_there(store: Path, saved: str, tmp_path: Path):
    with pytest.raises(NotFound, match="no directory"):
        cachekeeper.verify("drafter", live=tmp_path / "none", store=store, repair=True)


def test_only_a_live_cache_can_be_repaired(store: Path, saved: str):
    with pytest.raises(UsageError):
        cachekeeper.verify("drafter", store=store, repair=True)


def test_kernels_that_a_restore_copied_are_mended_too(tmp_path: Path, store: Path):
    """Ranks of one job had a directory each; a restore puts all into the one that the job is told."""
    cache = settle(make_cache(tmp_path / "two", kernels=2, graphs=1, devices=2))
    cachekeeper.snapshot("two", cache_dir=cache, store=store)
    assert cachekeeper.verify("two", live=cache, store=store).ok
    out = tmp_path / "out"
    cachekeeper.restore("two", cache_dir=out, store=store)
    right = tree(out)
    assert len(right) > len(tree(cache))
    (main,) = (path for path in (out / "triton").iterdir() if len(list(path.iterdir())) == 4)
    for damage in (
        lambda: [next(k.glob("*.cubin")).write_bytes(b"") for k in main.iterdir()],
        lambda: shutil.rmtree(main),
    ):
        damage()
        settle(out)
        assert not cachekeeper.verify("two", live=out, store=store).ok
        assert cachekeeper.verify("two", live=out, store=store, repair=True).ok
        assert tree(out) == right


# Beside others


def test_what_is_being_written_is_left_alone(cache: Path, store: Path, saved: str, monkeypatch: pytest.MonkeyPatch):
    """Triton writes the group last; a linker its library in pieces."""
    monkeypatch.setattr(judging, "_WAIT_SECONDS", 0)
    settle(cache)
    young = make_triton_entry(cache / "triton" / "0", seed=99)
    next(young.glob("__grp__*")).unlink()
    old = cache / "zz" / "x.best_config"
    old.parent.mkdir()
    old.write_bytes(b"{")
    os.utime(old, (1, 1))
    with next((cache / "locks").iterdir()).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = cachekeeper.verify("drafter", live=cache, store=store, repair=True)
    assert young.is_dir() and list(result.dropped) == ["zz/x.best_config"]
    assert result.ok and any("somebody is writing just now" in note for note in result.notes)
    settle(cache)
    result = cachekeeper.verify("drafter", live=cache, store=store, repair=True)
    assert list(result.dropped) == [f"triton/0/{young.name}"] and not result.notes


def test_a_process_that_uses_it_is_named_and_goes_on(cache: Path, store: Path, saved: str):
    library = flip_library(cache)
    settle(cache)
    code = f"import sys; f = open({str(library)!r}, 'rb'); print(flush=True); sys.stdin.read(); print(len(f.read()))"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        result = cachekeeper.verify("drafter", live=cache, store=store, repair=True)
        told, _ = process.communicate(b"")
    assert result.ok and f"process {process.pid} has files of it open: it keeps what it has loaded" in result.notes
    assert int(told) == library.stat().st_size


def test_another_cachekeeper_at_work_is_waited_for(cache: Path, store: Path, saved: str):
    library = min(cache.glob("??/*.so"))
    right = library.read_bytes()
    library.write_bytes(b"wrong")
    results: list[VerifyResult] = []

    def work() -> None:
        results.append(cachekeeper.verify("drafter", live=cache, store=store, repair=True))

    thread = threading.Thread(target=work)
    with locked(cache):
        thread.start()
        while not is_waited_for(cache):
            pass
        library.write_bytes(right)
        settle(cache)
    thread.join()
    assert results[0].mended == {} and results[0].ok


def is_waited_for(directory: Path) -> bool:
    inode = f":{directory.stat().st_ino} "
    return any("-> FLOCK" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_what_a_killed_repair_left_is_cleared_up(cache: Path, store: Path, saved: str):
    left = cache / ".cachekeeper" / "publishing-1" / "0" / "ab"
    left.mkdir(parents=True)
    (left / "x.so").write_bytes(b"the only copy")
    settle(cache)
    result = cachekeeper.verify("drafter", live=cache, store=store, repair=True)
    assert result.ok and result.quarantine
    assert [path.read_bytes() for path in result.quarantine.rglob("x.so")] == [b"the only copy"]


def test_what_is_damaged_again_is_told(cache: Path, store: Path, saved: str, monkeypatch: pytest.MonkeyPatch):
    from cachekeeper.staging import Stage

    library, publish = cut_library(cache), Stage.publish

    def spoil(stage: Stage) -> None:
        publish(stage)
        library.write_bytes(b"spoiled")

    settle(cache)
    monkeypatch.setattr(Stage, "publish", spoil)
    result = cachekeeper.verify("drafter", live=cache, store=store, repair=True)
    assert not result.ok and list(result.unmended) == [name(library, cache)]


# Without a snapshot


def test_a_directory_alone_drops_what_is_damaged(cache: Path, tmp_path: Path, repair: Repair):
    cubin, library = empty_cubin(cache), cut_library(cache)
    before = tree(cache)
    result = repair(directory=cache)
    assert not (tmp_path / "store").exists()
    assert set(result.dropped) == {name(cubin.parent, cache), name(library, cache)} and result.ok
    assert set(tree(cache)) == {path for path in before if cubin.parent.name not in path} - {name(library, cache)}
    document = evidence(result)
    assert document["snapshot"] is None and document["store"] is None and len(document["files"]) == 8
    assert result.mended == {} and result.put_back == ()
    assert cachekeeper.verify(directory=cache).ok


def test_a_directory_alone_keeps_what_torch_would_not_build_again(cache: Path):
    (cache / "mine").mkdir()
    (cache / "mine" / "x.so").write_bytes(b"x")
    settle(cache)
    result = cachekeeper.verify(directory=cache, repair=True)
    assert list(result.unmended) == ["mine/x.so"] and not result.ok and (cache / "mine" / "x.so").exists()
    assert result.quarantine is None


def test_an_empty_directory_alone(tmp_path: Path):
    with pytest.raises(EmptyCache):
        cachekeeper.verify(directory=tmp_path, repair=True)
    assert list(tmp_path.iterdir()) == []
