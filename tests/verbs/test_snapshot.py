"""Save a cache: what is kept, what is refused, and when a name moves."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import runs
from cachekeeper.errors import DamagedCache, EmptyCache, LocalDiskError, NotFound, SecretsFound, UnsafePath, UsageError
from cachekeeper.inductor import classify
from cachekeeper.manifest import Manifest
from cachekeeper.models import Fact, Graph
from cachekeeper.repository import open_repository
from cachekeeper.stores import MemoryStore
from cachekeeper.telemetry import Compiled, Encoder, Fallback, Frame, Log, Note, Process
from cachekeeper.testing import make_cache, make_triton_entry
from cachekeeper.verbs.snapshot import SnapshotResult
from tests import samples

from .conftest import Machine, kernels, settle, tree

pytestmark = pytest.mark.usefixtures("machine")


def save(cache: Path, store: object, name: str | None = "drafter", **options: object) -> SnapshotResult:
    return cachekeeper.snapshot(name, cache_dir=cache, store=store, wait=0, **options)


def manifest(saved: SnapshotResult, store: object) -> Manifest:
    return open_repository(store).manifest(saved.snapshot.id)


def paths(saved: SnapshotResult, store: object) -> set[str]:
    return {file.path for file in manifest(saved, store).tables.files}


@pytest.mark.parametrize("where", ["fxgraph", "aotautograd", "triton", "triton/0"])
def test_a_link_in_the_place_of_a_directory_of_entries_is_damage(cache: Path, store: Path, tmp_path: Path, where: str):
    (cache / where).rename(tmp_path / "elsewhere")
    (cache / where).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedCache) as caught:
        save(cache, store)
    assert caught.value.facts == (f"{where}  a symbolic link is in the place of a directory",)
    header = save(cache, store, allow_damaged=True).snapshot.header
    assert header.damaged == (f"{where}: a symbolic link is in the place of a directory",)


def test_files_that_are_no_entries_are_told(cache: Path, store: Path):
    (cache / "train.py").write_bytes(b"mine")
    settle(cache)
    assert save(cache, store).notes == ("1 file (4 B) is no entry of a compile cache: train.py; it is saved too",)
    (cache / "model.ckpt").write_bytes(b"12345678")
    settle(cache)
    [note] = save(cache, store).notes
    assert note.startswith("2 files (12 B) are no entries of a compile cache: model.ckpt") and "train.py" in note


# What is saved


def test_every_file_but_scratch_is_saved(cache: Path, store: Path):
    saved = save(cache, store)
    assert paths(saved, store) == set(tree(cache))
    assert saved.scratch == 2
    assert saved.skipped == () and saved.notes == ()


def test_the_header_says_what_is_in_it(cache: Path, store: Path, machine: Machine):
    header = save(cache, store).snapshot.header
    assert {kind: (n.entries, n.files) for kind, n in header.counts.items()} == {
        "fxgraph": (3, 3),
        "aotautograd": (3, 3),
        "triton": (3, 21),
        "module": (3, 3),
        "native": (3, 6),
        "autotune": (4, 4),
    }
    assert header.triton_dirs == {"triton/0": 3}
    assert header.targets == ("cuda:90",)
    assert header.cache_dir == str(cache)
    assert header.live == header.damaged == ()
    assert header.fingerprint == machine.fingerprint
    assert (header.format, header.tool) == (1, cachekeeper.__version__)


def test_the_parts_of_an_entry_belong_together(cache: Path, store: Path):
    tables = manifest(save(cache, store), store).tables
    for file in tables.files:
        assert classify(file.path) == tables.entries[file.entry]


def test_message_metrics_and_model(cache: Path, store: Path, tmp_path: Path):
    header = save(cache, store, message="größe", metrics={"tok_s": 21500}).snapshot.header
    assert header.message == "größe"
    assert header.metrics == {"tok_s": 21500.0} and isinstance(header.metrics["tok_s"], float)


def test_tags(cache: Path, store: Path):
    saved = save(cache, store, tags={"dataset": "pile-v2", "batch": 8})
    assert saved.snapshot.header.tags == {"dataset": "pile-v2", "batch": "8"}
    assert open_repository(store).header(saved.snapshot.id) == saved.snapshot
    assert save(cache, store).snapshot.header.tags == {}


TAGS_THAT_ARE_NONE = [
    *({"": "x"}, {"a=b": "x"}, {" a": "x"}, {"a b": "x"}, {"a%": "x"}, {".a": "x"}, {"a" * 101: "x"}),
    *({"a": "x" * 1000}, {"a": "x\ny"}, {"a": "\x1b[31mx"}, {"a\x1b": "x"}, dict.fromkeys(range(101))),
    *({"api_key": "x"}, {"note": "--token x"}, {"url": "https://me:x@host"}),
]


@pytest.mark.parametrize("tags", TAGS_THAT_ARE_NONE)
def test_tags_that_are_none(cache: Path, store: Path, tags: dict[str, str]):
    with pytest.raises(UsageError, match="not a tag: ") as caught:
        save(cache, store, tags=tags)
    assert caught.value.hint == "give a key and a value, as `--tag dataset=pile-v2`"
    assert not store.exists()


def test_a_secret_is_no_tag_and_is_not_repeated(cache: Path, store: Path):
    with pytest.raises(UsageError, match=r"^not a tag: 'hf\.token' looks like a secret") as caught:
        save(cache, store, tags={"hf.token": "hidden"})
    assert "hidden" not in str(caught.value)


def test_keys_of_tags_and_metrics(cache: Path, store: Path):
    tags = {"data/set": "pile v2 größe", "max-tokens": "512", "a.b_c": "", "x" * 100: "1"}
    metrics = {"tokens/sec": 1.0, "latency_p99_ms": 2.0, "mfu_%": 3.0, "größe": 4.0}
    header = save(cache, store, tags=tags, metrics=metrics).snapshot.header
    assert header.tags == tags and header.metrics == metrics


NO_METRICS = [{"x": float("nan")}, {"x": float("inf")}, *({key: 1.0} for key in ("", "a b", "a=b", "a\x1b", "a" * 101))]


@pytest.mark.parametrize("metrics", NO_METRICS)
def test_metrics_that_are_no_numbers(cache: Path, store: Path, metrics: dict[str, float]):
    with pytest.raises(UsageError, match="not a metric"):
        save(cache, store, metrics=metrics)
    assert not store.exists()


def test_modes_are_saved(cache: Path, store: Path):
    library = next(cache.glob("??/*.so"))
    library.chmod(0o755)
    modes = {file.path: file.mode for file in manifest(save(cache, store), store).tables.files}
    assert modes[library.relative_to(cache).as_posix()] == 0o755
    assert set(modes.values()) == {0o644, 0o755}


def test_headers_are_saved_on_request(cache: Path, store: Path):
    (cache / "precompiled_headers").mkdir()
    (cache / "precompiled_headers" / "x.gch").write_bytes(b"gch")
    without = save(cache, store)
    assert "precompiled_headers/x.gch" not in paths(without, store)
    assert any("--with-headers" in note for note in without.notes)
    assert not any("--with-headers" in note for note in save(cache, store).notes)
    with_them = save(cache, store, with_headers=True)
    assert "precompiled_headers/x.gch" in paths(with_them, store)
    assert not any("--with-headers" in note for note in with_them.notes)


def test_what_cannot_be_kept_is_told(cache: Path, store: Path):
    (cache / "link.so").symlink_to("/etc/passwd")
    assert save(cache, store).skipped == (("link.so", "a symbolic link"),)


def test_large_and_empty_files_are_saved(cache: Path, store: Path, tmp_path: Path):
    (cache / "other").mkdir()
    (cache / "other" / "large").write_bytes(os.urandom(9 << 20))
    (cache / "other" / "empty").write_bytes(b"")
    save(cache, store)
    cachekeeper.restore("drafter", cache_dir=tmp_path / "out", store=store)
    for name in ("large", "empty"):
        assert (tmp_path / "out/other" / name).read_bytes() == (cache / "other" / name).read_bytes()


def test_a_directory_whose_name_is_no_unicode(store: Path, tmp_path: Path):
    cache = make_cache(tmp_path / os.fsdecode(b"odd-\xff"), kernels=1, graphs=1)
    saved = save(cache, store)
    assert cachekeeper.show("drafter", store=store).snapshot.header.cache_dir == f"{tmp_path}/odd-?"
    assert cachekeeper.verify(saved.snapshot.id, store=store).ok


# Where from


def test_the_directory_that_torch_would_use_is_the_default(cache: Path, store: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    assert save(None, store).snapshot.header.cache_dir == str(cache)


def test_the_configured_directory_wins_over_torchs(
    cache: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("CACHEKEEPER_CACHE_DIR", str(cache))
    assert save(None, store).snapshot.header.cache_dir == str(cache)


def test_a_relative_directory_is_made_absolute(cache: Path, store: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(cache.parent)
    assert save(Path(cache.name), store).snapshot.header.cache_dir == str(cache)


@pytest.mark.parametrize("there", [True, False])
def test_nothing_to_save(tmp_path: Path, store: Path, there: bool):
    """C17, C22."""
    if there:
        (tmp_path / "empty").mkdir()
        (tmp_path / "empty" / "readme.txt").write_text("no entry")
    with pytest.raises(EmptyCache) as caught:
        save(tmp_path / "empty", store)
    what = "holds no entry of a compile cache" if there else "is not there"
    assert caught.value.message == f"nothing to save: {tmp_path}/empty {what}"
    assert caught.value.exit_code == 5 and caught.value.hint
    assert not store.exists()


def test_nothing_to_save_says_where_entries_are(
    cache: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_environment: Path
):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    make_triton_entry(own_environment / ".triton/cache")
    with pytest.raises(EmptyCache) as caught:
        save(tmp_path / "empty", store)
    assert any(fact.startswith(f"{cache}  ") and fact.endswith(" entries") for fact in caught.value.facts)
    assert f"{own_environment}/.triton/cache  1 entry" in caught.value.facts
    assert "cachekeeper snapshot --cache-dir /" in caught.value.hint


# Damage


def test_damage_is_refused_by_name(cache: Path, store: Path):
    kernel = kernels(cache)[0]
    next(kernel.glob("*.cubin")).write_bytes(b"")
    config = next(cache.glob("??/*.best_config"))
    config.write_bytes(b'{"a": 1}{"a": 2}')
    with pytest.raises(DamagedCache) as caught:
        save(cache, store)
    text = "\n".join(caught.value.facts)
    assert f"triton/0/{kernel.name}/triton_poi_fused_add_0.cubin  empty file" in text
    assert f"triton/0/{kernel.name}/__grp__triton_poi_fused_add_0.json  incomplete group" in text
    assert f"{config.relative_to(cache)}  JSON does not parse: Extra data" in text
    assert len(caught.value.facts) == 3
    assert "cachekeeper restore NAME" in caught.value.hint
    assert cachekeeper.ls(store=store).rows == ()
    assert list(store.glob("packs/*")) == []


def test_damage_is_saved_on_request_and_noted_for_ever(cache: Path, store: Path, tmp_path: Path):
    config = next(cache.glob("??/*.best_config"))
    config.write_bytes(b"{")
    saved = save(cache, store, allow_damaged=True)
    [line] = saved.snapshot.header.damaged
    assert line.startswith(f"{config.relative_to(cache)}: JSON does not parse")
    restored = cachekeeper.restore("drafter", cache_dir=tmp_path / "out", store=store)
    [note] = [note for note in restored.notes if "1 damaged entry" in note]
    assert f"`cachekeeper verify --dir {tmp_path / 'out'} --repair`" in note
    assert cachekeeper.verify(directory=tmp_path / "out", repair=True).dropped.keys() == {
        str(config.relative_to(cache))
    }
    assert not (tmp_path / "out" / config.relative_to(cache)).exists()


def test_damage_that_was_seen_before_is_refused_again(cache: Path, store: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cachekeeper.seen._FRESH_NS", -(10**18))
    next(cache.glob("??/*.best_config")).write_bytes(b"{")
    save(cache, store, allow_damaged=True)
    with pytest.raises(DamagedCache):
        save(cache, store)


def test_files_that_cannot_be_read_are_named(cache: Path, store: Path, monkeypatch: pytest.MonkeyPatch):
    """C28. root reads everything, so the reading fails by other means."""
    victim = next(cache.glob("??/*.py")).relative_to(cache).as_posix()
    from cachekeeper import reading

    read_into = reading.read_into

    def denied(root, live, *rest):
        if live.path == victim:
            raise PermissionError(13, os.strerror(13), live.path)
        return read_into(root, live, *rest)

    monkeypatch.setattr(reading, "read_into", denied)
    with pytest.raises(LocalDiskError, match="1 file of the cache cannot be read") as caught:
        save(cache, store)
    assert caught.value.facts == (f"{victim}  Permission denied",)
    assert caught.value.hint == f"these are this user's own: `chmod -R u+rwX {cache}`"
    assert cachekeeper.ls(store=store).rows == ()


def test_groups_that_point_elsewhere_are_put_right(cache: Path, store: Path, tmp_path: Path):
    moved = settle(Path(shutil.copytree(cache, tmp_path / "moved")))
    saved = save(moved, store)
    assert any(note.startswith("3 files pointed to another directory") for note in saved.notes)
    cachekeeper.restore("drafter", cache_dir=tmp_path / "out", store=store)
    groups = [path.read_text() for path in (tmp_path / "out").rglob("__grp__*")]
    assert len(groups) == 3 and all(f"{tmp_path}/out/triton/0/" in text for text in groups)


# Secrets

TOKEN = "hf_" + "qWmRzTvKxLpYbNcJdHsGfDaQeUiOyPt4k2"


def plant(path: Path, text: str = TOKEN) -> Path:
    """Write a secret into a file of the cache, as it comes there from the source of a job."""
    path.write_bytes(path.read_bytes() + f"\n# token = {text!r}\n".encode())
    settle(path.parents[1])
    return path


def refusal_of_secrets(cache: Path, store: object, **options: object) -> SecretsFound:
    with pytest.raises(SecretsFound, match="holds what looks like secrets, so nothing was saved") as caught:
        save(cache, store, **options)
    assert caught.value.exit_code == 3 and caught.value.code == "secrets-found"
    assert TOKEN[3:] not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("pattern", ["??/*.py", "??/*.cpp", "fxgraph/*/*/*", "aotautograd/*/*", "triton/0/*/t*.json"])
def test_a_file_with_a_secret_is_not_saved(cache: Path, store: Path, pattern: str):
    path = next(cache.glob(pattern))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + f', "note": "{TOKEN}"}}'.encode() if path.suffix == ".json" else data + TOKEN.encode())
    error = refusal_of_secrets(settle(cache), store)
    assert error.facts == (f"{path.relative_to(cache)}  a Hugging Face token",)
    assert error.hint.endswith(f"`cachekeeper snapshot drafter --cache-dir {cache} --allow-secrets`")
    assert cachekeeper.ls(store=store).rows == ()


def test_no_byte_of_it_reaches_the_store(cache: Path, monkeypatch: pytest.MonkeyPatch):
    """Not even one that no snapshot needs, whatever was read before it."""
    from cachekeeper import capture

    monkeypatch.setattr(capture, "FRAME_BYTES", 1000)
    stored: list[bytes] = []
    compress = capture.compress
    monkeypatch.setattr(capture, "compress", lambda data, *rest: (stored.append(bytes(data)), compress(data, *rest))[1])
    for path in (next(cache.glob("??/*.py")), next(cache.glob("fxgraph/*/*/*"))):
        plant(path)
    assert len(refusal_of_secrets(cache, MemoryStore()).facts) == 2
    assert stored and not any(TOKEN.encode() in data for data in stored)


def test_a_secret_of_this_process_is_known_by_its_value(cache: Path, store: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_API_KEY", "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c")
    module = plant(next(cache.glob("??/*.py")), "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c")
    assert refusal_of_secrets(cache, store).facts == (f"{module.relative_to(cache)}  the value of WANDB_API_KEY",)
    monkeypatch.delenv("WANDB_API_KEY")
    save(cache, store)


def test_secrets_are_saved_on_request_and_noted_each_time(cache: Path, store: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where nothing is read again, and in its header; and without the request, it is refused again."""
    monkeypatch.setattr("cachekeeper.seen._FRESH_NS", -(10**18))
    module = plant(next(cache.glob("??/*.py")))
    for _ in range(2):
        saved = save(cache, store, allow_secrets=True)
        fact = f"{module.relative_to(cache)}  a Hugging Face token"
        assert saved.notes[0] == f"1 file with what looks like secrets: {fact}"
        assert cachekeeper.show("drafter", store=store).snapshot.header.secrets == (fact,)
    refusal_of_secrets(cache, store)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file another user's")
