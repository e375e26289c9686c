"""A cache from elsewhere becomes the same snapshot; what does not belong there is refused; nothing is left behind."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import exported, megacache
from cachekeeper.cli.output import plain
from cachekeeper.environment import machine as machines
from cachekeeper.errors import (
    CheckFailed,
    DamagedCache,
    EmptyCache,
    EnvironmentMismatch,
    NotFound,
    UsageError,
)
from cachekeeper.inductor.layout import EXPORTED
from cachekeeper.manifest import Snapshot
from cachekeeper.models import Fact, Fingerprint
from cachekeeper.repository import open_repository
from cachekeeper.testing import make_cache
from cachekeeper.testing.caches import elf, write
from cachekeeper.verbs.import_cache import made_on
from tests import samples

from .conftest import Machine, kernels, settle, tree, unplaced

GRAPH = "f" + "ab2" * 17
AUTOGRAD = "a" + "cd3" * 17


@pytest.fixture(autouse=True)
def here(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    """This machine, and a place for what is unpacked."""
    monkeypatch.setattr(made_on, "fingerprint", lambda **_: machine.fingerprint)
    monkeypatch.setattr("cachekeeper.seen._FRESH_NS", -(10**18))  # remember files however fresh they are
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return machine


@pytest.fixture(autouse=True)
def nothing_left(here: Machine, own_environment: Path, tmp_path: Path):
    """Whatever happens, nothing unpacked stays, and nothing is remembered of it."""
    yield
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (own_environment / "cache" / "cachekeeper" / "seen").exists()


def table(store: Path, reference: str) -> dict[str, str]:
    """Path -> SHA-256 of every file of a snapshot."""
    repository = open_repository(store)
    manifest = repository.manifest(repository.resolve(reference))
    return {file.path: file.sha256 for file in manifest.tables.files}


def direct(cache: Path, tmp_path: Path) -> dict[str, str]:
    """The same of the directory itself, saved without an import."""
    result = cachekeeper.snapshot(cache_dir=cache, store=tmp_path / "direct", wait=0, allow_damaged=True)
    found = table(tmp_path / "direct", result.snapshot.id)
    shutil.rmtree(Path(os.environ["XDG_CACHE_HOME"]) / "cachekeeper/seen")
    return found


def pack(cache: Path, to: Path, *flags: str) -> Path:
    subprocess.run(["tar", "-C", cache.parent, *flags, "-cf", to, cache.name], check=True)
    return to


def mega(*artifacts: megacache.Artifact, to: Path) -> Path:
    to.write_bytes(megacache.build(artifacts))
    return to


def some(kind: str = "inductor", key: str = GRAPH, content: bytes = b"\x80\x05graph.") -> megacache.Artifact:
    return megacache.Artifact(kind, key, content)


# Directories and archives


def test_a_directory_gives_what_a_snapshot_of_it_gives(cache: Path, store: Path, tmp_path: Path):
    told = {"message": "old", "metrics": {"tok_s": 1}, "tags": {"a": "b"}}
    result = cachekeeper.import_cache(cache, "drafter", store=store, **told)
    assert (result.format, result.root, result.artifacts, result.ok) == ("directory", "", None, True)
    assert result.saved
    header = result.saved.snapshot.header
    assert header.origin == "imported from inductor (directory)" and header.cache_dir == ""
    assert (header.message, header.metrics, header.live, header.name) == ("old", {"tok_s": 1.0}, (), "drafter")
    assert header.tags == {"a": "b"}
    assert table(store, "drafter") == direct(cache, tmp_path)


@pytest.mark.parametrize("flags", [[], ["-z"], ["-j"], ["-J"]], ids=["tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_an_archive_gives_the_same(flags: list[str], cache: Path, store: Path, tmp_path: Path):
    archive = pack(cache, tmp_path / "archive.of-any-name", *flags)
    result = cachekeeper.import_cache(archive, "drafter", store=store)
    assert result.root == "inductor" and result.passed_over == 4
    assert result.saved and result.saved.snapshot.header.live == ()
    assert result.saved.snapshot.header.origin == f"imported from archive.of-any-name ({result.format})"
    assert table(store, "drafter") == direct(cache, tmp_path)


def test_what_is_imported_restores(cache: Path, store: Path, tmp_path: Path):
    cachekeeper.import_cache(pack(cache, tmp_path / "x.tar"), "drafter", store=store)
    cachekeeper.restore("drafter", cache_dir=tmp_path / "new", store=store, verify=True)
    assert unplaced(tmp_path / "new") == unplaced(cache)


def test_a_directory_of_triton_that_a_variable_names_is_not_imported_with_it(
    cache: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    make_cache(tmp_path / "mine", seed=9)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "mine/triton/0"))
    result = cachekeeper.import_cache(cache, store=store)
    assert result.saved and result.saved.snapshot.header.also == {}


def test_from_standard_input(cache: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    archive = pack(cache, tmp_path / "x.tar.gz", "-z")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(archive.read_bytes())))
    result = cachekeeper.import_cache("-", store=store)
    assert result.saved and result.saved.snapshot.header.origin == "imported from standard input (tar.gz)"
    blob = mega(some(), to=tmp_path / "x.mega")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(blob.read_bytes())))
    assert cachekeeper.import_cache("-", store=store).format == "mega-cache"


def test_the_root_is_found_and_the_rest_is_told(cache: Path, store: Path, tmp_path: Path):
    (cache.parent / "around/deep").mkdir(parents=True)
    cache.rename(tmp_path / "around/deep/cache")
    (tmp_path / "around/README").write_text("a word")
    expected = direct(tmp_path / "around/deep/cache", tmp_path)
    result = cachekeeper.import_cache(pack(tmp_path / "around", tmp_path / "x.tar"), store=store)
    assert result.root == "around/deep/cache"
    assert "1 file of the archive outside around/deep/cache: left out" in result.notes
    assert result.saved and table(store, result.saved.snapshot.id) == expected
    result = cachekeeper.import_cache(tmp_path / "around", store=store)
    assert result.root == "deep/cache"
    assert result.saved and table(store, result.saved.snapshot.id) == expected


def test_of_several_roots_one_must_be_chosen(cache: Path, store: Path, tmp_path: Path):
    settle(make_cache(cache.parent / "two/b", seed=2))
    cache.rename(cache.parent / "two/a")
    archive = pack(tmp_path / "two", tmp_path / "x.tar")
    for source, prefix in ((archive, "two/"), (tmp_path / "two", "")):
        with pytest.raises(UsageError, match="holds 2 caches") as caught:
            cachekeeper.import_cache(source, store=store)
        assert [fact.split()[0] for fact in caught.value.facts] == [f"{prefix}a", f"{prefix}b"]
        assert "--root" in caught.value.hint
        for root in (f"{prefix}b", f"./{prefix}b/"):
            result = cachekeeper.import_cache(source, store=store, root=root)
            assert result.root == f"{prefix}b" and result.saved
            assert table(store, result.saved.snapshot.id) == direct(tmp_path / "two/b", tmp_path)
        for root in ("two/c", "..", "../two/a", "/", ""):
            with pytest.raises(UsageError, match="has no cache at"):
                cachekeeper.import_cache(source, store=store, root=root)


def test_damage_is_refused_by_the_sources_own_name(cache: Path, store: Path, tmp_path: Path):
    next(kernels(cache)[0].glob("*.cubin")).write_bytes(b"")
    with pytest.raises(DamagedCache) as caught:
        cachekeeper.import_cache(pack(cache, tmp_path / "x.tar"), "drafter", store=store)
    assert caught.value.message == "x.tar is damaged, so nothing was saved"
    assert "cachekeeper-import" not in str(caught.value) and "--allow-damaged" in caught.value.hint
    assert not list((store / "snapshots").glob("*"))
    result = cachekeeper.import_cache(tmp_path / "x.tar", "drafter", store=store, allow_damaged=True)
    assert result.saved and len(result.saved.snapshot.header.damaged) >= 1


def test_a_much_smaller_one_does_not_take_the_name(cache: Path, store: Path, tmp_path: Path):
    cachekeeper.import_cache(cache, "drafter", store=store)
    make_cache(tmp_path / "small", kernels=1, graphs=1)
    archive = pack(tmp_path / "small", tmp_path / "x.tar")
    result = cachekeeper.import_cache(archive, "drafter", store=store)
    assert not result.ok and result.saved and result.saved.shrunk_from
    assert cachekeeper.import_cache(archive, "drafter", store=store, force=True).ok


def test_what_a_cache_lacks_is_told(store: Path, tmp_path: Path):
    make_cache(tmp_path / "cpu", kernels=0)
    assert cachekeeper.import_cache(settle(tmp_path / "cpu"), store=store).lacks == (
        "Triton kernels (right for a CPU job)",
    )
    make_cache(tmp_path / "gpu", graphs=0)
    lacks = cachekeeper.import_cache(settle(tmp_path / "gpu"), store=store).lacks
    assert lacks == ("FX graphs", "AOTAutograd entries", "generated modules: torch writes them again")
    make_cache(tmp_path / "whole")
    assert cachekeeper.import_cache(settle(tmp_path / "whole"), store=store).lacks == ()


# Refused


def test_nothing_there(store: Path, tmp_path: Path):
    for place in (tmp_path / "none", "", tmp_path / "x.tar"):
        with pytest.raises(NotFound, match="no file or directory"):
            cachekeeper.import_cache(place, store=store)


@pytest.mark.parametrize(("data", "what"), [
    (b"PK\x03\x04" + bytes(99), "a zip archive"), (b"hello", "nothing that import knows"), (b"\x80\x05.", "nothing"),
])  # fmt: skip
def test_another_kind_of_file(data: bytes, what: str, store: Path, tmp_path: Path):
    (tmp_path / "cache.tar.gz").write_bytes(data)
    with pytest.raises(UsageError, match=r"cache\.tar\.gz cannot be imported") as caught:
        cachekeeper.import_cache(tmp_path / "cache.tar.gz", store=store)
    assert what in caught.value.facts[0] and "Mega-Cache" in caught.value.hint


def test_nothing_in_it(store: Path, tmp_path: Path):
    (tmp_path / "void").write_bytes(b"")
    (tmp_path / "no-members.tar").write_bytes(bytes(10240))
    (tmp_path / "no-cache").mkdir()
    write(tmp_path / "no-cache/notes.txt", b"x")
    pack(tmp_path / "no-cache", tmp_path / "other.tar")
    for name in ("void", "no-members.tar", "no-cache", "other.tar"):
        with pytest.raises(EmptyCache, match=name):
            cachekeeper.import_cache(tmp_path / name, store=store)
    assert not store.exists()


def test_a_hostile_archive_leaves_nothing_anywhere(store: Path, tmp_path: Path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        for name in ("fxgraph/ab/fk/x", "../../escaped"):
            tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(UsageError, match="no archive of a cache"):
        cachekeeper.import_cache(tmp_path / "x.tar", store=store)
    assert not list(tmp_path.rglob("escaped")) and not store.exists()


def test_a_cut_archive(cache: Path, store: Path, tmp_path: Path):
    archive = pack(cache, tmp_path / "x.tar.gz", "-z")
    archive.write_bytes(archive.read_bytes()[:-20])
    with pytest.raises(DamagedCache, match=r"the tar\.gz archive is cut or damaged"):
        cachekeeper.import_cache(archive, store=store)


def test_options_that_make_no_sense(cache: Path, store: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="no store of cachekeeper: leave out --only"):
        cachekeeper.import_cache(cache, store=store, only=["x"])
    cachekeeper.import_cache(cache, "drafter", store=store)
    with pytest.raises(UsageError, match="leave out --root and --message"):
        cachekeeper.import_cache(store, store=tmp_path / "other", root="x", message="y")
    with pytest.raises(UsageError, match="has no directories"):
        cachekeeper.import_cache(mega(some(), to=tmp_path / "x"), store=store, root="y")


# Mega-Cache


def test_a_mega_cache(store: Path, tmp_path: Path):
    best = some("autotune", f"6s/{'0a' * 32}.best_config", b'{"num_warps": 4}')
    blob = mega(some(), some("aot_autograd", AUTOGRAD), best, some("pgo", "job:0:"), to=tmp_path / "x.mega")
    result = cachekeeper.import_cache(blob, "drafter", store=store)
    assert result.format == "mega-cache"
    assert result.artifacts == {"inductor": 1, "aot_autograd": 1, "autotune": 1, "pgo": 1}
    assert [line.split(":")[0] for line in result.lacks] == [
        "C++ libraries", "max-autotune timings (cache/<hash>)", "Triton kernels that are in no graph's bundle",
        "CUDA's own cache",
    ]  # fmt: skip
    assert result.saved and result.saved.snapshot.header.live == ()
    cachekeeper.restore("drafter", cache_dir=tmp_path / "new", store=store, verify=True)
    restored = tree(tmp_path / "new")
    assert restored["dynamo/code_state_job_0_.pkl"] == some().content
    assert restored[best.key] == best.content
    assert {path.split("/")[0] for path in restored} == {"fxgraph", "aotautograd", "6s", "dynamo"}


def test_paths_of_where_it_was_made_are_rewritten(store: Path, tmp_path: Path):
    import pickle

    module = f"/old/torchinductor_me/ab/c{'a' * 51}.py"
    blob = mega(some(content=pickle.dumps([module], protocol=4)), to=tmp_path / "x.mega")
    result = cachekeeper.import_cache(blob, "drafter", store=store)
    assert result.saved and "1 file pointed to another directory" in result.saved.notes[0]
    cachekeeper.restore("drafter", cache_dir=tmp_path / "new", store=store)
    [entry] = tree(tmp_path / "new").values()
    assert pickle.loads(entry) == [f"{tmp_path}/new/ab/c{'a' * 51}.py"]


def test_what_was_saved_twice_is_taken_whole_and_told(store: Path, tmp_path: Path):
    one, two = megacache.build([some()]), megacache.build([some(content=b"\x80\x05more.")])
    import zlib

    body = one[4:] + two[12:]
    (tmp_path / "twice").write_bytes(zlib.crc32(body).to_bytes(4, "big") + body)
    result = cachekeeper.import_cache(tmp_path / "twice", "drafter", store=store)
    assert result.artifacts == {"inductor": 2} and len(table(store, "drafter")) == 2
    assert any("lose 1 of 2 artifacts" in note for note in result.notes)


def test_unknown_types_are_kept_and_come_back(store: Path, tmp_path: Path):
    future = some("future", "a/b:c.lock", b"later")
    result = cachekeeper.import_cache(mega(some(), future, to=tmp_path / "x"), "drafter", store=store)
    assert any("1 artifact of type future, which is not known" in note for note in result.notes)
    cachekeeper.export("drafter", tmp_path / "y.mega", store=store, with_unknown=True)
    assert (tmp_path / "y.mega").read_bytes() == (tmp_path / "x").read_bytes()
    with pytest.raises(EmptyCache, match="nothing in z that"):
        cachekeeper.import_cache(mega(future, to=tmp_path / "z"), store=store)


def test_a_hostile_key_writes_nothing(store: Path, tmp_path: Path):
    body = megacache.build([some("later", "x" * 7)])[4:].replace(
        b"eHh4eHh4eA==",
        b"Li4vLi4veA==",  # xxxxxxx, ../../x
    )
    import zlib

    (tmp_path / "x.mega").write_bytes(zlib.crc32(body).to_bytes(4, "big") + body)
    with pytest.raises(UsageError) as caught:
        cachekeeper.import_cache(tmp_path / "x.mega", store=store)
    assert caught.value.facts == ("type   later", "key    ../../x")
    assert not store.exists()


def test_damage_in_an_artifact_is_refused(store: Path, tmp_path: Path):
    best = some("autotune", f"6s/{'0a' * 32}.best_config", b'{"num_warps": 4}{')
    with pytest.raises(DamagedCache, match=r"x\.mega is damaged") as caught:
        cachekeeper.import_cache(mega(some(), best, to=tmp_path / "x.mega"), store=store)
    assert "JSON does not parse" in caught.value.facts[0]


# Another store


def test_a_store_is_copied(cache: Path, store: Path, tmp_path: Path):
    for name in ("drafter", "second"):
        cachekeeper.import_cache(cache, name, store=store, message=name)
    result = cachekeeper.import_cache(store, store=tmp_path / "all")
    assert result.format == "store" and result.ok and result.copied and len(result.copied.copied) == 2
    assert open_repository(tmp_path / "all").names() == open_repository(store).names()
    one = cachekeeper.import_cache(f"file://{store}", "mine", store=tmp_path / "one", only=["drafter"])
    identifier = open_repository(store).resolve("drafter")
    assert open_repository(tmp_path / "one").names() == {"mine": identifier} and one.named == "mine"
    named = cachekeeper.import_cache(store, store=tmp_path / "two", only=["second"])
    assert named.copied and named.copied.names.keys() == {"second"}


def test_one_name_for_several_snapshots_is_refused(cache: Path, store: Path, tmp_path: Path):
    for name in ("drafter", "second"):
        cachekeeper.import_cache(cache, name, store=store, message=name)
    for only in ([], ["drafter", "second"]):
        with pytest.raises(UsageError, match="has 2 snapshots, and 'mine' can name one"):
            cachekeeper.import_cache(store, "mine", store=tmp_path / "other", only=only)
    with pytest.raises(NotFound):
        cachekeeper.import_cache(store, "mine", store=tmp_path / "other", only=["nothing"])
    assert not (tmp_path / "other").exists()


def test_a_damaged_snapshot_of_a_store(cache: Path, store: Path, tmp_path: Path):
    cachekeeper.import_cache(cache, "drafter", store=store)
    [made] = (store / "packs").iterdir()
    made.chmod(0o644)
    made.write_bytes(made.read_bytes()[:-1])
    result = cachekeeper.import_cache(store, store=tmp_path / "all")
    assert not result.ok and result.copied and result.copied.damaged
    with pytest.raises(CheckFailed, match="was not imported"):
        cachekeeper.import_cache(store, "mine", store=tmp_path / "one")
    assert open_repository(tmp_path / "one").names() == {}


def test_a_directory_with_a_file_of_that_name_is_no_store(cache: Path, store: Path):
    for text in ("", "{", "[]", '{"x": 1}'):
        (cache / "format.json").write_text(text)
        assert cachekeeper.import_cache(settle(cache), store=store).format == "directory"


# The environment


def fingerprint_file(path: Path, made: Fingerprint) -> Path:
    found = replace(made, id=machines.identifier(made.must))

    path.write_text(json.dumps({"schema": "cachekeeper.fingerprint/1", "fingerprint": plain(found), "agrees": True}))
    return path


def test_by_default_it_was_made_here_and_a_note_says_so(cache: Path, store: Path, here: Machine):
    result = cachekeeper.import_cache(cache, "drafter", store=store)
    assert result.saved and result.saved.snapshot.header.fingerprint == here.fingerprint
    assert result.notes[0].startswith("recorded as made here: H200 sm_90")
    assert "`cachekeeper verify drafter --replay TARGET`" in result.notes[-1]


@pytest.mark.parametrize(("gpus", "said"), [
    ([{"name": "NVIDIA A100", "capability": "sm_80"}], "sm_80"), (None, "no GPU"),
])  # fmt: skip
def test_kernels_for_another_gpu(gpus: object, said: str, cache: Path, store: Path, here: Machine):
    here.fingerprint = samples.fingerprint(gpu=Fact(gpus))  # type: ignore[arg-type]
    with pytest.raises(EnvironmentMismatch, match="inductor was not made in this environment") as caught:
        cachekeeper.import_cache(cache, store=store)
    assert caught.value.facts == (f"kernels  sm_90   here {said}",) and "--fingerprint FILE" in caught.value.hint
    assert not store.exists()
    result = cachekeeper.import_cache(cache, store=store, allow_mismatch=True)
    assert result.notes[0] == f"kernels sm_90, recorded as {said} (--allow-mismatch)"


def test_a_gpu_that_cannot_be_found_out_is_no_evidence(cache: Path, store: Path, here: Machine):
    here.fingerprint = samples.fingerprint(gpu=Fact(unknown="no driver"))
    assert cachekeeper.import_cache(cache, store=store).ok


def set_triton(cache: Path, version: str) -> None:
    for kernel in kernels(cache):
        [path] = [path for path in kernel.glob("*.json") if not path.name.startswith("__grp__")]
        path.write_text(json.dumps({**json.loads(path.read_text()), "triton_version": version}))


def test_kernels_by_another_triton(cache: Path, store: Path, here: Machine):
    set_triton(cache, "3.6.0+git1")
    settle(cache)
    here.fingerprint = samples.fingerprint(triton=Fact("3.6.0"))
    assert cachekeeper.import_cache(cache, store=store).ok
    for value, said in (("3.5.1", "3.5.1"), (None, "none")):
        here.fingerprint = samples.fingerprint(triton=Fact(value))
        with pytest.raises(EnvironmentMismatch) as caught:
            cachekeeper.import_cache(cache, store=store)
        assert caught.value.facts == (f"triton  3.6.0   here {said}",)
    here.fingerprint = samples.fingerprint(triton=Fact(unknown="not installed as usual"))
    assert cachekeeper.import_cache(cache, store=store).ok


def test_metadata_that_changes_or_is_damaged_is_no_evidence(cache: Path, monkeypatch: pytest.MonkeyPatch):
    whole = made_on.evidence(cache)
    assert whole.targets == {"cuda:90": 3} and whole.tritons == {}
    [path] = [path for path in kernels(cache)[0].glob("*.json") if not path.name.startswith("__grp__")]
    path.write_bytes(b'{"target": ')
    assert made_on.evidence(cache).targets == {"cuda:90": 2}

    def changing(*arguments: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(made_on, "read_into", changing)
    assert made_on.evidence(cache).targets == {}


def test_the_fingerprint_of_the_machine_where_it_was_made(cache: Path, store: Path, here: Machine, tmp_path: Path):
    made = samples.fingerprint(torch="2.9.1", triton=Fact("3.5.0"))
    file = fingerprint_file(tmp_path / "made.json", made)
    here.fingerprint = samples.fingerprint(gpu=Fact(None))
    result = cachekeeper.import_cache(cache, "drafter", store=store, fingerprint=file)
    assert result.saved and result.saved.snapshot.header.fingerprint.must == made.must
    assert f"recorded as made where {file} is from: " in result.notes[0]
    with pytest.raises(EnvironmentMismatch):
        cachekeeper.restore("drafter", cache_dir=tmp_path / "new", store=store)
    set_triton(cache, "3.6.0")
    with pytest.raises(EnvironmentMismatch, match=r"not made in the environment of .*made\.json") as caught:
        cachekeeper.import_cache(cache, store=store, fingerprint=file)
    assert caught.value.facts == ("triton  3.6.0   there 3.5.0",)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"fingerprint": {"id": 3}}', "\ud800", "none"])
def test_a_file_that_holds_no_fingerprint(text: str, cache: Path, store: Path, tmp_path: Path):
    if text != "none":
        (tmp_path / "f.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(UsageError, match="no fingerprint of an environment"):
        cachekeeper.import_cache(cache, store=store, fingerprint=tmp_path / "f.json")


def test_a_fingerprint_that_was_edited(cache: Path, store: Path, tmp_path: Path):
    file = fingerprint_file(tmp_path / "f.json", samples.fingerprint())
    file.write_text(file.read_text().replace("2.11.0", "2.12.0"))
    with pytest.raises(UsageError) as caught:
        cachekeeper.import_cache(cache, store=store, fingerprint=file)
    assert "its id" in caught.value.facts[1]


# What an export says of itself


def exported_with(cache: Path, **changes: object) -> Path:
    """The cache as an export of a snapshot made elsewhere, with something else in what it says."""
    made = samples.fingerprint(torch="2.9.1")
    header = samples.header(fingerprint=replace(made, id=machines.identifier(made.must)))
    document = json.loads(exported.encode(Snapshot(samples.ID, header)))
    (cache / EXPORTED).write_text(json.dumps({**document, **changes}))
    return settle(cache)


def test_a_fingerprint_that_is_given_counts_more(cache: Path, store: Path, here: Machine, tmp_path: Path):
    exported_with(cache)
    file = fingerprint_file(tmp_path / "made.json", samples.fingerprint(torch="2.8.0"))
    result = cachekeeper.import_cache(cache, store=store, fingerprint=file)
    assert result.saved and result.saved.snapshot.header.fingerprint.must["torch"] == Fact("2.8.0")


@pytest.mark.parametrize(("changes", "said"), [
    ({"schema": "cachekeeper.exported/2"}, "its schema is 'cachekeeper.exported/2', not cachekeeper.exported/1"),
    ({"snapshot": "../x"}, "it names no snapshot"),
    ({"created": "soon"}, "it names no snapshot"),
    ({"message": 3}, "message, Input should be a valid string"),
    ({"metrics": {"a": float("nan")}}, "metrics.a, Input should be a finite number"),
    ({"metrics": {"a b": 1.0}}, "its tags or metrics: a key has"),
    ({"tags": {"a": "\x1b[2J"}}, "its tags or metrics: the value of 'a' has control characters"),
    ({"fingerprint": {"id": "0", "must": {}, "should": {}, "recorded": {}}}, "it says nothing of torch"),
    (
        {"fingerprint": {"id": "0", "must": {"torch": {"value": "2.9.1"}}, "should": {}, "recorded": {}}},
        "the facts of its environment are not those that their id was made of",
    ),
])  # fmt: skip
def test_an_export_that_says_what_none_says(changes: dict[str, object], said: str, cache: Path, store: Path):
    result = cachekeeper.import_cache(exported_with(cache, **changes), store=store)
    damaged, recorded, *_ = result.notes
    assert damaged.startswith(f"its {EXPORTED} is damaged, and not used: ") and damaged.isprintable()
    assert said in damaged
    assert recorded.startswith("recorded as made here: ")
    assert result.saved and result.saved.snapshot.header.message == ""


@pytest.mark.parametrize("content", [b"", b"[]", b"[" * 100_000, b"\xff{}", None, "link", "long"])
def test_an_export_that_says_nothing(content: object, cache: Path, store: Path, tmp_path: Path, monkeypatch):
    place = cache / EXPORTED
    if content is None:
        place.mkdir()
    elif content == "link":
        exported_with(cache)
        place.rename(tmp_path / "real.json")
        place.symlink_to(tmp_path / "real.json")
    elif content == "long":
        monkeypatch.setattr(exported, "_LONGEST", 100)
        exported_with(cache)
    else:
        assert isinstance(content, bytes)
        place.write_bytes(content)
    result = cachekeeper.import_cache(settle(cache), store=store)
    assert result.notes[0].startswith(f"its {EXPORTED} is damaged, and not used: ")
    assert result.notes[1].startswith("recorded as made here: ")


def test_kernels_speak_against_what_an_export_says(cache: Path, store: Path):
    made = samples.fingerprint(gpu=Fact(None))
    made = replace(made, id=machines.identifier(made.must))
    exported_with(cache, fingerprint=plain(made))
    with pytest.raises(EnvironmentMismatch, match="was not made in the environment that it names") as caught:
        cachekeeper.import_cache(pack(cache, cache.parent / "x.tar"), store=store)
    assert caught.value.facts == ("kernels  sm_90   there no GPU",)


def test_progress_is_told(cache: Path, store: Path, tmp_path: Path):
    told: list[tuple[str, int, int]] = []
    archive = pack(cache, tmp_path / "x.tar")
    cachekeeper.import_cache(archive, store=store, progress=lambda *step: told.append(step))
    size = archive.stat().st_size
    assert told[0][0] == "Unpacking" and ("Unpacking", size, size) in told and told[-1][0] == "Packing"
    assert all(done <= total for _, done, total in told)


def test_a_library_keeps_its_bytes(store: Path, tmp_path: Path):
    write(tmp_path / "c/fxgraph/ab" / GRAPH / "x", b"\x80\x05.")
    write(tmp_path / f"c/ab/c{'a' * 51}.main.so", library := elf(os.urandom(300_000)))
    cachekeeper.import_cache(pack(tmp_path / "c", tmp_path / "x.tar"), "drafter", store=store)
    assert table(store, "drafter")[f"ab/c{'a' * 51}.main.so"] == hashlib.sha256(library).hexdigest()
