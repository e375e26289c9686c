"""A writer beside sweeps: what it passes over, what it adopts, and how it ends."""

from __future__ import annotations

import pytest

from cachekeeper import leases, writing
from cachekeeper.condemned import Condemned, Doom
from cachekeeper.condemned import write as write_list
from cachekeeper.errors import Busy, DamagedStore
from cachekeeper.leases import Kind
from cachekeeper.repository import Repository, locations
from tests.gc.scripted import ScriptedStore, packs_of, put, repository, save, store

__all__ = ["repository", "store"]


def condemn(store: ScriptedStore, *packs: str) -> None:
    assert write_list(store, Condemned(1, {pack: Doom(1, 0.0) for pack in packs}))


def kinds(store: ScriptedStore) -> list[str]:
    return sorted(lease.kind.value for lease in leases.listed(store))


def test_what_is_condemned_is_passed_over(repository: Repository, store: ScriptedStore):
    good, bad = put(store, 0), put(store, 1)
    condemn(store, bad.id)
    with repository.writing() as work:
        assert {place.pack for place in locations(repository.store, work.condemned).values()} == {good.id}
        assert not work.claim([good.id]) and kinds(store) == ["write"]
    assert {place.pack for place in locations(repository.store).values()} == {good.id, bad.id}
    assert bad.id not in packs_of(repository, save(repository, 0, 1))


def test_the_lease_is_older_than_the_list(repository: Repository, store: ScriptedStore):
    """What is condemned between the two is seen, and kept too."""
    pack = put(store, 0)
    store.before("create", "leases/", lambda: condemn(store, pack.id))
    with repository.writing() as work:
        assert work.condemned.packs.keys() == {pack.id}
        [lease] = leases.listed(store)
        assert lease.generation == 0 and lease.blocks(1)


def test_what_is_condemned_is_adopted_once(repository: Repository, store: ScriptedStore):
    pack = put(store, 1)
    condemn(store, pack.id)
    with repository.writing() as work:
        assert work.claim([pack.id]) and work.claim([pack.id])
        assert kinds(store) == ["exclusive", "write"]
    assert not kinds(store)


@pytest.mark.parametrize("line", [b"damaged", None])
def test_it_waits_for_a_sweep_and_for_a_lease_that_may_be_one(
    repository: Repository, store: ScriptedStore, monkeypatch: pytest.MonkeyPatch, line: bytes | None
):
    pack = put(store, 1)
    condemn(store, pack.id)
    slept: list[float] = []

    def ends(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            store.delete("leases/" + "a" * 32)

    monkeypatch.setattr(writing.time, "sleep", ends)
    with repository.writing() as work:
        sweep = leases.Lease("", Kind.SWEEP, 1, "somebody", "now", ("x", "y", "1", "1"))
        store.create("leases/" + "a" * 32, line or leases._encode(sweep))
        work.claim([pack.id])
        assert len(slept) == 3


def test_a_sweep_that_does_not_end(repository: Repository, store: ScriptedStore):
    pack = put(store, 1)
    condemn(store, pack.id)
    with (
        leases.hold(store, Kind.SWEEP, 1),
        pytest.raises(Busy, match="a sweep is deleting from memory://memory") as refused,
        writing.at_work(store, patience=0) as work,
    ):
        work.claim([pack.id])
    assert refused.value.facts[0].startswith("since 2") and not kinds(store)


def test_what_is_not_there_is_refused(repository: Repository, store: ScriptedStore):
    pack = put(store, 1)
    with repository.writing() as work:
        work.require([pack.id])
        work.require([])
        with pytest.raises(DamagedStore, match="2 packs vanished") as refused:
            work.require(["ab" * 32, pack.id, "cd" * 32])
        assert list(refused.value.facts) == ["ab" * 32, "cd" * 32]


def test_a_commit_without_work_is_at_work_itself(repository: Repository, store: ScriptedStore):
    seen: list[list[str]] = []
    store.before("create", "snapshots/", lambda: seen.append(kinds(store)))
    save(repository, 0)
    assert seen == [["write"]]


def test_a_manifest_that_was_there_is_not_taken_back(
    repository: Repository, store: ScriptedStore, monkeypatch: pytest.MonkeyPatch
):
    """Somebody else wrote it: whoever came too late deletes its own only."""
    saved = save(repository, 0)
    [pack] = packs_of(repository, saved)
    clock = [0.0]
    monkeypatch.setattr(leases, "_seconds_of_this_boot", lambda: clock[0])

    def late() -> None:
        clock[0] = 7 * 3600.0
        store.delete(f"packs/{pack}")

    data = store.read(f"snapshots/{saved}.json.zst")
    store.before("create", "snapshots/", late)
    with repository.writing() as work, pytest.raises(DamagedStore, match="1 pack vanished"):
        repository.create_manifest(saved, data, [pack], work)
    assert repository.has(saved)


@pytest.mark.parametrize("kind", [Kind.WRITE, Kind.EXCLUSIVE])
def test_either_lease_taken_away_is_noticed(repository: Repository, store: ScriptedStore, kind: Kind):
    pack = put(store, 1)
    condemn(store, pack.id)
    with repository.writing() as work:
        work.claim([pack.id])
        store.delete(next(lease.key for lease in leases.listed(store) if lease.kind is kind))
        seen: list[list[str]] = []
        store.before("list", "packs/", lambda: seen.append(kinds(store)))
        work.confirm([pack.id])
    assert seen and seen[0].count("exclusive") == (1 if kind is Kind.EXCLUSIVE else 2)