@pytest.mark.parametrize("opener", ["read_into", "open_beneath"])
def test_a_file_of_another_user_in_the_place_of_one_that_was_found(
    cache: Path, store: Path, opener: str, monkeypatch: pytest.MonkeyPatch
):
    """It was a trusted user's when the directory was looked at; also of one that is read in segments."""
    from cachekeeper import capture, reading

    if opener == "open_beneath":
        monkeypatch.setattr(capture, "WHOLE_BYTES", 1)
        monkeypatch.setattr(capture, "LARGE_FILE", 1)
    module, theirs = next(cache.glob("??/*.py")), cache.parent / "theirs"
    theirs.write_bytes(module.read_bytes())
    os.chown(theirs, 54321, -1)
    open_it = getattr(reading, opener)

    def swap_and_open(*arguments: object) -> object:
        if theirs.exists():
            os.replace(theirs, module)
        return open_it(*arguments)

    monkeypatch.setattr(reading, opener, swap_and_open)
    with pytest.raises(UnsafePath) as caught:
        save(cache, store)
    assert caught.value.facts == (f"{module.relative_to(cache)}  belongs to uid 54321",)


def test_what_is_in_the_store_is_looked_at_from_elsewhere_too(
    cache: Path, store: Path, monkeypatch: pytest.MonkeyPatch
):
    plant(next(cache.glob("??/*.py")))
    save(cache, store, allow_secrets=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent / "no memory"))
    refusal_of_secrets(cache, store)


