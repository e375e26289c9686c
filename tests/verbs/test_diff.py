"""What `diff` takes, and what it refuses; what it finds is tested in tests/pairs and tests/diffing."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import DamagedStore, NotFound
from cachekeeper.models import Fact
from tests import samples

from .conftest import settle

PAIRS = Path(__file__).parents[1] / "golden/pairs"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with an H200; nothing is looked at."""
    for verb in ("snapshot", "diff"):
        module = import_module(f"cachekeeper.verbs.{verb}")
        monkeypatch.setattr(module, "fingerprint", lambda **_: samples.fingerprint())


@pytest.fixture
def saved(store: Path, cache: Path) -> Path:
    """A store with two snapshots of one name; the second has lost a kernel and a graph."""
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, metrics={"tok_s": 21500})
    for pattern in ("triton/0/*", "fxgraph/*/*"):
        shutil.rmtree(next(cache.glob(pattern)))
    cachekeeper.snapshot("drafter", cache_dir=settle(cache), store=store, metrics={"tok_s": 12800})
    return store


def entries(found: cachekeeper.verbs.diff.DiffResult) -> tuple[int, int]:
    counts = found.difference.coverage.entries.values()
    return sum(one for one, _ in counts), sum(other for _, other in counts)


def test_a_name_alone_is_its_snapshot_before_and_its_last(saved: Path):
    found = cachekeeper.diff("drafter", store=saved)
    assert (found.difference.a.label, found.difference.b.label) == ("drafter@{1}", "drafter")
    assert found.differs and entries(found)[0] == entries(found)[1] + 2
    assert found.difference.verdict.startswith("drafter is slower by 40 % (tok_s 21,500 -> 12,800): ")


def test_ids_and_latest_are_taken(saved: Path):
    ids = [snapshot.snapshot.id for snapshot in cachekeeper.ls(store=saved).rows]
    assert not cachekeeper.diff(ids[0][:10], "latest", store=saved).differs
    assert cachekeeper.diff("drafter@{1}", ids[0], store=saved).differs


def test_a_live_directory_against_a_snapshot(saved: Path, cache: Path):
    same = cachekeeper.diff("drafter", str(cache), store=saved)
    assert not same.differs and same.difference.verdict.startswith("no difference")
    shutil.rmtree(next(cache.glob("triton/0/*")))
    assert entries(cachekeeper.diff("drafter", str(cache), store=saved))[1] == entries(same)[1] - 1


def test_two_live_directories_need_no_store(cache: Path, tmp_path: Path):
    other = shutil.copytree(cache, tmp_path / "other")
    assert not cachekeeper.diff(str(cache), str(other), store=tmp_path / "none").differs


def test_a_name_with_a_slash_wins_over_a_directory(saved: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    cachekeeper.snapshot("team/drafter", cache_dir=cache, store=saved)
    monkeypatch.chdir(cache.parent)
    shutil.copytree(cache, cache.parent / "team/drafter")
    assert cachekeeper.diff("team/drafter", "./team/drafter", store=saved).difference.a.id


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nothing", "no snapshot"),
        ("drafter@{7}", "drafter"),
        ("0123456789", "no snapshot"),
        ("./nowhere", "./nowhere is no directory, and no name of a snapshot"),
        ("./file", "./file is a file, and no directory"),
        ("./empty", "./empty holds no entry of a compile cache"),
        ("/usr/share/doc", "/usr/share/doc holds no entry of a compile cache"),
    ],
)
def test_what_is_not_there_is_told(saved: Path, monkeypatch: pytest.MonkeyPatch, reference: str, words: str):
    monkeypatch.chdir(saved.parent)
    Path("file").touch()
    Path("empty").mkdir()
    with pytest.raises(NotFound) as raised:
        cachekeeper.diff("drafter", reference, store=saved)
    assert words in raised.value.message and raised.value.exit_code == 5


def test_a_directory_without_a_slash_is_told_how_to_be_written(saved: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(saved.parent)
    with pytest.raises(NotFound) as raised:
        cachekeeper.diff("drafter", "inductor", store=saved)
    assert raised.value.hint == "for the directory of that name write ./inductor"


def test_a_python_without_torch_says_nothing_of_a_directorys_environment(
    saved: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    unknown = samples.fingerprint()
    unknown = replace(unknown, must={**unknown.must, "torch": Fact(unknown="torch is not installed in this Python")})
    monkeypatch.setattr("cachekeeper.verbs.diff.fingerprint", lambda **_: unknown)
    found = cachekeeper.diff("drafter", str(cache), store=saved)
    assert found.difference.b.fingerprint is None and found.difference.environment.facts == ()
    assert not found.differs


def test_an_id_alone_has_nothing_before_it(saved: Path):
    with pytest.raises(NotFound, match="no name"):
        cachekeeper.diff("drafter@{1}", store=saved)


def test_a_damaged_manifest_is_told(saved: Path):
    path = next((saved / "snapshots").iterdir())
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DamagedStore):
        cachekeeper.diff("drafter@{1}", path.name[:64], store=saved)


def test_a_damaged_pack_is_told_and_the_rest_compared(tmp_path: Path):
    store = shutil.copytree(PAIRS, tmp_path / "pairs")
    for path in (store / "packs").iterdir():
        path.chmod(0o600)
        data = bytearray(path.read_bytes())
        data[200:-2000:997] = bytes(len(data[200:-2000:997]))
        path.write_bytes(data)
    found = cachekeeper.diff("default", "warps", store=store).difference
    assert any("not read" in note for note in found.notes)
    assert found.coverage.entries["fxgraph"] == (2, 2)


def test_one_kernel():
    found = cachekeeper.diff("default", "warps", store=PAIRS, kernel="softcap")
    assert [pair.b.name for pair in found.difference.kernels.changed] == ["softcap_0"]
    assert found.differs and found.same == ()


def test_a_kernel_that_is_the_same():
    found = cachekeeper.diff("default", "warps", store=PAIRS, kernel="triton_red_fused_sum_view_1")
    assert not found.differs and [pair.b.name for pair in found.same] == ["triton_red_fused_sum_view_1"]


def test_a_kernel_that_there_is_not():
    with pytest.raises(NotFound) as raised:
        cachekeeper.diff("default", "warps", store=PAIRS, kernel="softcup_0")
    assert "softcap_0" in raised.value.facts


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # a test process may have threads
def test_a_process_for_the_second_side_finds_the_same(monkeypatch: pytest.MonkeyPatch):
    alone = cachekeeper.diff("tf32", "ieee", store=PAIRS)
    monkeypatch.setattr("cachekeeper.verbs.diff._LARGE", 0)
    assert cachekeeper.diff("tf32", "ieee", store=PAIRS, fork=True) == alone


def test_nothing_is_written(saved: Path, cache: Path):
    before = {path: path.stat().st_mtime_ns for root in (saved, cache) for path in root.rglob("*")}
    cachekeeper.diff("drafter", str(cache), store=saved)
    assert before == {path: path.stat().st_mtime_ns for root in (saved, cache) for path in root.rglob("*")}


def test_progress_goes_to_its_end_once(saved: Path):
    told: list[tuple[int, int]] = []
    cachekeeper.diff("drafter", store=saved, progress=lambda stage, done, total: told.append((done, total)))
    assert told == sorted(told) and all(done <= total for done, total in told)
