"""Snapshots that are in a store, signed."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import DamagedStore, NotFound, ReadOnly, Unsigned, UsageError
from cachekeeper.repository import open_repository
from cachekeeper.signatures import Claim
from cachekeeper.stores import MemoryStore

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return cachekeeper.keygen(tmp_path / "key").file


@pytest.fixture
def two(cache: Path, store: Path) -> list[str]:
    """Where drafter pointed, oldest first."""
    saved = [cachekeeper.snapshot("drafter", cache_dir=cache, store=store, message=str(n)) for n in range(2)]
    return [each.snapshot.id for each in saved]


def signatures(store: Path) -> list[str]:
    return sorted(str(path.relative_to(store)) for path in (store / "signatures").rglob("*") if path.is_file())


def test_a_name_and_what_it_points_to(store: Path, two: list[str], key: Path, tmp_path: Path):
    result = cachekeeper.sign("drafter", key=key, store=store)
    assert result.signed == (Claim(two[1]), Claim(two[1], "drafter", 2)) and result.already == ()
    assert result.store == store.as_uri()
    again = cachekeeper.sign(["drafter", two[1]], key=key, store=store)
    assert again.signed == again.already == result.signed and again.key == result.key
    restored = cachekeeper.restore("drafter", cache_dir=tmp_path / "a", store=store, require_signature=f"{key}.pub")
    assert restored.signed_by == result.key and restored.snapshot.id == two[1]


def test_an_id_alone(store: Path, two: list[str], key: Path, tmp_path: Path):
    result = cachekeeper.sign(two[1][:8], key=key, store=store)
    assert result.signed == (Claim(two[1]),)
    options = {"cache_dir": tmp_path / "a", "store": store, "require_signature": f"{key}.pub"}
    assert cachekeeper.restore(two[1][:8], **options).signed_by == result.key
    with pytest.raises(Unsigned):
        cachekeeper.restore("drafter", **options)


def test_where_a_name_pointed_before(store: Path, two: list[str], key: Path):
    result = cachekeeper.sign(["drafter@{1}", "drafter@{0}"], key=key, store=store)
    moves = [Claim(two[0], "drafter", 1), Claim(two[1], "drafter", 2)]
    assert result.signed == (Claim(two[0]), moves[0], Claim(two[1]), moves[1])


def test_a_snapshot_is_signed_as_it_is_saved(cache: Path, store: Path, key: Path):
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, sign=key)
    assert saved.signed_by == cachekeeper.sign("drafter", key=key, store=store).key
    assert len(signatures(store)) == 2
    unnamed = cachekeeper.snapshot(cache_dir=cache, store=store, sign=key, message="without a name")
    assert f"signatures/{unnamed.snapshot.id}/{unnamed.signed_by}" in signatures(store) and len(signatures(store)) == 3


def test_a_name_that_was_not_moved_is_not_signed(cache: Path, store: Path, key: Path):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store)
    for place in ("fxgraph", "aotautograd", "triton"):
        (cache / place).rename(cache.parent / place)
    next(cache.glob("??/*.best_config")).unlink()
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, sign=key, wait=0)
    assert not saved.name_moved and signatures(store) == [f"signatures/{saved.snapshot.id}/{saved.signed_by}"]


def test_a_wrong_key_is_noticed_before_anything_is_saved(cache: Path, store: Path, key: Path, tmp_path: Path):
    for wrong in (tmp_path / "none", f"{key}.pub"):
        with pytest.raises(UsageError):
            cachekeeper.snapshot("drafter", cache_dir=cache, store=store, sign=wrong)
    assert not store.exists()


def test_the_configured_key(cache: Path, store: Path, key: Path, monkeypatch: pytest.MonkeyPatch):
    assert cachekeeper.snapshot("drafter", cache_dir=cache, store=store).signed_by == ""
    with pytest.raises(UsageError, match="there is no signing key"):
        cachekeeper.sign("drafter", store=store)
    monkeypatch.setenv("CACHEKEEPER_SIGNING_KEY", str(key))
    signed_by = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, message="2").signed_by
    assert signed_by == cachekeeper.sign("drafter", store=store).key != ""


def test_nothing_is_signed_where_one_is_wrong(store: Path, two: list[str], key: Path):
    manifest = store / "snapshots" / f"{two[0]}.json.zst"
    manifest.chmod(0o644)
    manifest.write_bytes(b"garbage")
    for references, error in (
        (["drafter", "draftr"], NotFound),
        (["drafter", two[0]], DamagedStore),
        (["drafter", "drafter@{1}"], DamagedStore),
        ([], UsageError),
    ):
        with pytest.raises(error):
            cachekeeper.sign(references, key=key, store=store)
    with pytest.raises(NotFound):
        cachekeeper.sign("drafter", key=key, store=MemoryStore())
    assert signatures(store) == []


def test_a_store_that_must_not_be_written(store: Path, two: list[str], key: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_READ_ONLY", "1")
    with pytest.raises(ReadOnly):
        cachekeeper.sign("drafter", key=key, store=store)


def test_a_dry_run_checks_and_remembers_nothing(store: Path, two: list[str], key: Path, tmp_path: Path):
    options = {"cache_dir": tmp_path / "a", "store": store, "require_signature": f"{key}.pub", "dry_run": True}
    with pytest.raises(Unsigned):
        cachekeeper.restore("drafter", **options)
    cachekeeper.sign("drafter", key=key, store=store)
    assert cachekeeper.restore("drafter", **options).signed_by
    open_repository(store).store.delete("names/drafter/00000002")
    cachekeeper.sign("drafter", key=key, store=store)
    assert cachekeeper.restore("drafter", **options).snapshot.id == two[0]