def test_what_a_compiler_made_is_not_looked_at(cache: Path, store: Path):
    plant(next(cache.glob("??/*.so")))
    plant(next(cache.glob("triton/0/*/*.ptx")))
    assert save(cache, store).notes == ()


@pytest.mark.parametrize("before", [300_000, (1 << 20) - 20])
def test_secrets_in_large_files(cache: Path, store: Path, before: int, monkeypatch: pytest.MonkeyPatch):
    """Also across the segments in which a very long one is read."""
    from cachekeeper import capture, reading

    monkeypatch.setattr(capture, "WHOLE_BYTES", 1_000_000)
    monkeypatch.setattr(reading, "SEGMENT_BYTES", 1 << 20)
    graph = next(cache.glob("fxgraph/*/*/*"))
    graph.write_bytes(b" " * before + TOKEN.encode() + b" " * 1000)
    settle(cache)
    assert refusal_of_secrets(cache, store).facts == (f"{graph.relative_to(cache)}  a Hugging Face token",)


def test_what_is_recorded_without_its_value_is_told(cache: Path, store: Path, machine: Machine):
    facts = machine.fingerprint
    machine.fingerprint = replace(
        facts,
        must={**facts.must, "environment": Fact({"TRITON_API_KEY": "sha256:1a2b3c4d", "TRITON_DEBUG": "1"})},
        recorded={**facts.recorded, "command": Fact(["train.py", "--token", "***"])},
    )
    assert save(cache, store).notes == ("recorded without what is secret: TRITON_API_KEY, a part of the command",)


