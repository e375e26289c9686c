"""What there is, what it can be called by, and would torch use it here."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import NotFound
from cachekeeper.repository import open_repository
from cachekeeper.testing import make_cache
from cachekeeper.verbs.ls import ls_trash
from tests import samples

from .conftest import Machine, settle

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def three(tmp_path: Path, store: Path, machine: Machine) -> list[str]:
    """Ids of three snapshots: drafter twice, the second on another environment and called best too; one unnamed."""
    cache = tmp_path / "inductor"

    def save(seed: int, name: str | None) -> str:
        settle(make_cache(cache, seed=seed, kernels=1, graphs=1))
        return cachekeeper.snapshot(name, cache_dir=cache, store=store).snapshot.id

    first = save(1, "drafter")
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    second = save(2, "drafter")
    cachekeeper.snapshot("best", cache_dir=cache, store=store)
    machine.fingerprint = samples.fingerprint()
    third = save(3, None)
    return [first, second, third]


def names(store: Path, name: str | None = None) -> dict[str, tuple[str, ...]]:
    return {row.snapshot.id: row.names for row in cachekeeper.ls(name, store=store).rows}


def test_newest_first_with_every_name(store: Path, three: list[str]):
    found = cachekeeper.ls(store=store)
    assert found.store == store.as_uri() and found.unreadable == ()
    by_id = names(store)
    assert by_id[three[0]] == ("drafter@{1}",)
    assert by_id[three[1]] == ("drafter",)
    assert by_id[three[2]] == ()
    assert (found.rows[0].snapshot.id, found.rows[-1].snapshot.id) == (three[2], three[0])


def test_which_would_be_used_here(store: Path, three: list[str]):
    fits = {row.snapshot.id: row.here.fits for row in cachekeeper.ls(store=store).rows}
    assert fits[three[0]] and fits[three[2]] and not fits[three[1]]


def test_the_history_of_a_name(store: Path, three: list[str]):
    assert names(store, "drafter") == {three[1]: ("drafter",), three[0]: ("drafter@{1}",)}


def test_no_such_name(store: Path, three: list[str]):
    with pytest.raises(NotFound) as caught:
        cachekeeper.ls("draftr", store=store)
    assert caught.value.hint == "did you mean `drafter`?"


def test_an_id_is_no_name(store: Path, three: list[str]):
    with pytest.raises(NotFound, match="is no name") as caught:
        cachekeeper.ls(three[0][:8], store=store)
    assert caught.value.hint == f"see one snapshot with `cachekeeper show {three[0][:8]}`"


def test_a_name_that_points_to_one_snapshot_twice(store: Path, tmp_path: Path):
    settle(make_cache(tmp_path / "inductor"))
    saved = cachekeeper.snapshot("drafter", cache_dir=tmp_path / "inductor", store=store).snapshot.id
    open_repository(store).move_name("drafter", saved)
    assert names(store) == {saved: ("drafter", "drafter@{1}")}


def test_what_cannot_be_read_is_told(store: Path, three: list[str]):
    path = store / "snapshots" / f"{three[0]}.json.zst"
    path.chmod(0o644)
    path.write_bytes(b"garbage")
    found = cachekeeper.ls(store=store)
    assert len(found.rows) == 3 and found.unreadable[0].startswith(three[0][:8])
    assert cachekeeper.ls("drafter", store=store).unreadable == found.unreadable
    assert cachekeeper.ls("best", store=store).unreadable == ()


def test_no_store(store: Path):
    with pytest.raises(NotFound) as caught:
        cachekeeper.ls(store=store)
    assert "cachekeeper snapshot NAME" in caught.value.hint


# Removed snapshots


def test_the_history_of_a_name_with_what_was_removed(store: Path, three: list[str]):
    cachekeeper.rm(three[0], store=store)
    found = cachekeeper.ls("drafter", store=store)
    assert [row.snapshot.id for row in found.rows] == [three[1]] and found.unreadable == ()
    [row] = found.removed
    assert (row.removal.snapshot, row.names, row.removal.gone) == (three[0], ("drafter@{1}",), False)
    assert cachekeeper.ls(store=store).removed == cachekeeper.ls("best", store=store).removed == ()
    cachekeeper.sweep(apply=True, empty_trash=True, store=store)
    [row] = cachekeeper.ls("drafter", store=store).removed
    assert (row.removal.snapshot, row.removal.gone) == (three[0], True)


def test_a_name_of_which_nothing_is_left(store: Path, three: list[str]):
    cachekeeper.rm(three, force=True, store=store)
    found = cachekeeper.ls("drafter", store=store)
    assert found.rows == () and {row.removal.snapshot: row.names for row in found.removed} == {
        three[0]: ("drafter@{1}",),
        three[1]: ("drafter",),
    }


def test_what_is_removed_and_there_is_there(store: Path, three: list[str]):
    cachekeeper.rm(three[0], store=store)
    [kept] = (store / "trash" / three[0]).iterdir()
    removal = kept.read_bytes()
    cachekeeper.undo(store=store)
    kept.parent.mkdir(exist_ok=True)
    kept.write_bytes(removal)  # as an undo leaves it that is killed at its end
    found = cachekeeper.ls("drafter", store=store)
    assert len(found.rows) == 2 and found.removed == ()


def test_the_trash_the_last_removed_first(store: Path, three: list[str]):
    assert ls_trash(store=store).rows == ()
    cachekeeper.rm(three[0], reason="old", store=store)
    open_repository(store).move_name("best", three[1])
    cachekeeper.rm(three[1], force=True, store=store)
    cachekeeper.rm(three[2], store=store)
    found = ls_trash(store=store)
    assert found.store == store.as_uri()
    assert [(row.removal.snapshot, row.names, row.damage) for row in found.rows] == [
        (three[2], (), ""),
        (three[1], ("best", "drafter"), ""),
        (three[0], ("drafter",), ""),
    ]
    assert found.rows[2].removal.reason == "old"
    assert [row.removal.snapshot for row in ls_trash("best", store=store).rows] == [three[1]]
    with pytest.raises(NotFound):
        ls_trash(store=store / "none")


def test_a_damaged_manifest_in_the_trash(store: Path, three: list[str]):
    path = store / "snapshots" / f"{three[0]}.json.zst"
    path.chmod(0o644)
    path.write_bytes(b"garbage")
    cachekeeper.rm(three[0], store=store)
    [row] = ls_trash(store=store).rows
    assert row.names == () and row.damage