# Busy caches


def test_a_cache_that_was_just_written_is_marked(tmp_path: Path, store: Path):
    header = save(make_cache(tmp_path / "new"), store).snapshot.header
    assert header.live == ("files were written in the last second",)


def test_a_cache_that_torch_compiles_into_is_marked(cache: Path, store: Path):
    """C10. Another process holds one of torch's locks."""
    lock = next((cache / "locks").iterdir())
    code = f"import fcntl, sys; f = open({str(lock)!r}); fcntl.flock(f, 2); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        saved = save(cache, store)
        process.kill()
    assert saved.snapshot.header.live == ("torch is compiling into it",)
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_entries_in_the_making_are_left_out(cache: Path, store: Path):
    lock = next((cache / "locks").iterdir())
    half = make_triton_entry(cache / "triton" / "0", seed=99)
    next(half.glob("*.cubin")).unlink()
    code = f"import fcntl, sys; f = open({str(lock)!r}); fcntl.flock(f, 2); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline()
        saved = save(cache, store)
        process.kill()
    assert "1 entry left out: changed while being read" in saved.snapshot.header.live
    assert saved.snapshot.header.entries_of("triton") == 3
    assert not any(half.name in path for path in paths(saved, store))
    assert cachekeeper.verify(saved.snapshot.id, store=store).ok


# Names


def test_a_name_points_to_what_was_saved(cache: Path, store: Path):
    saved = save(cache, store)
    assert saved.name == "drafter" and saved.name_moved
    assert open_repository(store).names() == {"drafter": saved.snapshot.id}


def test_without_a_name_there_is_only_the_id(cache: Path, store: Path):
    saved = save(cache, store, None)
    assert saved.name == "" and not saved.name_moved
    assert open_repository(store).names() == {}
    assert cachekeeper.show(saved.snapshot.id[:8], store=store).names == ()


def test_the_configured_name_is_the_default(cache: Path, store: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_NAME", "team/x")
    assert save(cache, store, None).name == "team/x"


@pytest.mark.parametrize("name", ["latest", "deadbeef", "../x", "a@{1}"])
def test_a_bad_name_is_refused_before_anything_is_done(cache: Path, store: Path, name: str):
    with pytest.raises(UsageError):
        save(cache, store, name)
    assert not store.exists()


def test_parents_are_a_chain(cache: Path, store: Path):
    ids = []
    for seed in (1, 2, 3):
        make_cache(cache, seed=seed)
        ids.append(save(cache, store).snapshot.id)
    parents = [open_repository(store).header(identifier).header.parent for identifier in ids]
    assert parents == ["", ids[0], ids[1]]
    assert save(cache, store, "other").snapshot.header.parent == ""


def shrunken(cache: Path, store: Path) -> None:
    """Save the whole cache, then take two thirds of it away."""
    save(cache, store)
    for place in ("fxgraph", "aotautograd", "triton"):
        shutil.rmtree(cache / place)
    for path in list(cache.glob("??/*.so"))[1:]:
        shutil.rmtree(path.parent)


def test_a_much_smaller_snapshot_does_not_take_over_the_name(cache: Path, store: Path):
    shrunken(cache, store)
    before = open_repository(store).names()["drafter"]
    saved = save(cache, store)
    assert not saved.name_moved and saved.shrunk_from == 19
    assert saved.snapshot.header.entries == 4
    assert open_repository(store).names()["drafter"] == before
    assert cachekeeper.verify(saved.snapshot.id, store=store).ok


def test_a_much_smaller_snapshot_takes_it_over_by_force(cache: Path, store: Path):
    shrunken(cache, store)
    saved = save(cache, store, force=True)
    assert saved.name_moved and saved.shrunk_from == 0
    assert open_repository(store).names()["drafter"] == saved.snapshot.id


def test_half_of_the_entries_is_not_much_smaller(cache: Path, store: Path):
    save(make_cache(cache.parent / "a", kernels=8, graphs=0), store)
    assert save(make_cache(cache.parent / "b", kernels=4, graphs=0), store).name_moved


def test_a_name_whose_snapshot_is_gone_can_be_moved(cache: Path, store: Path):
    first = save(cache, store)
    (store / "snapshots" / f"{first.snapshot.id}.json.zst").unlink()
    assert save(cache, store).name_moved


# Storing nothing twice


def test_an_unchanged_cache_stores_nothing_again(cache: Path, store: Path):
    first = save(cache, store)
    packs = set(store.glob("packs/*"))
    second = save(cache, store, message="again")
    assert first.stored > 0 and first.new_files > 0
    assert (second.stored, second.new_files) == (0, 0)
    assert set(store.glob("packs/*")) == packs
    assert manifest(second, store).tables == manifest(first, store).tables


def test_only_what_is_new_is_stored(cache: Path, store: Path):
    save(cache, store)
    packs = set(store.glob("packs/*"))
    (cache / "zz").mkdir()
    (cache / "zz" / "new.py").write_bytes(b"# new\n")
    second = save(cache, store)
    [pack] = set(store.glob("packs/*")) - packs
    assert second.new_files == 1 and second.stored == pack.stat().st_size < 1000


def test_the_same_bytes_are_stored_once(cache: Path, store: Path, tmp_path: Path):
    first = save(cache, store)
    copy = settle(Path(shutil.copytree(cache, tmp_path / "copy")))
    assert save(copy, store, "other").stored == 0 < first.stored


def test_full_stores_everything_again(cache: Path, store: Path):
    first = save(cache, store)
    packs = set(store.glob("packs/*"))
    second = save(cache, store, full=True)
    assert second.new_files == first.new_files
    assert len(set(store.glob("packs/*")) - packs) == len(packs)
    for pack in packs:
        pack.chmod(0o644)
        pack.write_bytes(b"")
    assert cachekeeper.verify(second.snapshot.id, store=store).ok
    assert not cachekeeper.verify(first.snapshot.id, store=store).ok


def test_a_store_in_memory(cache: Path):
    store = MemoryStore()
    assert cachekeeper.verify(save(cache, store).snapshot.id, store=store).ok


# Directories beside the cache


def test_tritons_own_directory_comes_along(cache: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    entry = make_triton_entry(tmp_path / "kernels", seed=5)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    saved = save(cache, store)
    assert saved.snapshot.header.also == {"TRITON_CACHE_DIR": str(tmp_path / "kernels")}
    assert f"also/TRITON_CACHE_DIR/{entry.name}/triton_poi_fused_add_0.cubin" in paths(saved, store)
    assert saved.snapshot.header.triton_dirs == {"triton/0": 3, "also/TRITON_CACHE_DIR": 1}
    assert any("as TRITON_CACHE_DIR" in note for note in saved.notes)


@pytest.mark.parametrize("where", ["triton/0", ".", "missing"])
def test_tritons_directory_inside_the_cache_or_gone_needs_no_mention(
    cache: Path, store: Path, monkeypatch: pytest.MonkeyPatch, where: str
):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache / where))
    assert save(cache, store).snapshot.header.also == {}


def labels(cache: Path, store: Path, *also: Path) -> list[str]:
    for number, directory in enumerate(dict.fromkeys(also)):
        if not directory.exists():
            make_triton_entry(directory, seed=number)
    saved = save(cache, store, also=also)
    assert cachekeeper.verify(saved.snapshot.id, store=store).ok
    return sorted(saved.snapshot.header.also)


def test_labels(cache: Path, store: Path, tmp_path: Path, own_environment: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "served"))
    assert labels(cache, store, tmp_path / "plain") == ["plain"]
    assert labels(cache, store, tmp_path / "with space") == ["with_space"]
    assert labels(cache, store, tmp_path / "served") == ["VLLM_CACHE_ROOT"]
    assert labels(cache, store, own_environment / ".triton/cache") == ["TRITON_CACHE_DIR"]
    assert labels(cache, store, tmp_path / "a/k", tmp_path / "b/k", tmp_path / "c/k") == ["k", "k-2", "k-3"]
    assert labels(cache, store, tmp_path / "..." / "é") == ["also"]


def test_a_long_name_gives_a_label_that_can_be_read_again(cache: Path, store: Path, tmp_path: Path):
    long = "n" * 150
    assert labels(cache, store, tmp_path / "a" / long, tmp_path / "b" / long) == ["n" * 60, "n" * 60 + "-2"]


def test_a_directory_given_twice_is_saved_once(cache: Path, store: Path, tmp_path: Path):
    assert labels(cache, store, tmp_path / "k", tmp_path / "k", tmp_path / "x/../k") == ["k"]


@pytest.mark.parametrize("where", ["", "triton", ".."])
def test_a_directory_that_overlaps_is_refused(cache: Path, store: Path, where: str):
    with pytest.raises(UsageError, match="overlaps with the cache directory"):
        save(cache, store, also=[cache / where])


def test_a_directory_that_is_not_there_is_named(cache: Path, store: Path, tmp_path: Path):
    with pytest.raises(NotFound, match=f"no directory {tmp_path}/none"):
        save(cache, store, also=[tmp_path / "none"])


# Where to


@pytest.mark.parametrize("where", ["", "store", "triton/0/store"])
def test_a_store_inside_the_cache_is_refused(cache: Path, where: str):
    before = tree(cache)
    with pytest.raises(UsageError, match="is inside"):
        save(cache, cache / where)
    assert tree(cache) == before


def test_a_store_inside_a_directory_beside_it_is_refused(cache: Path, tmp_path: Path):
    make_triton_entry(tmp_path / "kernels")
    with pytest.raises(UsageError, match="is inside"):
        save(cache, tmp_path / "kernels" / "store", also=[tmp_path / "kernels"])


def test_a_directory_of_something_else_is_no_store(cache: Path, store: Path):
    store.mkdir()
    (store / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="is not a cachekeeper store"):
        save(cache, store)


def test_nothing_in_the_cache_is_touched(cache: Path, store: Path):
    def entries() -> dict[Path, os.stat_result]:
        paths = (path for path in [cache, *cache.rglob("*")] if ".cachekeeper" not in path.parts)
        return {path: path.lstat() for path in paths}

    before = entries()
    save(cache, store)
    after = entries()
    assert before.keys() == after.keys()
    assert all(before[path].st_mtime_ns == after[path].st_mtime_ns for path in before)


def test_a_directory_that_may_not_be_written_is_saved_all_the_same(cache: Path, store: Path):
    (cache / ".cachekeeper").write_text("in the way")
    result = save(cache, store)
    assert any("do not compare" in note and ".cachekeeper" in note for note in result.notes)
    assert (cache / ".cachekeeper").read_text() == "in the way"


def test_what_another_environment_left_in_the_cache_is_told(cache: Path, store: Path, machine: Machine):
    """C48: torch was upgraded under a cache, and what the old one compiled would be saved as the new one's."""

    def left(notes: tuple[str, ...]) -> list[str]:
        return [note for note in notes if "made on another environment" in note]

    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    first = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    assert left(first.notes) == []
    machine.fingerprint = samples.fingerprint("2.12.0")
    make_triton_entry(cache / "triton" / "0", seed=99)
    settle(cache)
    entries = first.snapshot.header.entries
    told = f"{entries} of {entries + 1} entries were there in {first.snapshot.id[:8]}, "
    for _ in range(3):  # as long as they are there, whatever was saved and restored since
        [note] = left(cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0).notes)
        assert note.startswith(told)
        assert "(torch 2.11.0 -> 2.12.0): they are saved as this one's" in note
        [note] = left(cachekeeper.status(cache, store=store).notes)
        assert note == f"{told}made on another environment (torch 2.11.0 -> 2.12.0)"
        cachekeeper.restore("drafter", cache_dir=cache, store=store)
    machine.fingerprint = samples.fingerprint("2.13.0")
    notes = left(cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0).notes)
    assert [note.partition("(")[2][:22] for note in notes] == ["torch 2.12.0 -> 2.13.0", "torch 2.11.0 -> 2.13.0"]
    shutil.rmtree(cache)
    settle(make_cache(cache, seed=5))
    assert left(cachekeeper.snapshot("other", cache_dir=cache, store=store, wait=0).notes) == []


def test_another_environment_is_another_snapshot(cache: Path, store: Path, machine: Machine):
    first = save(cache, store)
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    second = save(cache, store)
    assert first.snapshot.id != second.snapshot.id
    assert second.stored == 0


# The run that it is saved after


def graph(key: str, state: str = "hit", *components: str, at: float = 100.0, cache: str = "fx") -> Compiled:
    lines = components or (f"[{key}] gm: {key}", "[0] inductor_config[a]: 1")
    return Compiled(at, "MainThread", Graph(cache, state, key, "", "step (train.py:3)", "forward", "cpu", lines))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> runs.RunInfo:
    """One that told nothing yet."""
    monkeypatch.setenv("CACHEKEEPER_RUNS", str(tmp_path / "runs"))
    return runs.begin(("python", "train.py", "--token=hf_x"), began=100.0, ended=141.0, exit_code=0)


def tell(run: runs.RunInfo, *events: object, rank: int = 0) -> None:
    encoder = Encoder()
    process = Process(rank + 1, "host", 100.0 + rank, ("train.py", "--token=hf_x"), rank=rank)
    run.directory.joinpath(f"host-{rank}.jsonl").write_bytes(b"".join(map(encoder.encode, (process, *events))))


def told(saved: SnapshotResult, store: object) -> Log:
    found = open_repository(store).telemetry(saved.snapshot)
    assert found is not None and open_repository(store).telemetry(saved.snapshot.id) == found
    return found


def test_what_a_run_told_is_kept_with_the_snapshot(cache: Path, store: Path, run: runs.RunInfo):
    frame, fallback, note = Frame(103.0, "w", "f", 2.0), Fallback(104.0, "w", "f", "why"), Note(105.0, "w", "differs")
    tell(run, graph("f1", "miss"), graph("", "bypass", "x", cache="aot"), frame, note)
    tell(run, graph("f1", at=101), graph("f2", at=102), graph("f3", at=103), fallback, rank=1)
    saved = save(cache, store, run=run)
    log = told(saved, store)
    assert [(event.graph.key, event.graph.state, event.thread) for event in log.compiled] == [
        ("f1", "miss", "rank 0: MainThread"),
        ("", "bypass", "rank 0: MainThread"),
        ("f2", "hit", "rank 1: MainThread"),
        ("f3", "hit", "rank 1: MainThread"),
    ]
    assert log.compiled[2].graph == graph("f2").graph and log.process.argv == ()
    assert (log.frames[0].seconds, log.fallbacks[0].thread, log.notes[0].text) == (2.0, "rank 1: w", "differs")
    summary = saved.snapshot.header.run
    assert summary is not None and summary.command == ("python", "train.py", "--token=***")
    assert (summary.id, summary.began, summary.seconds) == (run.id, "1970-01-01T00:01:40Z", 41.0)
    assert (summary.hits, summary.misses, summary.bypasses, summary.fallbacks) == (3, 1, 1, 1)
    assert (summary.processes, summary.crashed, summary.compiling) == (2, 2, 2.0)


def test_what_was_known_before_is_kept_as_far_as_it_is_still_there(cache: Path, store: Path, run: runs.RunInfo):
    there, autograd = (next(cache.glob(f"{kind}/*")).parent.name for kind in ("fxgraph/*/*", "aotautograd/*"))
    before = (graph(there, "miss", at=5), graph(autograd, at=6, cache="aot"), graph("fgone", at=7), graph("f2", at=8))
    runs.keep_known(run, Log(Process(9, "old", 5.0), before))
    bare = graph("f2")
    tell(run, replace(bare, graph=replace(bare.graph, components=())))
    log = told(save(cache, store, run=run), store)
    # The components of f2 had no room in this run; an earlier one had them.
    assert [event.graph.key for event in log.compiled] == ["f2", there, autograd]
    assert log.compiled[0] == bare
    again = save(cache, store, run=replace(run, directory=run.directory.parent / "gone"))
    assert again.snapshot.header.telemetry is None and again.snapshot.header.run is not None


def test_what_others_told_is_kept_without_a_run(cache: Path, store: Path):
    saved = save(cache, store, told=[Log(Process(9, "host", 5.0), (graph("f1", "miss"),))])
    assert [event.graph for event in told(saved, store).compiled] == [graph("f1", "miss").graph]
    assert saved.snapshot.header.run is None


def test_without_a_run_nothing_is_told(cache: Path, store: Path):
    saved = save(cache, store)
    assert saved.snapshot.header.telemetry is None and saved.snapshot.header.run is None
    assert open_repository(store).telemetry(saved.snapshot) is None


def test_telemetry_of_much_loses_what_is_least_missed(cache: Path, store: Path, run: runs.RunInfo, monkeypatch):
    monkeypatch.setattr("cachekeeper.runs.merging.LIMIT", 30_000)
    long = [
        graph(f"f{n}", "hit" if n % 2 else "miss", f"[{n}] gm: {n:04}" + "x" * 1000, at=100.0 + n) for n in range(40)
    ]
    tell(run, *long, Frame(300.0, "w", "f", 2.0))
    saved = save(cache, store, run=run)
    log = told(saved, store)
    assert saved.snapshot.header.telemetry is not None and 25_000 < saved.snapshot.header.telemetry.raw <= 30_000
    assert len(log.compiled) == 40 and log.frames
    with_components = [event.graph for event in log.compiled if event.graph.components]
    assert {graph.state for graph in with_components} == {"miss"} and len(with_components) > 10
    monkeypatch.setattr("cachekeeper.runs.merging.LIMIT", 4_000)
    log = told(save(cache, store, run=run), store)
    assert log.frames == () and 5 < len(log.compiled) < 40
    assert {event.graph.state for event in log.compiled} == {"miss"}
    assert log.compiled[-1].graph.key == "f38"
